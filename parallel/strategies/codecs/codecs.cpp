#include "parallel/strategies/codecs/codecs.h"

namespace trireme {

const std::vector<CodecRow>& codecs() {
  using P = CodecParameter;
  const P from{.name = "from", .value = 0, .multiple = 1}, seed{.name = "seed", .value = 0, .multiple = 1},
      residual{.name = "residual", .value = 1, .most = 1, .is_flag = true},
      masking{.name = "masking", .value = 1, .most = 1, .is_flag = true},
      warmup{.name = "warmup", .value = 0, .multiple = 1};
  const auto ratio = [](double value) { return P{.name = "ratio", .value = value, .least = 1e-6, .most = 1}; };
  const auto momentum = [](double value) { return P{.name = "momentum", .value = value, .most = 1}; };
  const auto block = [](double value) {
    return P{.name = "block", .value = value, .least = 8, .most = 1 << 20, .multiple = 8};
  };
  static const std::vector<CodecRow> all = {
      {&codec_rows::bf16, {from, residual}},
      {&codec_rows::f16, {from, residual}},
      {&codec_rows::topk, {ratio(0.01), momentum(0), masking, warmup, from, residual}},
      {&codec_rows::dgc, {ratio(0.001), momentum(0.9), masking, warmup, {.name = "clip", .value = 0}, from, residual}},
      {&codec_rows::randomk, {ratio(0.01), momentum(0), masking, warmup, from, residual, seed}},
      {&codec_rows::chunks,
       {ratio(0.1),
        {.name = "chunk", .value = 1024, .least = 1, .multiple = 1},
        momentum(0),
        masking,
        warmup,
        from,
        residual}},
      {&codec_rows::qsgd,
       {{.name = "levels", .value = 127, .least = 1, .most = 127, .multiple = 1}, block(512), from, seed}},
      {&codec_rows::onebit, {block(1024), from, residual}},
      {&codec_rows::powersgd,
       {{.name = "rank", .value = 2, .least = 1, .multiple = 1},
        {.name = "warm_start", .value = 1, .most = 1, .is_flag = true},
        from,
        residual,
        seed}},
  };
  return all;
}

}  // namespace trireme
