// Models by name. Each is one function returning a Module; names of the parts give PyTorch's parameter names.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/layers/layers.h"

namespace trireme {

/// Options that a model is built from.
struct ModelOptions {
  Shape input{28, 28, 1};  ///< of one sample, [height, width, channels]; pixels as a Loader scales them
  Index classes = 10;      ///< of the logits [N, classes] that a model returns
  /// Residual blocks keep only their input and run again in backward (framework/layers/recompute.h).
  bool recompute = false;
  bool zero_gamma = false;  ///< residual blocks start as the identity: the last gamma of each is 0 (Goyal et al. 2017)
};
/// A registered model.
struct ModelRow {
  std::string name;                                 ///< on the command line: "resnet50"
  std::function<Module(const ModelOptions&)> make;  ///< builds it; throws Error for an input that it cannot take
  ModelOptions usual = {};                          ///< the input and classes of its paper
};
/// Every model that was added, by name.
const std::vector<ModelRow>& models();
/// Adds a model; the file that defines one does so before main:
///   const bool added = add_model({"lenet5", lenet5});
/// Throws Error when there is one of this name.
bool add_model(ModelRow);
/// The row of a name. Throws Error with "did you mean" for an unknown one.
const ModelRow& model_row(const std::string& name);
/// Builds a model by name. Throws Error for an unknown name and as ModelRow::make.
inline Module make_model(const std::string& name, const ModelOptions& options) { return model_row(name).make(options); }
/// For its usual input and classes.
inline Module make_model(const std::string& name) { return model_row(name).make(model_row(name).usual); }

}  // namespace trireme
