#include "framework/tensor/tensor.h"

#include <algorithm>
#include <limits>

#include "framework/tensor/batch.h"
#include "framework/tensor/fields.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/runtime.h"
#include "kernels/core/skip_copies.h"

namespace trireme {

using detail::deref, detail::shape_as, detail::stored, detail::wrap;

namespace {

constexpr int logical_cpus = 64;

/// Throws Error if an integer dtype cannot represent the number.
void check_element(const char* op, double value, DType dtype) {
  if (is_float(dtype)) return;
  dispatch_any(dtype, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>;
      const auto low = static_cast<double>(Limits::min());
      const double above = 2.0 * static_cast<double>(Limits::max() / 2 + 1);  // max + 1
      check((value > low - 1 || value == low) && value < above, op, "{} does not fit in {}", value, dtype);
    }
  });
}

Runtime& runtime_of(Device d) {
  check(d.index >= 0 && (d.kind != DeviceKind::cpu || d.index < logical_cpus), "device",
        "there is no {}: logical CPUs are cpu:0 to cpu:{}, GPUs start at cuda:0", d, logical_cpus - 1);
  return runtime(d.kind);
}

void* new_block(std::size_t bytes, Device d, detail::Pages pages) {
  Runtime& by = runtime_of(d);
  if (pages == detail::Pages::on_demand) return by.allocate_zeros(bytes, d);
  return pages == detail::Pages::discardable ? by.allocate_discardable(bytes, d) : by.allocate(bytes, d);
}

}  // namespace

// Never null, even for 0 bytes: an empty tensor is defined.
detail::Storage::Storage(std::size_t n, Device d, Pages pages)
    : data(new_block(std::max<std::size_t>(n, 1), d, pages)), bytes(n), device(d) {
  if (const MemoryScope* scope = MemoryScope::current()) {
    use = scope->kind();
    counts = scope->counts();
    counts->add(use, static_cast<Index>(bytes));
  }
}
detail::Storage::~Storage() {
  if (counts) counts->add(on_host ? MemoryKind::offloaded : use, -static_cast<Index>(bytes));
  if (release)
    release();
  else if (!on_host)
    runtime(device.kind).release(data, std::max<std::size_t>(bytes, 1), device);
}

void detail::Storage::offload() {
  Runtime& by = runtime(device.kind);
  const View all{data, {static_cast<Index>(bytes)}, DType::u8, device};
  if (!skip_copies || !skip_copies->skips(all)) copy_back = by.offload(data, bytes, device);
  by.release(data, std::max<std::size_t>(bytes, 1), device);
  on_host = true;
  if (!counts) return;
  counts->add(use, -static_cast<Index>(bytes));
  counts->add(MemoryKind::offloaded, static_cast<Index>(bytes));
}
void detail::Storage::fetch() {
  const View all{data, {static_cast<Index>(bytes)}, DType::u8, device};
  if (origin && skip_copies && skip_copies->skips(all)) return;  // a dry run uses no elements
  Runtime& by = runtime(device.kind);
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* const fresh = by.allocate(size, device);
  try {
    if (copy_back) copy_back(fresh);
    if (origin) by.copy(fresh, device, data, origin->device, bytes);
  } catch (...) {
    by.release(fresh, size, device);
    throw;
  }
  data = fresh;
  copy_back = nullptr;
  origin = nullptr;
  on_host = false;
  if (!counts) return;
  counts->add(MemoryKind::offloaded, -static_cast<Index>(bytes));
  counts->add(use, static_cast<Index>(bytes));
}
void detail::offload(const Tensor& t) {
  Storage& block = *t.impl()->block;
  const bool whole = t.view().bytes() == static_cast<Index>(block.bytes);
  if (block.device.kind != DeviceKind::cpu && whole && !block.release && !block.origin) block.offload();
}

Tensor detail::moved_later(const Tensor& host, Device device) {
  const Tensor::Impl& from = stored(host.impl(), "to");
  (void)runtime_of(device).stream(device);  // throws for a device that does not exist
  const auto bytes = static_cast<std::size_t>(host.view().bytes());
  return wrap(std::make_shared<Storage>(from.block, from.offset, bytes, device), 0, from.shape, from.dtype);
}
Tensor detail::host_of(const Tensor& t) {
  const Tensor::Impl& i = deref(t.impl(), "host_of");
  const std::shared_ptr<Storage>& host = i.block->origin;
  if (!host) return {};
  const auto begin = static_cast<std::byte*>(i.block->data) - static_cast<std::byte*>(host->data);
  return wrap(host, static_cast<std::size_t>(begin) + i.offset, i.shape, i.dtype);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  const std::size_t bytes = checked_bytes("empty", shape, dtype);
  return wrap(std::make_shared<detail::Storage>(bytes, device), 0, shape, dtype);
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
  check(static_cast<Index>(values.size()) == shape.numel(), "of", "got {} values for shape {}, expected {}",
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
Tensor Tensor::from_bytes(std::span<const std::byte> elements, const Shape& shape, DType dtype) {
  const std::size_t bytes = checked_bytes("from", shape, dtype), size = static_cast<std::size_t>(size_of(dtype));
  check(elements.size() == bytes, "from", "got {} values for shape {}, expected {}", elements.size() / size, shape,
        shape.numel());
  Tensor t = empty(shape, dtype);
  std::ranges::copy(elements, t.data<std::byte>());
  return t;
}
Tensor Tensor::like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }

const Shape& Tensor::shape() const { return deref(impl_, "shape").shape; }
DType Tensor::dtype() const { return deref(impl_, "dtype").dtype; }
Device Tensor::device() const { return deref(impl_, "device").block->device; }
View Tensor::view() const {
  if (!impl_) return {};
  if (impl_->released) [[unlikely]]
    stored(impl_, "tensor");
  if (impl_->block->on_host) [[unlikely]]
    impl_->block->fetch();
  return {static_cast<std::byte*>(impl_->block->data) + impl_->offset, impl_->shape, impl_->dtype,
          impl_->block->device};
}

const ShardSpec* Tensor::shard_spec() const { return impl_ ? impl_->shard_spec.get() : nullptr; }
Tensor Tensor::with_shard_spec(std::shared_ptr<const ShardSpec> shard_spec) const {
  const Impl& from = stored(impl_, "with_shard_spec");
  Tensor y = shape_as(from, from.shape);
  y.impl_->node = from.node;
  y.impl_->shard_spec = std::move(shard_spec);
  y.impl_->fields = from.fields;
  return y;
}

const std::map<std::string, Tensor>& Tensor::fields() const {
  static const std::map<std::string, Tensor> none;
  const auto& all = deref(impl_, "fields").fields;
  return all ? *all : none;
}
const Tensor& Tensor::at(const std::string& name) const {
  const auto found = fields().find(name);
  check(found != fields().end(), "at", "this tensor has no field '{}'; there are: {}", name, [&] {
    std::string names;
    for (const auto& [known, t] : fields()) names += (names.empty() ? "'" : ", '") + known + "'";
    return names.empty() ? std::string("none") : names;
  });
  return found->second;
}

const BatchContext* Tensor::batch() const { return deref(impl_, "batch").batch.get(); }
Tensor Tensor::with_batch(BatchContext batch) const {
  (void)deref(impl_, "with_batch");
  if (!batch.calls) batch.calls = std::make_shared<RandomCalls>();
  return in_batch(*this, std::make_shared<const BatchContext>(std::move(batch)));
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
void Tensor::copy_bytes_to(std::span<std::byte> elements, DType type) const {
  const Tensor host = detach().to(cpu()).to(type);
  const View v = host.view();
  check(static_cast<Index>(elements.size()) == v.bytes(), "copy_bytes_to", "{} bytes for {} of {}", elements.size(),
        v.shape, type);
  runtime(v.device.kind).synchronize(v.device);
  std::copy_n(v.as<const std::byte>(), elements.size(), elements.data());
}
double Tensor::item() const {
  check(numel() == 1, "item", "the tensor is {}, expected one element", shape());
  return to_vector()[0];
}

Tensor Tensor::detach() const {
  const Impl& from = stored(impl_, "detach");
  Tensor y = shape_as(from, from.shape);
  y.impl_->shard_spec = from.shard_spec;
  if (from.fields) y.impl_->fields = detail::each_field(from, [](const Tensor& t) { return t.detach(); });
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
  if (from.fields)
    y.impl_->fields = detail::each_field(
        from, [&](const Tensor& t) { return has_rows_of(t, from) ? t.view_rows(begin, end) : t.detach(); });
  return y;
}
Tensor Tensor::clone() const {
  Tensor y = like(*this);
  y.impl_->shard_spec = impl_->shard_spec;
  y.impl_->batch = impl_->batch;
  copy_unnoted(y, *this);
  return y;
}
}  // namespace trireme
