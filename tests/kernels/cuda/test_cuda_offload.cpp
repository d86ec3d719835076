// Inputs of recomputed blocks in host memory: the same bits, less memory of the device, and nothing left behind.
#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"
#include "framework/layers/on.h"
#include "framework/layers/recompute.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/memory_tracker.h"
#include "kernels/core/runtime.h"
#include "models/registry/models.h"
#include "parallel/analysis/imagine.h"
#include "parallel/model/chain.h"
#include "parallel/model/memory.h"
#include "parallel/runtime/step_plan.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/split/split.h"
#include "tests/kernels/cuda/no_device.h"
#include "tests/support/ranks.h"

namespace test_cuda_offload {

using namespace trireme;
using namespace trireme::test;
using Values = std::vector<double>;

namespace {

constexpr Index width = 96, rows = 64;
constexpr std::size_t input_bytes = rows * width * sizeof(float);

/// Blocks of linear layers with random masks, recomputed.
Module mlp(int blocks, bool offload) {
  Sequential h, model;
  for (int i = 0; i < blocks; ++i)
    h.add(Recompute(Sequential{Linear(width, 2 * width), gelu, Dropout(0.3), Linear(2 * width, width)},
                    {.offload = offload}));
  return model.add("stem", Linear(8, width)).add("h", std::move(h)).add("head", Linear(width, 10));
}

/// A model of the registry whose blocks are recomputed.
Module bundled(const std::string& name, const ModelOptions& options, bool offload) {
  ModelOptions again = options;
  again.recompute = true;
  const Module model = make_model(name, again);
  return offload ? recompute(model, {}, {.offload = true}) : model;
}

struct Subject {
  std::string name;
  std::function<Module(bool offload)> model;
  Tensor x, y;
};

std::vector<Subject> subjects() {
  const ModelOptions text{
      .input = {8}, .classes = 24, .arch = {.layers = 3, .heads = 2, .width = 16, .positions = 8, .dropout = 0.2}};
  const ModelOptions image{.input = {8, 8, 3}, .classes = 10};
  const auto ids = [](const Shape& shape, Index below) {
    const Tensor t = Tensor::empty(shape, DType::i64);
    for (Index i = 0; i < t.numel(); ++i) t.data<std::int64_t>()[i] = (7 * i + 3) % below;
    return t;
  };
  return {{"mlp", [](bool offload) { return mlp(3, offload); }, normal({4, 8}, 0, 1, 5), ids({4}, 10)},
          {"gpt2", [=](bool offload) { return bundled("gpt2", text, offload); }, ids({4, 8}, 24), ids({4, 8}, 23)},
          {"resnet20", [=](bool offload) { return bundled("resnet20", image, offload); }, normal({4, 8, 8, 3}, 0, 1, 6),
           ids({4}, 10)}};
}

Module placed(Module model) {
  initialize(model, 1);
  place(model, cuda());
  return model;
}

struct Run {
  Outcome outcome;
  std::vector<RankMemory> memory;
};

Index offloaded_by(const std::vector<RankMemory>& ranks) {
  Index bytes = 0;  // a stage that has one block offloads nothing
  for (const RankMemory& m : ranks) bytes += m.offloaded;
  return bytes;
}

/// Some steps on emulated devices.
Run train(const Subject& s, bool offload, const std::vector<Axis>& axes, const std::string& strategy) {
  return on_ranks(ranks_of(axes), [&](World& world) {
    const Device mine = cuda(world.rank() % open_backend(DeviceKind::cuda).devices);
    (void)world.use(mine);
    Mesh mesh(world, axes);
    const Strategy how = parse_strategy(strategy);
    Module model = s.model(offload);
    initialize(model, 1);
    place(model, mine);
    Step step(model, cross_entropy, Sgd{.lr = 0.05, .momentum = 0.9}, mesh, how,
              {.profile = {.example = how.split.any() ? s.x.to(mine) : Tensor()}});
    StepProbe(step).record(true);
    const auto [begin, end] = even_share(s.x.dim(0), step.shard().size, step.shard().rank);
    Values losses;
    for (std::uint64_t i = 0; i < 2; ++i) {
      BatchContext batch{.seed = 9, .step = i, .global_batch = s.x.dim(0), .share = step.shard()};
      batch.samples = Tensor::empty({end - begin}, DType::i64);
      for (Index k = begin; k < end; ++k) batch.samples.data<std::int64_t>()[k - begin] = k;
      losses.push_back(
          step(s.x.view_rows(begin, end).to(mine).with_batch(batch), s.y.view_rows(begin, end).to(mine)).item());
    }
    StepProbe(step).consolidate();
    Run run{outcome(world, losses, step.parameters()), StepProbe(step).memory()};
    return run;
  });
}

}  // namespace

TEST_CASE("blocks of any size come back from host memory, as often as they are asked for") {
  if (no_device()) return;
  Runtime& device = runtime(DeviceKind::cuda);
  std::vector<std::pair<Tensor, std::function<void(void*)>>> all;
  for (const Index bytes : {Index{1}, Index{4095}, Index{4097}, (Index{1} << 20) + 70000, (Index{33} << 20) + 3}) {
    const Tensor host = Tensor::empty({bytes}, DType::u8);
    for (Index i = 0; i < bytes; ++i) host.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 251);
    const Tensor there = host.to(cuda());
    all.emplace_back(host, device.offload(there.view().data, static_cast<std::size_t>(bytes), cuda()));
    zero_untouched(there);  // after the copy
  }
  for (int again = 0; again < 2; ++again)
    for (auto& [host, copy_back] : all) {
      const Tensor there = Tensor::empty(host.shape(), DType::u8, cuda());
      copy_back(there.view().data);
      const Tensor got = there.to(cpu());
      CHECK(std::equal(host.data<std::uint8_t>(), host.data<std::uint8_t>() + host.numel(), got.data<std::uint8_t>()));
    }
}

TEST_CASE("steps whose inputs wait in host memory have the same bits, under every kind of strategy") {
  if (no_device()) return;
  struct Case {
    std::vector<Axis> axes;
    std::string strategy;
    bool pictures = true;
  };
  for (const Subject& s : subjects())
    for (const Case& c : {Case{{{"data", 1}}, "accumulate(micro=2)"}, Case{{{"pipe", 2}}, "pipeline(micro=2)"},
                          Case{{{"tensor", 2}}, "tensor", false}, Case{{{"data", 2}}, "zero(3)"}}) {
      if (s.name == "resnet20" && !c.pictures) continue;
      INFO(s.name << " " << c.strategy);
      const Run there = train(s, false, c.axes, c.strategy), offloaded = train(s, true, c.axes, c.strategy);
      CHECK(offloaded.outcome.losses == there.outcome.losses);
      CHECK(offloaded.outcome.weights == there.outcome.weights);
      CHECK(offloaded.outcome.buffers == there.outcome.buffers);
      CHECK(offloaded_by(offloaded.memory) > 0);
      for (std::size_t r = 0; r < there.memory.size(); ++r) {
        CHECK(there.memory[r].offloaded == 0);
        CHECK(offloaded.memory[r].activations <= there.memory[r].activations);
      }
    }
}

TEST_CASE("the device holds less by the inputs that wait in host memory") {
  if (no_device()) return;
  constexpr int blocks = 6;
  struct Held {
    std::size_t kept = 0, peak = 0;
    Index offloaded = 0;
    Values gradients;
  };
  Runtime& device = runtime(DeviceKind::cuda);
  const auto held = [&](bool offload) {
    const Module model = placed(mlp(blocks, offload));
    Parameters parameters(model);
    const Tensor x = normal({rows, 8}, 0, 1, 5).to(cuda());
    const StepScope pass(StepContext{.batch = {.seed = 9}});
    for (int again = 0; again < 2; ++again) mean(model(x)).backward();
    parameters.clear_grads();
    device.synchronize(cuda());
    const MemoryTracker tracker;
    const MemoryScope counted(tracker);
    device.reset_peak();
    const std::size_t before = device.in_use();
    const Tensor loss = mean(model(x));
    Held h;
    h.kept = device.in_use() - before;
    h.offloaded = tracker.now(MemoryKind::offloaded);
    loss.backward();
    h.peak = device.peak() - before;
    h.gradients = parameters.grads().to_vector();
    CHECK(tracker.now(MemoryKind::offloaded) == 0);
    return h;
  };
  const Held there = held(false), offloaded = held(true);
  CHECK(there.offloaded == 0);
  CHECK(offloaded.offloaded == blocks * static_cast<Index>(input_bytes));
  CHECK(there.kept - offloaded.kept == blocks * input_bytes);
  CHECK(there.peak - offloaded.peak >= (blocks - 2) * input_bytes);
  CHECK(offloaded.gradients == there.gradients);
}

TEST_CASE("evaluation keeps nothing in host memory, and neither does a forward that backward never follows") {
  if (no_device()) return;
  Runtime& device = runtime(DeviceKind::cuda);
  const Module model = placed(mlp(3, true));
  Parameters parameters(model);
  const Tensor x = normal({rows, 8}, 0, 1, 5).to(cuda());
  const MemoryTracker tracker;
  const MemoryScope counted(tracker);
  {
    const Inference inference;
    (void)model(x).to_vector();
  }
  CHECK(tracker.peak(MemoryKind::offloaded) == 0);
  const std::size_t before = device.in_use();
  struct Stop {};
  try {
    const Tensor y = model(x);
    CHECK(tracker.now(MemoryKind::offloaded) == 3 * static_cast<Index>(input_bytes));
    throw Stop{};
  } catch (const Stop&) {}
  CHECK(tracker.now(MemoryKind::offloaded) == 0);
  CHECK(device.in_use() == before);
  // The graph serves two backwards where it is retained.
  const Tensor loss = mean(model(x)), one = Tensor::full(loss.shape(), 1, loss.dtype(), cuda());
  backward({&loss, 1}, {&one, 1}, {.retain_graph = true});
  const Values once = parameters.grads().to_vector();
  parameters.clear_grads();
  backward({&loss, 1}, {&one, 1});
  CHECK(parameters.grads().to_vector() == once);
}

TEST_CASE("an input that others read comes back, and a change of it is noticed") {
  if (no_device()) return;
  const MemoryTracker tracker;
  const MemoryScope counted(tracker);
  const auto in_host_memory = [&] { return tracker.now(MemoryKind::offloaded); };
  const Tensor x = normal({rows, 8}, 0, 1, 5).to(cuda());
  // x to h, from which a block inside a block makes y.
  struct Pass {
    Pass(const Tensor& x, const RecomputeOptions& options)
        : stem(Linear(8, width)),
          block(Recompute(Sequential{Recompute(Linear(width, width), options), gelu}, options)),
          parameters(placed(Sequential{}.add("stem", stem).add("block", block))),
          h(stem(x)),
          y(block(h)) {}
    Module stem, block;
    Parameters parameters;
    Tensor h, y;
  };
  Values expected;
  for (const bool offload : {false, true}) {
    Pass pass(x, {.offload = offload});
    CHECK(in_host_memory() == (offload ? static_cast<Index>(input_bytes) : 0));
    mean(pass.y + pass.h).backward();
    CHECK(in_host_memory() == 0);
    if (!offload) expected = pass.parameters.grads().to_vector();
    CHECK(pass.parameters.grads().to_vector() == expected);
  }
  const Pass pass(x, {.offload = true});
  pass.h.detach().copy_from(pass.y.detach());
  CHECK(in_host_memory() == 0);
  CHECK_THROWS_AS(mean(pass.y).backward(), Error);
  // A part of a block stays.
  const Module block = placed(Recompute(Linear(width, 4), {.offload = true}));
  const Tensor y = block(pass.h.view_rows(0, 3));
  CHECK(in_host_memory() == 0);
}

TEST_CASE("steps with copies to host memory are started kernel by kernel, and say why") {
  if (no_device()) return;
  const Subject s = subjects()[0];
  const auto run = [&](bool offload) {
    World world;
    Step step(placed(s.model(offload)), cross_entropy, Sgd{.lr = 0.05}, world, {}, {.cuda_graphs = true});
    Values losses;
    for (int i = 0; i < 4; ++i) losses.push_back(step(s.x.to(cuda()), s.y.to(cuda())).item());
    return std::tuple(losses, StepProbe(step).replayed(), StepProbe(step).not_replayed());
  };
  const auto [losses, replayed, why] = run(false);
  const auto [same, never, reason] = run(true);
  CHECK(replayed);
  CHECK(!never);
  CHECK_THAT(reason, contains("offload"));
  CHECK_THAT(reason, contains("capturing a CUDA graph"));
  CHECK(same == losses);
}

TEST_CASE("plans predict the bytes of both memories") {
  if (no_device()) return;
  for (const Subject& s : subjects())
    for (const auto& [axes, text] : {std::pair<std::vector<Axis>, std::string>{{{"data", 1}}, "serial"},
                                     {{{"data", 1}}, "accumulate(micro=2)"},
                                     {{{"pipe", 2}}, "pipeline(micro=2)"},
                                     {{{"data", 2}}, "zero(3)"}}) {
      INFO(s.name << " " << text);
      const Strategy strategy = parse_strategy(text);
      World alone;
      Mesh mesh(alone, axes, 0);
      const Module model = placed(s.model(true));
      Parameters parameters(model);
      const Chain chain(model);
      const Optimizer optimizer(parameters, Sgd{.lr = 0.1, .momentum = 0.9});
      auto parts = chain.parts(parameters);
      const Index buffers = parts.back().buffers.end;
      Plan plan = strategy(serial(std::move(parts), parameters.size(), buffers, axes));
      plan = with_agreements(plan, strategy, {}, optimizer, cross_entropy);
      const Index each = s.x.dim(0) / plan.microbatches / (axes[0].name == "data" ? axes[0].size : 1);
      imagine(plan, strategy,
              {.model = [&] { return placed(s.model(true)); },
               .x = s.x.view_rows(0, each).to(cuda()),
               .loss = cross_entropy,
               .labels = s.y.view_rows(0, each).to(cuda())});
      const auto predicted = predict_memory(plan, {.element = 4, .states = 1});
      Index on_the_way = 0;  // a plan counts a message until the next one
      for (const PartInfo& part : plan.parts)
        if (plan.has_stages()) on_the_way = std::max(on_the_way, part.cost.output);
      const auto measured = train(s, true, axes, text).memory;
      for (std::size_t r = 0; r < measured.size(); ++r) {
        const RankMemory& says = predicted[predicted.size() == 1 ? 0 : r];  // one program for all ranks
        CHECK(says.offloaded == measured[r].offloaded);
        const auto is = static_cast<double>(measured[r].activations), bytes = static_cast<double>(says.activations);
        CHECK(bytes >= 0.98 * is);
        CHECK(bytes <= 1.02 * is + static_cast<double>(on_the_way));
      }
      CHECK(offloaded_by(predicted) > 0);
      CHECK_THAT(memory_table(plan, predicted), contains("on host"));
    }
}

}  // namespace test_cuda_offload
