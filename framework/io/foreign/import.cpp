#include "framework/io/foreign/import.h"

#include <filesystem>
#include <optional>

#include "framework/io/foreign/npy.h"
#include "framework/io/foreign/npz.h"
#include "framework/io/foreign/torch_file.h"

namespace trireme {

ForeignWeights read_foreign_weights(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension();
  ForeignWeights weights;
  if (ending == ".safetensors" || ending == ".json") {
    weights.tensors = read_safetensors(path).tensors;
    return weights;
  }
  const auto room = [&](const FileArray& array) {
    weights.tensors.push_back({array.name, Tensor::empty(array.shape, array.type->becomes)});
    return weights.tensors.back().tensor.data<std::byte>();
  };
  std::optional<FileReader> file;
  const auto mapped = [&] { return NamedBytes{path, file.emplace(path).map()}; };
  if (ending == ".npy")
    weights.tensors.push_back({std::filesystem::path(path).stem(), read_npy(path)});
  else if (ending == ".npz")
    read_npz(mapped(), room);
  else if (ending == ".pt" || ending == ".pth" || ending == ".bin")
    weights.left_out = read_torch(mapped(), room);
  else
    fail("import", "{}: is none of .npy, .npz, .pt, .pth, .bin, .safetensors and .safetensors.index.json", path);
  return weights;
}

}  // namespace trireme
