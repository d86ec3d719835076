#include "parallel/analysis/verify_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/analysis/replay_servers.h"
#include "parallel/analysis/verifier.h"
#include "parallel/comm/fnv.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/runtime/step_probe.h"

namespace trireme {
namespace {

double largest_anywhere(World& world, double value) {
  const Tensor all = Tensor::full({1}, value, DType::f64);
  world.comm().all_reduce(all, ReduceOp::max).wait();
  return all.item();
}

/// Measures exchanges of weights: workers are pushed apart in each step, with gradients of 0, so only exchanges change
/// the weights.
class Meetings {
 public:
  Meetings(Verifier& verifier, Mesh& mesh, const StrategyClaim& claim)
      : verifier_(verifier), mesh_(mesh), claim_(claim) {}

  /// Adds noise to this rank's weights, equal for the ranks of a worker.
  void push_apart(int step) {
    const Plan& plan = verifier_.run().plan();
    const auto index = static_cast<std::size_t>(&verifier_.program() - plan.programs.data());
    for (const Slice& slice : plan.updated(index))
      for (const Slice& s : values().cut(slice)) {
        std::vector<double> noise;
        for (Index i = s.begin; i < s.end; ++i) {
          Fnv fnv;
          fnv.add(step, verifier_.worker(), i);
          noise.push_back(static_cast<double>((fnv.value() ^ fnv.value() >> 29) % 2001) / 1e4 - 0.1);
        }
        const Tensor mine = values().rows(s.begin, s.end);
        mine.copy_from(add(mine, Tensor::of(noise, {s.size()}, mine.dtype()).to(mine.device())));
      }
  }

  /// Sums over all ranks, of what each updates, that exchanges must preserve.
  std::vector<double> sum() {
    std::vector<double> all(static_cast<std::size_t>(verifier_.run().parameters().size()));
    for (const Slice& s : StepProbe(verifier_.run()).updated()) {
      const auto of = [&](const FlatBuffer& flat) { return flat.rows(s.begin, s.end).to_vector(); };
      std::vector<double> numbers = of(values());
      if (!claim_.numerator.empty()) {  // includes the change of the weights since x was divided by w
        const auto x = of(state(claim_.numerator)), w = of(state(claim_.divisor));
        for (std::size_t i = 0; i < x.size(); ++i)
          if (moved_) numbers[i] += x[i] - x[i] / w[i];
      }
      if (!claim_.center.empty() && moved_) {
        const auto center = of(state(claim_.center));
        for (std::size_t i = 0; i < center.size(); ++i) numbers[i] += center[i] / verifier_.workers();
      }
      std::ranges::copy(numbers, all.begin() + s.begin);
    }
    const Tensor sum = Tensor::of(all, {std::ssize(all)}, DType::f64);
    mesh_.world().comm().all_reduce(sum).wait();
    return sum.to_vector();
  }

  ClaimResult measure(const VerifyOptions& options, double tolerance) {
    if (verifier_.workers() == 1) return {"", "a single worker exchanges nothing", true};
    check_meets(options.steps);
    const auto feed = [&](int step) {
      (void)verifier_.feed(step);
      verifier_.run().flush();
    };
    feed(0);  // states start with the weights of the first step
    moved_ = true;
    double most = 0, met = 0, weights = 0;
    for (int step = 1; step <= options.steps; ++step) {
      push_apart(step);
      const std::vector<double> before = sum(), own = values().to_vector();
      feed(step % options.steps);
      const std::vector<double> behind = sum(), mixed = values().to_vector();
      double off = 0, size = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        off = larger(off, std::abs(behind[i] - before[i]));
        size = std::max(size, std::abs(before[i]));
        met = larger(met, std::abs(mixed[i] - own[i]));
      }
      most = larger(most, off / std::max(size, 1e-300));
      if (!claim_.divisor.empty()) weights = larger(weights, weights_off());
    }
    if (largest_anywhere(mesh_.world(), met) == 0)
      return {"", fmt::format("no exchange in {} steps; use more steps", options.steps), false};
    std::string text = fmt::format("the exchanges of {} steps changed it by {:.2g}, relative", options.steps, most);
    if (!claim_.divisor.empty())
      text += fmt::format("; all {} add up to the number of workers within {:.2g}", claim_.divisor, weights);
    return {"", text, larger(most, weights) <= tolerance};
  }

 private:
  /// measure() runs steps 0 to `steps`. An exchange every N steps is first at step N - 1.
  void check_meets(int steps) {
    for (const auto& [axis, c] : verifier_.run().plan().consistency) {
      const bool meets = c.kind == Consistency::Kind::periodic || c.kind == Consistency::Kind::gossip;
      check(!meets || c.bound == Consistency::unbounded || c.bound - 1 <= steps, "verify",
            "ranks along axis '{}' meet every {} steps, and the run has only {}: use --steps {} or more", axis, c.bound,
            steps, c.bound);
    }
  }
  const FlatBuffer& values() { return verifier_.run().parameters().values(); }
  const FlatBuffer& state(const std::string& name) { return verifier_.run().parameters().state(name); }
  /// Relative difference between the sum of the divisor over workers and their number.
  double weights_off() {
    const Tensor sum = Tensor::full({1}, state(claim_.divisor).rows(0, 1).item(), DType::f64);
    mesh_.world().comm().all_reduce(sum).wait();
    const double ranks = mesh_.world().size();
    return std::abs(sum.item() - ranks) / ranks;
  }

  Verifier& verifier_;
  Mesh& mesh_;
  const StrategyClaim& claim_;
  bool moved_ = false;
};

/// The states in which the plan's codecs keep unsent residuals.
std::vector<std::string> residuals(const Plan& plan) {
  std::vector<std::string> names;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      for (const std::string& name : a.codec ? std::vector{codec_states(a).at(0)} : std::vector<std::string>{})
        if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

ClaimResult measure(const Subject& subject, Mesh& mesh, const StrategyClaim& claim, const Strategy& strategy,
                    const VerifyOptions& options) {
  using Kind = StrategyClaim::Kind;
  const double tolerance = std::max(options.tolerance, claim.tolerance);
  if (claim.kind == Kind::limit) {
    const auto difference = verify(subject, mesh, strategy, options);
    return {"", difference ? difference->to_string() : fmt::format("{} steps within {:g}", options.steps, tolerance),
            !difference};
  }
  if (claim.kind == Kind::delayed) return replay_servers(subject, mesh, strategy, options);
  if (claim.kind == Kind::mean_preserved) {
    Subject still = subject;
    still.loss = [loss = subject.loss](const Tensor& x, const Tensor& y) { return scale(loss(x, y), 0); };
    Verifier verifier(still, mesh, strategy, options);
    return Meetings(verifier, mesh, claim).measure(options, tolerance);
  }
  Verifier verifier(subject, mesh, strategy, options);
  if (StepProbe(verifier.run()).is_tensor_parallel()) return {"", "not if ranks hold parts of weights", true};
  const auto states = residuals(verifier.run().plan());
  if (states.empty()) return {"", "no reduction keeps a residual", false};
  double most = 0;
  for (int step = 0; step < options.steps; ++step) most = larger(most, verifier.unaccounted(step, states));
  return {"", fmt::format("{} steps within {:.2g}, relative", options.steps, most), most <= tolerance};
}

}  // namespace

std::vector<ClaimResult> verify_claims(const Subject& subject, Mesh& mesh, const std::vector<ClaimedText>& claims,
                                       const StrategyFromText& parse, const VerifyOptions& options) {
  VerifyOptions even = options;
  even.even_rows = true;
  even.step.optimizer.clip_norm = 0;
  Subject plain = subject;
  plain.optimizer_config = Sgd{.lr = 0.05};
  std::vector<ClaimResult> all;
  for (const auto& [claim, name, text] : claims) {
    all.push_back(measure(plain, mesh, claim, parse(text), even));
    all.back().claim = fmt::format("{}: {}", name, [&] { return to_string(claim); }());
  }
  return all;
}

}  // namespace trireme
