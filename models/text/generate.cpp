#include "models/text/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "framework/layers/inference.h"
#include "framework/layers/kv_cache.h"
#include "kernels/core/random.h"
#include "parallel/model/chain.h"

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

/// The texts of a batch, and the tokens that the model has processed.
class Batch {
 public:
  Batch(Module& model, const std::vector<std::vector<Index>>& prompts, const GenerateOptions& o)
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
    restart();
  }

  bool finished() const {
    return std::ranges::all_of(done_, [](bool done) { return done; });
  }
  /// Draws the next token of each text from the last logits, and reports it.
  void draw(const OnToken& on_token) {
    const Index width = logits_.dim(1);
    const Index count = options_.vocabulary > 0 ? std::min(options_.vocabulary, width) : width;
    const Tensor host = logits_.to(DType::f64).to(cpu());
    slide_ = false;
    for (std::size_t n = 0; n < texts_.size(); ++n) {
      if (done_[n]) continue;
      const double* row = host.data<double>() + static_cast<Index>(n) * width;
      const Index sample = options_.samples.empty() ? static_cast<Index>(n) : options_.samples[n];
      const Index id = draw_token({row, static_cast<std::size_t>(count)}, options_,
                                  draw_uniform(options_.seed, sample, std::ssize(texts_[n])));
      texts_[n].push_back(id);
      windows_[n].push_back(id);
      done_[n] = (on_token && !on_token(static_cast<Index>(n), id)) ||
                 std::ssize(texts_[n]) - prompt_lengths_[n] >= options_.tokens ||
                 std::ranges::find(options_.stop, id) != options_.stop.end();
      slide_ = slide_ || (!done_[n] && std::ssize(windows_[n]) > options_.context);
    }
  }
  /// Computes the logits after the tokens just drawn.
  void advance() {
    if (slide_) return restart();
    std::vector<std::vector<Index>> last;
    for (const auto& window : windows_) last.push_back({window.back()});
    run(last);
  }
  std::vector<std::vector<Index>> drawn() const {
    std::vector<std::vector<Index>> all;
    for (std::size_t n = 0; n < texts_.size(); ++n)
      all.emplace_back(texts_[n].begin() + prompt_lengths_[n], texts_[n].end());
    return all;
  }

 private:
  /// Runs all windows again from the start. Full windows drop their older half.
  void restart() {
    Index longest = 0;
    for (std::size_t n = 0; n < windows_.size(); ++n) {
      std::vector<Index>& window = windows_[n];
      if (done_[n]) window.resize(1);
      if (std::ssize(window) > options_.context) window.erase(window.begin(), window.end() - options_.context / 2);
      longest = std::max<Index>(longest, std::ssize(window));
    }
    cache_.emplace(std::ssize(windows_), std::max(longest, options_.context));
    run(windows_);
  }
  /// tokens: of each text, those after the cached ones. A finished text keeps its place in the batch but takes no room
  /// in the cache.
  void run(const std::vector<std::vector<Index>>& tokens) {
    Index longest = 0;
    for (const auto& some : tokens) longest = std::max<Index>(longest, std::ssize(some));
    const Tensor ids = Tensor::full({std::ssize(tokens), longest}, 0, DType::i64);
    std::vector<Index> counts, last, lengths = cache_->lengths();
    for (std::size_t n = 0; n < tokens.size(); ++n) {
      const Index row = static_cast<Index>(n) * longest;
      std::ranges::copy(tokens[n], ids.data<std::int64_t>() + row);
      last.push_back(row + std::ssize(tokens[n]) - 1);
      counts.push_back(done_[n] ? 0 : std::ssize(tokens[n]));
      if (done_[n]) lengths[n] = 0;
    }
    cache_->truncate(lengths);
    const KvScope scope(*cache_);
    logits_ = logits_at(ids.to(device_), Tensor::from(last).to(device_));
    cache_->advance(counts);
  }
  /// Logits [N, V] at these positions of N T tokens. For a long prompt the head computes its last token only.
  Tensor logits_at(const Tensor& ids, const Tensor& places) {
    const LmHead* head = chain_.head();
    Tensor x = ids;
    Stashed stashed;
    for (int p = 0; p < chain_.size() - (head ? 1 : 0); ++p) x = chain_.run(p, std::move(x), stashed);
    check(x.rank() == 3 && x.dim(0) == ids.dim(0) && x.dim(1) == ids.dim(1), op,
          "the model makes {} of ids {}, expected [samples, tokens, vocabulary]", x.shape(), ids.shape());
    x = take(x.reshape({ids.numel(), x.dim(2)}), places);
    return head ? (*head)(x) : x;
  }

  Chain chain_;
  const GenerateOptions& options_;
  std::vector<std::vector<Index>> texts_, windows_;  // with prompts; the model's context
  std::vector<bool> done_;
  std::vector<Index> prompt_lengths_;
  Device device_ = cpu();
  std::optional<KvCache> cache_;
  Tensor logits_;  // [N, V], after the last token of each text
  bool slide_ = false;
};

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
  check_options(options);
  const Inference inference;
  Batch batch(model, prompts, options);
  for (;;) {
    batch.draw(on_token);
    if (batch.finished()) return batch.drawn();
    batch.advance();
  }
}

}  // namespace trireme
