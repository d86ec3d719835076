// Gradients rounded to two bytes.
#include <cmath>

#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

void encode(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    (void)detail::with_residual<T>(now, numbers);
    const Tensor all = now.states[0] ? now.states[0] : numbers;
    for (Index begin = 0, end = 0; begin < now.size; begin = end) {  // what the caches hold
      end = std::min(now.size, begin + (1 << 14));
      const Tensor kept = all.view_rows(begin, end), part = wire.view_rows(begin, end);
      part.copy_from(kept);
      const Tensor sent = part.to(numbers.dtype());
      vectorised([kept = kept.data<T>(), sent = sent.data<T>(), n = end - begin] {
#pragma omp simd
        for (Index i = 0; i < n; ++i) kept[i] -= sent[i];
      });
    }
  });
}

/// Throws Error (numerics), on all ranks, where the sum is infinite: f16 ends at 65504.
void decode_rounded(const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
  numbers.copy_from(wire);
  if (wire.dtype() != DType::f16) return;
  Index infinite = -1;
  detail::with_type(numbers, [&]<class T>(T) {
    const T* const values = numbers.data<T>();
    for (Index i = 0; i < now.size && infinite < 0; ++i)
      if (std::isinf(values[i])) infinite = i;
  });
  if (infinite >= 0)
    fail(ErrorKind::numerics, "f16",
         "the gradient of element {} of the flat block, summed over the ranks, is above 65504, the largest f16: use "
         "compress(codec=bf16), or a smaller learning rate",
         now.action.slice.begin + infinite);
}

constexpr Codec rounded(std::string_view name, DType wire) {
  return {.name = name,
          .wire = wire,
          .is_summable = true,
          .length = [](const CodecContext& now) { return now.size; },
          .encode = encode,
          .decode = decode_rounded,
          .states = {{"residual", "residual"}},
          .working = [](const CodecContext& now) { return std::min<Index>(now.size, 1 << 14) * now.element; },
          .on_host = true};
}

}  // namespace

const Codec codec_rows::bf16 = rounded("bf16", DType::bf16);
const Codec codec_rows::f16 = rounded("f16", DType::f16);

}  // namespace trireme
