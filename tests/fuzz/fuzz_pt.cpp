// libFuzzer entry for the reader of PyTorch's .pt; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/element_type.cpp framework/io/file.cpp framework/io/foreign/zip.cpp
// sources: framework/io/foreign/file_array.cpp framework/io/foreign/pickle.cpp framework/io/foreign/torch_file.cpp
// libraries: -ldeflate
// The input is an archive, then the pickle of one that has two storages.
#include "framework/io/foreign/torch_file.h"

#include "tests/fuzz/foreign_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  fuzz::try_read(read_torch, std::as_bytes(std::span(data, size)), "torch");
  const std::string pickle(reinterpret_cast<const char*>(data), size), sixteen(16, '\1'), many(96, '\2');
  const std::string file = fuzz::zip({{"x/data.pkl", pickle}, {"x/data/0", sixteen}, {"x/data/1", many}});
  fuzz::try_read(read_torch, std::as_bytes(std::span(file)), "torch");
  return 0;
}
