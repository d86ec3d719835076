#include "parallel/plan/packed_statistics.h"

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory_tracker.h"
#include "framework/tensor/storage.h"

namespace trireme {
namespace {

/// Calls f(buffer, segment) for each buffer of the slice; segment: its range in the packed block.
template <class F>
void each_buffer(const ParameterStore& store, const Slice& packed, F&& f) {
  Index at = 0;
  for (auto& b : store.buffers()) {
    const Index end = at + b.tensor.numel();
    if (packed.begin <= at && end <= packed.end) f(b.tensor, at - packed.begin, end - packed.begin);
    at = end;
  }
}

}  // namespace

Work average_statistics(Communicator& comm, const ParameterStore& store, const Slice& slice) {
  const NoGrad off;
  const MemoryScope packed(MemoryKind::packed);
  const Tensor& first = store.buffers().at(0).tensor;
  const Tensor block = Tensor::empty({slice.size()}, first.dtype(), first.device());
  each_buffer(store, slice, [&](const Tensor& b, Index begin, Index end) {
    copy_unnoted(block.view_rows(begin, end), b.reshape({b.numel()}));
  });
  return when_all({comm.all_reduce(block)}, [&store, slice, block, ranks = comm.size()] {
    const NoGrad off;
    const Tensor mean = scale(block, 1.0 / ranks);
    each_buffer(store, slice, [&](const Tensor& b, Index begin, Index end) {
      copy_unnoted(b, mean.view_rows(begin, end).reshape(b.shape()));
    });
  });
}

}  // namespace trireme
