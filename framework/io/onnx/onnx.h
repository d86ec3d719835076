// ONNX files (onnx.ai, opset 17) of models in evaluation mode, for onnxruntime and its like.
#pragma once
#include <map>
#include <string>

#include "framework/optim/parameters.h"

namespace trireme {

/// A further input of the graph, which the model reads by x.at(name): one tensor a sample.
struct OnnxField {
  Shape sample = {};         ///< of one sample, channels last
  DType dtype = DType::f32;  ///< f32 or i64
};
/// Options of export_onnx().
struct OnnxOptions {
  std::map<std::string, std::string> metadata = {};  ///< metadata_props of the file: where weights came from, say
  std::size_t at_most = (std::size_t{1} << 31) - 1;  ///< bytes: what protobuf readers accept
  DType input = DType::f32;                          ///< of the graph's input: f32, or i64 for a model of ids
  std::map<std::string, OnnxField> fields = {};  ///< further inputs by name, as Tensor::with() gives them to the model
};

/// Writes the model to path, as a temporary file that is renamed. sample is the shape of one sample, channels last
/// ([224, 224, 3]). The graph has an input "input", f32 (whatever the model's type; or options.input), an input for
/// each of options.fields, with its name, and one output "output", f32, or the type of a result of integers or truth
/// values (argmax: INT64, a comparison: BOOL), both of dynamic batch "N", channels first as PyTorch has them ([N, 3,
/// 224, 224]); of a model of ids the output is as here
/// ([N, T, V]). Initialisers have the names and the layout of the parameters and buffers in a file of weights, but
/// matrices that Hugging Face's have as [in, out]. All weights lie in the file itself. The model runs twice, in
/// evaluation, with 3 and 4 samples: extents that differ follow N, and no number may. Throws Error, with nothing
/// written: an op without an ONNX form, a tensor in the forward pass that is neither named by visit() nor made by a
/// recorded op, a field that options do not name, an operation that ties the batch to one size, a model above at_most
/// bytes.
void export_onnx(const Module& model, const Parameters&, const Shape& sample, const std::string& path,
                 const OnnxOptions& = {});

}  // namespace trireme
