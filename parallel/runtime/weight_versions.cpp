#include "parallel/runtime/weight_versions.h"

#include <algorithm>

#include "framework/tensor/storage.h"

namespace trireme {

WeightVersions::WeightVersions(ParameterStore& store, const std::vector<Slice>& slices, int versions) : store_(store) {
  if (versions == 1) return;
  for (const Slice& slice : slices)
    for (const Slice& part : store.values().cut(slice)) {
      for (const ParameterStore::Entry& e : store.entries())
        if (part.begin <= e.slice.begin && e.slice.end <= part.end)
          places_.push_back({e.tensor, slices_.size(), e.slice.begin - part.begin});
      slices_.push_back(part);
    }
  older_.resize(static_cast<std::size_t>(versions - 1));
  for (std::vector<Tensor>& version : older_)
    for (const Slice& s : slices_)
      version.push_back(Tensor::empty({s.size()}, store.dtype(), store.values().device_of(s.begin)));
}

void WeightVersions::keep() {
  if (older_.empty()) return;
  std::ranges::rotate(older_, older_.end() - 1);
  for (std::size_t i = 0; i < slices_.size(); ++i)
    copy_unnoted(older_.front()[i], store_.values().rows(slices_[i].begin, slices_[i].end));
  kept_ = std::min(kept_ + 1, static_cast<int>(older_.size()));
}

Index WeightVersions::bytes() const {
  Index all = 0;
  for (const Slice& s : slices_) all += kept_ * s.size() * size_of(store_.dtype());
  return all;
}

void WeightVersions::show(int age) const {
  if (kept_ == 0) return;
  for (const Place& p : places_) {
    const Slice& s = slices_[p.slice];
    const Tensor from =
        age > 0 ? older_[static_cast<std::size_t>(age - 1)][p.slice] : store_.values().rows(s.begin, s.end);
    Tensor::Impl& t = *p.tensor.impl();
    t.block = from.impl()->block;
    t.offset = from.impl()->offset + static_cast<std::size_t>(p.begin * size_of(t.dtype));
  }
}

}  // namespace trireme
