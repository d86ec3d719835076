#include "models/text/generate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "framework/layers/inference.h"
#include "framework/layers/kv_cache.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/core/random.h"
#include "parallel/comm/call.h"
#include "parallel/comm/world/compare.h"
#include "parallel/model/chain.h"
#include "parallel/runtime/step_forward.h"

namespace trireme {
namespace {

constexpr const char* op = "generate";

void check_options(const GenerateOptions& o) {
  check(o.tokens >= 1, op, "{} tokens, expected at least 1", o.tokens);
  check(o.temperature >= 0 && std::isfinite(o.temperature), op, "temperature {}, expected 0 or more", o.temperature);
  check(o.top_k >= 0, op, "top_k {}, expected 1 or more, or 0 for all tokens", o.top_k);
  check(o.top_p > 0 && o.top_p <= 1, op, "top_p {} lies outside (0, 1]", o.top_p);
  check(o.context >= 2, op, "a context of {} tokens, expected at least 2", o.context);
  check(o.vocabulary >= 0, op, "a vocabulary of {}, expected 1 or more, or 0 for the model's", o.vocabulary);
}

/// Tokens sorted by logit (ties by id), limited by top_k.
std::vector<Index> likeliest(std::span<const double> logits, Index top_k) {
  std::vector<Index> ids(logits.size());
  std::iota(ids.begin(), ids.end(), Index{0});
  const auto before = [&](Index a, Index b) {
    const double x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const Index kept = top_k > 0 ? std::min<Index>(top_k, std::ssize(ids)) : std::ssize(ids);
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), before);
  ids.resize(static_cast<std::size_t>(kept));
  return ids;
}

/// Throws Error for layers that a cache of keys and values cannot run.
void check_split(const Parameters& parameters) {
  for (const auto& e : parameters.entries()) {
    if (!e.tensor.shard_spec()) continue;
    const RankMesh& mesh = e.tensor.shard_spec()->mesh();
    check(mesh.rows() < 0, op,
          "one_weird_trick gathers the rows of all ranks, but each rank generates its own texts: use tensor, zero, "
          "pipeline or data_parallel");
    check(mesh.sequence() == 0, op,
          "tensor(sequence=true) divides the tokens of a text, but each pass has a single new token: use tensor "
          "without sequence");
    check(mesh.apart() == 0, op,
          "experts are divided over ranks that generate their own texts, and so need them at different times: use "
          "tensor, zero, pipeline or data_parallel");
    check(mesh.context() == 0, op,
          "context divides the tokens of a text, but each pass has a single new token: use tensor, zero, pipeline or "
          "data_parallel");
  }
}

/// The texts of a batch, and the tokens that the model has processed. Over the ranks of a Step all ranks know all
/// texts, but each computes the logits of its share of them.
class Batch {
 public:
  /// step: null: this rank alone runs the model.
  Batch(Module& model, Step* step, const std::vector<std::vector<Index>>& prompts, const GenerateOptions& o)
      : chain_(model), options_(o), texts_(prompts), windows_(prompts), done_(prompts.size()) {
    check(!prompts.empty(), op, "there are no prompts");
    check(o.samples.empty() || o.samples.size() == prompts.size(), op, "{} sample numbers for {} prompts",
          o.samples.size(), prompts.size());
    for (std::size_t n = 0; n < prompts.size(); ++n) {
      check(!prompts[n].empty(), op, "prompt {} is empty: give at least one token to begin with", n);
      check(std::ssize(prompts[n]) <= o.context, op,
            "prompt {} has {} tokens, and the model sees {} at a time: shorten it", n, prompts[n].size(), o.context);
      prompt_lengths_.push_back(std::ssize(prompts[n]));
    }
    model.visit(StateVisitor([&](const NamedState& leaf) { device_ = leaf.tensor->device(); }));
    while (head_ < chain_.size() && !chain_.head(head_)) ++head_;
    end_ = std::ssize(texts_);
    if (step) join(*step);
  }

  bool finished() const {
    return std::ranges::all_of(done_, [](bool done) { return done; });
  }
  /// Draws the next token of each text, and reports it.
  void advance(const OnToken& on_token) {
    if (slide_) restart();
    std::vector<std::vector<Index>> tokens = windows_;
    if (!slide_)
      for (auto& some : tokens) some = {some.back()};
    const std::vector<Index> ids = of_all_ranks(run(tokens));
    slide_ = false;
    for (std::size_t n = 0; n < texts_.size(); ++n) {
      if (done_[n]) continue;
      texts_[n].push_back(ids[n]);
      windows_[n].push_back(ids[n]);
      done_[n] = (on_token && !on_token(static_cast<Index>(n), ids[n])) ||
                 std::ssize(texts_[n]) - prompt_lengths_[n] >= options_.tokens ||
                 std::ranges::find(options_.stop, ids[n]) != options_.stop.end();
      slide_ = slide_ || (!done_[n] && std::ssize(windows_[n]) > options_.context);
    }
  }
  std::vector<std::vector<Index>> drawn() const {
    std::vector<std::vector<Index>> all;
    for (std::size_t n = 0; n < texts_.size(); ++n)
      all.emplace_back(texts_[n].begin() + prompt_lengths_[n], texts_[n].end());
    return all;
  }

 private:
  static constexpr Index nothing = -1;  // in place of a token: another rank draws it

  /// Divides the texts over the ranks of a Step. A collective call.
  void join(Step& step) {
    check_split(step.parameters());
    const StepForward forward(step);
    world_ = &forward.world();
    compare_ranks(world_->comm(), op,
                  fmt::format("tokens {}, temperature {}, top_k {}, top_p {}, seed {}, samples {}, vocabulary {}, "
                              "context {}, stop {}\nprompts {}",
                              options_.tokens, options_.temperature, options_.top_k, options_.top_p, options_.seed,
                              options_.samples, options_.vocabulary, options_.context, options_.stop, texts_));
    const RankShare mine = forward.share();
    std::tie(begin_, end_) = share(std::ssize(texts_), mine.rank, mine.size);
    if (!forward.is_needed()) return step.gather_weights();
    forward_.emplace(step);
    if (begin_ == end_) std::tie(begin_, end_) = std::pair(0, 1);  // ranks gather weights together: all run the model
  }
  /// Begins all windows again. Full windows drop their older half.
  void restart() {
    Index longest = 0;
    for (std::size_t n = 0; n < windows_.size(); ++n) {
      std::vector<Index>& window = windows_[n];
      if (done_[n]) window.resize(1);
      if (std::ssize(window) > options_.context) window.erase(window.begin(), window.end() - options_.context / 2);
      longest = std::max<Index>(longest, std::ssize(window));
    }
    if (const Index rows = end_ - begin_; rows > 0) cache_.emplace(rows, std::max(longest, options_.context));
  }
  /// tokens: of each text, those after the cached ones. Returns the next token of this rank's texts. A finished text
  /// keeps its place in the batch but takes no room in the cache.
  std::vector<Index> run(const std::vector<std::vector<Index>>& tokens) {
    if (begin_ == end_) return {};
    const auto mine =
        std::span(tokens).subspan(static_cast<std::size_t>(begin_), static_cast<std::size_t>(end_ - begin_));
    Index longest = 0;
    for (const auto& some : mine) longest = std::max<Index>(longest, std::ssize(some));
    const Tensor ids = Tensor::full({std::ssize(mine), longest}, 0, DType::i64);
    std::vector<Index> counts, last, lengths = cache_->lengths();
    for (std::size_t n = 0; n < mine.size(); ++n) {
      const Index row = static_cast<Index>(n) * longest;
      const bool done = done_[static_cast<std::size_t>(begin_) + n];
      std::ranges::copy(mine[n], ids.data<std::int64_t>() + row);
      last.push_back(row + std::ssize(mine[n]) - 1);
      counts.push_back(done ? 0 : std::ssize(mine[n]));
      if (done) lengths[n] = 0;
    }
    cache_->truncate(lengths);
    const KvScope scope(*cache_);
    const Tensor x = ids.to(device_), places = Tensor::from(last).to(device_);
    const PartsForward::RunPart part = [&](int p, Tensor y, Stashed& stashed) {
      if (p == head_) y = at(y, x, places);
      y = chain_.run(p, std::move(y), stashed);
      if (p + 1 < chain_.size()) return y;
      return draw(head_ == chain_.size() ? at(y, x, places) : y);
    };
    Tensor y = x;
    Stashed stashed;
    for (int p = 0; p < chain_.size() && !forward_; ++p) y = part(p, std::move(y), stashed);
    if (forward_) y = (*forward_)(x, part);
    cache_->advance(counts);
    return y.to_vector<std::int64_t>();
  }
  /// y [N, T, C] of ids [N, T] at these positions of N T tokens, [N, C]. The head computes the last token of a prompt
  /// only.
  static Tensor at(const Tensor& y, const Tensor& ids, const Tensor& places) {
    check(y.rank() == 3 && y.dim(0) == ids.dim(0) && y.dim(1) == ids.dim(1), op,
          "the model makes {} of ids {}, expected [samples, tokens, vocabulary]", y.shape(), ids.shape());
    return take(y.reshape({ids.numel(), y.global_shape()[2]}), places);
  }
  /// The next token of each of this rank's texts from its logits [N, V]: i64 [N].
  Tensor draw(const Tensor& logits) const {
    const Index width = logits.dim(1);
    const Index count = options_.vocabulary > 0 ? std::min(options_.vocabulary, width) : width;
    const Tensor host = logits.to(DType::f64).to(cpu());
    const Tensor ids = Tensor::full({logits.dim(0)}, static_cast<double>(nothing), DType::i64);
    for (Index n = 0; n < logits.dim(0); ++n) {
      const auto text = static_cast<std::size_t>(begin_ + n);
      if (done_[text]) continue;
      const Index sample = options_.samples.empty() ? begin_ + n : options_.samples[text];
      ids.data<std::int64_t>()[n] = draw_token({host.data<double>() + n * width, static_cast<std::size_t>(count)},
                                               options_, draw_uniform(options_.seed, sample, std::ssize(texts_[text])));
    }
    return ids.to(logits.device());
  }
  /// The token of each text, from the first rank that has drawn it. mine: of this rank's texts. A collective call.
  std::vector<Index> of_all_ranks(const std::vector<Index>& mine) const {
    if (!world_) return mine;
    std::vector<Index> all(texts_.size(), nothing);
    std::ranges::copy(mine, all.begin() + begin_);
    const std::vector<Index> gathered = gather_numbers(world_->comm(), all);
    for (std::size_t i = gathered.size(); i-- > 0;)
      if (gathered[i] != nothing) all[i % all.size()] = gathered[i];
    return all;
  }

  Chain chain_;
  int head_ = 0;  // the part that is the head; the number of parts: none
  const GenerateOptions& options_;
  std::vector<std::vector<Index>> texts_, windows_;  // with prompts; the model's context
  std::vector<bool> done_;
  std::vector<Index> prompt_lengths_;
  Device device_ = cpu();
  World* world_ = nullptr;              // null: one rank
  std::optional<StepForward> forward_;  // none: this rank has the weights of all layers
  Index begin_ = 0, end_ = 0;           // this rank's texts
  std::optional<KvCache> cache_;        // of this rank's texts
  bool slide_ = true;                   // the windows begin again
};

std::vector<std::vector<Index>> texts_of(Module& model, Step* step, const std::vector<std::vector<Index>>& prompts,
                                         const GenerateOptions& options, const OnToken& on_token) {
  check_options(options);
  const Inference inference;
  Batch batch(model, step, prompts, options);
  while (!batch.finished()) batch.advance(on_token);
  return batch.drawn();
}

}  // namespace

Index draw_token(std::span<const double> logits, const GenerateOptions& o, double u) {
  check(std::ranges::all_of(logits, [](double v) { return std::isfinite(v); }) && !logits.empty(), ErrorKind::numerics,
        op, "the model's logits are not finite, as after a training that diverged");
  const std::vector<Index> ids = likeliest(logits, o.temperature == 0 ? 1 : o.top_k);
  if (o.temperature == 0) return ids[0];
  const double most = logits[static_cast<std::size_t>(ids[0])];
  std::vector<double> p;
  for (const Index id : ids) p.push_back(std::exp((logits[static_cast<std::size_t>(id)] - most) / o.temperature));
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  std::size_t kept = 0;
  double mass = 0;
  while (kept < p.size() && (kept == 0 || mass < o.top_p * all)) mass += p[kept++];
  double below = 0;
  for (std::size_t i = 0; i + 1 < kept; ++i)
    if ((below += p[i]) > u * mass) return ids[i];
  return ids[kept - 1];
}

double draw_uniform(std::uint64_t seed, Index sample, Index position) {
  const auto bits = Philox{mix(seed, static_cast<std::uint64_t>(sample))}(0, static_cast<std::uint64_t>(position));
  const std::uint64_t all = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(all) * 0x1p-53;
}

std::vector<std::vector<Index>> generate(Module& model, const std::vector<std::vector<Index>>& prompts,
                                         const GenerateOptions& options, const OnToken& on_token) {
  return texts_of(model, nullptr, prompts, options, on_token);
}

std::vector<std::vector<Index>> generate(Step& step, const std::vector<std::vector<Index>>& prompts,
                                         const GenerateOptions& options, const OnToken& on_token) {
  return texts_of(step.model(), &step, prompts, options, on_token);
}

}  // namespace trireme
