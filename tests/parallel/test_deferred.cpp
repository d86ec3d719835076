// Deferred initialization, imports and evaluation: bits are those of a whole model, and no rank writes more than it
// holds.
#include <sys/prctl.h>

#include "framework/io/weights.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/layers/on.h"
#include "kernels/core/runtime.h"
#include "models/registry/models.h"
#include "parallel/model/memory.h"
#include "parallel/runtime/step_forward.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary.h"

namespace test_deferred {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Layout {
  std::string strategy;
  std::vector<Axis> mesh;
  double share;  // the largest part of the weights that a rank holds between steps, with the pages at its edges
};
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {"serial", {{"data", 1}}, 1.01},
      {"data_parallel", {{"data", 2}}, 1.01},
      {"zero(3)", {{"data", 2}}, 0.6},
      {"zero(3)", {{"data", 3}}, 0.45},
      {"tensor", {{"tensor", 2}}, 0.7},
      {"tensor | zero(3)", {{"data", 2}, {"tensor", 2}}, 0.45},
      {"pipeline(micro=2, partition=even)", {{"pipe", 2}}, 0.8},
      {"pipeline(micro=2, partition=even) | zero(3)", {{"pipe", 2}, {"data", 2}}, 0.5},
      {"pipeline(micro=2, schedule=interleaved, chunks=2, partition=even)", {{"pipe", 2}}, 0.8},
      {"pipeline(micro=2, schedule=zb-v, partition=even)", {{"pipe", 2}}, 0.8},
      {"parameter_server(servers=1)", {{"data", 3}}, 1.01},
      {"local_sgd(every=2)", {{"data", 2}}, 1.01},
  };
  return all;
}

/// Else the kernel may fill untouched memory with huge pages.
struct SmallPages {
  SmallPages() { (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
  ~SmallPages() { (void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

Module text_model(const std::string& name) {
  return make_model(name, {.input = {8}, .classes = 96, .arch = {.layers = 4, .heads = 4, .width = 128}});
}

/// Chunks of a device's memory are larger than the models of most tests.
bool on_host() { return test_device(processes()).kind == DeviceKind::cpu; }

double resident_bytes(const Tensor& t) {
  const View v = t.view();
  return static_cast<double>(runtime(v.device.kind).resident(v.data, static_cast<std::size_t>(v.bytes()), v.device));
}
/// Bytes that the rank has of a flat buffer, as a share of the whole model's.
double resident_share(const Parameters& parameters, const FlatBuffer& flat) {
  double there = 0;
  for (const Tensor& block : flat.blocks()) there += resident_bytes(block);
  return there / static_cast<double>(parameters.count() * size_of(parameters.dtype()));
}

Tensor words(Index rows) {
  std::vector<Index> ids;
  for (Index i = 0; i < rows * 8; ++i) ids.push_back(i * 37 % 96);
  return Tensor::from(ids).reshape({rows, 8});
}

/// Every weight and buffer of the model, whole, by name.
using Numbers = std::map<std::string, std::vector<double>>;
Numbers numbers_of(const Parameters& parameters) {
  Numbers all;
  for (const NamedTensor& t : export_weights(parameters)) all[t.name] = t.tensor.to_vector();
  return all;
}

/// Runs body with a Step that draws its weights itself. Returns rank 0's results.
template <class F>
auto with_deferred(const std::function<Module()>& model, const Layout& layout, F&& body) {
  return on_ranks(ranks_of(layout.mesh), [&](World& world) {
    Mesh mesh(world, layout.mesh);
    const Device device = test_device(world);
    Module undrawn;
    {
      const SkipInit drawn_below;
      undrawn = model();
      place(undrawn, device);
    }
    Step step(undrawn, cross_entropy, Sgd{.lr = 0.1}, mesh, parse_strategy(layout.strategy),
              {.initialize = 5, .profile = {.example = words(2).to(device)}});
    return body(step, mesh);
  });
}

}  // namespace

TEST_CASE("a box of a tensor is drawn as the whole") {
  const Shape whole{5, 3, 7};
  const std::vector<Init> inits{Init::uniform(-1, 2),
                                Init::normal(0.5, 1),
                                Init::trunc_normal(1, -1, 0.5),
                                Init::xavier_uniform(),
                                Init::xavier_normal(),
                                Init::kaiming_uniform(0.1, Init::Fan::out),
                                Init::kaiming_normal(),
                                Init::pytorch_default(),
                                Init::constant(3),
                                Init([](const Tensor& t, std::uint64_t key) { uniform(t, 0, 1, key); })};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const Init& init : inits) {
      const Tensor all = Tensor::zeros(whole, dtype);
      init(all, 11);
      for (const Box& box : {Box{{0, 0, 0}, whole}, Box{{1, 0, 0}, {3, 3, 7}}, Box{{2, 1, 0}, {1, 2, 7}},
                             Box{{0, 1, 3}, {5, 1, 3}}, Box{{4, 2, 6}, {1, 1, 1}}, Box{{2, 1, 3}, {0, 1, 2}}}) {
        const Tensor part = Tensor::zeros(box.size, dtype);
        init(part, 11, whole, box.at);
        Tensor expected = all;
        for (int i = 0; i < 3; ++i) expected = slice(expected, i, box.at[i], box.at[i] + box.size[i]);
        CHECK(part.to_vector() == expected.to_vector());
      }
    }
}

TEST_CASE("each rank draws what it holds, with the bits of the whole model", "[device]") {
  const SmallPages small;
  const std::vector<std::pair<std::string, DType>> models{
      {"gpt2", DType::f32}, {"llama", DType::f32}, {"llama", DType::f64}};
  for (const auto& [name, dtype] : models) {
    const auto model = [&] { return convert(text_model(name), dtype); };
    Module whole = model();
    initialize(whole, 5);
    const Numbers expected = numbers_of(Parameters(whole));
    for (const Layout& layout : layouts()) {
      if (other_ranks(ranks_of(layout.mesh))) continue;
      INFO(name << " in " << fmt::format("{}", dtype) << " under " << layout.strategy << " on "
                << to_string(layout.mesh));
      const auto [share, gradients, drawn] = with_deferred(model, layout, [&](Step& step, Mesh&) {
        const double held = resident_share(step.parameters(), step.parameters().values());
        const double gradients = resident_share(step.parameters(), step.parameters().grads());
        step.gather_weights();
        return std::tuple(held, gradients, numbers_of(step.parameters()));
      });
      CHECK(drawn == expected);
      if (on_host()) CHECK(share < layout.share);
      if (on_host()) CHECK(gradients < 0.05);  // pages at the ends of the block
    }
  }
}

TEST_CASE("construction and the first step take no more memory of a device than later steps", "[device]") {
  if (on_host()) {
    SUCCEED("on the host, pages get memory on demand");
    return;
  }
  if (threads_only()) return;
  // share: of the weights, and of gradients that a rank keeps, with the chunks of 2 MiB at their edges
  for (const Layout& layout : {Layout{"data_parallel", {{"data", 2}}, 2.1}, Layout{"zero(2)", {{"data", 2}}, 1.1},
                               Layout{"zero(3)", {{"data", 2}}, 0.7}, Layout{"tensor", {{"tensor", 2}}, 1.1},
                               Layout{"tensor | zero(3)", {{"data", 2}, {"tensor", 2}}, 0.45},
                               Layout{"pipeline(micro=2)", {{"pipe", 2}}, 1.1}}) {
    INFO(layout.strategy << " on " << to_string(layout.mesh));
    Runtime& gpus = runtime(DeviceKind::cuda);
    gpus.reset_peak();
    const std::size_t before = gpus.in_use();
    const auto model = [] {
      return make_model("gpt2", {.input = {8}, .classes = 96, .arch = {.layers = 4, .heads = 4, .width = 640}});
    };
    const auto [construction, first, later] = with_deferred(model, layout, [&](Step& step, Mesh& mesh) {
      const Tensor x = words(2).to(test_device(mesh.world()));
      const Index weights = step.parameters().count() * size_of(step.parameters().dtype()) * mesh.world().size();
      const auto peak = [&] {  // of all ranks
        mesh.world().comm().barrier();
        const std::size_t bytes = gpus.peak() - before;
        mesh.world().comm().barrier();
        return static_cast<double>(bytes) / static_cast<double>(weights);
      };
      const double construction = peak();
      (void)step(x, x).item();
      const double first = peak();
      if (mesh.world().main()) gpus.reset_peak();
      (void)peak();
      (void)step(x, x).item();
      return std::tuple(construction, first, peak());
    });
    CHECK(construction < layout.share);
    CHECK(first < 1.02 * later);
  }
}

TEST_CASE("weights that are drawn later take no memory in any type") {
  const SmallPages small;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Module model;
    {
      const SkipInit drawn_below;
      model = convert(text_model("gpt2"), dtype);
    }
    model.visit(StateVisitor([&](const NamedState& leaf) {
      constexpr Index page = 4096;
      if (leaf.tensor->view().bytes() >= 4 * page) CHECK(resident_bytes(*leaf.tensor) <= 2 * page);  // at its edges
    }));
  }
}

/// Every layout has the numbers of the whole model.
void check_drawn(const std::function<Module()>& model) {
  Module whole = model();
  initialize(whole, 5);
  const Numbers expected = numbers_of(Parameters(whole));
  for (const Layout& layout : layouts()) {
    if (other_ranks(ranks_of(layout.mesh))) continue;
    if (layout.strategy.find("interleaved") != std::string::npos) continue;
    INFO(layout.strategy << " on " << to_string(layout.mesh));
    CHECK(with_deferred(model, layout, [&](Step& step, Mesh&) {
            step.gather_weights();
            return numbers_of(step.parameters());
          }) == expected);
  }
}

TEST_CASE("running statistics and custom distributions are drawn, too", "[device]") {
  const auto model = [] {
    return Module(Sequential{Embedding(96, 12), flatten, Linear(96, 32), BatchNorm(32), relu, Linear(32, 96)});
  };
  check_drawn(model);
}

/// A layer whose weight has no Init, so that it keeps its values.
struct Kept {
  Tensor operator()(const Tensor& x) const { return linear(x, weight); }
  void visit(const StateVisitor& v) { v("weight", weight, StateKind::weight); }
  Tensor weight = uniform({1024, 1024}, -0.1, 0.1, 3);
};

TEST_CASE("weights without a distribution keep their values", "[device]") {
  const auto model = [] {
    return Module(Sequential{Embedding(96, 12), flatten, Linear(96, 1024), Kept(), relu, Linear(1024, 96)});
  };
  check_drawn(model);
}

TEST_CASE("a model is evaluated where its weights are") {
  const SmallPages small;
  const Tensor x = words(6);
  Module whole = text_model("gpt2");
  initialize(whole, 5);
  for (const Layout& layout : layouts()) {
    if (other_ranks(ranks_of(layout.mesh))) continue;
    INFO(layout.strategy << " on " << to_string(layout.mesh));
    const auto [needed, here, gathered, share] = with_deferred(
        [] { return text_model("gpt2"); }, layout,
        [&](Step& step, Mesh&) {
          const StepForward forward(step);
          if (!forward.is_needed()) return std::tuple(false, std::vector<double>(), std::vector<double>(), 0.0);
          const Inference inference;
          const Chain chain(step.model());
          const auto run = [&](int p, Tensor a, Stashed& stashed) { return chain.run(p, std::move(a), stashed); };
          const RankShare share = forward.share();
          const Tensor mine = x.view_rows(6 * share.rank / share.size, 6 * (share.rank + 1) / share.size);
          const std::vector<double> here = forward(mine, run).to_vector();
          (void)forward(x.view_rows(0, 0), run);
          const double held = resident_share(step.parameters(), step.parameters().values());
          const bool again = forward(mine, run).to_vector() == here;
          step.gather_weights();
          const std::vector<double> gathered = step.model()(mine).to_vector();
          const bool after = forward(mine, run).to_vector() == here;
          (void)step(mine, mine);
          return std::tuple(true, again && after ? here : std::vector<double>(), gathered, held);
        });
    const bool lacks =
        layout.strategy.find("zero") != std::string::npos || layout.strategy.find("pipeline") != std::string::npos;
    CHECK(needed == lacks);
    CHECK(here == gathered);
    CHECK(here.empty() != lacks);
    CHECK(share < layout.share);
  }
}

TEST_CASE("weights of a file are read by the ranks that hold them", "[device]") {
  const SmallPages small;
  const Temporary folder;
  Module whole = text_model("gpt2");
  initialize(whole, 9);
  Numbers expected;
  {
    const Parameters parameters(whole);
    write_safetensors(folder / "weights.safetensors", export_weights(parameters));
    expected = numbers_of(parameters);
  }
  for (const Layout& layout : layouts()) {
    if (other_ranks(ranks_of(layout.mesh))) continue;
    INFO(layout.strategy << " on " << to_string(layout.mesh));
    const auto [share, read] =
        with_deferred([] { return text_model("gpt2"); }, layout,
                      [&](Step& step, Mesh&) {
                        const bool all_fit = StepResume(step).import_weights(folder / "weights.safetensors").empty();
                        const double held = resident_share(step.parameters(), step.parameters().values());
                        step.gather_weights();
                        return std::pair(held, all_fit ? numbers_of(step.parameters()) : Numbers());
                      });
    CHECK(read == expected);
    if (on_host()) CHECK(share < layout.share);
  }
  const Layout zero{"zero(3)", {{"data", 2}}, 1};
  if (under_mpi() && processes().size() != 2) return;
  CHECK_ERROR(
      with_deferred([] { return text_model("gpt2"); }, zero,
                    [&](Step& step, Mesh&) { return StepResume(step).import_weights(folder / "missing").size(); }),
      file, "missing");
}

}  // namespace test_deferred
