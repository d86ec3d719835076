// WeightReads: finds out which weights kernels and copies read, and in which type. A dry run learns from it which
// weights ranks may gather in bf16 (PartInfo::read_as); the first step of a run checks the same reads.
#pragma once
#include <functional>
#include <map>

#include "framework/optim/parameters.h"
#include "framework/tensor/launch.h"
#include "kernels/core/skip_copies.h"

namespace trireme {

class WeightReads {
 public:
  /// Called for each f32 weight that a kernel or a copy reads. as: the type to which the kernel converts the weight;
  /// f32: it does not, or it writes the weight.
  using Read = std::function<void(const ParameterStore::Entry&, DType as)>;
  /// The weights of a store, which must outlive it. Weights that other ranks have count, too.
  WeightReads(const ParameterStore&, Read);
  void see(const LaunchWatch::Call&) const;
  void see(const View& copied) const;  ///< the source of a copy

  /// While it lives, sees the kernels and copies of this thread. Cannot live together with a dry LaunchWatch.
  class Watch {
   public:
    /// reads must outlive it.
    explicit Watch(const WeightReads& reads)
        : copies_([&reads](const View& from) { reads.see(from); }, false),
          kernels_([&reads](const LaunchWatch::Call& call) { reads.see(call); }, LaunchWatch::Mode::untimed) {}

   private:
    SkipCopies copies_;
    LaunchWatch kernels_;
  };

 private:
  struct Weight {
    const std::byte* data;
    const ParameterStore::Entry* entry;
  };
  void see(const View&, DType as) const;

  Read read_;
  std::map<const std::byte*, Weight, std::less<>> weights_;  // by end in memory
};

}  // namespace trireme
