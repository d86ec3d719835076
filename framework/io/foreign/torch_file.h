// Reads PyTorch's .pt files (torch.save since 1.6: a ZIP archive of a pickle and raw storages), for `trireme import`.
// The pickle is read as data (framework/io/foreign/pickle.h): a file cannot run code or access other files.
#pragma once
#include "framework/io/foreign/file_array.h"

namespace trireme {

/// Reads the tensors of a state dict by name. It is the file's dict, or its entry "state_dict", "model_state_dict" or
/// "model" if that is a dict of tensors. Views are copied, row-major. Returns the entries that are no tensors ("epoch
/// (number)"). Throws Error naming file and tensor for files of the format before 1.6, TorchScript, complex and
/// quantized tensors, a tensor that exceeds its storage, and files that exceed MemoryLimit.
std::vector<std::string> read_torch(const NamedBytes&, const RoomFor& room);

}  // namespace trireme
