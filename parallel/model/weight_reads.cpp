#include "parallel/model/weight_reads.h"

#include <string_view>
#include <utility>

#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

const std::byte* end_of_view(const View& v) { return static_cast<const std::byte*>(v.data) + v.bytes(); }

}  // namespace

WeightReads::WeightReads(const ParameterStore& store, Read read) : read_(std::move(read)) {
  for (auto& e : store.entries()) {
    const Index begin = e.slice.begin, count = e.tensor.shape().numel();
    if (count == 0 || e.tensor.dtype() != DType::f32) continue;
    const Tensor rows = store.values().rows(begin, begin + count);  // readable also while other ranks have the values
    weights_[end_of_view(rows.view())] = {static_cast<const std::byte*>(rows.view().data), &e};
  }
}

void WeightReads::see(const LaunchWatch::Call& call) const {
  const std::string_view op = call.op;
  const bool casts = op == kernel::Cast::name || op == kernel::Take::name;  // y, x, ..: every number as y's type
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    see(call.operands[i], casts && i == 1 ? call.operands[0].dtype : DType::f32);
}

void WeightReads::see(const View& copied) const { see(copied, DType::f32); }

void WeightReads::see(const View& v, DType as) const {
  if (v.data == nullptr) return;
  for (auto at = weights_.upper_bound(static_cast<const std::byte*>(v.data)); at != weights_.end(); ++at) {
    if (at->second.data >= end_of_view(v)) return;
    read_(*at->second.entry, as);
  }
}

}  // namespace trireme
