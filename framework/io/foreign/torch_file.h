// PyTorch's .pt files (torch.save since 1.6: a ZIP archive of a pickle and raw storages), for `trireme import` only.
// The pickle is read as data (framework/io/foreign/pickle.h): nothing in the file can run code or name another file.
#pragma once
#include "framework/io/foreign/file_array.h"

namespace trireme {

/// The tensors of a state dict, by name: of the dict that the file holds or, when that has an entry "state_dict",
/// "model_state_dict" or "model" that is a dict of tensors, of that entry. Views are copied out, row-major. Returns
/// what was left out: entries that are no tensors ("epoch (number)"). Throws Error naming file and tensor for a file
/// of the format before 1.6, TorchScript, complex and quantized tensors, a tensor that reaches outside its storage, and
/// whatever needs more memory than MemoryLimit allows.
std::vector<std::string> read_torch(const NamedBytes&, const RoomFor& room);

}  // namespace trireme
