// Vectors that ranks reduce by a codec, without a model; and the codecs to do it by.
#pragma once
#include <algorithm>
#include <cmath>

#include "parallel/runtime/encoded_reduction.h"
#include "parallel/strategies/codecs/codecs.h"
#include "tests/parallel/plans.h"
#include "tests/parallel/training.h"

namespace trireme::test {

using Vector = std::vector<double>;
/// Of a rank in a step.
using Gradient = std::function<Vector(int rank, int step)>;
/// What a rank has after a step: the sum, and what it keeps.
struct Reduced {
  Vector sum, residual;
  bool agreed = true;  ///< all ranks have the same sum
};

/// Gradients that ranks reduce step by step, in a slice of a block with these tensors.
inline std::vector<Reduced> reduced(const std::string& options, int ranks, int steps, const Gradient& gradient,
                                    Slice slice, DType type = DType::f64, const std::map<Index, Shape>& tensors = {}) {
  return on_ranks(ranks, [&](World& world) {
    PartInfo part{.name = "all", .slice = {0, slice.end}};
    part.tensors = tensors;
    Plan plan = parse_strategy("compress(" + options + ")")(serial({part}, slice.end, 0, {{"data", ranks}}));
    Action& a = plan.programs[0].actions[static_cast<std::size_t>(find(plan.programs[0], ActionKind::all_reduce))];
    a.slice = slice;
    std::vector<Tensor> states;
    for (const std::string& name : codec_states(a))
      states.push_back(name.empty() ? Tensor() : Tensor::zeros({slice.size()}, type));
    EncodedReduction reduction;
    std::vector<Reduced> all;
    for (int s = 0; s < steps; ++s) {
      CodecContext now(plan, a, size_of(type), s);
      now.rank = world.rank();
      now.states = states;
      const Tensor x = Tensor::of(gradient(world.rank(), s), {slice.size()}, type);
      reduction.start(world.comm(), now, x).wait();
      reduction.finish(world.comm(), x);
      const Tensor most = x.clone();
      world.comm().all_reduce(most, ReduceOp::max).wait();
      all.push_back({x.to_vector(), states[0] ? states[0].to_vector() : Vector(x.to_vector().size()),
                     most.to_vector() == x.to_vector()});
    }
    return all;
  });
}

/// Small integers, many of them alike or 0.
inline Gradient integers(Index n, int most = 9) {
  return [=](int rank, int step) {
    Vector v;
    for (Index i = 0; i < n; ++i)
      v.push_back(static_cast<double>(mix(static_cast<std::uint64_t>((rank * 100 + step) * 10000 + i)) %
                                      static_cast<std::uint64_t>(2 * most + 1)) -
                  most);
    return v;
  };
}
inline Gradient waves(Index n) {
  return [=](int rank, int step) {
    Vector v;
    for (Index i = 0; i < n; ++i) v.push_back(std::sin(static_cast<double>((i * i) % 97 + 31 * rank + 7 * step)));
    return v;
  };
}
inline Vector plus(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
/// Each codec, with options under which it leaves things out of small vectors.
inline std::vector<std::string> lossy() {
  std::vector<std::string> all;
  for (const CodecRow& row : codecs()) {
    std::string text = "codec=" + std::string(row.codec->name);
    for (const CodecParameter& p : row.parameters) {
      if (p.name == "ratio") text += ", ratio=0.1";
      if (p.name == "block") text += ", block=32";
      if (p.name == "chunk") text += ", chunk=16";
      if (p.name == "levels") text += ", levels=3";
    }
    all.push_back(text);
  }
  return all;
}
}  // namespace trireme::test
