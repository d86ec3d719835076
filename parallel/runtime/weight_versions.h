// WeightVersions: the weights that updates have replaced, for as long as micro-batches in flight read them (weight
// stashing: PipeDream, arXiv 1806.03377; double buffering: PipeDream-2BW, arXiv 2006.09503).
#pragma once
#include <vector>

#include "framework/optim/parameter_store.h"

namespace trireme {

class WeightVersions {
 public:
  /// Of these slices of the store's values, so many versions, the newest included; where that is 1 it keeps nothing and
  /// costs nothing. store must outlive it.
  WeightVersions(ParameterStore& store, const std::vector<Slice>& slices, int versions);

  /// Before an update: the newest weights become one update old, and what is too old is gone.
  void keep();
  /// The newest weights are the only ones.
  void clear() { kept_ = 0; }
  Index bytes() const;  ///< of older versions that are kept

  /// While it lives, the layers compute with the weights of so many updates ago, or with the oldest that are kept.
  class Use {
   public:
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
  /// A tensor of the model that lies in a slice.
  struct Place {
    Tensor tensor;
    std::size_t slice;
    Index begin;  // in the slice, elements
  };
  void show(int age) const;

  ParameterStore& store_;
  std::vector<Slice> slices_;  // each on one device
  std::vector<Place> places_;
  std::vector<std::vector<Tensor>> older_;  // by age - 1, then by slice
  int kept_ = 0;                            // of older_
};

}  // namespace trireme
