#include "kernels/cpu/convert.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/parallel.h"

namespace trireme {
namespace {

std::size_t copy_bytes(const View& v) {
  return v && v.dtype == DType::bf16 ? static_cast<std::size_t>(v.numel()) * sizeof(float) : 0;
}
View in_f32(const View& v, const onednn::Scratch& copy) {
  View f = v;
  if (v && v.dtype == DType::bf16) f.data = copy.data(), f.dtype = DType::f32;
  return f;
}

template <class T, class S>
void sum_rows_of(const View& sum, const View& x, bool accumulate) {
  using A = Accumulator<T>;
  Index channels = sum.numel(), rows = channels == 0 ? 0 : x.numel() / channels;
  // One partial sum per chunk, added in order: the result depends on the number of threads alone.
  std::vector<std::vector<A>> partial(static_cast<std::size_t>(threads()));
  parallel_for(rows, channels, [&](Index begin, Index end, int part) {
    std::vector<A> total(static_cast<std::size_t>(channels), A(0));
    const T* from = x.as<T>();
    A* to = total.data();
    for (Index r = begin; r < end; ++r) {
      const T* row = from + r * channels;
#pragma omp simd
      for (Index c = 0; c < channels; ++c) to[c] += static_cast<A>(row[c]);
    }
    partial[static_cast<std::size_t>(part)] = std::move(total);
  });
  S* out = sum.as<S>();
  for (Index c = 0; c < channels; ++c) {
    A total = accumulate ? static_cast<A>(out[c]) : A(0);
    for (const auto& p : partial)
      if (!p.empty()) total += p[static_cast<std::size_t>(c)];
    out[c] = static_cast<S>(total);
  }
}

}  // namespace

void convert(void* to, DType to_type, const void* from, DType from_type, Index n) {
  if (to_type == from_type) {
    runtime(DeviceKind::cpu).copy(to, from, static_cast<std::size_t>(n * size_of(to_type)), cpu());
    return;
  }
  bool widen = from_type == DType::bf16 && to_type == DType::f32;
  check(widen || (from_type == DType::f32 && to_type == DType::bf16), "convert",
        "f32 and bf16 are expected, got {} to {}", from_type, to_type);
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
  check(x.shape.rank() > 0 && sum.shape == Shape{x.shape[-1]}, op,
        "bias gradient is {}, the output gradient is {}", sum.shape, x.shape);
  bool wide = x.dtype == DType::bf16 && sum.dtype == DType::f32;
  check(wide || sum.dtype == x.dtype, op, "bias gradient is {}, the output gradient is {}", sum.dtype,
        x.dtype);
  if (wide) return sum_rows_of<bf16, float>(sum, x, accumulate);
  dispatch_float(x.dtype, op, [&]<class T>(T) { sum_rows_of<T, T>(sum, x, accumulate); });
}

}  // namespace trireme
