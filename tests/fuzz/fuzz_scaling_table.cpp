// libFuzzer entry for the table of `trireme plan simulate --backtest`; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/file.cpp tools/backtest/scaling_table.cpp
// libraries: -ldeflate
#include "tests/fuzz/foreign_fuzz.h"
#include "tools/backtest/scaling_table.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  try {
    const ScalingTable table = parse_scaling_table({reinterpret_cast<const char*>(data), size}, "F");
    for (const ScalingFamily& f : table.families) {
      fuzz::require(f.calibration >= 2 && f.calibration <= static_cast<int>(f.rows.size()));
      for (const ScalingRow& r : f.rows) fuzz::require(r.size > 0 && r.samples > 0 && r.milliseconds > 0);
    }
  } catch (const Error& e) {
    const std::string_view what = e.what();
    fuzz::require(what.starts_with("simulate --backtest: F") && what.size() < 500 && what.find('\n') == what.npos);
  }
  return 0;
}
