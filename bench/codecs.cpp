// How fast codecs encode and decode what one rank sends, on one core: GB of gradients (f32) per second, and what they
// send of them; and for some numbers of ranks P the break-even bandwidth, in Gbit/s of each rank's link: on a slower
// one the codec pays. With E and D bytes of gradients encoded and decoded per second and r bytes sent per byte of
// gradients, a ring sends 2 (P - 1) / P of the gradients' bytes; encoded, where sums decode, as much of r, decoded
// once; else, all ranks' being gathered, (P - 1) r, decoded P times. Encoding and decoding overlap with nothing:
//   break-even = (2 (P - 1) / P - sent) / (1 / E + decoded / D), latency left out; where it is not above 0: never.
//   codecs [elements]    of a slice: 4194304, data_parallel's bucket
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "bench/measure.h"
#include "framework/autograd/tape.h"
#include "kernels/core/random.h"
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/strategy.h"

using namespace trireme;

namespace {

constexpr int rank_counts[] = {2, 4, 8, 16, 64};

double best_of(int rounds, const std::function<void()>& reset, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    reset();
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void measure(const std::string& options, Index n) {
  PartInfo part{.name = "all", .slice = {0, n}};
  part.tensors = {{0, {n / 2048, 2048}}};
  const Plan plan = parse_strategy("compress(" + options + ")")(serial({part}, n, 0, {{"data", 2}}));
  Action a{ActionKind::all_reduce};
  for (const Action& other : plan.programs[0].actions)
    if (other.codec) a = other;
  a.slice = {0, n};
  CodecContext now(plan, a, 4, 1);
  for (const std::string& name : codec_states(a)) now.states.push_back(name.empty() ? Tensor() : Tensor::zeros({n}));
  const Tensor gradients = Tensor::empty({n}), x = Tensor::like(gradients);
  for (Index i = 0; i < n; ++i) {  // nearly normal, over some orders of magnitude as layers have it
    const auto r = Philox{7}(0, static_cast<std::uint64_t>(i));
    const float sum = uniform_float(r[0]) + uniform_float(r[1]) + uniform_float(r[2]) + uniform_float(r[3]) - 2;
    gradients.data<float>()[i] = sum * std::exp(-static_cast<float>(i / 65536 % 8));
  }
  Tensor wire;
  Index sent = 0;
  double encode = 0;
  for (now.round = 0; now.round < a.codec->rounds; ++now.round) {
    if (wire) now.sums.push_back(wire);
    wire = Tensor::empty({a.codec->length(now)}, a.codec->wire.value_or(DType::f32));
    sent += wire.view().bytes();
    encode += best_of(
        7, [&] { x.copy_from(gradients); }, [&] { a.codec->encode(now, x, wire); });
  }
  --now.round;
  const double decode = best_of(
      7, [] {}, [&] { a.codec->decode(now, wire, x); });
  const double gigabytes = 4e-9 * static_cast<double>(n);
  const double share = static_cast<double>(sent) / 4 / static_cast<double>(n);
  std::printf("%-22s %8.2f %8.2f %8.4f", options.c_str(), gigabytes / encode, gigabytes / decode, share);
  for (const int ranks : rank_counts) {
    const double ring = 2.0 * (ranks - 1) / ranks, bytes = a.codec->is_summable ? ring * share : (ranks - 1) * share;
    const double spent = (encode + (a.codec->is_summable ? 1 : ranks) * decode) / gigabytes;
    ring > bytes ? std::printf(" %8.2f", 8 * (ring - bytes) / spent) : std::printf(" %8s", "never");
  }
  std::printf("\n");
}

}  // namespace

int codecs_main(int argc, char** argv) {
  const NoGrad off;
  const Index n = argc > 1 ? std::atoll(argv[1]) / 2048 * 2048 : 1 << 22;
  if (n < 4096) {
    std::fprintf(stderr, "codecs: wants 4096 elements or more\n");
    return 2;
  }
  std::printf("%-22s %8s %8s %8s", "GB/s of gradients", "encode", "decode", "sent");
  for (const int ranks : rank_counts) std::printf("   P = %-2d", ranks);
  std::printf("  (pays below, Gbit/s)\n");
  for (const char* options :
       {"bf16", "f16", "topk, ratio=0.01", "topk, ratio=0.1", "dgc, ratio=0.001", "randomk, ratio=0.01",
        "chunks, ratio=0.1", "qsgd, levels=127", "qsgd, levels=7", "onebit", "powersgd, rank=2", "powersgd, rank=4"})
    measure(options, n);
  return 0;
}
