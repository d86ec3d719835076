// The folder that keeps plans for later processes, one file per key. Without it, cuDNN compiles each plan again, which
// takes a second or more.
#pragma once
#include <array>
#include <optional>
#include <string>

#include "kernels/core/view.h"

namespace trireme::gpu {

/// All that a plan depends on, as numbers. The caller defines their meaning. Unused ones are 0.
struct PlanKey {
  std::array<Index, 32> numbers{};
  bool operator==(const PlanKey&) const = default;
};

/// The contents of a plan's file.
struct KeptPlan {
  std::size_t way = 0;  ///< index of the way among the caller's ways for the key
  std::string json;     ///< in cuDNN's format
};

class PlanFolder {
 public:
  /// An empty path keeps nothing.
  explicit PlanFolder(std::string path) : path_(std::move(path)) {}
  /// The folder for this version of cuDNN and this device, in the folder of TRIREME_PLAN_CACHE ("off": none), by
  /// default in the user's cache.
  static std::string usual_path(std::string_view device_name);
  /// The plan for the key. Empty if there is none, or if its file is damaged or is for another key.
  std::optional<KeptPlan> find(const PlanKey&) const noexcept;
  /// Writes the file atomically, safe with concurrent readers and writers. Never throws: if the disk is full or
  /// read-only, the next process plans again.
  void keep(const PlanKey&, const KeptPlan&) const noexcept;
  std::string file_of(const PlanKey&) const;

 private:
  std::string path_;
};

}  // namespace trireme::gpu
