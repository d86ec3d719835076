#include "parallel/analysis/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/tensor/shard_spec.h"
#include "parallel/comm/world/compare.h"

namespace trireme {
namespace {

using Pieces = std::vector<std::pair<Index, Index>>;  // [begin, end) of a global batch, one per micro-batch

/// What rank `rank` of `ranks` takes of each micro-batch, as a Loader deals it.
Pieces pieces_of(Index rows, int microbatches, int rank, int ranks) {
  Pieces pieces;
  for (int k = 0; k < microbatches; ++k) {
    const auto [begin, end] = share(rows, k, microbatches);
    const auto [from, to] = share(end - begin, rank, ranks);
    pieces.emplace_back(begin + from, begin + to);
  }
  return pieces;
}

/// The micro-batches over which batch norm takes statistics: those of each group of ranks.
Pieces normed_pieces(Index rows, int microbatches, int groups, int ranks) {
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
  Shape shape = from.shape();
  shape[0] = 0;
  for (auto& [begin, end] : pieces) shape[0] += end - begin;
  const Tensor out = Tensor::empty(shape, from.dtype(), from.device());
  Index at = 0;
  for (auto& [begin, end] : pieces) {
    if (end > begin) out.view_rows(at, at + end - begin).copy_from(from.view_rows(begin, end));
    at += end - begin;
  }
  return out;
}

double step_on(Step& step, const std::pair<Tensor, Tensor>& batch, const Pieces& pieces) {
  StepContext pass = StepContext::current();
  pass.batch.global_batch = batch.first.dim(0);
  const Tensor x = pick(batch.first, pieces), y = pick(batch.second, pieces);
  pass.batch.samples = Tensor::empty({x.dim(0)}, DType::i64);
  Index at = 0;
  for (auto& [begin, end] : pieces)
    for (Index row = begin; row < end; ++row) pass.batch.samples.data<std::int64_t>()[at++] = row;
  if (pieces.size() > 1)
    for (auto& [begin, end] : pieces) pass.batch.microbatches.push_back(end - begin);
  const StepScope scope(std::move(pass));
  return step(x, y).item();
}

/// All of what the ranks hold parts of; collective then. t: of an entry's shape, as the entry lies.
std::vector<double> whole(const Tensor& t, const Tensor& entry) {
  const NoGrad off;
  const Tensor part = t.reshape(entry.shape()).with_shard_spec(entry.impl()->shard_spec);
  return (part.shard_spec() ? part.shard_spec()->gather(part) : part).to_vector();
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  return most;
}

/// Candidates in the order in which they are named; the list is the same on every rank.
class Comparison {
 public:
  explicit Comparison(double tolerance) : tolerance_(tolerance) {}

  /// whole: the largest number of the model in tensors of that kind.
  void add(const std::string& kind, const std::string& name, const std::vector<double>& got,
           const std::vector<double>& want, double whole) {
    Difference d{.kind = kind, .tensor = name};
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double off = std::abs(got[i] - want[i]);
      if (!(off <= d.absolute))
        d.absolute = std::isnan(off) && std::isnan(got[i]) && std::isnan(want[i]) ? d.absolute : off;
    }
    const double scale = std::max(largest(want), whole * 1e-3);
    d.relative = d.absolute == 0 ? 0 : d.absolute / scale;
    all_.push_back(std::move(d));
  }
  Index first() const {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (!(all_[i].relative <= tolerance_)) return static_cast<Index>(i);
    return static_cast<Index>(all_.size());
  }
  Index size() const { return static_cast<Index>(all_.size()); }
  const Difference& operator[](Index i) const { return all_[static_cast<std::size_t>(i)]; }

 private:
  double tolerance_;
  std::vector<Difference> all_;
};

/// The first candidate that differs on any rank, as that rank sees it.
std::optional<Difference> agree(World& world, const Comparison& mine) {
  const auto [at, rank] = min_loc(world.comm(), mine.first());
  if (at == mine.size()) return std::nullopt;
  Difference d = mine[at];
  d.rank = rank;
  const Tensor sizes = Tensor::of(std::vector<double>{d.absolute, d.relative}, {2}, DType::f64);
  world.comm().broadcast(sizes, d.rank).wait();
  d.absolute = sizes.data<double>()[0], d.relative = sizes.data<double>()[1];
  return d;
}

class Verifier {
 public:
  Verifier(const Subject& subject, Mesh& mesh, const Strategy& strategy, const VerifyOptions& options)
      : subject_(subject),
        mesh_(mesh),
        options_(options),
        run_(subject.model(), subject.loss, subject.recipe, mesh, strategy, options.step),
        groups_(groups(strategy)),
        serial_(subject.model(), subject.loss, subject.recipe, alone_,
                run_.plan().microbatches * groups_ > 1 ? accumulate(run_.plan().microbatches * groups_) : Strategy(),
                {.seed = options.step.seed, .optimizer = options.step.optimizer}) {}

  /// What the serial run is, in words.
  std::string against() const {
    const int microbatches = run_.plan().microbatches;
    const std::string in_micros = microbatches > 1 ? fmt::format(" in the same {} micro-batches", microbatches) : "";
    if (run_.batch_norm().empty()) return "the serial run" + in_micros;
    if (groups_ == 1) return fmt::format("the serial run{} (batch norm: {})", in_micros, run_.batch_norm());
    return fmt::format("a serial run{} whose batch norms see {} rows (batch norm: {})", in_micros,
                       groups_ == run_.shard().size ? "each rank's" : "each group's", run_.batch_norm());
  }

  std::optional<Difference> step(int number) {
    const auto batch = subject_.batch(number);
    const Index rows = batch.first.dim(0);
    const RankShare shard = run_.shard();
    const double loss = step_on(run_, batch, pieces_of(rows, shard.microbatches, shard.rank, shard.size));
    const double expected = step_on(serial_, batch, normed_pieces(rows, shard.microbatches, groups_, shard.size));
    Comparison results(options_.tolerance);
    run_.consolidate();
    compare_results(results, loss, expected);
    if (number + 1 == options_.steps) compare_predictions(results, batch.first);
    auto difference = agree(mesh_.world(), results);
    if (!difference) return difference;
    Comparison gradients(options_.tolerance);
    compare_gradients(gradients);
    if (auto origin = agree(mesh_.world(), gradients)) difference = origin;
    difference->step = number + 1;
    return difference;
  }

 private:
  /// Into how many parts the ranks that share a micro-batch cut it for batch norm.
  int groups(const Strategy& strategy) {
    const int ranks = run_.shard().size;
    if (run_.parameters().buffers().empty() || strategy.scope() == NormScope::global) return 1;
    return strategy.scope() == NormScope::group ? ranks / strategy.norm_group : ranks;
  }

  void compare_results(Comparison& to, double loss, double expected) {
    auto &got = run_.parameters(), &want = serial_.parameters();
    const double most = largest(want.values().to_vector());
    for (std::size_t e = got.entries().size(); e-- > 0;)
      to.add("value", got.entries()[e].name, whole(got.entries()[e].tensor, got.entries()[e].tensor),
             want.entries()[e].tensor.to_vector(), most);
    double most_statistic = 0;
    for (const auto& b : want.buffers()) most_statistic = std::max(most_statistic, largest(b.tensor.to_vector()));
    for (std::size_t b = 0; b < got.buffers().size() && groups_ == 1; ++b)
      to.add("running statistic", got.buffers()[b].name, whole(got.buffers()[b].tensor, got.buffers()[b].tensor),
             want.buffers()[b].tensor.to_vector(), most_statistic);
    compare_states(to);
    to.add("loss", "", {loss}, {expected}, 1);
  }

  /// consolidate() has brought all of it.
  void compare_states(Comparison& to) {
    auto &got = run_.parameters(), &want = serial_.parameters();
    const auto &mine = run_.optimizer().state(), &theirs = serial_.optimizer().state();
    for (std::size_t s = 0; s < mine.size(); ++s) {
      const FlatBuffer &flat = mine[s].second, &expected = theirs[s].second;
      const double most = largest(expected.to_vector());
      for (std::size_t e = got.entries().size(); e-- > 0;) {
        const auto& entry = got.entries()[e];
        const Slice &own = entry.slice, &serial = want.entries()[e].slice;
        to.add(fmt::format("optimizer's {}", mine[s].first), entry.name,
               whole(flat.rows(own.begin, own.end), entry.tensor), expected.rows(serial.begin, serial.end).to_vector(),
               most);
      }
    }
  }

  /// What evaluation, and so every metric, comes from: the model's output for a whole batch, as all ranks have it.
  void compare_predictions(Comparison& to, const Tensor& x) {
    if (groups_ > 1) return;  // running statistics that are averages
    const NoGrad off;
    StepContext pass;
    pass.batch.training = false;
    const StepScope scope(std::move(pass));
    const auto got = run_.model()(x).to_vector(), want = serial_.model()(x).to_vector();
    to.add("prediction", "", got, want, largest(want));
  }

  /// Of what this rank updates; the blocks still hold them.
  void compare_gradients(Comparison& to) {
    auto &got = run_.parameters(), &want = serial_.parameters();
    const double most = largest(want.grads().to_vector());
    for (std::size_t e = got.entries().size(); e-- > 0;) {
      const auto& entry = got.entries()[e];
      const Slice own = entry.slice, serial = want.entries()[e].slice;
      std::vector<double> mine, theirs;
      for (const Slice& u : run_.updated()) {
        const Index begin = std::max(u.begin, own.begin), end = std::min(u.end, own.end);
        const bool all = begin == own.begin && end == own.end;
        if (begin >= end || (entry.tensor.shard_spec() && !all)) continue;
        const Tensor part = got.grads().rows(begin, end);
        for (double v : all ? whole(part, entry.tensor) : part.to_vector()) mine.push_back(v);
        const Index from = serial.begin + begin - own.begin, to_end = all ? serial.end : from + end - begin;
        for (double v : want.grads().rows(from, to_end).to_vector()) theirs.push_back(v);
      }
      to.add("gradient", entry.name, mine, theirs, most);
    }
  }

  const Subject& subject_;
  Mesh& mesh_;
  const VerifyOptions& options_;
  World alone_;
  Step run_;
  int groups_;
  Step serial_;
};

}  // namespace

std::string Difference::to_string() const {
  const auto dot = tensor.rfind('.');
  const std::string layer = dot == std::string::npos ? "" : fmt::format(" of layer '{}'", tensor.substr(0, dot));
  return fmt::format("step {}, rank {}: the {}{}{} differs by {:.3g}, relative {:.3g}", step, rank, kind,
                     tensor.empty() ? "" : fmt::format(" of '{}'", tensor), layer, absolute, relative);
}

std::optional<Difference> verify(const Subject& subject, Mesh& mesh, const Strategy& strategy,
                                 const VerifyOptions& options, std::string* against) {
  Verifier verifier(subject, mesh, strategy, options);
  if (against) *against = verifier.against();
  for (int step = 0; step < options.steps; ++step)
    if (auto difference = verifier.step(step)) return difference;
  return std::nullopt;
}

}  // namespace trireme
