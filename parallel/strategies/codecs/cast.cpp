// Gradients rounded to two bytes.
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/codecs/encode.h"

namespace trireme {
namespace {

void encode(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  detail::with_type(numbers, [&]<class T>(T) {
    T* const kept = detail::with_residual<T>(now, numbers);
    wire.copy_from(now.states[0] ? now.states[0] : numbers);
    const Tensor sent = wire.to(numbers.dtype());
    vectorised([kept, sent = sent.data<T>(), n = now.size] {
#pragma omp simd
      for (Index i = 0; i < n; ++i) kept[i] -= sent[i];
    });
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
          .on_host = true};
}

}  // namespace

const Codec codec_rows::bf16 = rounded("bf16", DType::bf16);
const Codec codec_rows::f16 = rounded("f16", DType::f16);

}  // namespace trireme
