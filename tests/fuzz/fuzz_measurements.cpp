// libFuzzer entry for the table of `trireme plan simulate --measured`; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp kernels/core/suggest.cpp framework/io/json.cpp tools/cli/simulate_measured.cpp
#include <cmath>

#include "tests/fuzz/foreign_fuzz.h"
#include "tools/cli/simulate_measured.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  try {
    const auto all = parse_measurements({reinterpret_cast<const char*>(data), size}, "F");
    fuzz::require(!all.empty());
    for (const StepMeasurement& m : all) {
      fuzz::require(m.ranks >= 1 && m.seconds > 0 && std::isfinite(m.seconds) && m.batch >= 0);
      fuzz::require(m.scaling.empty() || m.scaling == "weak" || m.scaling == "strong");
      fuzz::require(m.evidence == Evidence::real || m.evidence == Evidence::emulated);
    }
  } catch (const Error& e) {
    const std::string_view what = e.what();
    fuzz::require(what.starts_with("F") && what.size() < 500 && what.find('\n') == what.npos);
  }
  return 0;
}
