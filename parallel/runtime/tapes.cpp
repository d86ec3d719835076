#include "parallel/runtime/tapes.h"

#include <optional>

#include "parallel/plan/action_kind.h"

namespace trireme {

Tapes::Tapes(const Plan& plan, const Role& role, const Chain& chain, Loss loss)
    : role_(role),
      chain_(chain),
      loss_(std::move(loss)),
      micros_(plan.micros),
      live_(role),
      flights_(live_.segments.size() * static_cast<std::size_t>(micros_)),
      crossings_(static_cast<std::size_t>(chain.size() * micros_)) {
  for (int p = 0; p < chain.size(); ++p) stashed_.push_back(chain.stashed_behind(p));
  check(stashed_.back().empty(), "executor", "'{}' is stashed, but nothing adds it: add a layer AddStashed(\"{}\")",
        stashed_.back().empty() ? "" : stashed_.back()[0], stashed_.back().empty() ? "" : stashed_.back()[0]);
}

void Tapes::begin(const Tensor& x, const Tensor& y) {
  for (MicrobatchState& f : flights_) f = {};
  for (BoundaryTensors& c : crossings_) c = {};
  alive_ = most_alive_ = 0;
  moments_.clear();
  passes_.clear(), batches_.clear();
  x_.clear(), y_.clear();
  const StepContext& now = StepContext::current();
  const BatchContext& batch = now.batch;
  const auto give = [&](const Tensor& x_rows, const Tensor& y_rows, BatchContext context) {
    x_.push_back(x_rows.with_batch(std::move(context)));
    y_.push_back(y_rows.detach());
    y_.back().impl()->batch = x_.back().batch();
    batches_.push_back(x_.back().batch());
  };
  if (micros_ == 1) return give(x, y, batch);
  const Index rows = x.dim(0);
  Tensor samples = batch.samples;
  if (!samples) {
    samples = Tensor::empty({rows}, DType::i64);
    for (Index i = 0; i < rows; ++i) samples.data<std::int64_t>()[i] = i;
  }
  check(batch.micros.empty() || std::ssize(batch.micros) == micros_, "step",
        "the loader cuts the batch into {} micro-batches, the plan wants {}: give it .shard = step.shard()",
        batch.micros.size(), micros_);
  Index begin = 0;
  for (int k = 0; k < micros_; ++k) {
    const auto [from, to] = share(rows, k, micros_);
    const Index end = begin + (batch.micros.empty() ? to - from : batch.micros[static_cast<std::size_t>(k)]);
    check(end <= rows, "step", "the loader's micro-batches hold more rows than the {} at hand", rows);
    BatchContext micro = batch;
    micro.samples = samples.view_rows(begin, end);
    micro.labels = y;
    micro.micros.clear();
    micro.calls = {};
    give(x.view_rows(begin, end), y.view_rows(begin, end), std::move(micro));
    passes_.push_back(now);
    passes_.back().batch = *batches_.back();
    passes_.back().moments = &moments_;
    begin = end;
  }
  check(begin == rows, "step", "the loader's micro-batches hold {} rows, there are {}", begin, rows);
}

bool Tapes::leads(const Action& a) const {
  const Segment& s = segment(a);
  return a.part == (a.verb == ActionKind::forward ? s.first : s.end - 1);
}

const std::vector<Tensor>& Tapes::outputs(int part, int micro) const {
  return flights_[index(live_.segment_of(part), micro)].out;
}

void Tapes::forward(const Action& a) {
  const Segment& s = segment(a);
  MicrobatchState& f = flight(a.part, a.micro);
  std::optional<StepScope> scope;
  if (!passes_.empty()) scope.emplace(passes_[static_cast<std::size_t>(a.micro)]);
  f.alive = true;
  most_alive_ = std::max(most_alive_, ++alive_);
  check(role_.in_flight == 0 || alive_ <= role_.in_flight, "executor",
        "role {}: {} micro-batches are in flight, the plan allows {}", role_.name, alive_, role_.in_flight);
  Tensor activation;
  Stashed stashed;
  if (s.first == 0) {
    activation = input(a.micro);
  } else {
    auto arrived = std::exchange(crossing(s.first - 1, a.micro).forward, {});
    auto& names = stashed_[static_cast<std::size_t>(s.first - 1)];
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      f.in.push_back(arrived[i].detach());
      f.in.back().impl()->batch = batches_[static_cast<std::size_t>(a.micro)];
      f.in.back().require_grad(arrived[i].requires_grad());
      if (i > 0) stashed.emplace(names[i - 1], f.in.back());
    }
    activation = f.in.at(0);
  }
  for (int p = s.first; p < s.end; ++p) activation = chain_.run(p, std::move(activation), stashed);
  f.out = {std::move(activation)};
  for (auto& name : stashed_[static_cast<std::size_t>(s.end - 1)]) f.out.push_back(stashed.at(name));
  if (s.end < chain_.size() && runs(s.end)) crossing(s.end - 1, a.micro).forward = f.out;
}

Tensor Tapes::loss(int micro, double scale) {
  std::optional<StepScope> scope;
  if (!passes_.empty()) scope.emplace(passes_[static_cast<std::size_t>(micro)]);
  const int last = chain_.size() - 1;
  MicrobatchState& f = flight(last, micro);
  const NamedRange range("loss");
  Tensor loss = loss_(f.out.at(0), y_[static_cast<std::size_t>(micro)].to(f.out[0].device()));
  f.out = {loss};
  crossing(last, micro).gradient = {Tensor::full(loss.shape(), scale, loss.dtype(), loss.device())};
  return loss;
}

void Tapes::backward(const Action& a) {
  const Segment& s = segment(a);
  MicrobatchState& f = flight(a.part, a.micro);
  check(
      f.alive, "executor", "{} on role {}: its micro-batch has not been run forward, or is freed",
      [&] { return to_string(a); }, role_.name);
  std::optional<StepScope> scope;
  if (!passes_.empty()) scope.emplace(passes_[static_cast<std::size_t>(a.micro)]);
  if (a.verb == ActionKind::backward_weight)
    f.weights.run();
  else
    walk(f, s, a.micro, a.verb == ActionKind::backward_input ? &f.weights : nullptr);
  if (a.verb != ActionKind::backward_input && !live_.frees) land(f);
}

/// One backward over the flight's tape; the gradients of its leaves go to the cut in front.
void Tapes::walk(MicrobatchState& f, const Segment& s, int micro, Deferred* weights) {
  auto seeds = std::exchange(crossing(s.end - 1, micro).gradient, {});
  auto roots = std::exchange(f.out, {});
  check(seeds.size() == roots.size(), "executor", "{} gradients have come for {} outputs of part {}", seeds.size(),
        roots.size(), s.end - 1);
  bool any = false;
  for (auto& root : roots) any = any || root.requires_grad();
  if (any) trireme::backward(roots, seeds, {.defer_weights = weights});
  if (s.first == 0) return;
  auto& gradient = crossing(s.first - 1, micro).gradient;
  for (auto& leaf : std::exchange(f.in, {}))
    gradient.push_back(leaf.requires_grad() && has_grad(leaf)
                           ? leaf.grad()
                           : Tensor::zeros(leaf.shape(), leaf.dtype(), leaf.device()));
}

void Tapes::free(const Action& a) {
  MicrobatchState& f = flight(a.part, a.micro);
  check(
      f.alive, "executor", "{} on role {}: nothing is held of it", [&] { return to_string(a); }, role_.name);
  land(f);
}

void Tapes::land(MicrobatchState& f) {
  f = {};
  --alive_;
}

}  // namespace trireme
