// Models by name. Each is one function returning a Module; names of the parts give PyTorch's parameter names.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/layers.h"

namespace trireme {

struct ModelOptions {
  Shape input{28, 28, 1};  ///< of one sample, channels last
  Index classes = 10;
  bool recompute = false;   ///< residual blocks keep only their input and run again in backward (framework/recompute.h)
  bool zero_gamma = false;  ///< residual blocks start as the identity: the last gamma of each is 0 (Goyal et al. 2017)
};
/// Linear 512 - relu - Linear 256 - relu - Linear classes over the flattened input.
Sequential mlp(const ModelOptions& = {});
/// LeCun et al. 1998, in the form of today's tutorials: conv 6@5x5 (pad 2), pool, conv 16@5x5, pool, fc 120,
/// fc 84, fc 10; ReLU, max pooling.
Sequential lenet5(const ModelOptions& = {});
/// The MNIST CNN of the Keras and Horovod tutorials: conv 32, conv 64, pool, dropout 0.25, fc 128, dropout
/// 0.5, fc 10: 1,199,882 parameters.
Sequential mnist_cnn(const ModelOptions& = {});

struct ModelRow {
  std::string name;
  std::function<Module(const ModelOptions&)> make;
  ModelOptions usual = {};  ///< the input and classes it was made for
};
const std::vector<ModelRow>& models();
/// The row of a name. Throws Error with "did you mean" for an unknown one.
const ModelRow& model_row(const std::string& name);
inline Module make_model(const std::string& name, const ModelOptions& options) { return model_row(name).make(options); }
/// For its usual input and classes.
inline Module make_model(const std::string& name) { return model_row(name).make(model_row(name).usual); }

}  // namespace trireme
