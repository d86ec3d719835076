// Weights of a model to and from files in PyTorch's layout and names: a filter O,spatial...,I becomes O,I,spatial...,
// a matrix that Hugging Face has as [in, out] is turned.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/io/safetensors_shards.h"
#include "framework/optim/parameters.h"

namespace trireme {

/// Every parameter and buffer, copied and whole, in PyTorch's layout (where others hold parts, all must call it: it
/// brings them together; each keeps its part of what it imports). batches: training steps done; PyTorch's
/// num_batches_tracked (i64) then stands beside each running mean, so that the names are all that PyTorch has.
std::vector<NamedTensor> export_weights(const Parameters&, std::optional<std::int64_t> batches = {});
/// Overwrites every parameter and buffer from tensors in PyTorch's layout (types convert between floats). Strict:
/// throws Error listing missing, unexpected and mis-shaped names (at most 8 of each) before anything is changed.
/// Prefixes "module." and "model." are stripped; "transformer.", "model.", "bert." and "vit." may be missing, as in
/// Hugging Face's files of a model without its head. "num_batches_tracked" may be there or not, and so may constants
/// of Hugging Face's older files (masks of attention, position ids). A tensor that layers share may have any of its
/// names, or several where the numbers are the same.
void import_weights(Parameters&, const SafetensorsFile& file, const std::string& source);
void import_weights(Parameters&, const std::string& path);  ///< of the file there (read_safetensors())
/// Same, to go on with other classes: tensors of the last layer (the last parameter's) whose shape differs from the
/// file's keep what they hold. Returns their names. The same extents in another order are an error: the file has another
/// order of axes.
std::vector<std::string> import_but_head(Parameters&, const SafetensorsFile& file, const std::string& source);

// The pieces of the above, for who must check several files before changing anything (framework/io/checkpoint.cpp).

/// A tensor of the run, or a box of it that is here, and what it is called in a file.
struct StoredTensor {
  std::string name;                      ///< as the file has it: "layer1.0.conv1.weight", "momentum/0.weight"
  Tensor tensor;                         ///< shares memory with the run's; of no elements: none of it is here
  FileLayout layout = FileLayout::same;  ///< filter, transposed: axes are permuted on the way
  Shape whole = {}, at = {};             ///< shape of the whole tensor, and where this begins in it
};
/// Extents or places by axis, in a file's order of axes.
Shape in_file(const Shape&, FileLayout);
/// Every parameter, then every buffer, in the model's order; of a weight that is cut, this rank's part.
std::vector<StoredTensor> stored_weights(const Parameters&);
/// The same, but only what lies in these slices of the flat block, box by box, and these of the buffers (a mark for
/// each); where nothing does, a StoredTensor without elements.
std::vector<StoredTensor> stored_weights(const Parameters&, const std::vector<Slice>&,
                                         const std::vector<bool>& buffers);
/// flat, a tensor per parameter: name + "/" + the parameter's. Throws Error where flat is not as long as the
/// parameters.
std::vector<StoredTensor> stored_state(const Parameters&, const std::string& name, const FlatBuffer& flat);
/// The same of a flat buffer that has the slices `kept` of the flat block only, packed (Optimizer::kept): what lies in
/// these slices.
std::vector<StoredTensor> stored_state(const Parameters&, const std::string& name, const FlatBuffer& flat,
                                       const std::vector<Slice>& kept, const std::vector<Slice>&);
/// Copies on the host, in PyTorch's layout; a collective call where tensors are parts.
std::vector<NamedTensor> export_tensors(const std::vector<StoredTensor>&);
/// PyTorch's num_batches_tracked (i64) for each running mean whose beginning is among these.
std::vector<NamedTensor> batch_counters(const std::vector<StoredTensor>&, std::int64_t batches);

/// The checked half of an import: constructing throws the lists, apply() overwrites.
class Import {
 public:
  /// Reads what lies in the targets, and no more (to whole rows of it). Throws Error as import_weights() says; source:
  /// the file's name, for messages.
  Import(std::vector<StoredTensor> targets, const std::vector<SafetensorsPiece>&, const std::string& source);
  /// Of a file that was read.
  Import(std::vector<StoredTensor> targets, const SafetensorsFile& file, const std::string& source)
      : Import(std::move(targets), pieces_of(file), source) {}
  void apply() const;  ///< overwrites all targets, converting between float types

 private:
  struct Copy {
    StoredTensor to;
    Box box;        // of the whole tensor, in memory's order of axes
    Tensor values;  // of the box, as the file has them
  };
  std::vector<Copy> copies_;
};

}  // namespace trireme
