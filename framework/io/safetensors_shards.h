// Tensors of several safetensors files: as Hugging Face writes large models (model-00001-of-00003.safetensors, with
// model.safetensors.index.json), and beyond that tensors which are cut into boxes, one or more in each file.
//
// A file with boxes says in its metadata what they are of: "slices" is JSON text, {"conv.weight[2:5, 0:3]": {"tensor":
// "conv.weight", "shape": [8, 3], "offset": [2, 0]}, ...}; all other tensors of the file are whole.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/io/safetensors.h"
#include "framework/tensor/box.h"

namespace trireme {

/// A tensor of a file, or a box of one, to be read.
struct SafetensorsPiece {
  std::string name;                   ///< of the whole tensor
  Shape shape;                        ///< of the whole tensor, as in files
  Box box;                            ///< of it, as in files
  DType dtype = DType::f32;           ///< as SafetensorsReader::load says
  std::string path = {}, entry = {};  ///< its file, and its name there
  /// [begin, end) of the box's first axis (of a scalar: all), read now. Throws Error as SafetensorsReader::load.
  std::function<Tensor(Index begin, Index end)> rows = {};
};
/// What the file holds, read already; shares its tensors.
std::vector<SafetensorsPiece> pieces_of(const SafetensorsFile&);
/// What these files hold together; only their headers are read now. Throws Error for a file that is missing or
/// malformed, and unless each element of a tensor is in one box.
std::vector<SafetensorsPiece> open_shards(const std::vector<std::string>& paths);
/// The whole tensors, read.
SafetensorsFile assembled(const std::vector<SafetensorsPiece>&);

/// Tensors for one file.
struct SafetensorsShard {
  std::vector<NamedTensor> tensors = {};
  std::vector<SafetensorsPiece> boxes = {};  ///< those of them that are no whole tensors, to be said in its metadata
  /// values: the box of the tensor `name` of this shape that begins at `at`.
  void add(const std::string& name, const Tensor& values, const Shape& shape, const Shape& at);
};
/// A file of several and what verifies it.
struct ShardFile {
  std::string name;  ///< without a folder
  std::size_t bytes = 0;
  std::uint32_t crc = 0;  ///< CRC-32
};
/// Writes one file, synced. Throws Error when it exists, and as FileWriter.
ShardFile write_shard(const std::string& folder, const std::string& name, const SafetensorsShard&);
/// The text of model.safetensors.index.json: "weight_map" as Hugging Face has it (boxes by their names in files), under
/// "metadata" total_size and, by file, bytes and crc32. pieces: of these files.
std::string shard_index(const std::vector<SafetensorsPiece>& pieces, const std::vector<ShardFile>&);
/// The whole tensors of the files that an index names. Throws Error for an index that is malformed, that names a file
/// outside of its own folder or a tensor that its file lacks, and for files of other sizes or CRCs than it says.
SafetensorsFile read_indexed(const std::string& index);
/// Throws Error unless the file has this size and CRC.
void verify_file(const std::string& folder, const ShardFile&);

}  // namespace trireme
