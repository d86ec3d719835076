#include "parallel/analysis/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/ops/moves.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/step_probe.h"

namespace trireme {
namespace {

using Pieces = std::vector<std::pair<Index, Index>>;  // [begin, end) of a global batch, one per micro-batch

/// Rows of each micro-batch for each of `groups` groups of consecutive ranks, as a Loader divides it.
Pieces pieces_of(Index rows, int microbatches, int groups, int ranks) {
  Pieces all;
  for (int k = 0; k < microbatches; ++k) {
    const auto [begin, end] = share(rows, k, microbatches);
    for (int g = 0; g < groups; ++g)
      all.emplace_back(begin + share(end - begin, g * (ranks / groups), ranks).first,
                       begin + share(end - begin, (g + 1) * (ranks / groups) - 1, ranks).second);
  }
  return all;
}

Tensor pick(const Tensor& from, const Pieces& pieces) {
  std::vector<Tensor> rows;
  for (auto& [begin, end] : pieces) rows.push_back(from.view_rows(begin, end));
  Tensor all = concat(rows, 0);
  all.impl()->batch = {};  // the loader's data describe another share
  return all;
}

double step_on(Step& step, const std::pair<Tensor, Tensor>& batch, const Pieces& pieces) {
  StepContext context = StepContext::current();
  context.batch.global_batch = batch.first.dim(0);
  const Tensor x = pick(batch.first, pieces), y = pick(batch.second, pieces);
  context.batch.samples = Tensor::empty({x.dim(0)}, DType::i64);
  Index at = 0;
  for (auto& [begin, end] : pieces)
    for (Index row = begin; row < end; ++row) context.batch.samples.data<std::int64_t>()[at++] = row;
  if (pieces.size() > 1)
    for (auto& [begin, end] : pieces) context.batch.microbatches.push_back(end - begin);
  const StepScope scope(std::move(context));
  return step(x, y).item();
}

/// Gathers the whole of a tensor of which ranks hold parts; then a collective call. t: with the shape and layout of
/// entry.
std::vector<double> whole(const Tensor& t, const Tensor& entry) {
  const NoGrad off;
  const Tensor part = t.reshape(entry.shape()).with_shard_spec(entry.impl()->shard_spec);
  return gathered(part).to_vector();
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  return most;
}

/// scale: differences are relative to at least this size.
Difference compared(const std::string& kind, const std::string& name, const std::vector<double>& got,
                    const std::vector<double>& want, double scale) {
  Difference d{.kind = kind, .tensor = name};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(got[i] - want[i]);
    const bool alike = off <= d.absolute || (std::isnan(got[i]) && std::isnan(want[i]));
    if (!alike && !std::isnan(d.absolute)) d.absolute = off;
  }
  d.relative = d.absolute == 0 ? 0 : d.absolute / std::max(largest(want), scale);
  return d;
}

/// The first difference that any rank has found. Returns the same on all ranks.
std::optional<Difference> agree(World& world, const std::vector<Difference>& mine, double tolerance) {
  const auto first = std::ranges::find_if(mine, [&](const Difference& d) { return !(d.relative <= tolerance); });
  const auto [at, rank] = min_loc(world.comm(), first - mine.begin());
  if (at == std::ssize(mine)) return std::nullopt;
  Difference d = mine[at];
  d.rank = rank;
  const Tensor sizes = Tensor::of(std::vector<double>{d.absolute, d.relative}, {2}, DType::f64);
  world.comm().broadcast(sizes, d.rank).wait();
  d.absolute = sizes.data<double>()[0];
  d.relative = sizes.data<double>()[1];
  return d;
}

}  // namespace

Verifier::Verifier(const Subject& subject, Mesh& mesh, const Strategy& strategy, const VerifyOptions& options)
    : subject_(subject),
      mesh_(mesh),
      options_(options),
      run_(subject.model(), subject.loss, subject.optimizer_config, mesh, strategy, options.step),
      groups_(groups(strategy)),
      serial_(subject.model(), subject.loss, subject.optimizer_config, alone_,
              run_.plan().microbatches * groups_ > 1 ? accumulate(run_.plan().microbatches * groups_) : Strategy(),
              {.seed = options.step.seed, .optimizer = options.step.optimizer}) {}

std::string Verifier::against() {
  const int microbatches = run_.plan().microbatches;
  std::string in_micros = microbatches > 1 ? fmt::format(" in the same {} micro-batches", microbatches) : "";
  if (is_asynchronous(run_.plan())) in_micros += ", flushed after every step, so that no gradient is late";
  if (StepProbe(run_).batch_norm().empty()) return "the serial run" + in_micros;
  if (groups_ == 1) return fmt::format("the serial run{} (batch norm: {})", in_micros, StepProbe(run_).batch_norm());
  return fmt::format("a serial run{} whose batch norms see {} rows (batch norm: {})", in_micros,
                     groups_ == run_.shard().size ? "each rank's" : "each group's", StepProbe(run_).batch_norm());
}

Verifier::Pieces Verifier::shares(Index rows, int groups) const {
  return pieces_of(rows, run_.shard().microbatches, groups, run_.shard().size);
}

/// Drops the last rows if workers need equal numbers of rows.
std::pair<Tensor, Tensor> Verifier::batch_of(int number) const {
  auto batch = subject_.batch(number);
  if (!options_.even_rows) return batch;
  const Index rows = batch.first.dim(0), each = Index{run_.shard().size} * run_.shard().microbatches;
  check(rows >= each, "verify", "a batch of {} rows has none for some of {} workers: use a larger one", rows, each);
  const Index even = rows / each * each;
  return {batch.first.view_rows(0, even), batch.second.view_rows(0, even)};
}

double Verifier::feed(int number) {
  const auto batch = batch_of(number);
  const RankShare shard = run_.shard();
  Pieces mine;
  const Pieces all = shares(batch.first.dim(0), shard.size);
  for (std::size_t i = shard.rank; i < all.size(); i += shard.size) mine.push_back(all[i]);
  return mean_loss(step_on(run_, batch, mine), mine);
}

std::optional<Difference> Verifier::step(int number) {
  const auto batch = batch_of(number);
  const double loss = feed(number);
  const double expected = step_on(serial_, batch, shares(batch.first.dim(0), groups_));
  StepProbe(run_).consolidate();
  Candidates results = compare_state();
  results.push_back(compared("loss", "", {loss}, {expected}, 1e-3));
  if (number + 1 == options_.steps && groups_ == 1)  // otherwise running statistics are averages
    results.push_back(compare_predictions(batch.first));
  auto difference = agree(mesh_.world(), results, options_.tolerance);
  if (!difference) return difference;
  if (auto origin = agree(mesh_.world(), compare_gradients(), options_.tolerance)) difference = origin;
  difference->step = number + 1;
  return difference;
}

const Program& Verifier::program() const {
  const Plan& plan = run_.plan();
  return plan.programs[static_cast<std::size_t>(plan.program_at([&](const auto& axis) { return mesh_.index(axis); }))];
}

int Verifier::workers() const {
  int all = 1;
  for (const Axis& axis : run_.plan().axes)
    if (run_.plan().consistency_along(axis.name) != Consistency{}) all *= axis.size;
  return all;
}
int Verifier::worker() const {
  int index = 0;
  for (const Axis& axis : run_.plan().axes)
    if (run_.plan().consistency_along(axis.name) != Consistency{}) index = index * axis.size + mesh_.index(axis.name);
  return index;
}

std::vector<double> Verifier::summed(const std::vector<std::string>& states) {
  std::vector<double> all(static_cast<std::size_t>(run_.parameters().size()));
  for (const std::string& name : states) {
    const std::vector<double> own = run_.parameters().state(name).to_vector();
    std::ranges::transform(all, own, all.begin(), std::plus());
  }
  const Tensor sum = Tensor::of(all, {std::ssize(all)}, DType::f64);
  mesh_.world().comm().all_reduce(sum).wait();
  return sum.to_vector();
}

double Verifier::unaccounted(int number, const std::vector<std::string>& states) {
  StepProbe(run_).consolidate();
  auto &got = run_.parameters(), &want = serial_.parameters();
  for (std::size_t e = 0; e < got.entries().size(); ++e) {
    const auto& [name, tensor, use, layout, own] = got.entries()[e];
    const Slice& to = want.entries()[e].slice;
    const Tensor values = Tensor::of(whole(got.values().rows(own.begin, own.end), tensor), {to.size()}, want.dtype());
    want.values().rows(to.begin, to.end).copy_from(values.to(want.values().rows(to.begin, to.end).device()));
  }
  const std::vector<double> before = summed(states);
  const auto batch = batch_of(number);
  (void)feed(number);
  (void)step_on(serial_, batch, shares(batch.first.dim(0), groups_));
  const std::vector<double> behind = summed(states);
  double most = 0, size = 0;
  for (std::size_t e = 0; e < got.entries().size(); ++e)
    for (const Slice& u : StepProbe(run_).updated()) {
      const Slice own = got.entries()[e].slice, serial = want.entries()[e].slice;
      const Index begin = std::max(u.begin, own.begin), end = std::min(u.end, own.end);
      if (begin >= end) continue;
      const Index from = serial.begin + begin - own.begin;
      const std::vector<double> sent = got.grads().rows(begin, end).to_vector(),
                                dense = want.grads().rows(from, from + end - begin).to_vector();
      for (std::size_t i = 0; i < sent.size(); ++i) {
        const auto at = static_cast<std::size_t>(begin) + i;
        most = larger(most, std::abs(sent[i] + behind[at] - before[at] - dense[i]));
        size = std::max({size, std::abs(dense[i]), std::abs(before[at])});
      }
    }
  const Tensor all = Tensor::of(std::vector{most, size}, {2}, DType::f64);
  mesh_.world().comm().all_reduce(all, ReduceOp::max).wait();
  return all.data<double>()[0] / std::max(all.data<double>()[1], 1e-300);
}

/// Mean over workers that train separately, weighted by their rows.
double Verifier::mean_loss(double loss, const Pieces& mine) {
  if (!StepProbe(run_).trains_apart()) return loss;
  double rows = 0;
  for (auto& [begin, end] : program().serves() ? Pieces{} : mine) rows += static_cast<double>(end - begin);
  const Tensor sums = Tensor::of(std::vector{loss * rows, rows}, {2}, DType::f64);
  mesh_.world().comm().all_reduce(sums).wait();
  return sums.data<double>()[0] / sums.data<double>()[1];
}

/// Number of parts into which the ranks that share a micro-batch divide it for batch norm.
int Verifier::groups(const Strategy& strategy) {
  const int ranks = run_.shard().size;
  if (run_.parameters().buffers().empty() || strategy.scope() == NormScope::global) return 1;
  return strategy.scope() == NormScope::group ? ranks / strategy.norm_group : ranks;
}

/// Compares values, running statistics and optimizer state, which consolidate() has gathered.
Verifier::Candidates Verifier::compare_state() {
  Candidates all;
  auto &got = run_.parameters(), &want = serial_.parameters();
  const auto compare_block = [&](const std::string& kind, const FlatBuffer& flat, const FlatBuffer& expected) {
    const double scale = largest(expected.to_vector()) * 1e-3;
    for (std::size_t e = got.entries().size(); e-- > 0;) {
      const auto& [name, tensor, use, layout, own] = got.entries()[e];
      const Slice& serial = want.entries()[e].slice;
      all.push_back(compared(kind, name, whole(flat.rows(own.begin, own.end), tensor),
                             expected.rows(serial.begin, serial.end).to_vector(), scale));
    }
  };
  compare_block("value", got.values(), want.values());
  double most = 0;
  for (const auto& b : want.buffers()) most = std::max(most, largest(b.tensor.to_vector()));
  for (std::size_t b = 0; b < got.buffers().size() && groups_ == 1; ++b)
    all.push_back(compared("running statistic", got.buffers()[b].name,
                           whole(got.buffers()[b].tensor, got.buffers()[b].tensor),
                           want.buffers()[b].tensor.to_vector(), most * 1e-3));
  const auto &mine = run_.optimizer().state(), &theirs = serial_.optimizer().state();
  for (std::size_t s = 0; s < mine.size(); ++s)
    compare_block(fmt::format("optimizer's {}", mine[s].first), mine[s].second, theirs[s].second);
  return all;
}

/// Compares the model's output for a whole batch, on which evaluation and all metrics depend.
Difference Verifier::compare_predictions(const Tensor& x) {
  const NoGrad off;
  StepContext context;
  context.batch.training = false;
  const StepScope scope(std::move(context));
  return compared("prediction", "", run_.model()(x).to_vector(), serial_.model()(x).to_vector(), 0);
}

/// Compares gradients that this rank updates; the blocks still hold them.
Verifier::Candidates Verifier::compare_gradients() {
  Candidates all;
  auto &got = run_.parameters(), &want = serial_.parameters();
  const double scale = largest(want.grads().to_vector()) * 1e-3;
  for (std::size_t e = got.entries().size(); e-- > 0;) {
    const auto& entry = got.entries()[e];
    const Slice own = entry.slice, serial = want.entries()[e].slice;
    std::vector<double> mine, theirs;
    for (const Slice& u : StepProbe(run_).updated()) {
      const Index begin = std::max(u.begin, own.begin), end = std::min(u.end, own.end);
      const bool complete = begin == own.begin && end == own.end;
      if (begin >= end || (entry.tensor.shard_spec() && !complete)) continue;
      const Tensor part = got.grads().rows(begin, end);
      for (double v : complete ? whole(part, entry.tensor) : part.to_vector()) mine.push_back(v);
      const Index from = serial.begin + begin - own.begin, to = complete ? serial.end : from + end - begin;
      for (double v : want.grads().rows(from, to).to_vector()) theirs.push_back(v);
    }
    all.push_back(compared("gradient", entry.name, mine, theirs, scale));
  }
  return all;
}

}  // namespace trireme
