// Layers state in which ranges and units ranks may share their weights: whole heads, and each part of a fused weight.
// A transformer block then sends what Megatron-LM's does (Shoeybi et al., arXiv 1909.08053), and is exact.
#include <filesystem>

#include "framework/io/checkpoint.h"
#include "models/text/bert.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "models/vision/vit.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/matrix/runs.h"
#include "tests/parallel/split_layers.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

namespace test_ranges {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index width = 24, hidden = 36, tokens = 10, vocabulary = 17;

/// A bundled model of other sizes, on the bundled model's data.
SmallModel resized(const std::string& name, const std::string& sizes, const std::function<Module()>& make) {
  SmallModel m;
  static const std::vector<SmallModel> all = small_models();
  for (const SmallModel& bundled : all)
    if (bundled.name == name) m = bundled;
  m.name += sizes;
  m.make = [make] {
    Module model = convert(make(), DType::f64);
    set_start(model);
    return model;
  };
  return m;
}
SmallModel transformer(const std::string& name, Index layers, Index heads, Index groups = 0) {
  const auto make = [=]() -> Module {
    if (name == "gpt2")
      return gpt2({.layers = layers,
                   .heads = heads,
                   .width = width,
                   .positions = tokens,
                   .vocabulary = vocabulary,
                   .hidden = hidden});
    if (name == "llama")
      return llama({.layers = layers,
                    .heads = heads,
                    .kv_heads = groups,
                    .width = width,
                    .hidden = hidden,
                    .positions = tokens,
                    .vocabulary = vocabulary});
    if (name == "bert")
      return bert({.layers = layers,
                   .heads = heads,
                   .width = width,
                   .positions = tokens,
                   .vocabulary = vocabulary,
                   .hidden = hidden});
    const VitOptions o{.input = {16, 16, 3},
                       .patch = 4,
                       .layers = layers,
                       .heads = heads,
                       .width = width,
                       .hidden = hidden,
                       .classes = 5};
    return name == "vit" ? vit(o) : vit_hf(o);
  };
  return resized(name, fmt::format(" of {} heads, {} groups", heads, groups), make);
}

/// A gated MLP whose two halves are one weight, between attention of grouped queries and the result.
Module fused() {
  const auto flat = [](const Tensor& x) { return x.reshape({x.global_shape()[0], 4 * 12}); };
  return Sequential{[](const Tensor& x) {
                      return x.reshape({x.global_shape()[0], 4, 3});
                    },
                    Linear(3, 12),
                    LayerNorm(12),
                    SelfAttention(12, 6, {.kv_heads = 3, .causal = true}),
                    Linear(12, 20, {.layout = FileLayout::transposed, .shares = {{.ranges = {{10}, {10}}}}}),
                    swiglu,
                    Linear(10, 12, {.bias = false}),
                    LayerNorm(12),
                    flat,
                    Linear(48, 5)};
}

/// What rank 0 sends along the tensor axis in a step.
TrafficCount sent(const SmallModel& m, int ranks, const StepOptions::KeepOutputs& keep = {},
                  const std::string& strategy = "tensor") {
  return on_ranks(ranks, [&](World& world) {
    Mesh mesh(world, {{"tensor", ranks}});
    Step step(m.make(), m.loss, Sgd{.lr = 0.1}, mesh, parse_strategy(strategy),
              {.checks = {.finite = false}, .profile = {.example = m.data.x}, .keep_outputs = keep});
    (void)step(m.data.x, m.data.y);
    const StepTraffic traffic = StepProbe(step).traffic();
    check(traffic.planned == traffic.counted, "test", "{}: a step sends other bytes than planned", m.name);
    return traffic.counted.at("tensor");
  });
}

/// The first strategy that is not exact; "": none.
std::string wrong(const SmallModel& m, const std::vector<std::pair<std::string, std::string>>& ways) {
  Comparison comparison({.audit = true});
  for (const auto& [strategy, mesh] : ways)
    if (const MatrixCell cell = comparison.run(m, strategy, mesh); cell.text() != "exact")
      return fmt::format("{}; {}; {}; {}", m.name, strategy, mesh, cell.text());
  return "";
}
std::vector<std::pair<std::string, std::string>> tensor_on(const std::vector<int>& ranks) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const int n : ranks) all.emplace_back("tensor", fmt::format("tensor={}", n));
  return all;
}

}  // namespace

TEST_CASE("a transformer block under tensor sends four sums of its activations in a step") {
  if (threads_only()) return;
  for (const auto& [name, heads, groups, ranks] :
       std::vector<std::tuple<std::string, Index, Index, int>>{{"gpt2", 4, 0, 2},
                                                               {"gpt2", 6, 0, 4},
                                                               {"llama", 4, 2, 2},
                                                               {"llama", 6, 3, 2},
                                                               {"bert", 4, 0, 4},
                                                               {"bert", 6, 0, 4}}) {
    const SmallModel two = transformer(name, 2, heads, groups);
    INFO(two.name << " on " << ranks);
    const TrafficCount less = sent(transformer(name, 1, heads, groups), ranks), more = sent(two, ranks);
    const Index rows = two.data.x.dim(0);
    CHECK(more.calls - less.calls == 4);
    CHECK(more.bytes - less.bytes == 4 * rows * tokens * width * 8);
  }
}

TEST_CASE("with sequence=true a transformer block gathers its tokens twice and scatters two sums, and back") {
  if (threads_only()) return;
  const std::string strategy = "tensor(sequence=true)";
  // Vectors of the width that all ranks hold and use for their tokens: norms, and biases behind sums. Each has a slot
  // of 32 numbers in the flat block.
  for (const auto& [name, heads, groups, vectors] : std::vector<std::tuple<std::string, Index, Index, Index>>{
           {"gpt2", 4, 0, 6}, {"llama", 4, 2, 2}, {"bert", 4, 0, 6}}) {
    const SmallModel two = transformer(name, 2, heads, groups);
    INFO(two.name);
    const TrafficCount less = sent(transformer(name, 1, heads, groups), 2, {}, strategy),
                       more = sent(two, 2, {}, strategy);
    const Index rows = two.data.x.dim(0);
    CHECK(more.bytes - less.bytes == (8 * rows * tokens / 2 * width + vectors * 32) * 8);
  }
}

TEST_CASE("under context a block sends what its mode needs, and its gradients") {
  if (threads_only()) return;
  const auto of_block = [](const std::string& name, Index groups, const std::string& strategy) {
    return sent(transformer(name, 2, 4, groups), 2, {}, strategy).bytes -
           sent(transformer(name, 1, 4, groups), 2, {}, strategy).bytes;
  };
  for (const auto& [name, groups] : std::vector<std::pair<std::string, Index>>{{"gpt2", 4}, {"llama", 2}}) {
    INFO(name);
    const Index rows = transformer(name, 1, 4, groups).data.x.dim(0), queries = rows * tokens / 2 * width,
                keys = queries * groups / 4;
    const Index gradients = of_block(name, groups, "data_parallel(axis=tensor)");
    for (const std::string cut : {"contiguous", "zigzag", "striped"}) {
      INFO(cut);
      const auto numbers = [&](const std::string& mode) {
        return (of_block(name, groups, "context(axis=tensor, mode=" + mode + ", cut=" + cut + ")") - gradients) / 8;
      };
      CHECK(numbers("gather") == 2 * 2 * keys);                       // keys and values, and their gradients
      CHECK(numbers("ulysses") == 2 * (2 * queries + 2 * keys) / 2);  // half of q, k, v and the output, twice
      CHECK(numbers("ring") == 2 * 2 * keys + 2 * 2 * keys);  // twice keys and values; their gradients make a hop more
    }
  }
}

TEST_CASE("ranks without rows take part in the moves of tokens") {
  if (threads_only()) return;
  const SmallModel m = transformer("llama", 1, 4, 2);
  const auto loss = [&](const std::string& mesh, const std::string& strategy) {
    return on_ranks(ranks_of(parse_mesh(mesh)), [&](World& world) {
      Mesh axes(world, parse_mesh(mesh));
      Step step(m.make(), m.loss, Sgd{.lr = 0.1}, axes, parse_strategy(strategy),
                {.profile = {.example = m.data.x.rows(0, 1)}});
      const Index rows = axes.index("data") == 0 ? 1 : 0;
      double last = 0;
      for (int i = 0; i < 2; ++i) last = step(m.data.x.rows(0, rows).clone(), m.data.y.rows(0, rows).clone()).item();
      return last;
    });
  };
  CHECK(loss("data=2,tensor=2", "tensor(sequence=true) | data_parallel") ==
        Approx(loss("data=1", "serial")).epsilon(1e-12));
}

TEST_CASE("a block of a ViT sends four sums: its patches stay whole") {
  if (threads_only()) return;
  for (const auto& [name, heads, ranks] :
       std::vector<std::tuple<std::string, Index, int>>{{"vit", 4, 2}, {"vit", 4, 3}, {"vit_hf", 6, 4}}) {
    const SmallModel two = transformer(name, 2, heads);
    INFO(two.name << " on " << ranks);
    const TrafficCount less = sent(transformer(name, 1, heads), ranks), more = sent(two, ranks);
    CHECK(more.calls - less.calls == 4);
    CHECK(more.bytes - less.bytes == 4 * two.data.x.dim(0) * 17 * width * 8);
  }
}

TEST_CASE("cross-entropy takes logits where ranks have them; other losses and kept outputs get all") {
  if (threads_only()) return;
  for (const char* const name : {"gpt2", "llama", "bert", "vit"})
    for (const int ranks : {2, 3}) {
      SmallModel m = transformer(name, 1, 6, 3);
      INFO(m.name << " on " << ranks);
      const Loss given = m.loss;
      const Index by_parts = sent(m, ranks).bytes;
      const auto own = [&](const Tensor& logits, const Tensor& labels) {
        check(!logits.shard_spec(), "test", "a loss got logits that ranks divide");
        return given(logits, labels);
      };
      m.loss = Loss(own, given.ignored());
      const Index whole = sent(m, ranks).bytes;
      const Index rows = m.data.y.numel(), classes = name == std::string("vit") ? 5 : vocabulary;
      const auto [begin, end] = even_share(classes, ranks, 0);
      CHECK(by_parts - whole == rows * (6 * ranks - (ranks - 1) * (end - begin)) * 8);
      m.loss = given;
      const auto keep = [&](const Tensor& logits, const Tensor& labels) {
        Shape expected = labels.shape();
        expected.push_back(classes);
        check(logits.shape() == expected, "test", "kept outputs are no whole logits");
        return logits.detach();
      };
      CHECK(sent(m, ranks, keep).bytes == whole);
    }
}

TEST_CASE("a fused weight of two parts is divided in each; the gate is on the rank of its values") {
  if (threads_only()) return;
  const auto mlp = [](Index pairs) {
    return small_model("gated", {3, 2, 2}, [pairs] {
      Sequential model{flatten};
      for (Index i = 0; i < pairs; ++i)
        model.add(Linear(12, 20, {.shares = {{.ranges = {{10}, {10}}}}})).add(swiglu).add(Linear(10, 12));
      return model.add(Linear(12, 5));
    });
  };
  const auto attention = [](Index layers) {
    return small_model("grouped", {4, 3, 1}, [layers] {
      Sequential model{[](const Tensor& x) {
                         return x.reshape({x.global_shape()[0], 4, 3});
                       },
                       Linear(3, 12), LayerNorm(12)};
      for (Index i = 0; i < layers; ++i) model.add(SelfAttention(12, 6, {.kv_heads = 3}));
      return model.add([](const Tensor& x) { return x.reshape({x.global_shape()[0], 48}); }).add(Linear(48, 5));
    });
  };
  for (const int ranks : {2, 3}) {
    const TrafficCount less = sent(mlp(1), ranks), more = sent(mlp(2), ranks);
    CHECK(more.calls - less.calls == 2);
    CHECK(more.bytes - less.bytes == 2 * mlp(1).data.x.dim(0) * 12 * 8);
    const TrafficCount one = sent(attention(1), ranks), two = sent(attention(2), ranks);
    CHECK(two.calls - one.calls == 2);
    CHECK(two.bytes - one.bytes == 2 * attention(1).data.x.dim(0) * 4 * 12 * 8);
  }
  CHECK(wrong(mlp(2), tensor_on({2, 3, 4})) == "");
  // The two parts cross a cut between stages.
  CHECK(wrong(mlp(1), {{"pipeline(micro=2, partition=2) | tensor", "pipe=2,tensor=2"}}) == "");
}

TEST_CASE("uneven heads and groups are exact on any number of ranks") {
  if (threads_only()) return;
  CHECK(wrong(transformer("gpt2", 1, 6), tensor_on({4})) == "");
  CHECK(wrong(transformer("gpt2", 1, 2), tensor_on({3})) == "");  // fewer heads than ranks
  CHECK(wrong(transformer("llama", 1, 6, 3), tensor_on({2, 3, 4})) == "");
  CHECK(wrong(transformer("llama", 1, 6, 2), tensor_on({3})) == "");
  CHECK(wrong(transformer("bert", 1, 6), tensor_on({4})) == "");
  CHECK(wrong(transformer("vit", 1, 3), tensor_on({2, 4})) == "");
}

TEST_CASE("grouped queries of a fused weight, beside other strategies") {
  if (threads_only()) return;
  const SmallModel m = small_model("fused", {2, 2, 3}, fused);
  auto ways = tensor_on({2, 3, 4});
  ways.emplace_back("tensor | data_parallel", "data=2,tensor=2");
  ways.emplace_back("tensor | zero(3)", "data=2,tensor=2");
  ways.emplace_back("tensor(sequence=true)", "tensor=3");
  ways.emplace_back("tensor | place(3.*, whole=true)", "tensor=2");
  ways.emplace_back("tensor | place(4.weight, dim=1)", "tensor=3");
  ways.emplace_back("one_weird_trick", "data=2");
  CHECK(wrong(m, ways) == "");
}

TEST_CASE("what a rank cuts of a copy for work in several ranges brings its part of the gradient") {
  if (threads_only()) return;
  for (const int ranks : {2, 3})
    CHECK_NOTHROW(on_mesh({{"part", ranks}}, [&](Mesh& mesh) {
      const auto grid =
          std::make_shared<const Grid>(mesh, std::vector<std::string>{"part"}, std::vector<std::string>{"part"});
      const Tensor x = integers({4, 18}, 1), dy = integers({4, 18}, 3);
      Tensor w = integers({18}, 2), mine = w.clone();
      const auto spec = ShardSpec::make(grid, x.shape(), over({{1, 0}}), {.ranges = {{12, 2}, {6}}}, 1);
      w.require_grad();
      mine.require_grad();
      mine.impl()->shard_spec = ShardSpec::of_weight(grid, w.shape(), {});
      const Tensor y = x * w, part = relayout(x, *spec) * mine;
      same(gathered(part), y, "product");
      y.backward(dy);
      part.backward(plain(relayout(dy, *spec)));
      const Tensor sum = mine.grad().clone();
      grid->sum(sum, 1);
      same(sum, w.grad(), "gradient");
      return 1;
    }));
}

TEST_CASE("shares that do not add up to the weight are refused") {
  if (threads_only()) return;
  const auto run = [](const std::vector<Shares>& first, const std::vector<Shares>& second = {}) {
    const SmallModel m = small_model("wrong", {2, 2, 3}, [&] {
      return Sequential{flatten, Linear(12, 20, {.shares = first}), Linear(20, 5, {.shares = second})};
    });
    World::threads(2, [&](World& world) {
      Mesh mesh(world, {{"tensor", 2}});
      const Step step(m.make(), m.loss, Sgd{.lr = 0.1}, mesh, parse_strategy("tensor"));
    });
  };
  const Shares pair{.ranges = {{10}, {10}}};
  CHECK_NOTHROW(run({pair}));
  CHECK_ERROR(run({{.ranges = {{10}, {9}}}}), usage, "1.weight", 19);
  CHECK_ERROR(run({{.ranges = {{20, 3}}}}), usage, "1.weight", "units");
  CHECK_ERROR(run({{.ranges = {{20, 0}}}}), usage, "1.weight", "units");
  CHECK_ERROR(run({{.borders = {0, 10, 20}}}), usage, "1.weight");
  CHECK_ERROR(run({pair}, {{}, pair}), usage, "2.weight", "dimension 1");
}

TEST_CASE("each rank reads its ranges of a file, and has a part of each divided weight") {
  if (threads_only()) return;
  const SmallModel m = small_model("fused", {2, 2, 3}, fused);
  Module serial = m.make();
  Parameters whole(serial);
  for (const auto& e : whole.entries()) e.tensor.detach().copy_from(e.tensor.detach() * 3);
  const SafetensorsFile file{export_weights(whole), {}};
  for (const int ranks : {2, 3, 4})
    CHECK_NOTHROW(on_ranks(ranks, [&](World& world) {
      Mesh mesh(world, {{"tensor", ranks}});
      Step step(m.make(), m.loss, Sgd{.lr = 0.1}, mesh, parse_strategy("tensor"), {.profile = {.example = m.data.x}});
      import_weights(step.parameters(), file, "file");
      const auto& entries = step.parameters().entries();
      for (std::size_t i = 0; i < entries.size(); ++i) {
        check(entries[i].tensor.numel() > 0, "test", "'{}' has no part here", entries[i].name);
        same(gathered(entries[i].tensor.detach()), whole.entries()[i].tensor.detach(), entries[i].name);
      }
      return 1;
    }));
}

TEST_CASE("ranges are saved by their ranks and read on any other layout") {
  if (threads_only()) return;
  struct Layout {
    const char *mesh, *strategy;
  };
  const SmallModel m = small_model("fused", {2, 2, 3}, fused);
  const std::vector<Layout> layouts{{"tensor=2", "tensor"},
                                    {"tensor=3", "tensor"},
                                    {"tensor=3", "tensor(sequence=true)"},
                                    {"data=1", "serial"},
                                    {"data=2", "data_parallel"},
                                    {"data=2", "zero(3)"},
                                    {"data=2,tensor=3", "tensor | data_parallel | zero(2)"}};
  const Temporary folder;
  /// Trains one step on other numbers if there is something to read, which replaces them, then saves by rank.
  const auto run = [&](const Layout& l, const std::string& from, const std::string& to) {
    return on_ranks(ranks_of(parse_mesh(l.mesh)), [&](World& world) {
      Mesh mesh(world, parse_mesh(l.mesh));
      Step step(m.make(), m.loss, Adam{.lr = 0.01}, mesh, parse_strategy(l.strategy),
                {.seed = 3, .profile = {.example = m.data.x}});
      const RankShare share = step.shard();
      const auto [begin, end] = even_share(m.data.x.dim(0), share.size, share.rank);
      for (int i = from.empty() ? 2 : 1; i > 0; --i)
        (void)step(m.data.x.rows(begin, end).clone(), m.data.y.rows(begin, end).clone());
      if (!from.empty()) (void)step.load_checkpoint(from);
      return save_checkpoint(folder.path() + to, step.parameters(), step.optimizer(), {.step = 2},
                             {.shard = step.checkpoint_shard()});
    });
  };
  const auto different = [](const std::string& a, const std::string& b) -> std::string {
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
      const auto read = [&](std::string path) {
        if (!std::filesystem::exists(path)) path += ".index.json";
        return read_safetensors(path);
      };
      const SafetensorsFile got = read(a + file), want = read(b + file);
      if (got.tensors.size() != want.tensors.size()) return "the number of tensors";
      for (const auto& [name, tensor] : want.tensors)
        if (!got.find(name) || got.at(name).to_vector() != tensor.to_vector()) return name;
    }
    return "";
  };
  const std::string whole = run({"data=1", "serial"}, "", "/whole");
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    INFO(layouts[i].mesh << " " << layouts[i].strategy);
    const std::string first = run(layouts[i], whole, fmt::format("/first{}", i));
    CHECK(different(first, whole) == "");
    for (const std::size_t k : {i + 1, i + 3}) {
      const Layout& next = layouts[k % layouts.size()];
      INFO("then " << next.mesh << " " << next.strategy);
      CHECK(different(run(next, first, fmt::format("/next{}_{}", i, k)), whole) == "");
    }
  }
}

}  // namespace test_ranges
