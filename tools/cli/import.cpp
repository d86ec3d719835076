#include "framework/io/foreign/import.h"

#include "tools/cli/commands.h"

namespace trireme {

int import_command(const std::string& from, const std::string& to, bool listing) {
  if (to.empty() && !listing) throw OptionError("import: nothing to do; give --out FILE, --list or both");
  const ForeignWeights weights = read_foreign_weights(from);
  Index values = 0;
  for (const NamedTensor& t : weights.tensors) {
    values += t.tensor.numel();
    if (listing) fmt::print("{}\t{}\t{}\n", t.name, t.tensor.dtype(), t.tensor.shape());
  }
  for (const std::string& name : weights.left_out) std::fprintf(stderr, "left out: %s\n", name.c_str());
  if (to.empty()) return 0;
  write_safetensors(to, weights.tensors);
  std::fprintf(stderr, "%s: %zu tensors, %lld values\n", to.c_str(), weights.tensors.size(),
               static_cast<long long>(values));
  return 0;
}

}  // namespace trireme
