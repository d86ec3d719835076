// Tensors in several safetensors files: as Hugging Face writes large models (model-00001-of-00003.safetensors, with
// model.safetensors.index.json). In addition, tensors may be cut into boxes, one or more per file.
//
// A file with boxes describes them in its metadata: "slices" is JSON text, {"conv.weight[2:5, 0:3]": {"tensor":
// "conv.weight", "shape": [8, 3], "offset": [2, 0]}, ...}. All other tensors of the file are whole.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/io/safetensors.h"
#include "framework/tensor/box.h"

namespace trireme {

/// A tensor in a file, or a box of one, to be read on demand.
struct SafetensorsPiece {
  std::string name;          ///< of the whole tensor
  Shape shape;               ///< of the whole tensor, as in files
  Box box;                   ///< part of the whole tensor, in the file's axes
  DType dtype = DType::f32;  ///< as in SafetensorsReader::load()
  std::string path = {},     ///< path of its file
      entry = {};            ///< its name in the file
  /// Reads [begin, end) of the box's first axis (all of a scalar). Throws Error as SafetensorsReader::load().
  std::function<Tensor(Index begin, Index end)> rows = {};
};
/// The pieces of a file in memory; shares its tensors.
std::vector<SafetensorsPiece> pieces_of(const SafetensorsFile&);
/// The pieces of several files. Reads only their headers. Throws Error for a file that is missing or malformed, and
/// unless each element of each tensor is in exactly one box.
std::vector<SafetensorsPiece> open_shards(const std::vector<std::string>& paths);
/// The pieces of a file, or of all files that an index (.json) lists. Throws Error as open_shards() and read_indexed().
std::vector<SafetensorsPiece> open_safetensors(const std::string& path);
/// Reads the pieces and joins them to whole tensors.
SafetensorsFile assembled(const std::vector<SafetensorsPiece>&);

/// The tensors of one file.
struct SafetensorsShard {
  std::vector<TensorToWrite> tensors = {};   ///< whole tensors and boxes
  std::vector<SafetensorsPiece> boxes = {};  ///< description of the tensors that are boxes, for the metadata
  /// Adds a box of the tensor of this name and shape; the box begins at `at`.
  void add(TensorToWrite box, const Shape& shape, const Shape& at);
};
/// One of several files, with its size and checksum.
struct ShardFile {
  std::string name;       ///< without a folder
  std::size_t bytes = 0;  ///< size
  std::uint32_t crc = 0;  ///< CRC-32
};
/// Writes one file and makes it durable. Throws Error if it exists, and as FileWriter.
ShardFile write_shard(const std::string& folder, const std::string& name, const SafetensorsShard&);
/// The text of model.safetensors.index.json: "weight_map" as Hugging Face's (boxes by their names in files), and in
/// "metadata" total_size and, per file, bytes and crc32. pieces: the pieces of these files.
std::string shard_index(const std::vector<SafetensorsPiece>& pieces, const std::vector<ShardFile>&);
/// Reads the whole tensors of the files that an index lists. Throws Error for a malformed index, a file outside of the
/// index's folder, a tensor that its file lacks, and files with another size or CRC.
SafetensorsFile read_indexed(const std::string& index);
/// Throws Error unless the file has this size and CRC.
void verify_file(const std::string& folder, const ShardFile&);

}  // namespace trireme
