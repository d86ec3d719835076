// Writes models in evaluation mode as ONNX files (onnx.ai, opset 17), for onnxruntime and other runtimes.
#pragma once
#include <map>
#include <string>

#include "framework/optim/parameters.h"

namespace trireme {

/// A further input of the graph, which the model reads by x.at(name): one tensor per sample.
struct OnnxField {
  Shape sample = {};         ///< of one sample, channels last
  DType dtype = DType::f32;  ///< f32 or i64
};
/// Options of export_onnx().
struct OnnxOptions {
  /// metadata_props of the file, for example the origin of the weights.
  std::map<std::string, std::string> metadata = {};
  /// Maximum file size in bytes; the default is the limit of protobuf readers.
  std::size_t at_most = (std::size_t{1} << 31) - 1;
  DType input = DType::f32;                      ///< type of the graph's input: f32, or i64 for a model of token ids
  std::map<std::string, OnnxField> fields = {};  ///< further inputs by name, as Tensor::with() gives them to the model
};

/// Writes the model to path atomically. sample: shape of one sample, channels last ([224, 224, 3]).
/// The graph has an input "input" of type options.input (f32 for a model of any floating type), an input for each of
/// options.fields with its name, and one output "output". The output is f32, or the type of an integer or boolean
/// result (argmax: INT64, a comparison: BOOL). Both have the dynamic batch axis "N" and channels first, as in PyTorch
/// ([N, 3, 224, 224]). For a model of token ids the output keeps its axes ([N, T, V]). Initialisers have the names and
/// layout of a file of weights, except matrices that Hugging Face stores as [in, out]. All weights are in the file. The
/// model runs twice in evaluation mode, with 3 and 4 samples: extents that differ become functions of N. Numbers must
/// not differ. Throws Error, with nothing written, for
/// - an op without an ONNX form,
/// - a tensor that is neither named by visit() nor made by a recorded op,
/// - a field that options.fields does not name,
/// - an operation that fixes the batch size,
/// - a model larger than at_most.
void export_onnx(const Module& model, const Parameters&, const Shape& sample, const std::string& path,
                 const OnnxOptions& = {});

}  // namespace trireme
