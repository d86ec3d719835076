#include "framework/io/dlpack.h"

#include <dlpack/dlpack.h>

#include <memory>
#include <utility>
#include <vector>

#include "framework/tensor/launch.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/move.h"
#include "kernels/core/runtime.h"

namespace trireme {
namespace {

constexpr char dlpack_op[] = "dlpack";
constexpr std::uint8_t dl_bool = 6;  // kDLBool, since DLPack 0.8

DLDataType data_type(DType t) {
  const auto of = [&](int code) {
    return DLDataType{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(t)), 1};
  };
  if (t == DType::boolean) return of(dl_bool);
  if (t == DType::bf16) return of(kDLBfloat);
  return of(is_float(t) ? kDLFloat : t == DType::u8 ? kDLUInt : kDLInt);
}
DType dtype_from(DLDataType given) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::i8,
                        DType::i16, DType::boolean}) {
    const DLDataType ours = data_type(t);
    if (ours.code == given.code && ours.bits == given.bits && given.lanes == 1) return t;
  }
  fail(dlpack_op, "elements have code {}, {} bits and {} lanes, which no DType has: convert them first",
       int(given.code), int(given.bits), int(given.lanes));
}

/// The block that a consumer gets: one allocation with all that the DLManagedTensor points to.
struct Lent {
  Tensor tensor;
  std::vector<std::int64_t> shape;
  DLManagedTensor managed{};
};

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& given) {
  check(given.defined(), dlpack_op, "the tensor is undefined");
  auto lent = std::make_unique<Lent>();
  lent->tensor = given.detach();
  const View v = lent->tensor.view();
  runtime(v.device.kind).synchronize(v.device);
  lent->shape.assign(v.shape.begin(), v.shape.end());
  const bool host = v.device.kind == DeviceKind::cpu;
  lent->managed.dl_tensor = {.data = v.data,
                             .device = {host ? kDLCPU : kDLCUDA, host ? 0 : v.device.index},
                             .ndim = v.shape.rank(),
                             .dtype = data_type(v.dtype),
                             .shape = lent->shape.data(),
                             .strides = nullptr,
                             .byte_offset = 0};
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Lent*>(self->manager_ctx); };
  return &lent.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  check(managed != nullptr, dlpack_op, "the managed tensor is null");
  const DLTensor& t = managed->dl_tensor;
  const auto kind = t.device.device_type;
  check(kind == kDLCPU || kind == kDLCUDAHost || kind == kDLCUDA, dlpack_op,
        "device type {} is neither the host's nor CUDA's", static_cast<int>(kind));
  const Device device = kind == kDLCUDA ? cuda(t.device.device_id) : cpu();
  const DType dtype = dtype_from(t.dtype);
  check(t.ndim >= 0 && t.ndim <= Shape::max_rank, dlpack_op, "{} axes, at most {}", t.ndim, int(Shape::max_rank));
  Shape shape;
  for (int i = 0; i < t.ndim; ++i) shape.push_back(t.shape[i]);
  const std::size_t bytes = checked_bytes(dlpack_op, shape, dtype);
  // Axes with at most one element may have any stride: such a tensor is still row-major.
  std::vector<std::int64_t> steps(static_cast<std::size_t>(t.ndim));
  Index dense = 1;
  bool row_major = true;
  for (int i = t.ndim; i-- > 0; dense *= shape[i]) {
    steps[static_cast<std::size_t>(i)] = t.strides ? t.strides[i] : dense;
    row_major = row_major && (shape[i] <= 1 || steps[static_cast<std::size_t>(i)] == dense);
  }
  auto* first = static_cast<std::byte*>(t.data) + t.byte_offset;
  const auto finish = [managed] {
    if (managed->deleter) managed->deleter(managed);
  };
  if (row_major || bytes == 0) {
    auto block = std::make_shared<detail::Storage>(first, bytes, device, finish);
    return detail::wrap(std::move(block), 0, shape, dtype);
  }
  check(device.kind == DeviceKind::cpu, dlpack_op, "strides of a tensor on a GPU: make it contiguous first");
  Tensor copy = Tensor::empty(shape, dtype);
  const Index size = size_of(dtype);
  auto* to = copy.data<std::byte>();
  for (Index i = 0; i < shape.numel(); ++i, to += size) {
    Index from = 0, rest = i;
    for (int axis = t.ndim; axis-- > 0; rest /= shape[axis])
      from += rest % shape[axis] * steps[static_cast<std::size_t>(axis)];
    std::copy_n(first + from * size, size, to);
  }
  finish();
  return copy;
}

}  // namespace trireme
