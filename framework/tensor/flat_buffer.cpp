#include "framework/tensor/flat_buffer.h"

#include <algorithm>

#include "framework/tensor/launch.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

/// Parts of it may be released, if other ranks have them.
Tensor new_flat(Index size, DType dtype, Device device, detail::Pages pages) {
  const std::size_t bytes = checked_bytes("flat buffer", {size}, dtype);
  return detail::wrap(std::make_shared<detail::Storage>(bytes, device, pages), 0, {size}, dtype);
}

}  // namespace

FlatBuffer::FlatBuffer(const std::vector<Extent>& extents, double value, DType dtype, bool on_demand) {
  check(!on_demand || value == 0, "flat buffer", "memory on demand is for zeros, but the value is {}", value);
  for (std::size_t i = 0; i < extents.size();) {
    const Device device = extents[i].device;
    Index size = 0;
    for (; i < extents.size() && extents[i].device == device; ++i) size += extents[i].size;
    using detail::Pages;
    blocks_.push_back(new_flat(size, dtype, device, on_demand ? Pages::on_demand : Pages::discardable));
    if (value != 0)
      launch<kernel::Fill>(blocks_.back(), value);
    else if (!on_demand)
      zero_untouched(blocks_.back());
    starts_.push_back(starts_.back() + size);
  }
  if (blocks_.empty()) {
    blocks_.push_back(Tensor::full({0}, value, dtype));
    starts_.push_back(0);
  }
}

std::size_t FlatBuffer::block_of(Index at) const {
  check(!blocks_.empty(), "flat buffer", "it is empty: it has no elements, type or device");
  std::size_t b = 0;
  while (b + 1 < blocks_.size() && at >= starts_[b + 1]) ++b;
  return b;
}

Tensor FlatBuffer::rows(Index begin, Index end) const {
  check(0 <= begin && begin <= end && end <= numel(), "rows", "[{}, {}) of {} elements", begin, end, numel());
  const std::size_t b = block_of(begin);
  check(end <= starts_[b + 1], "rows", "[{}, {}) lies partly on {} and partly on {}", begin, end, device_of(begin),
        device_of(end - 1));
  return blocks_[b].view_rows(begin - starts_[b], end - starts_[b]);
}

std::vector<Slice> FlatBuffer::cut(const Slice& slice) const {
  std::vector<Slice> parts;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Slice part{std::max(slice.begin, starts_[b]), std::min(slice.end, starts_[b + 1])};
    if (part.size() > 0) parts.push_back(part);
  }
  return parts;
}

std::vector<double> FlatBuffer::squares(const std::vector<Slice>& slices) const {
  std::vector<std::vector<std::size_t>> on_block(blocks_.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].size() <= 0) continue;
    (void)rows(slices[i].begin, slices[i].end);
    on_block[block_of(slices[i].begin)].push_back(i);
  }
  std::vector<Tensor> sums(blocks_.size());
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (on_block[b].empty()) continue;
    const auto n = std::ssize(on_block[b]);
    Slice hull = slices[on_block[b].front()];
    for (std::size_t i : on_block[b]) hull = {std::min(hull.begin, slices[i].begin), std::max(hull.end, slices[i].end)};
    const Tensor x = rows(hull.begin, hull.end), bounds = n > 1 ? Tensor::empty({n, 2}, DType::i64) : Tensor();
    auto* at = n > 1 ? bounds.data<std::int64_t>() : nullptr;
    for (std::size_t i : on_block[b])
      if (at) {
        *at++ = slices[i].begin - hull.begin;
        *at++ = slices[i].end - hull.begin;
      }
    sums[b] = Tensor::zeros({n}, DType::f64, x.device());
    trireme::launch<kernel::SumSquares>(sums[b], x, at ? bounds.to(x.device()) : bounds);
  }
  std::vector<double> all(slices.size());
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (on_block[b].empty()) continue;
    const std::vector<double> found = sums[b].to_vector();
    for (std::size_t k = 0; k < found.size(); ++k) all[on_block[b][k]] = found[k];
  }
  return all;
}

std::vector<double> FlatBuffer::to_vector() const {
  std::vector<double> all;
  for (const Tensor& block : blocks_)
    for (double v : block.to_vector()) all.push_back(v);
  return all;
}

}  // namespace trireme
