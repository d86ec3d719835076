// The registry of models by name. A model is a function that returns a Module; its parts have PyTorch's parameter
// names.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/layers/layers.h"

namespace trireme {

/// Sizes of a transformer (settings arch.*); 0, "" and -1 select the model's default.
struct ArchOptions {
  Index layers = 0,             ///< number of blocks
      heads = 0,                ///< query heads; must divide width
      kv_heads = 0,             ///< key and value heads; must divide heads
      width = 0,                ///< C: elements of a token
      hidden = 0,               ///< width of the MLP's hidden layer
      experts = 0,              ///< MLPs of a block, of which a token uses some (gpt2, llama); 0: the model's usual
      expert_top_k = 0,         ///< experts of a token; 0: the model's usual
      positions = 0,            ///< maximum tokens per sample with learned positions; 0: for text, the sample's length
      vocabulary = 0;           ///< rows of the embedding, at least the number of the tokenizer's ids; 0: that number
  double expert_balance = -1,   ///< weight of the experts' balance loss; -1: the model's usual
      dropout = -1;             ///< probability on embeddings, attention and residual branches, in [0, 1)
  std::int64_t bias = -1,       ///< 0, 1: whether linear layers and norms have biases
      tied = -1;                ///< 0, 1: whether the head shares the embedding's weight
  std::string activation = "";  ///< of the MLP: gelu, gelu_tanh, relu, silu
  bool operator==(const ArchOptions&) const = default;  ///< member by member
};
/// Options that a model is built from.
struct ModelOptions {
  /// Shape of one sample: [height, width, channels], pixels as scaled by a Loader; for text [tokens], ids.
  Shape input{28, 28, 1};
  Index classes = 10;     ///< logits are [N, classes]; for text the vocabulary, and logits are [N, T, classes]
  ArchOptions arch = {};  ///< for transformers; other models throw Error if any is set
  /// Activation checkpointing: residual blocks store only their input and run again in backward
  /// (framework/layers/recompute.h).
  bool recompute = false;
  /// Type of activations after an embedding of ids: bf16 or f16 with f32 weights; none: type of the weights. In models
  /// of pixels activations have the type of the pixels.
  std::optional<DType> dtype = {};
  bool zero_gamma = false;  ///< residual blocks start as the identity: the last gamma of each is 0 (Goyal et al. 2017)
};
/// A registered model.
struct ModelRow {
  std::string name;                                 ///< name on the command line: "resnet50"
  std::function<Module(const ModelOptions&)> make;  ///< builds the model; throws Error for an unsupported input
  ModelOptions usual = {};                          ///< input and classes as in its paper
  bool sized = false;  ///< whether it supports ModelOptions::arch; other models throw Error if any is set
  bool text = false;   ///< true: inputs are token ids, i64 [N, T]; false: pixels
  bool dense = false;  ///< whether logits are per pixel, [N, spatial..., classes]
  /// Makes Hugging Face's config.json for exported weights; null: Hugging Face has no such model.
  std::function<std::string(const ModelOptions&)> config = {};
};
/// All registered models, by name.
const std::vector<ModelRow>& models();
/// Registers a model. The source file of a model does this before main:
///   const bool added = add_model({"lenet5", lenet5});
/// Throws Error if the name exists.
bool add_model(ModelRow);
/// The model with this name. Throws Error with "did you mean" for an unknown name.
const ModelRow& model_row(const std::string& name);
/// Builds a model by name. Throws Error for an unknown name, for ModelOptions::arch of a model that does not support
/// it, and as ModelRow::make.
Module make_model(const std::string& name, const ModelOptions& options);
/// As above, with ModelRow::usual.
inline Module make_model(const std::string& name) { return model_row(name).make(model_row(name).usual); }

}  // namespace trireme
