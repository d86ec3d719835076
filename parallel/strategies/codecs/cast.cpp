// Gradients rounded to two bytes.
#include <algorithm>

#include "framework/ops/ops.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "parallel/strategies/codecs/codecs.h"

namespace trireme {
namespace {

constexpr Index piece = 1 << 14;  // numbers that fit the host's cache

/// The numbers become the rounded ones.
void encode(const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
  if (!now.states[0]) return wire.copy_from(numbers);
  const bool on_host = numbers.device().kind == DeviceKind::cpu;
  for (Index begin = 0, end = 0; begin < now.size; begin = end) {
    end = on_host ? std::min(now.size, begin + piece) : now.size;
    const Tensor kept = now.states[0].view_rows(begin, end), part = wire.view_rows(begin, end),
                 sent = numbers.view_rows(begin, end);
    add_into(kept, sent);
    part.copy_from(kept);
    sent.copy_from(part);
    launch<kernel::Axpby>(kept, sent, -1.0, 1.0);
  }
}

constexpr Codec rounded(std::string_view name, DType wire) {
  return {.name = name,
          .wire = wire,
          .is_summable = true,
          .length = [](const CodecContext& now) { return now.size; },
          .encode = encode,
          .decode = [](const CodecContext&, const Tensor& wire, const Tensor& numbers) { numbers.copy_from(wire); },
          .states = {{"residual", "residual"}},
          .is_elementwise = true};
}

}  // namespace

const Codec codec_rows::bf16 = rounded("bf16", DType::bf16);
const Codec codec_rows::f16 = rounded("f16", DType::f16);

}  // namespace trireme
