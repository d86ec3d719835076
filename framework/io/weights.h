// Reads and writes weights of a model in PyTorch's layout and names. A filter O,spatial...,I becomes O,I,spatial...; a
// matrix that Hugging Face stores as [in, out] is transposed.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/io/safetensors_shards.h"
#include "framework/optim/parameters.h"

namespace trireme {

/// Copies every parameter and buffer, whole, in PyTorch's layout. Collective if weights are divided over ranks.
/// batches: number of training steps done; PyTorch's num_batches_tracked (i64) is then added for each running mean, so
/// that the names are exactly PyTorch's.
std::vector<NamedTensor> export_weights(const Parameters&, std::optional<std::int64_t> batches = {});
/// Overwrites every parameter and buffer from tensors in PyTorch's layout, with conversion between floating types. Each
/// rank keeps its part of divided weights. Strict: throws Error listing missing, unexpected and mis-shaped names (at
/// most 8 of each) before anything is changed. The prefixes "module." and "model." are removed. "transformer.",
/// "model.", "bert." and "vit." may be missing, as in Hugging Face's files of models without a head.
/// "num_batches_tracked" and constants in Hugging Face's older files (attention masks, position ids) are optional. A
/// tensor that layers share may have any of its names, or several with equal numbers.
void import_weights(Parameters&, const SafetensorsFile& file, const std::string& source);
void import_weights(Parameters&, const std::string& path);  ///< from a file (read_safetensors())
/// As import_weights(), for fine-tuning with other classes: tensors of the last layer (of the last parameter) whose
/// shape differs from the file's keep their values. Returns their names. Throws Error if the file has the same extents
/// in another order.
std::vector<std::string> import_but_head(Parameters&, const SafetensorsFile& file, const std::string& source);

// The parts of import_weights(), for code that checks several files before it changes anything
// (framework/io/checkpoint.cpp).

/// A tensor of the run, or this rank's box of it, and its name in a file.
struct StoredTensor {
  std::string name;  ///< in the file: "layer1.0.conv1.weight", "momentum/0.weight"
  Tensor tensor;     ///< shares memory with the run's tensor; no elements: this rank has nothing of it
  FileLayout layout = FileLayout::same;  ///< filter, transposed: axes are permuted in files
  Shape whole = {},                      ///< shape of the whole tensor
      at = {};                           ///< position of this box in it
};
/// Extents or positions in the order of a file's axes.
Shape in_file(const Shape&, FileLayout);
/// Every parameter, followed by every buffer, in the model's order; for a divided weight this rank's part.
std::vector<StoredTensor> stored_weights(const Parameters&);
/// As above, restricted to these slices of the flat block (as boxes) and to the marked buffers. A tensor outside of the
/// slices has no elements.
std::vector<StoredTensor> stored_weights(const Parameters&, const std::vector<Slice>&,
                                         const std::vector<bool>& buffers);
/// A flat buffer as one tensor per parameter, named name + "/" + the parameter's name. Throws Error if flat has another
/// length than the parameters.
std::vector<StoredTensor> stored_state(const Parameters&, const std::string& name, const FlatBuffer& flat);
/// As above, for a flat buffer that has only the slices `kept` of the flat block, packed (Optimizer::kept());
/// restricted to these slices.
std::vector<StoredTensor> stored_state(const Parameters&, const std::string& name, const FlatBuffer& flat,
                                       const std::vector<Slice>& kept, const std::vector<Slice>&);
/// Copies to the host, in PyTorch's layout. Collective if tensors are divided.
std::vector<NamedTensor> export_tensors(const std::vector<StoredTensor>&);
/// For a writer, in PyTorch's layout. Shares the run's memory on the host, unless the tensor is divided: then the call
/// is collective.
TensorToWrite to_write(const StoredTensor&);
/// PyTorch's num_batches_tracked (i64) for each running mean that begins in one of these tensors.
std::vector<NamedTensor> batch_counters(const std::vector<StoredTensor>&, std::int64_t batches);

/// An import in two steps: the constructor checks and throws Error, apply() overwrites.
class Import {
 public:
  /// Reads only the parts that the targets need (in whole rows). Throws Error as import_weights(). source: name of the
  /// file for messages.
  Import(std::vector<StoredTensor> targets, const std::vector<SafetensorsPiece>&, const std::string& source);
  /// As above, from a file in memory.
  Import(std::vector<StoredTensor> targets, const SafetensorsFile& file, const std::string& source)
      : Import(std::move(targets), pieces_of(file), source) {}
  /// As import_but_head(), into these targets of the parameters. Returns the names of the tensors that keep their
  /// values, too.
  static std::pair<Import, std::vector<std::string>> but_head(const Parameters&, std::vector<StoredTensor> targets,
                                                              std::vector<SafetensorsPiece>, const std::string& source);
  void apply() const;  ///< overwrites all targets, converting between float types

 private:
  struct Copy {
    StoredTensor to;
    Box box;                         // of the whole tensor, in memory's order of axes
    std::function<Tensor()> values;  // of the box, in the file's layout; read by apply(), one box at a time
  };
  std::vector<Copy> copies_;
};

}  // namespace trireme
