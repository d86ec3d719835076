// generate(): beside forward passes of all tokens, and beside a softmax that is filtered step by step.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "framework/layers/inference.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "kernels/core/random.h"
#include "models/text/generate.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "tests/support/catch.h"

namespace test_generate {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index vocabulary = 11, positions = 16;

/// In f64, so that no two logits are a rounding apart.
Module exact(Module model) {
  initialize(model, 5);
  convert(model, DType::f64);
  // Weights as drawn make nearly flat distributions.
  model.visit(StateVisitor([](const NamedState& s) {
    if (s.tensor->rank() == 2) s.tensor->copy_from(*s.tensor * 8);
  }));
  return model;
}
Module small_gpt2(bool tied = true) {
  return exact(gpt2({.layers = 2,
                     .heads = 2,
                     .width = 8,
                     .positions = positions,
                     .vocabulary = vocabulary,
                     .dropout = 0.2,
                     .tied = tied}));
}
Module small_llama() {
  return exact(llama({.layers = 2,
                      .heads = 4,
                      .kv_heads = 2,
                      .width = 16,
                      .hidden = 24,
                      .positions = positions,
                      .vocabulary = vocabulary}));
}
using Ids = std::vector<Index>;

/// Logits behind the last of these tokens, by a forward pass of all of them without a cache.
std::vector<double> logits_behind(Module& model, const Ids& ids) {
  const Inference inference;
  const Tensor all = model(Tensor::from(ids).reshape({1, std::ssize(ids)}));
  return select(all, 1, -1).to_vector();
}
/// What generate() does, by passes over all that the model may see; drawn by `draw` from logits and the position.
template <class Draw>
Ids by_hand(Module& model, Ids text, const GenerateOptions& o, Draw&& draw) {
  Ids window = text, drawn;
  for (Index k = 0; k < o.tokens; ++k) {
    if (std::ssize(window) > o.context) window.erase(window.begin(), window.end() - o.context / 2);
    const Index id = draw(logits_behind(model, window), std::ssize(text));
    window.push_back(id);
    text.push_back(id);
    drawn.push_back(id);
  }
  return drawn;
}
Index likeliest(const std::vector<double>& logits, Index) { return std::ranges::max_element(logits) - logits.begin(); }
Ids some_ids(Index count, std::uint64_t seed) {
  Ids ids;
  for (Index i = 0; i < count; ++i)
    ids.push_back(static_cast<Index>(Philox{seed}(0, static_cast<std::uint64_t>(i))[0] % vocabulary));
  return ids;
}

/// Probabilities by id as GenerateOptions say, each filter by itself: temperature, the k likeliest (equals by id), of
/// these the fewest that have p.
std::map<Index, double> filtered(const std::vector<double>& logits, const GenerateOptions& o) {
  std::vector<std::pair<double, Index>> p;
  const double most = *std::ranges::max_element(logits);
  for (std::size_t i = 0; i < logits.size(); ++i)
    p.emplace_back(std::exp((logits[i] - most) / o.temperature), static_cast<Index>(i));
  std::ranges::stable_sort(p, [](auto& a, auto& b) { return a.first > b.first; });
  const auto normalize = [&] {
    double sum = 0;
    for (auto& [q, id] : p) sum += q;
    for (auto& [q, id] : p) q /= sum;
  };
  if (o.top_k > 0) p.resize(std::min(p.size(), static_cast<std::size_t>(o.top_k)));
  normalize();
  std::size_t kept = 0;
  for (double mass = 0; kept < p.size() && (o.top_p == 1 || mass < o.top_p - 1e-12); ++kept) mass += p[kept].first;
  p.resize(kept);
  normalize();
  std::map<Index, double> all;
  for (const auto& [q, id] : p) all[id] = q;
  return all;
}

}  // namespace

TEST_CASE("greedy text is that of repeated whole forward passes, beyond the context too") {
  for (Module model : {small_gpt2(), small_gpt2(false), small_llama()})
    for (const Index context : {Index{2}, Index{7}, positions})
      for (const Index length : {Index{1}, Index{2}, context}) {
        const GenerateOptions o{.tokens = 3 * context, .temperature = 0, .context = context};
        const Ids prompt = some_ids(length, static_cast<std::uint64_t>(10 * context + length));
        CHECK(generate(model, {prompt}, o)[0] == by_hand(model, prompt, o, likeliest));
      }
}

TEST_CASE("what is drawn is the softmax's share of the same uniform number, filtered step by step") {
  const std::vector<double> logits{0.3, -1, 2, 2, 0.3, -4, 1.2, 0, 0.7, 2.5, -0.2};
  const int draws = 2000;
  for (const double temperature : {0.2, 0.8, 1.0, 3.0})
    for (const Index top_k : {0, 1, 2, 5, 40})
      for (const double top_p : {1e-9, 0.5, 0.9, 1.0}) {
        const GenerateOptions o{.temperature = temperature, .top_k = top_k, .top_p = top_p};
        const std::map<Index, double> p = filtered(logits, o);
        std::map<Index, int> counts;
        for (int i = 0; i < draws; ++i) ++counts[draw_token(logits, o, (i + 0.5) / draws)];
        // Uniforms in equal steps: each id gets its share of them, to one at each end of it.
        for (const auto& [id, count] : counts) {
          REQUIRE(p.contains(id));
          CHECK(std::abs(count - p.at(id) * draws) <= 1);
        }
        for (const auto& [id, share] : p) CHECK((share * draws < 1 || counts.contains(id)));
        // The first and the last of all uniforms draw what has a share.
        CHECK(p.contains(draw_token(logits, o, 0)));
        CHECK(p.contains(draw_token(logits, o, 1 - 0x1p-53)));
      }
  CHECK(draw_token(logits, {.temperature = 0}, 0.99) == 9);
  CHECK(draw_token(std::vector<double>{1, 3, 3, 2}, {.temperature = 0}, 0.99) == 1);
}

TEST_CASE("uniform numbers are functions of seed, sample and position, and fill the unit interval") {
  std::vector<double> all;
  for (std::uint64_t seed : {0, 1, 7})
    for (Index sample = 0; sample < 10; ++sample)
      for (Index position = 0; position < 100; ++position) all.push_back(draw_uniform(seed, sample, position));
  CHECK(draw_uniform(7, 3, 5) == draw_uniform(7, 3, 5));
  std::ranges::sort(all);
  CHECK(std::ranges::adjacent_find(all) == all.end());
  CHECK((all.front() >= 0 && all.back() < 1));
  for (std::size_t i = 0; i < all.size(); ++i)  // Kolmogorov and Smirnov's distance, of 3000 numbers
    CHECK(std::abs(all[i] - static_cast<double>(i) / static_cast<double>(all.size())) < 0.03);
}

TEST_CASE("a batch of prompts of different lengths writes what each writes alone") {
  for (Module model : {small_gpt2(), small_llama()}) {
    std::vector<Ids> prompts;
    for (const Index length : {3, 1, 12, 16, 7})
      prompts.push_back(some_ids(length, static_cast<std::uint64_t>(length)));
    for (const double temperature : {0.0, 1.0}) {
      const GenerateOptions o{
          .tokens = 40, .temperature = temperature, .top_k = 6, .top_p = 0.95, .seed = 3, .context = positions};
      const auto together = generate(model, prompts, o);
      for (std::size_t n = 0; n < prompts.size(); ++n) {
        GenerateOptions alone = o;
        alone.samples = {static_cast<Index>(n)};
        CHECK(together[n].size() == 40);
        CHECK(generate(model, {prompts[n]}, alone)[0] == together[n]);
        CHECK(together[n] == by_hand(model, prompts[n], o, [&](const std::vector<double>& logits, Index position) {
                return draw_token(logits, o, draw_uniform(o.seed, static_cast<Index>(n), position));
              }));
      }
      CHECK(generate(model, prompts, o) == together);
      GenerateOptions other = o;
      other.seed = 4;
      if (temperature > 0) CHECK(generate(model, prompts, other) != together);
    }
  }
}

TEST_CASE("texts end at tokens and where they are told to, others go on as they would") {
  Module model = small_gpt2();
  const std::vector<Ids> prompts{some_ids(2, 1), some_ids(9, 2), some_ids(16, 3)};
  GenerateOptions o{.tokens = 50, .temperature = 1, .context = positions};
  const auto whole = generate(model, prompts, o);
  for (Index stop = 0; stop < vocabulary; ++stop) {
    o.stop = {stop};
    const auto some = generate(model, prompts, o);
    for (std::size_t n = 0; n < prompts.size(); ++n) {
      const auto at = std::ranges::find(whole[n], stop);
      CHECK(some[n] == Ids(whole[n].begin(), at == whole[n].end() ? at : at + 1));
    }
  }
  o.stop = {};
  // Each of them ends by itself at any length: the others' windows are full or not by then.
  for (std::size_t which = 0; which < prompts.size(); ++which)
    for (const Index length : {1, 5, 14, 15, 16, 30}) {
      std::vector<Ids> told(prompts.size());
      const auto some = generate(model, prompts, o, [&](Index sample, Index id) {
        auto& mine = told[static_cast<std::size_t>(sample)];
        mine.push_back(id);
        return sample != static_cast<Index>(which) || std::ssize(mine) < length;
      });
      CHECK(some == told);
      for (std::size_t n = 0; n < prompts.size(); ++n)
        CHECK(some[n] == Ids(whole[n].begin(), n == which ? whole[n].begin() + length : whole[n].end()));
    }
}

TEST_CASE("rows of the vocabulary that no tokenizer has are never drawn") {
  Module model = small_gpt2();
  const GenerateOptions o{.tokens = 60, .temperature = 5, .vocabulary = 4, .context = positions};
  const auto drawn = generate(model, {{0}, {1, 2}}, o);
  for (const Ids& ids : drawn) CHECK(std::ranges::all_of(ids, [](Index id) { return id < 4; }));
}

TEST_CASE("prompts and options that make no sense are refused by name") {
  Module model = small_gpt2();
  const auto refused = [&](const std::vector<Ids>& prompts, const GenerateOptions& o, const std::string& value,
                           ErrorKind kind = ErrorKind::usage) {
    CHECK_THROWS_MATCHES(generate(model, prompts, o), Error, test::ErrorMatcher(kind, value));
  };
  const GenerateOptions fits{.context = positions};
  refused({}, fits, "generate");
  refused({{1}, {}}, fits, "prompt 1");
  refused({Ids(17, 0)}, fits, "17");
  refused({{1, vocabulary}}, fits, "11", ErrorKind::data);
  refused({{1}, {2, -1, 3}}, fits, "-1", ErrorKind::data);
  refused({{1}}, {.tokens = 0}, "tokens");
  refused({{1}}, {.temperature = -0.1}, "-0.1");
  refused({{1}}, {.temperature = NAN}, "nan");
  refused({{1}}, {.top_k = -1}, "top_k");
  for (const double p : {0.0, -1.0, 1.5}) refused({{1}}, {.top_p = p}, "top_p");
  refused({{1}}, {.context = 1}, "context");
  refused({{1}}, {.vocabulary = -1}, "vocabulary");
  refused({{1}}, {.samples = {0, 1}}, "2");
  refused({{1, 2}}, {.tokens = 40, .context = 40}, "arch.positions");
  CHECK_ERROR(draw_token(std::vector<double>{1, NAN}, {}, 0.5), numerics, "generate");
  Module other = Sequential{Embedding(4, 3), Linear(3, 2), flatten};
  CHECK_ERROR(generate(other, {{1}}, fits), usage, "generate", "[samples, tokens, vocabulary]");
}

}  // namespace test_generate
