#include "framework/tensor.h"

#include <algorithm>
#include <limits>

#include "framework/batch.h"
#include "framework/launch.h"
#include "framework/ledger.h"
#include "framework/tape.h"
#include "kernels/elementwise.h"
#include "kernels/runtime.h"

namespace trireme {
namespace {

constexpr int logical_cpus = 64;

const Tensor::Impl& deref(const std::shared_ptr<Tensor::Impl>& impl, const char* what) {
  check(impl != nullptr, what, "the tensor is undefined");
  return *impl;
}
/// The same of a tensor whose values are wanted.
const Tensor::Impl& stored(const std::shared_ptr<Tensor::Impl>& impl, const char* what) {
  const Tensor::Impl& from = deref(impl, what);
  check(!from.released, what,
        "this weight's values ({}) are on other ranks since a step, in their shard or pipeline stage: call "
        "Step::gather() on all ranks first",
        from.shape);
  return from;
}
Tensor wrap(std::shared_ptr<Block> block, std::size_t offset, const Shape& shape, DType dtype) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->block = std::move(block);
  impl->offset = offset;
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}
/// The same block under another shape, of the same batch.
Tensor shape_as(const Tensor::Impl& from, const Shape& shape) {
  Tensor y = wrap(from.block, from.offset, shape, from.dtype);
  y.impl()->batch = from.batch;
  return y;
}

/// Throws Error when a number is none of an integer dtype's.
void check_element(const char* op, double value, DType dtype) {
  if (is_float(dtype)) return;
  dispatch_any(dtype, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) {
      const auto low = static_cast<double>(std::numeric_limits<T>::min());
      const double above = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);  // max + 1
      check((value > low - 1 || value == low) && value < above, op, "{} does not fit in {}", value, dtype);
    }
  });
}

Runtime& runtime_of(Device d) {
  check(d.index >= 0 && (d.kind != DeviceKind::cpu || d.index < logical_cpus), "device",
        "there is no {}: logical CPUs are cpu:0 to cpu:{}, GPUs start at cuda:0", d, logical_cpus - 1);
  return runtime(d.kind);
}

/// Fills in a -1 and checks the count.
Shape resolve(const Shape& from, Shape to) {
  int hole = -1;
  Index known = 1;
  for (int i = 0; i < to.rank(); ++i) {
    check(to[i] >= 0 || (to[i] == -1 && hole < 0), "reshape", "{}: extents are >= 0, one may be -1", to);
    if (to[i] < 0)
      hole = i;
    else
      known *= to[i];
  }
  if (hole >= 0 && known > 0) to[hole] = from.numel() / known;
  check(to.numel() == from.numel() && (hole < 0 || known > 0), "reshape", "{} has {} elements and cannot become {}",
        from, from.numel(), to);
  return to;
}

}  // namespace

// Never null, also for no bytes: an empty tensor is defined.
Block::Block(std::size_t n, Device d)
    : data(runtime_of(d).allocate(std::max<std::size_t>(n, 1), d)), bytes(n), device(d) {
  if (const LedgerScope* scope = LedgerScope::current()) {
    use = scope->use(), ledger = scope->ledger();
    ledger->add(use, static_cast<Index>(bytes));
  }
}
Block::~Block() {
  if (ledger) ledger->add(use, -static_cast<Index>(bytes));
  runtime(device.kind).release(data, std::max<std::size_t>(bytes, 1), device);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  const std::size_t bytes = checked_bytes("empty", shape, dtype);
  return wrap(std::make_shared<Block>(bytes, device), 0, shape, dtype);
}
Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  check_element("full", value, dtype);
  Tensor t = empty(shape, dtype, device);
  launch<kernel::Fill>(t, value);
  return t;
}
Tensor Tensor::scalar(double value, DType dtype, Device device) { return full({}, value, dtype, device); }
Tensor Tensor::of(std::span<const double> values, const Shape& shape, DType dtype) {
  checked_bytes("of", shape, dtype);
  check(static_cast<Index>(values.size()) == shape.numel(), "of", "{} values for shape {} of {} elements",
        values.size(), shape, shape.numel());
  Tensor t = empty(shape, dtype);
  dispatch_any(dtype, [&]<class T>(T) {
    T* to = t.data<T>();
    for (const double value : values) {
      if constexpr (std::is_integral_v<T>) check_element("of", value, dtype);
      *to++ = element<T>(value);
    }
  });
  return t;
}
Tensor Tensor::like(const Tensor& other) {
  Tensor y = empty(other.shape(), other.dtype(), other.device());
  y.impl_->spread = other.impl_->spread;
  return y;
}

const Shape& Tensor::shape() const { return deref(impl_, "shape").shape; }
DType Tensor::dtype() const { return deref(impl_, "dtype").dtype; }
Device Tensor::device() const { return deref(impl_, "device").block->device; }
View Tensor::view() const {
  if (!impl_) return {};
  if (impl_->released) [[unlikely]]
    stored(impl_, "tensor");
  return {static_cast<std::byte*>(impl_->block->data) + impl_->offset, impl_->shape, impl_->dtype,
          impl_->block->device};
}

const Spread* Tensor::spread() const { return impl_ ? impl_->spread.get() : nullptr; }
Tensor Tensor::with_spread(std::shared_ptr<const Spread> spread) const {
  const Impl& from = stored(impl_, "with_spread");
  Tensor y = shape_as(from, from.shape);
  y.impl_->node = from.node;
  y.impl_->spread = std::move(spread);
  return y;
}

const BatchPtr& Tensor::batch() const { return deref(impl_, "batch").batch; }
Tensor Tensor::with_batch(BatchContext batch) const {
  Tensor y = with_spread(deref(impl_, "with_batch").spread);
  if (!batch.calls) batch.calls = std::make_shared<RandomCalls>();
  y.impl_->batch = std::make_shared<BatchContext>(std::move(batch));
  return y;
}

std::vector<double> Tensor::to_vector() const {
  const View v = deref(impl_, "to_vector").block->device.kind == DeviceKind::cpu ? view() : View{};
  if (!v) return detach().to(cpu()).to_vector();
  runtime(v.device.kind).synchronize(v.device);
  std::vector<double> values(static_cast<std::size_t>(v.numel()));
  dispatch_any(v.dtype, [&]<class T>(T) {
    std::transform(v.as<T>(), v.as<T>() + v.numel(), values.begin(), [](T x) { return static_cast<double>(x); });
  });
  return values;
}
double Tensor::item() const {
  check(numel() == 1, "item", "wants one element, the tensor is {}", shape());
  return to_vector()[0];
}

Tensor Tensor::reshape(const Shape& wanted) const {
  const Impl& from = stored(impl_, "reshape");
  const Shape shape = resolve(from.shape, wanted);
  Tensor y = shape_as(from, shape);
  if (shape == from.shape) y.impl_->spread = from.spread;
  if (!needs_record("reshape", y, {this})) return y;
  return record("reshape", std::move(y), {*this}, [before = from.shape](const Tensor& dy, Gradients& g) {
    if (g.wants(0)) g.put(0, dy.reshape(before));
  });
}
Tensor Tensor::to(DType type) const {
  if (type == dtype()) return *this;
  Tensor y = empty(shape(), type, device());
  y.impl_->spread = impl_->spread;
  launch<kernel::Cast>(y, *this);
  if (!needs_record("to", y, {this}) || !is_float(type)) return y;
  return record("to", std::move(y), {*this}, [](const Tensor& dy, Gradients& g) {
    give(g, 0, [&](const Tensor& dx) { launch<kernel::Cast>(dx, dy); });
  });
}
Tensor Tensor::to(Device target) const {
  if (target == device()) return *this;
  Tensor y = empty(shape(), dtype(), target);
  y.impl_->spread = impl_->spread;
  copy_unnoted(y, *this);
  if (!needs_record("to", y, {this})) return y;
  return record("to", std::move(y), {*this},
                [](const Tensor& dy, Gradients& g) { give(g, 0, [&](const Tensor& dx) { copy_unnoted(dx, dy); }); });
}

Tensor Tensor::detach() const {
  const Impl& from = stored(impl_, "detach");
  Tensor y = shape_as(from, from.shape);
  y.impl_->spread = from.spread;
  return y;
}
Tensor Tensor::view_rows(Index begin, Index end) const {
  const Impl& from = stored(impl_, "rows");
  check(from.shape.rank() > 0, "rows", "a scalar has no rows");
  check(0 <= begin && begin <= end && end <= from.shape[0], "rows", "[{}, {}) of {} rows", begin, end, from.shape[0]);
  Shape shape = from.shape;
  shape[0] = end - begin;
  const Index row = from.shape.product(1, shape.rank()) * size_of(from.dtype);
  Tensor y = wrap(from.block, from.offset + static_cast<std::size_t>(begin * row), shape, from.dtype);
  y.impl_->batch = slice_batch(from.batch, from.shape[0], begin, end);
  return y;
}
Tensor Tensor::rows(Index begin, Index end) const {
  Tensor y = view_rows(begin, end);
  const BatchPtr batch = y.impl_->batch;  // the slice's, or none: not the whole's
  if (needs_record("rows", y, {this})) {
    const Shape range{begin, end};
    y = record("rows", std::move(y), {*this}, range, [begin, end](const Tensor& dy, Gradients& g) {
      if (!g.wants(0)) return;
      const Gradients::Target dx = g.into(0);
      const Tensor mine = dx.tensor.view_rows(begin, end);
      if (dx.accumulate) return add_into(mine, dy);
      launch<kernel::Fill>(dx.tensor.view_rows(0, begin), 0.0);
      launch<kernel::Fill>(dx.tensor.view_rows(end, dx.tensor.dim(0)), 0.0);
      copy_unnoted(mine, dy);
    });
  }
  y.impl_->batch = batch;
  return y;
}
Tensor Tensor::clone() const {
  Tensor y = like(*this);
  y.impl_->batch = impl_->batch;
  copy_unnoted(y, *this);
  return y;
}
void Tensor::copy_from(const Tensor& source) const {
  const Impl& to = deref(impl_, "copy_from");
  const Impl& from = deref(source.impl_, "copy_from");
  check(!to.node || to.node->leaf || !recording({this}), "copy_from",
        "the tensor is the result of '{}': a write to it would not be recorded; write to a detach() of it",
        to.node ? to.node->op : "");
  const bool one_block = to.block == from.block;
  if (one_block && to.offset == from.offset && to.dtype == from.dtype && to.shape == from.shape) return;
  const bool overlap = one_block && to.offset < from.offset + static_cast<std::size_t>(source.view().bytes()) &&
                       from.offset < to.offset + static_cast<std::size_t>(view().bytes());
  copy_unnoted(*this, overlap ? source.clone() : source);
  note_write(*this);
}

}  // namespace trireme
