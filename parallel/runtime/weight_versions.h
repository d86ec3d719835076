// WeightVersions: older weights that updates have replaced, kept while micro-batches in flight read them (weight
// stashing: PipeDream, arXiv 1806.03377; double buffering: PipeDream-2BW, arXiv 2006.09503).
#pragma once
#include <vector>

#include "framework/optim/parameter_store.h"

namespace trireme {

/// The weight versions of one rank.
class WeightVersions {
 public:
  /// Keeps `versions` versions of these slices of the store's values, including the newest. 1: keeps no older version
  /// and costs nothing. store must outlive it.
  WeightVersions(ParameterStore& store, const std::vector<Slice>& slices, int versions);

  /// Call before an update: saves a copy of the newest weights, and drops a version that is too old.
  void keep();
  /// Drops all older versions.
  void clear() { kept_ = 0; }
  Index bytes() const;  ///< bytes of the older versions

  /// While a Use lives, the layers compute with the weights of `age` updates ago; if there were fewer updates, with the
  /// oldest kept version.
  class Use {
   public:
    /// age: 0 is the newest version.
    Use(const WeightVersions& versions, int age) : versions_(versions), age_(std::min(age, versions.kept_)) {
      versions_.show(age_);
    }
    ~Use() {
      if (age_ > 0) versions_.show(0);
    }
    Use(const Use&) = delete;

   private:
    const WeightVersions& versions_;
    int age_;
  };

 private:
  /// A tensor of the model inside a slice.
  struct Place {
    Tensor tensor;
    std::size_t slice;
    Index begin;  // offset in the slice, elements
  };
  void show(int age) const;

  ParameterStore& store_;
  std::vector<Slice> slices_;  // each on one device
  std::vector<Place> places_;
  std::vector<std::vector<Tensor>> older_;  // by age - 1, then by slice
  int kept_ = 0;                            // of older_
};

}  // namespace trireme
