// Models by name. Each is one function returning a Module; names of the parts give PyTorch's parameter names.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/layers/layers.h"

namespace trireme {

/// Sizes of a transformer, the settings arch.*; 0, "" and -1 stand for the model's own.
struct ArchOptions {
  Index layers = 0,             ///< blocks
      heads = 0,                ///< of the queries; divides width
      kv_heads = 0,             ///< of keys and values; divides heads
      width = 0,                ///< C: elements of a token
      hidden = 0,               ///< of the MLP between
      positions = 0,            ///< most tokens of a sample, where positions are learned; 0: of text those of a sample
      vocabulary = 0;           ///< rows of the embedding, at least the tokenizer's; 0: as many as it has
  double dropout = -1;          ///< of embeddings, attention and residuals, in [0, 1)
  std::int64_t bias = -1,       ///< 0, 1: whether linear layers and norms have biases
      tied = -1;                ///< 0, 1: whether the embedding is the head's weight, too
  std::string activation = "";  ///< of the MLP: gelu, gelu_tanh, relu, silu
  bool operator==(const ArchOptions&) const = default;  ///< member by member
};
/// Options that a model is built from.
struct ModelOptions {
  /// Of one sample: [height, width, channels], pixels as a Loader scales them; of text [tokens], ids.
  Shape input{28, 28, 1};
  Index classes = 10;     ///< of the logits [N, classes] that a model returns; of text the vocabulary: [N, T, classes]
  ArchOptions arch = {};  ///< of transformers; others refuse any
  /// Residual blocks keep only their input and run again in backward (framework/layers/recompute.h).
  bool recompute = false;
  /// Of activations behind an embedding of ids: bf16, f16 over f32 weights; none: the weights'. Those of models of
  /// pixels have the type of the pixels.
  std::optional<DType> dtype = {};
  bool zero_gamma = false;  ///< residual blocks start as the identity: the last gamma of each is 0 (Goyal et al. 2017)
};
/// A registered model.
struct ModelRow {
  std::string name;                                 ///< on the command line: "resnet50"
  std::function<Module(const ModelOptions&)> make;  ///< builds it; throws Error for an input that it cannot take
  ModelOptions usual = {};                          ///< the input and classes of its paper
  bool sized = false;                               ///< it takes ModelOptions::arch; others throw Error for any
  bool text = false;                                ///< the input are token ids, i64 [N, T]; else pixels
  bool dense = false;                               ///< a result for each pixel, [N, spatial..., classes]
  /// Hugging Face's config.json of it, to lie beside exported weights; empty: Hugging Face has no such model.
  std::function<std::string(const ModelOptions&)> config = {};
};
/// Every model that was added, by name.
const std::vector<ModelRow>& models();
/// Adds a model; the file that defines one does so before main:
///   const bool added = add_model({"lenet5", lenet5});
/// Throws Error when there is one of this name.
bool add_model(ModelRow);
/// The row of a name. Throws Error with "did you mean" for an unknown one.
const ModelRow& model_row(const std::string& name);
/// Builds a model by name. Throws Error for an unknown name, for ModelOptions::arch of a model that takes none, and as
/// ModelRow::make.
Module make_model(const std::string& name, const ModelOptions& options);
/// For its usual input and classes.
inline Module make_model(const std::string& name) { return model_row(name).make(model_row(name).usual); }

}  // namespace trireme
