// libFuzzer entry for the CIFAR reader; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/file.cpp datasets/formats/cifar.cpp datasets/formats/data_paths.cpp
// sources: datasets/core/dataset.cpp datasets/core/fingerprint.cpp datasets/core/in_memory.cpp kernels/core/environment.cpp
// libraries: -ldeflate
#include "datasets/formats/cifar.h"
#include "tests/fuzz/foreign_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  for (Index classes : {10, 100}) try {
      const Cifar all = parse_cifar(std::as_bytes(std::span(data, size)), classes, "F");
      fuzz::require(all.pixels.size() == 3072 * all.labels.size() && all.pixels.size() < size);
      for (auto label : all.labels) fuzz::require(label < classes);
    } catch (const Error& e) { fuzz::require_line(e, "cifar"); }
  return 0;
}
