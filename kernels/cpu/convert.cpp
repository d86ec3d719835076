#include "kernels/cpu/convert.h"

#include "kernels/cpu/columns.h"
#include "kernels/plans/checks.h"

namespace trireme {
namespace {

std::size_t copy_bytes(const View& v) {
  return v && v.dtype == DType::bf16 ? static_cast<std::size_t>(v.numel()) * sizeof(float) : 0;
}
View in_f32(const View& v, const onednn::Scratch& copy) {
  View f = v;
  if (v && v.dtype == DType::bf16) {
    f.data = copy.data();
    f.dtype = DType::f32;
  }
  return f;
}

template <class T>
void sum_rows_of(const View& sum, const View& x, bool accumulate, std::string_view op) {
  using A = Accumulator<T>;
  Index channels = sum.numel(), rows = channels == 0 ? 0 : x.numel() / channels;
  double* total = column_sums<A>(1, rows, channels, [=, from = x.as<const T>()](A* acc, Index begin, Index end) {
    for (Index r = begin; r < end; ++r)
#pragma omp simd
      for (Index c = 0; c < channels; ++c) acc[c] += static_cast<A>(from[r * channels + c]);
  });
  store(sum, total, accumulate, op);
}

}  // namespace

void convert(void* to, DType to_type, const void* from, DType from_type, Index n) {
  if (to_type == from_type) {
    runtime(DeviceKind::cpu).copy(to, cpu(), from, cpu(), static_cast<std::size_t>(n * size_of(to_type)));
    return;
  }
  bool widen = from_type == DType::bf16 && to_type == DType::f32;
  check(widen || (from_type == DType::f32 && to_type == DType::bf16), "convert", "got {} to {}, expected f32 or bf16",
        from_type, to_type);
  parallel_for(n, 1, [&](Index begin, Index end) {
    if (widen)
      for (Index i = begin; i < end; ++i) static_cast<float*>(to)[i] = static_cast<const bf16*>(from)[i];
    else
      for (Index i = begin; i < end; ++i) static_cast<bf16*>(to)[i] = static_cast<const float*>(from)[i];
  });
}

InF32::InF32(const View& v) : copy_(copy_bytes(v)), view_(in_f32(v, copy_)) {
  if (view_.data != v.data) convert(view_.data, DType::f32, v.data, v.dtype, v.numel());
}

OutF32::OutF32(const View& v, bool load) : target_(v), copy_(copy_bytes(v)), view_(in_f32(v, copy_)) {
  if (load && view_.data != v.data) convert(view_.data, DType::f32, v.data, v.dtype, v.numel());
}
void OutF32::store() const {
  if (view_.data != target_.data) convert(target_.data, target_.dtype, view_.data, DType::f32, view_.numel());
}

void sum_rows(const View& sum, const View& x, bool accumulate, std::string_view op) {
  check_sum_rows(sum, x, op);
  dispatch_float(x.dtype, op, [&]<class T>(T) { sum_rows_of<T>(sum, x, accumulate, op); });
}

}  // namespace trireme
