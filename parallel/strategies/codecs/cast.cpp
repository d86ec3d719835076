// Gradients rounded to two bytes.
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

void encode(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    (void)detail::with_residual<T>(now, numbers);
    const Tensor all = now.states[0] ? now.states[0] : numbers;
    for (Index begin = 0, end = 0; begin < now.size; begin = end) {  // pieces that fit the cache
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

constexpr Codec rounded(std::string_view name, DType wire) {
  return {.name = name,
          .wire = wire,
          .is_summable = true,
          .length = [](const CodecContext& now) { return now.size; },
          .encode = encode,
          .decode = [](const CodecContext&, const Tensor& wire, const Tensor& numbers) { numbers.copy_from(wire); },
          .states = {{"residual", "residual"}},
          .working = [](const CodecContext& now) { return std::min<Index>(now.size, 1 << 14) * now.element; },
          .on_host = true};
}

}  // namespace

const Codec codec_rows::bf16 = rounded("bf16", DType::bf16);
const Codec codec_rows::f16 = rounded("f16", DType::f16);

}  // namespace trireme
