// generate() and evaluate() over ranks: the results of one rank, where no rank has the whole model.
#include <sys/prctl.h>

#include "datasets/core/tensors.h"
#include "framework/layers/init.h"
#include "framework/layers/sequential.h"
#include "framework/tensor/memory_tracker.h"
#include "kernels/core/runtime.h"
#include "models/text/generate.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "tests/support/ranks.h"
#include "tools/cli/commands.h"
#include "tools/training/evaluate.h"

namespace test_generate_ranks {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index vocabulary = 19, positions = 16;
using Ids = std::vector<Index>;

struct Layout {
  std::vector<Axis> mesh;
  std::string strategy;
};

/// A model in f64, whose distributions are not flat.
struct Subject {
  std::string name;
  std::function<Module()> make;
  Module operator()() const {
    Module model = make();
    initialize(model, 5);
    convert(model, DType::f64);
    model.visit(StateVisitor([](const NamedState& s) {
      if (s.tensor->rank() == 2) s.tensor->copy_from(*s.tensor * 8);
    }));
    return model;
  }
};
Subject of_gpt2(bool tied) {
  const GptOptions o{.layers = 3,
                     .heads = 4,
                     .width = 16,
                     .positions = positions,
                     .vocabulary = vocabulary,
                     .dropout = 0.2,
                     .tied = tied};
  return {tied ? "gpt2" : "gpt2, untied", [o] { return Module(gpt2(o)); }};
}
Subject of_llama(Index groups) {
  const LlamaOptions o{.layers = 3,
                       .heads = 8,
                       .kv_heads = groups,
                       .width = 32,
                       .hidden = 24,
                       .positions = positions,
                       .vocabulary = vocabulary};
  return {fmt::format("llama of {} groups", groups), [o] { return Module(llama(o)); }};
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int ranks : {2, 3, 4}) {
    all.push_back({{{"tensor", ranks}}, "tensor"});
    all.push_back({{{"data", ranks}}, "data_parallel"});
    all.push_back({{{"data", ranks}}, "zero(3)"});
    all.push_back({{{"pipe", ranks}}, "pipeline(micro=2, partition=even)"});
  }
  all.push_back({{{"data", 2}, {"tensor", 2}}, "tensor | data_parallel"});
  all.push_back({{{"data", 2}, {"tensor", 2}}, "tensor | zero(3)"});
  all.push_back({{{"pipe", 2}, {"tensor", 2}}, "tensor | pipeline(micro=2, partition=even)"});
  all.push_back({{{"pipe", 2}, {"data", 2}}, "pipeline(micro=2, partition=even) | zero(3)"});
  all.push_back({{{"pipe", 2}}, "pipeline(micro=2, schedule=interleaved, chunks=2, partition=even)"});
  all.push_back({{{"pipe", 2}}, "pipeline(micro=2, schedule=zb-v, partition=even)"});
  all.push_back({{{"data", 2}}, "local_sgd(every=2)"});
  all.push_back({{{"data", 3}}, "parameter_server(servers=1)"});
  all.push_back({{{"data", 2}}, "central_storage"});
  return all;
}

Step& on(std::optional<Step>& step, const Subject& subject, Mesh& mesh, const std::string& strategy) {
  return step.emplace(subject(), cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(strategy),
                      StepOptions{.profile = {.example = Tensor::full({1, 4}, 0, DType::i64)}});
}

std::vector<Ids> prompts_of(std::size_t count) {
  std::vector<Ids> prompts;
  for (std::size_t n = 0; n < count; ++n) {
    Ids& ids = prompts.emplace_back();
    for (std::size_t i = 0; i < 1 + n * 5 % positions; ++i)
      ids.push_back(static_cast<Index>((n * 7 + i * i * 3) % vocabulary));
  }
  return prompts;
}

/// Texts whose targets are the next tokens, with logits rather than a fused head.
Dataset texts_of(Index count, Index vocabulary) {
  std::vector<std::int64_t> ids;
  for (Index i = 0; i < count * (positions + 1); ++i) ids.push_back(i * i * 7 % 31 % vocabulary);
  const Tensor all = Tensor::from(ids, {count, positions + 1});
  return TensorDataset(slice(all, 1, 0, positions), slice(all, 1, 1, positions + 1), vocabulary);
}

/// Calls a function after each block, while the block's weights are on the rank.
struct Probed {
  Module block;
  std::shared_ptr<std::function<void()>> probe;
  Tensor operator()(const Tensor& x) const {
    const Tensor y = block(x);
    if (*probe) (*probe)();
    return y;
  }
  void visit(const StateVisitor& v) { v("block", block); }
};
/// A GPT-2 of 6 blocks with 3 MB of weights in f32, whose blocks are probed.
Module probed_gpt2(const std::shared_ptr<std::function<void()>>& probe) {
  const Sequential whole = gpt2({.layers = 6, .heads = 4, .width = 96, .positions = positions, .vocabulary = 512});
  const Sequential& inner = *whole[0].as<Sequential>();
  Sequential model;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    const Sequential* blocks = inner[i].as<Sequential>();
    if (!blocks) model.add(inner.name(i), inner[i]);
    for (std::size_t b = 0; blocks && b < blocks->size(); ++b)
      model.add(fmt::format("block{}", b), Probed{(*blocks)[b], probe});
  }
  return model.add("lm_head", whole[1]);
}

double resident_bytes(const FlatBuffer& flat) {
  double there = 0;
  for (const Tensor& block : flat.blocks()) {
    const View v = block.view();
    there +=
        static_cast<double>(runtime(v.device.kind).resident(v.data, static_cast<std::size_t>(v.bytes()), v.device));
  }
  return there;
}

}  // namespace

TEST_CASE("no rank ever has the bytes of the whole model while it generates or evaluates") {
  (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // else the kernel may fill untouched memory with huge pages
  double whole = 0;
  Module model = probed_gpt2(std::make_shared<std::function<void()>>());
  std::map<const void*, Index> sizes;  // the head is the embedding
  model.visit(StateVisitor([&](const NamedState& s) { sizes[s.tensor->id()] = s.tensor->numel(); }));
  for (const auto& [id, size] : sizes) whole += 4 * static_cast<double>(size);
  struct Bound {
    Layout layout;
    double most;  // share of the whole model: of weights, keys, values and activations
  };
  const std::vector<Bound> bounds{
      {{{{"data", 1}}, "serial"}, 1.2},   {{{{"tensor", 2}}, "tensor"}, 0.7},
      {{{{"tensor", 4}}, "tensor"}, 0.4}, {{{{"pipe", 2}}, "pipeline(micro=2, partition=even)"}, 0.75},
      {{{{"data", 2}}, "zero(3)"}, 0.78}, {{{{"data", 3}}, "zero(3)"}, 0.65},
      {{{{"data", 4}}, "zero(3)"}, 0.6},  {{{{"data", 2}, {"tensor", 2}}, "tensor | zero(3)"}, 0.45}};
  for (const auto& [layout, most] : bounds) {
    if (other_ranks(ranks_of(layout.mesh))) continue;
    INFO(layout.strategy << " on " << to_string(layout.mesh));
    const auto [peaks, probes] = on_ranks(ranks_of(layout.mesh), [&](World& world) {
      Mesh mesh(world, layout.mesh);
      const auto probe = std::make_shared<std::function<void()>>();
      Module undrawn;
      {
        const SkipInit drawn_below;
        undrawn = probed_gpt2(probe);
      }
      const auto step =
          forward_step(undrawn, mesh, parse_strategy(layout.strategy), Tensor::full({1, 4}, 0, DType::i64));
      double peak = 0;
      int probes = 0;
      const MemoryTracker tracker;
      const MemoryScope scope(tracker);
      *probe = [&] {
        ++probes;
        const double tensors =
            static_cast<double>(tracker.peak(MemoryKind::activations) + tracker.peak(MemoryKind::packed));
        peak = std::max(
            peak, tensors + resident_bytes(step->parameters().values()) + resident_bytes(step->parameters().grads()));
      };
      (void)generate(*step, prompts_of(2), {.tokens = 20, .temperature = 0, .context = positions});
      const double generating = std::exchange(peak, 0);
      EvaluateOptions how{.batch = 2, .workers = 0};
      const bool divided = divide(how, *step);
      CHECK(divided == (world.size() > 1));
      (void)evaluate(step->model(), texts_of(4, 512), world, how);
      *probe = {};
      const Tensor all = Tensor::of(std::vector{generating, peak}, {2}, DType::f64);
      world.comm().all_reduce(all, ReduceOp::max).wait();
      return std::pair(all.to_vector(), probes);
    });
    CHECK(probes > 0);
    for (const double peak : peaks) {
      CHECK(peak < most * whole);
      CHECK(peak > 0.2 * whole);
    }
  }
  (void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

TEST_CASE("evaluations over ranks are those of one rank") {
  const Dataset data = texts_of(7, vocabulary);
  for (const Subject& subject : {of_gpt2(true), of_gpt2(false), of_llama(2)}) {
    Module whole = subject();
    World one;
    const Evaluation expected = evaluate(whole, data, one, {.batch = 3, .workers = 0, .dtype = DType::f64});
    CHECK(expected.labels == 7 * positions);
    for (const Layout& layout : layouts()) {
      if (other_ranks(ranks_of(layout.mesh))) continue;
      INFO(subject.name << ", " << layout.strategy << " on " << to_string(layout.mesh));
      const auto [found, divided] = on_ranks(ranks_of(layout.mesh), [&](World& world) {
        Mesh mesh(world, layout.mesh);
        std::optional<Step> step;
        EvaluateOptions how{.batch = 3, .workers = 0, .dtype = DType::f64};
        const bool divided = divide(how, on(step, subject, mesh, layout.strategy));
        return std::pair(evaluate(step->model(), data, world, how), divided);
      });
      CHECK(std::abs(found.loss - expected.loss) < 1e-12 * expected.loss);
      CHECK((found.correct == expected.correct && found.in_top5 == expected.in_top5));
      CHECK(found.labels == expected.labels);
      const bool in_parts = layout.strategy.find("tensor") != std::string::npos ||
                            layout.strategy.find("pipeline") != std::string::npos ||
                            layout.strategy.find("zero(3)") != std::string::npos;
      CHECK(divided == in_parts);
    }
  }
}

TEST_CASE("texts over ranks are those of one rank") {
  for (const Subject& subject : {of_gpt2(true), of_gpt2(false), of_llama(4), of_llama(2), of_llama(1)}) {
    for (const std::size_t count : {1, 3, 5})
      for (const double temperature : {0.0, 1.0}) {
        // Windows slide, and texts end at different lengths.
        const GenerateOptions o{
            .tokens = 20, .temperature = temperature, .top_k = 12, .seed = 3, .context = positions, .stop = {7}};
        const std::vector<Ids> prompts = prompts_of(count);
        Module whole = subject();
        const std::vector<Ids> expected = generate(whole, prompts, o);
        for (const Layout& layout : layouts()) {
          if (other_ranks(ranks_of(layout.mesh))) continue;
          if (brief() && (count == 3 || temperature == 0)) continue;
          INFO(subject.name << ", " << count << " prompts, temperature " << temperature << ", " << layout.strategy
                            << " on " << to_string(layout.mesh));
          const auto [texts, told] = on_ranks(ranks_of(layout.mesh), [&](World& world) {
            Mesh mesh(world, layout.mesh);
            std::optional<Step> step;
            std::vector<Ids> told(prompts.size());
            const auto texts = generate(on(step, subject, mesh, layout.strategy), prompts, o, [&](Index n, Index id) {
              told[static_cast<std::size_t>(n)].push_back(id);
              return true;
            });
            return std::pair(texts, told);
          });
          CHECK(texts == expected);
          CHECK(told == expected);
        }
      }
  }
}

}  // namespace test_generate_ranks
