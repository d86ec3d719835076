#include "framework/writes.h"

#include <algorithm>
#include <mutex>

#include "framework/launch.h"
#include "framework/tape.h"
#include "kernels/elementwise.h"
#include "kernels/runtime.h"

namespace trireme {
namespace {

constexpr std::size_t most_kept = 2048;
std::mutex guard;  // of every block's list: partial writes are rare

}  // namespace

void Writes::add(std::size_t begin, std::size_t end, std::size_t block_bytes) {
  const std::lock_guard lock(guard);
  const std::uint64_t number = ++count_;
  if (begin == 0 && end >= block_bytes) {
    anywhere_ = number;
    partial_ = nullptr;
    return;
  }
  if (!partial_) partial_ = std::make_unique<std::vector<Write>>();
  if (partial_->size() == most_kept) {
    const auto half = partial_->begin() + most_kept / 2;
    anywhere_ = std::prev(half)->number;
    partial_->erase(partial_->begin(), half);
  }
  partial_->push_back({number, begin, end});
}
bool Writes::search(std::uint64_t since, std::size_t begin, std::size_t end) const {
  const std::lock_guard lock(guard);
  return anywhere_ > since || (partial_ && std::any_of(partial_->begin(), partial_->end(), [&](const Write& w) {
                                 return w.number > since && w.begin < end && begin < w.end;
                               }));
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

View detail::lower(const SavedTensor& t) { return t; }

void SavedTensor::check_unwritten() const {
  const Tensor::Impl& t = *t_.impl();
  const auto bytes = static_cast<std::size_t>(t_.view().bytes());
  check(!t.block->writes.touched(writes_, t.offset, t.offset + bytes), "backward",
        "'{}' needs a tensor {} as it was in the forward, but it has been written to in place since (by copy_from, an "
        "initialiser or an optimizer's step): write to it after backward, or to a clone()",
        op_in_backward(), t.shape);
}

}  // namespace trireme
