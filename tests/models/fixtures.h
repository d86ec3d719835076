// Models beside what other frameworks have written of them: the files of tests/fixtures.
#pragma once
#include <cmath>
#include <map>
#include <string>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/weights.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace trireme::test {

inline std::string fixture(const std::string& name) { return (root() / "tests/fixtures" / name).string(); }

/// |a - b| / |b|, both norms over all elements.
inline double relative_l2(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector(), y = b.to_vector();
  if (x.size() != y.size()) return 1e300;
  double off = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    off += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(off / size);
}

inline std::map<std::string, Tensor> by_name(const std::vector<NamedTensor>& all) {
  std::map<std::string, Tensor> named;
  for (const auto& [name, tensor] : all) named.emplace(name, tensor);
  return named;
}

/// Gradients beside the file's "grad.NAME", all of both, in files' layout, to 1e-5 relative. nearly: names of
/// gradients that are 0 but for rounding, as are those of the keys' biases, which softmax takes away.
inline void check_gradients(const Parameters& parameters, const SafetensorsFile& expected, const std::string& nearly) {
  const auto own = by_name(export_tensors(stored_state(parameters, "grad", parameters.grads())));
  std::size_t of_file = 0;
  for (const auto& [name, theirs] : expected.tensors) {
    if (!name.starts_with("grad.")) continue;
    ++of_file;
    INFO(name);
    const auto at = own.find("grad/" + name.substr(5));
    REQUIRE(at != own.end());
    CHECK(at->second.shape() == theirs.shape());
    const bool zero = !nearly.empty() && name.find(nearly) != name.npos;
    if (zero) CHECK(test::distance(at->second.to_vector(), std::vector<double>(theirs.numel(), 0)) < 1e-6);
    if (!zero) CHECK(relative_l2(at->second, theirs) < 1e-5);
  }
  CHECK(own.size() == of_file);
}

/// The weights of a file, in and out again: the same bytes.
inline void check_same_file(Parameters& parameters, const std::string& path) {
  import_weights(parameters, path);
  const Temporary folder;
  write_safetensors(folder / "model.safetensors", export_weights(parameters), {{"format", "pt"}});
  CHECK(read_text(folder / "model.safetensors", 1 << 20) == read_text(path, 1 << 20));
}
/// What our config.json says, where theirs says it, too.
inline void check_config(const std::string& config, const std::string& path) {
  const Json own = parse_json(config), theirs = parse_json(read_text(path, 1 << 20));
  for (const auto& [key, value] : own.items()) {
    INFO(key);
    if (theirs.contains(key)) CHECK(value == theirs[key]);
  }
}

}  // namespace trireme::test
