#include "framework/tensor/writes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "framework/tensor/launch.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/runtime.h"
#include "kernels/core/skip_copies.h"

namespace trireme {
namespace {

constexpr std::size_t most_kept = 2048;
std::mutex guard;  // for the ranges of every block: noted writes are rare

}  // namespace

std::atomic<std::uint64_t> detail::Writes::latest_ = 0;

void detail::Writes::add(std::size_t begin, std::size_t end, std::size_t block_bytes) {
  if (begin >= end) return;
  const std::lock_guard lock(guard);
  const std::uint64_t number = ++latest_;
  last_ = number;
  if (begin == 0 && end >= block_bytes) {
    anywhere_ = number;
    partial_ = nullptr;
    return;
  }
  if (!partial_) partial_ = std::make_unique<std::map<std::size_t, Range>>();
  cut(begin);
  cut(end);
  partial_->erase(partial_->lower_bound(begin), partial_->lower_bound(end));
  partial_->emplace(begin, Range{end, number});
  if (partial_->size() > most_kept) thin_out();
}

/// Splits the range that contains a position.
void detail::Writes::cut(std::size_t at) {
  const auto next = partial_->lower_bound(at);
  if (next == partial_->begin()) return;
  Range& around = std::prev(next)->second;
  if (around.end <= at) return;
  partial_->emplace_hint(next, at, around);
  around.end = at;
}

/// Merges adjacent ranges of the older half and gives them the number of the last write. If that frees too little,
/// drops the positions of the older half.
void detail::Writes::thin_out() {
  std::vector<std::uint64_t> numbers;
  for (auto& [begin, stretch] : *partial_) numbers.push_back(stretch.number);
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  const std::uint64_t old = *middle;
  for (auto at = partial_->begin(); at != partial_->end();) {
    const auto next = std::next(at);
    Range& s = at->second;
    if (next == partial_->end() || s.end != next->first || s.number > old || next->second.number > old) {
      at = next;
      continue;
    }
    s = {next->second.end, std::max(s.number, next->second.number)};
    partial_->erase(next);
  }
  if (partial_->size() <= most_kept / 4 * 3) return;
  anywhere_ = std::max(anywhere_, old);
  std::erase_if(*partial_, [&](const auto& entry) { return entry.second.number <= old; });
}

bool detail::Writes::search(std::uint64_t since, std::size_t begin, std::size_t end) const {
  if (begin >= end) return false;
  const std::lock_guard lock(guard);
  if (anywhere_ > since) return true;
  if (!partial_) return false;
  auto at = partial_->upper_bound(begin);
  if (at != partial_->begin() && std::prev(at)->second.end > begin) --at;
  for (; at != partial_->end() && at->first < end; ++at)
    if (at->second.number > since) return true;
  return false;
}

void note_write(const Tensor& t) {
  const Tensor::Impl& i = *t.impl();
  i.block->writes.add(i.offset, i.offset + static_cast<std::size_t>(t.view().bytes()), i.block->bytes);
}

void copy_unnoted(const Tensor& to, const Tensor& from) {
  check(from.shape() == to.shape(), "copy_from", "the source is {}, the target {}", from.shape(), to.shape());
  if (to.numel() == 0) return;
  if (from.dtype() != to.dtype()) {
    if (from.device() == to.device()) return launch<kernel::Cast>(to, from);
    return copy_unnoted(to, from.detach().to(to.dtype()));
  }
  copy_block(to.view(), from.view());
}

void zero_untouched(const Tensor& t) {
  const View v = t.view();
  if (v.device.kind != DeviceKind::cpu) return launch<kernel::Fill>(t, 0.0);
  runtime(v.device.kind).zero(v.data, static_cast<std::size_t>(v.bytes()), v.device);
}

void copy_to_zeros(const Tensor& to, const Tensor& from) {
  const View target = to.view(), source = from.view();
  const bool on_host = target.device.kind == DeviceKind::cpu && source.device.kind == DeviceKind::cpu;
  if (!on_host || target.shape != source.shape || detail::skip_copies != nullptr) return copy_unnoted(to, from);
  static constexpr std::array<std::byte, 4096> zeros{};
  const auto part = [](const View& v, Index begin, Index end) {
    return View{static_cast<std::byte*>(v.data) + begin * size_of(v.dtype), Shape{end - begin}, v.dtype, v.device};
  };
  const Index step = static_cast<Index>(zeros.size()) / size_of(source.dtype);
  for (Index begin = 0; begin < target.numel(); begin += step) {
    const Index end = std::min(begin + step, target.numel());
    const View page = part(source, begin, end), goal = part(target, begin, end);
    const auto bytes = static_cast<std::size_t>(page.bytes());
    if (std::memcmp(page.data, zeros.data(), bytes) == 0) continue;
    if (target.dtype == source.dtype)
      std::memcpy(goal.data, page.data, bytes);
    else
      launch<kernel::Cast>(goal, page);
  }
}

}  // namespace trireme
