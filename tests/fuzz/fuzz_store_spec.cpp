// libFuzzer entry for the text of a StoreSpec; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp kernels/core/suggest.cpp framework/optim/store_spec.cpp
// What is accepted says the same again when it is written and read; what is not is refused in one line.
#include "framework/optim/store_spec.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  const auto require = [](bool promise) {
    if (!promise) std::abort();
  };
  try {
    const StoreSpec spec = parse_store_spec({reinterpret_cast<const char*>(data), size});
    require(parse_store_spec(to_string(spec)) == spec);
    Index end = 0;
    for (const TensorSpec& t : spec.tensors) {
      require(end <= t.begin && t.shape.numel() >= 0 && t.kind != StateKind::buffer);
      end = t.begin + t.shape.numel();
    }
    require(end <= spec.size && spec.size <= Index{1} << 40);
  } catch (const Error& e) {
    const std::string_view what = e.what();
    require(what.starts_with("parameters: ") && what.size() < 700 && what.find('\n') == what.npos);
  }
  return 0;
}
