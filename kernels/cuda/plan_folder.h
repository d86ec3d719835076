// The folder in which plans outlive processes: a file for each, by the numbers that it was made for. Without it cuDNN
// compiles anew, for a second or more, what it compiled before.
#pragma once
#include <array>
#include <optional>
#include <string>

#include "kernels/core/view.h"

namespace trireme::gpu {

/// All that a plan depends on, as numbers; what they mean is the caller's matter. Unused ones are 0.
struct PlanKey {
  std::array<Index, 32> numbers{};
  bool operator==(const PlanKey&) const = default;
};

/// A plan as a file holds it.
struct KeptPlan {
  std::size_t way = 0;  ///< of those that the caller has for the key
  std::string json;     ///< as cuDNN wrote it
};

class PlanFolder {
 public:
  /// path empty: keeps nothing.
  explicit PlanFolder(std::string path) : path_(std::move(path)) {}
  /// For this cuDNN and this device, below the folder that TRIREME_PLAN_CACHE names ("off": none), else below the
  /// user's cache.
  static std::string usual_path(std::string_view device_name);
  /// None when there is none, or when its file is damaged or says that it is for another key.
  std::optional<KeptPlan> find(const PlanKey&) const noexcept;
  /// Whole or not at all, whoever else reads or writes meanwhile. Never throws: a disk that is full or read-only costs
  /// the next process the time to plan.
  void keep(const PlanKey&, const KeptPlan&) const noexcept;
  std::string file_of(const PlanKey&) const;

 private:
  std::string path_;
};

}  // namespace trireme::gpu
