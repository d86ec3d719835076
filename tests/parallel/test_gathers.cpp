// What zero(3) sends in bf16 runs: weights in the type in which passes read them, and gradients under
// compress(codec=bf16).
#include "parallel/plan/gather_layout.h"

#include <map>

#include "framework/layers/lm_head.h"
#include "parallel/model/chain.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/memory.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/shards.h"
#include "parallel/runtime/encoded_reduction.h"
#include "parallel/runtime/step_forward.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/training.h"

namespace test_gathers {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index vocabulary = 19, width = 24;

/// A branch with norms, which are read in f32, and products, whose weights are rounded.
struct Branch {
  Branch() : norm(width), up(width, 3 * width), down(3 * width, width, {.bias = false}) {}
  Tensor operator()(const Tensor& x) const { return x + down(gelu(up(norm(x)))); }
  void visit(const StateVisitor& v) { v("norm", norm, "up", up, "down", down); }
  LayerNorm norm;
  Linear up, down;
};
Module text_model(std::optional<DType> type, bool tied = true) {
  Embedding table(vocabulary, width);
  table.dtype = type;
  Sequential model;
  model.add("embed", table).add("positions", PositionEmbedding(8, width));
  for (const char* name : {"a", "b", "c"}) model.add(name, Module(Branch()));
  return model.add("norm", LayerNorm(width))
      .add("head", LmHead(tied ? table.weight : Tensor::zeros({vocabulary, width})));
}
Tensor ids(Index rows, Index salt) {
  const Tensor t = Tensor::empty({rows, 8}, DType::i64);
  for (Index i = 0; i < t.numel(); ++i) t.data<std::int64_t>()[i] = (i * 7 + i / 3 + salt) % vocabulary;
  return t;
}

struct Case {
  std::string strategy;
  std::vector<Axis> mesh;
};
struct Run {
  std::vector<double> losses, weights, evaluated;
  Index bytes = 0;  // of all axes in the last step
  bool planned = true;
};
/// Steps of AdamW, with or without the example from which a Step knows how weights are read.
Run run(const Case& c, DType type, bool known) {
  return on_ranks(ranks_of(c.mesh), [&](World& world) {
    const Device device = test_device(world);
    (void)world.use(device);
    Mesh mesh(world, c.mesh);
    Module model = text_model(type);
    initialize(model, 3);
    place(model, device);
    StepOptions options{.seed = 5, .optimizer = {.clip_norm = 0.5}};
    if (known) options.profile = {.example = ids(12, 0).to(device), .batch = 12};
    Step step(model, cross_entropy, AdamW{.lr = 1e-2}, mesh, parse_strategy(c.strategy), options);
    Loader loader(TensorDataset(ids(12, 1), ids(12, 5)),
                  {.batch = 12, .shard = step.shard(), .workers = 0, .device = device});
    Run r;
    for (int i = 0; i < 4; ++i)
      for (auto& [x, y] : loader) {
        r.losses.push_back(step(x, y).item());
        const StepTraffic traffic = StepProbe(step).traffic();
        r.planned = r.planned && traffic.planned == traffic.counted;
        r.bytes = 0;
        for (const auto& [axis, count] : traffic.counted) r.bytes += count.bytes;
        if (i == 1) {
          const Chain chain(step.model());
          const auto part = [&](int p, Tensor x, Stashed& stashed) { return chain.run(p, std::move(x), stashed); };
          r.evaluated = StepForward(step)(ids(3, 2).to(device), part).to_vector();
        }
      }
    StepProbe(step).consolidate();
    r.weights = whole_weights(step.parameters());
    return r;
  });
}

}  // namespace

TEST_CASE("a dry run finds the weights that passes read in bf16") {
  Module model = text_model(DType::bf16, false);
  Parameters parameters(model);
  const Chain chain(model);
  const std::vector<PartInfo> parts =
      dry_run(chain, parameters, chain.parts(parameters), ids(2, 0), {.loss = cross_entropy, .labels = ids(2, 1)})
          .parts;
  std::map<Index, DType> found;
  for (const PartInfo& part : parts) found.insert(part.read_as.begin(), part.read_as.end());
  for (auto& e : parameters.entries()) {
    INFO(e.name);
    const bool is_matrix = e.tensor.rank() == 2;  // biases and norms are added and scaled in f32
    CHECK(found.contains(e.slice.begin) == is_matrix);
    if (is_matrix) CHECK(found.at(e.slice.begin) == DType::bf16);
  }
  Module plain = text_model({});
  Parameters f32(plain);
  const Chain row(plain);
  for (const PartInfo& part : dry_run(row, f32, row.parts(f32), ids(2, 0)).parts) CHECK(part.read_as.empty());
}

TEST_CASE("a gather in words brings the rounded weights, and leaves the own ones as they are") {
  if (threads_only()) return;
  for (const int ranks : {2, 3, 5})
    for (const Slice& slice : {Slice{0, 1000}, {7, 643}, {0, 96}, {100, 101}}) {
      Plan plan = serial({{.name = "0", .slice = {0, 1000}}}, 1000, 0, {{"data", ranks}});
      PartInfo& part = plan.parts[0];
      part.tensors = {{0, {96}}, {96, {3, 100}}, {400, {16}}, {416, {500}}, {928, {72}}};
      part.read_as = {{96, DType::bf16}, {416, DType::f16}};
      Action a{ActionKind::all_gather, Stream::comm};
      a.slice = slice;
      a.peer.axis = "data";
      CHECK(!GatherLayout(plan, a, ranks).is_packed());
      a.arguments = {{GatherLayout::as_read, 1}};
      const GatherLayout layout(plan, a, ranks);
      CHECK(layout.is_packed() == (slice.size() > 500));
      if (!layout.is_packed()) continue;
      INFO(ranks << " ranks, " << slice.begin);
      CHECK(layout.calls()[0].bytes < slice.size() * 4);
      on_ranks(ranks, [&](World& world) {
        const FlatBuffer values({{1000, cpu()}}, 0, DType::f32);
        const auto number = [](Index i) { return static_cast<float>(1.0 / static_cast<double>(i + 3)); };
        const Slice own = shard_of(slice, world.rank(), ranks);
        for (Index i = own.begin; i < own.end; ++i) values.blocks()[0].data<float>()[i] = number(i);
        Tensor wire;
        layout.start(world.comm(), values, wire).wait();
        layout.unpack(world.comm(), values, wire);
        bool right = true;
        for (Index i = slice.begin; i < slice.end; ++i) {
          const DType type = i >= 96 && i < 400 ? DType::bf16 : i >= 416 && i < 928 ? DType::f16 : DType::f32;
          const bool kept = (i >= own.begin && i < own.end) || i >= slice.begin + slice.size() / ranks * ranks;
          const double want = kept ? number(i) : Tensor::scalar(number(i), type).item();
          right = right && values.blocks()[0].data<float>()[i] == static_cast<float>(want);
        }
        CHECK(right);
        return 0;
      });
    }
}

TEST_CASE("weights that zero(3) gathers as they are read train the same bits, with fewer bytes", "[device]") {
  if (threads_only()) return;
  for (const Case& c : {Case{"zero(3)", {{"data", 3}}},
                        {"zero(3, prefetch=0)", {{"data", 2}}},
                        {"zero(3, prefetch=3)", {{"data", 2}}},
                        {"zero(3, reshard=false)", {{"data", 4}}},
                        {"accumulate(micro=2) | zero(3)", {{"data", 2}}},
                        {"data_parallel | zero(3, axis=shard)", {{"data", 2}, {"shard", 2}}},
                        {"pipeline(micro=2, partition=even) | zero(3)", {{"pipe", 2}, {"data", 2}}},
                        {"tensor | zero(3)", {{"tensor", 2}, {"data", 2}}}}) {
    INFO(c.strategy << " on " << to_string(c.mesh));
    const Run f32 = run(c, DType::bf16, false), bf16 = run(c, DType::bf16, true);
    CHECK(f32.planned);
    CHECK(bf16.planned);
    CHECK(bf16.bytes < f32.bytes);
    CHECK(bf16.losses == f32.losses);
    CHECK(bf16.weights == f32.weights);
    CHECK(bf16.evaluated == f32.evaluated);
  }
}

/// A layer that computes in f32 while `exact` is set.
struct Careful {
  Tensor operator()(const Tensor& x) const { return *exact ? linear(x.to(DType::f32)).to(x.dtype()) : linear(x); }
  void visit(const StateVisitor& v) { v("linear", linear); }
  Linear linear{width, width};
  std::shared_ptr<bool> exact = std::make_shared<bool>(false);
};

TEST_CASE("a step refuses to read a weight in f32 that zero(3) gathers in bf16", "[device]") {
  if (threads_only()) return;
  using Penalty = std::function<Tensor(const Tensor& prediction, const Tensor& weight)>;
  const Penalty none;
  const Penalty in_f32 = [](const Tensor&, const Tensor& w) { return sum(w * w); };
  const Penalty in_bf16 = [](const Tensor& prediction, const Tensor& w) {
    const Tensor rounded = w.to(prediction.dtype());
    return sum(rounded * rounded).to(DType::f32);
  };
  const Penalty in_backward = [](const Tensor& prediction, const Tensor& w) {
    on_grad(prediction, [w](const Tensor&) {
      (void)sum(w);
      return Tensor();
    });
    return Tensor::scalar(0, DType::f32, prediction.device());
  };
  // Losses and weights, if the step is not refused for reading `weight`. exact: training takes another path than the
  // dry run.
  const auto train = [](const Penalty& penalty, bool exact, bool known, const char* weight = nullptr,
                        const char* where = "") {
    return on_ranks(2, [&](World& world) {
      const Device device = test_device(world);
      (void)world.use(device);
      Embedding table(vocabulary, width);
      table.dtype = DType::bf16;
      const Careful careful;
      Tensor head = Tensor::zeros({vocabulary, width});
      Module model = Sequential().add("embed", table).add("careful", careful).add("head", LmHead(head));
      initialize(model, 3);
      place(model, device);
      const auto loss = [&](const Tensor& x, const Tensor& y) {
        const Tensor data = cross_entropy(x, y);
        return penalty ? data + scale(penalty(x, head), 0.01) : data;
      };
      StepOptions options{.seed = 5};
      if (known) options.profile = {.example = ids(12, 0).to(device), .batch = 12};
      Step step(model, loss, AdamW{.lr = 1e-2}, world, parse_strategy("zero(3)"), options);
      *careful.exact = exact;
      const Tensor x = ids(6, world.rank()).to(device), y = ids(6, 5).to(device);
      std::pair<std::vector<double>, std::vector<double>> numbers;
      if (weight) {
        int kernels = 0;
        const LaunchWatch profile([&](const LaunchWatch::Call&) { ++kernels; });
        CHECK_ERROR(step(x, y), usage, weight, where, "f32", "bf16", "weight.to(x.dtype())");
        CHECK(kernels > 0);
        return numbers;
      }
      for (int i = 0; i < 3; ++i) numbers.first.push_back(step(x, y).item());
      StepProbe(step).consolidate();
      numbers.second = whole_weights(step.parameters());
      return numbers;
    });
  };
  train(in_f32, false, true, "'head.weight'", "in loss");
  train(in_backward, false, true, "'head.weight'", "in backward");
  train(none, true, true, "'careful.linear.weight'", "in forward");
  CHECK(train(in_bf16, false, true) == train(in_bf16, false, false));
  CHECK(train(in_backward, false, false) == train(none, false, true));
  CHECK(train(in_f32, true, false) != train(none, false, false));
}

TEST_CASE("the words of gathers in flight are at most as many bytes as planned") {
  if (threads_only()) return;
  for (const char* strategy : {"zero(3)", "zero(3, prefetch=0)", "zero(3, prefetch=2)", "zero(3, reshard=false)"})
    for (const int ranks : {2, 3}) {
      INFO(strategy << " on " << ranks);
      const auto [says, is] = on_ranks(ranks, [&](World& world) {
        Module model = text_model(DType::bf16);
        initialize(model, 3);
        Step step(model, cross_entropy, Sgd{.lr = 0.1}, world, parse_strategy(strategy),
                  {.profile = {.example = ids(12, 0), .batch = 12}});
        StepProbe(step).record(true);
        const Index rows = 12 / ranks;
        for (int i = 0; i < 2; ++i) (void)step(ids(rows, world.rank()), ids(rows, 3));
        Index most = 0;
        for (const RankMemory& rank : StepProbe(step).memory()) most = std::max(most, rank.packed);
        return std::pair(predict_memory(step.plan())[0].packed, most);
      });
      CHECK(is <= says);
      CHECK(3 * is >= 2 * says);  // a rank's own block may be freed early
    }
}

TEST_CASE("codecs of single numbers round what zero reduces once, and sum in f32") {
  if (threads_only()) return;
  static const Codec adding{
      .name = "adding",  // decode() adds, as that of every codec whose encodings cannot be summed
      .wire = DType::bf16,
      .length = [](const CodecContext& now) { return now.size; },
      .encode = [](const CodecContext&, const Tensor& numbers, const Tensor& wire) { wire.copy_from(numbers); },
      .decode =
          [](const CodecContext& now, const Tensor& wire, const Tensor& numbers) {
            check(now.size == numbers.numel() && now.size == wire.numel(), "adding", "{} numbers", now.size);
            add_into(numbers, wire.to(numbers.dtype()));
          },
      .is_elementwise = true};
  for (const auto& [ranks, adds] : {std::pair(2, false), {3, false}, {5, false}, {2, true}, {3, true}, {5, true}}) {
    Plan plan = serial({{.name = "0", .slice = {0, 101}}}, 101, 0, {{"data", ranks}});
    plan = adds ? with_codec(parse_strategy("zero(2)")(std::move(plan)), adding)
                : parse_strategy("zero(2) | compress(codec=bf16, residual=false)")(std::move(plan));
    CHECK(check(plan, ranks).empty());
    CHECK(plan.state.empty());
    const auto at = std::ranges::find(plan.programs[0].actions, ActionKind::reduce_scatter, &Action::kind);
    REQUIRE(at != plan.programs[0].actions.end());
    on_ranks(ranks, [&, n = ranks](World& world) {
      const auto number = [](int rank, Index i) { return static_cast<float>(std::sin(i * 31 + rank) * (i % 7 + 1)); };
      const Tensor x = Tensor::empty({101});
      for (Index i = 0; i < 101; ++i) x.data<float>()[i] = number(world.rank(), i);
      CodecContext now(plan, *at, 4, 0);
      now.rank = world.rank();
      now.states = {Tensor()};
      EncodedReduction reduction;
      reduction.start(world.comm(), now, x).wait();
      reduction.finish(world.comm(), x);
      const Slice own = shard_of(at->slice, world.rank(), n);
      bool right = true;
      for (Index i = 0; i < 101; ++i) {
        if ((i < own.begin || i >= own.end) && i < 101 / n * n) continue;
        float sum = 0;
        for (int r = 0; r < n; ++r) {
          const auto sent = static_cast<float>(Tensor::scalar(number(r, i), DType::bf16).item());
          sum = r == 0 ? sent : sum + sent;
        }
        right = right && x.data<float>()[i] == sum;
      }
      CHECK(right);
      return 0;
    });
  }
  CHECK_ERROR(parse_strategy("zero(2) | compress(codec=randomk)")(
                  serial({{.name = "0", .slice = {0, 101}}}, 101, 0, {{"data", 2}})),
              usage, "randomk", "bf16");
}

TEST_CASE("zero with compress(bf16) sends the bytes of the plan, fewer than for f32 gradients", "[device]") {
  if (threads_only()) return;
  for (const Case& c : {Case{"zero(1)", {{"data", 2}}},
                        {"zero(2)", {{"data", 3}}},
                        {"zero(3)", {{"data", 3}}},
                        {"zero(3)", {{"tensor", 2}, {"data", 2}}},
                        {"data_parallel | zero(3, axis=shard)", {{"data", 2}, {"shard", 2}}},
                        {"pipeline(micro=2, partition=even) | zero(2)", {{"pipe", 2}, {"data", 2}}}}) {
    const std::string split = c.mesh[0].name == "tensor" ? "tensor | " : "";
    for (const char* residual : {"true", "false"}) {
      INFO(c.strategy << " on " << to_string(c.mesh));
      const Run plain = run({split + c.strategy, c.mesh}, DType::bf16, true),
                sent = run({split + c.strategy + " | compress(codec=bf16, residual=" + residual + ")", c.mesh},
                           DType::bf16, true);
      CHECK(sent.planned);
      CHECK(sent.bytes < plain.bytes);
      CHECK(distance(sent.losses, plain.losses) < 0.02);
    }
  }
}

}  // namespace test_gathers
