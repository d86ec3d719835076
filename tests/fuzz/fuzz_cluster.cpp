// libFuzzer entry for the parser of cluster files; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp kernels/core/suggest.cpp framework/io/options.cpp framework/io/json.cpp
// sources: kernels/core/environment.cpp
// sources: parallel/comm/cluster.cpp datasets/formats/data_paths.cpp tools/training/toml_file.cpp tools/training/cluster_file.cpp
// libraries: -ltomlplusplus
// What is accepted says the same again when it is written and read; what is not is refused in one line that names the
// file.
#include <cstdlib>

#include "tools/training/cluster_file.h"
#include "tools/training/trainer_options.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  const auto require = [](bool promise) {
    if (!promise) std::abort();
  };
  std::string text;
  try {
    const Cluster cluster = parse_cluster({reinterpret_cast<const char*>(data), size}, "f");
    validate(cluster);
    require(cluster.devices() > 0);
    text = cluster_toml(cluster);
    require(parse_cluster(text, "f") == cluster);
  } catch (const OptionError& e) {
    const std::string_view what = e.what();
    require(text.empty() && what.starts_with("f:") && what.find('\n') == what.npos);
  }
  return 0;
}
