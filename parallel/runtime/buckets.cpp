#include "parallel/runtime/buckets.h"

#include <algorithm>

#include "framework/autograd/tape.h"

namespace trireme {

Buckets::Buckets(Parameters& parameters, std::vector<Slice> slices, Init start, std::vector<int> backwards)
    : parameters_(parameters),
      slices_(std::move(slices)),
      start_(std::move(start)),
      backwards_(std::move(backwards)),
      works_(slices_.size()) {
  auto& entries = parameters_.entries();
  if (backwards_.empty()) backwards_.assign(entries.size(), 1);
  for (const Slice& slice : slices_) {
    views_.push_back(parameters_.grads().rows(slice.begin, slice.end));
    auto& members = members_.emplace_back();
    for (std::size_t e = 0; e < entries.size(); ++e)
      if (entries[e].slice.overlaps(slice)) members.push_back(e);
  }
  for (std::size_t e = 0; e < entries.size(); ++e)
    hooks_.push_back(add_grad_hook(entries[e].tensor, [this, e](const Tensor&) { completed(e); }));
}

Buckets::~Buckets() {
  for (std::size_t e = 0; e < hooks_.size(); ++e) remove_grad_hook(parameters_.entries()[e].tensor, hooks_[e]);
}

void Buckets::arm(bool listen, Complete instead) {
  instead_ = std::move(instead);
  left_ = backwards_;
  next_ = 0;
  listening_ = listen;
}

// A bucket that fills before its turn waits, so that all ranks start the same collectives in the same order.
void Buckets::completed(std::size_t entry) {
  if (!listening_) return;
  check(left_[entry] > 0, "reducer",
        "the gradient of '{}' is completed a second time before finish(): gradients of several backwards can "
        "only be reduced with overlap = false",
        parameters_.entries()[entry].name);
  --left_[entry];
  const auto is_full = [&] {
    return std::ranges::all_of(members_[next_], [&](std::size_t e) { return left_[e] == 0; });
  };
  const std::size_t before = next_;
  while (next_ < works_.size() && is_full()) start_next();
  if (instead_ && next_ > before) instead_(next_);
}

void Buckets::flush() {
  listening_ = false;
  for (const Slice& slice : slices_) parameters_.zero_missing_grads(slice);
  while (next_ < works_.size()) start_next();
}

void Buckets::start_through(std::size_t bucket) {
  for (; next_ <= bucket; start_next()) parameters_.zero_missing_grads(slices_[next_]);
}

void Buckets::finish() {
  for (auto& work : works_) work.wait();
}

}  // namespace trireme
