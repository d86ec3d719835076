#include "kernels/core/kernel.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace trireme {
namespace {
// Filled before main by the Kernel objects, and by the CUDA plugin when it is opened: that needs the lock.
struct Registry {
  std::mutex mutex;
  std::vector<std::pair<std::string_view, const detail::Slots*>> rows;
};
Registry& registry() {
  static Registry r;
  return r;
}
}  // namespace

bool detail::enlist(std::string_view name, const Slots* slots) {
  std::lock_guard lock(registry().mutex);
  registry().rows.emplace_back(name, slots);
  return true;
}

std::vector<CensusRow> census() {
  std::lock_guard lock(registry().mutex);
  std::vector<CensusRow> rows;
  for (auto [name, slots] : registry().rows) {
    CensusRow row{name, {}};
    for (int k = 0; k < device_kinds; ++k) row.present[k] = (*slots)[k] != nullptr;
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.name < b.name; });
  return rows;
}

}  // namespace trireme
