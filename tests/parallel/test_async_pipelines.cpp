// Asynchronous pipelines (schedules pipedream and 2bw) against a serial loop over the formulas of their papers. Run it
// under mpiexec for MPI; without, ranks are threads.
#include <random>

#include "framework/autograd/step_context.h"
#include "framework/layers/recompute.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/strategies/on_call.h"
#include "tests/parallel/training.h"
#include "tests/support/temporary.h"

namespace test_async_pipelines {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A random small network, its data, and where its run is flushed.
struct Case {
  std::uint64_t seed = 0;
  int stages = 2, data = 1;
  PipelineOptions options = {};
  double momentum = 0, weight_decay = 0;
  std::vector<Index> rows = {};  // of each step's batch
  std::vector<bool> flushed = {};
  bool normed = false, dropped = false, recomputed = false, convolved = false;
  int skipped = -1;  // a step that is refused

  OptimizerConfig optimizer_config() const {
    return Sgd{.lr = Schedule(lr), .momentum = momentum, .weight_decay = weight_decay};
  }
  static double lr(std::int64_t step) { return 0.1 / (1 + 0.1 * static_cast<double>(step)); }

  Module model() const {
    std::mt19937_64 dice(seed);
    const int layers = stages + static_cast<int>(dice() % 4);
    Sequential model;
    Index in = 6;
    if (convolved) model.add(Sequential{Conv2d(1, 3, 2), relu, flatten});
    for (int i = 0; i < layers; ++i) {
      const Index out = i + 1 < layers ? 3 + static_cast<Index>(dice() % 6) : 5;
      Sequential block{Linear(in, out)};
      if (i + 1 < layers && normed) block.add(BatchNorm(out));
      if (i + 1 < layers) block.add(relu);
      if (i + 1 < layers && dropped) block.add(Dropout(0.3));
      in = out;
      if (recomputed && i % 2 == 0)
        model.add(Recompute(block));
      else
        model.add(block);
    }
    Module all = std::move(model);
    initialize(all, seed + 1);
    convert(all, DType::f64);
    return all;
  }
  std::pair<Tensor, Tensor> batch(int step) const {
    const Index n = rows[static_cast<std::size_t>(step)];
    std::vector<double> x, y;
    for (Index i = 0; i < n * 6; ++i)
      x.push_back(static_cast<double>(mix(seed * 1000 + static_cast<std::uint64_t>(step * 500 + i)) % 2000) / 1000 - 1);
    for (Index i = 0; i < n; ++i) y.push_back(static_cast<double>(mix(static_cast<std::uint64_t>(step * 77 + i)) % 5));
    return {Tensor::of(x, convolved ? Shape{n, 3, 2, 1} : Shape{n, 6}, DType::f64), Tensor::of(y, {n}, DType::i64)};
  }
  std::string text() const {
    return fmt::format("seed {}, {} on {} stages, micro {}, data {}, momentum {}, {} steps", seed, options.schedule,
                       stages, options.micro, data, momentum, rows.size());
  }
};

Case random_case(std::uint64_t seed, const std::string& schedule, int stages, int data = 1) {
  std::mt19937_64 dice(seed);
  Case c{.seed = seed, .stages = stages, .data = data};
  c.options = {.micro = schedule == "2bw" ? stages + static_cast<int>(dice() % 4) : 1, .schedule = schedule};
  c.options.partition = "even";
  c.momentum = dice() % 2 ? 0.9 : 0;
  c.weight_decay = dice() % 2 ? 0.01 : 0;
  c.recomputed = dice() % 3 == 0;
  c.convolved = dice() % 3 == 0;
  c.dropped = data == 1 && dice() % 2;
  c.normed = data == 1 && schedule == "pipedream" && dice() % 2;  // 2bw's are of each micro-batch
  const int steps = 9 + static_cast<int>(dice() % 6);
  for (int t = 0; t < steps; ++t) {
    c.rows.push_back(2 * data + static_cast<Index>(dice() % 9));
    c.flushed.push_back(dice() % 6 == 0);
  }
  if (!c.normed) c.rows[3] = 1;  // some micro-batches, or ranks, have none
  return c;
}

struct Result {
  std::vector<double> losses, weights, buffers;
  std::vector<Index> in_flight = {};
  bool agreed = true;
};

/// w(t+1) = w(t) - lr v, where v = momentum v + gradient + decay w(t): by gradients of f_t at the weights that the
/// paper says, whose versions are counted from the last flush. stages: their slices of the flat block.
Result serial_loop(const Case& c, const std::vector<std::vector<Slice>>& stages) {
  Module model = c.model();
  Parameters parameters(model);
  std::vector<std::vector<double>> w = {parameters.values().to_vector()};  // by updates since the last flush
  std::vector<double> v(w[0].size());
  Result result;
  for (int step = 0; step < std::ssize(c.rows); ++step) {
    if (step == c.skipped) w = {w.back()};
    if (step == c.skipped) continue;
    const int t = static_cast<int>(w.size()) - 1;
    std::vector<double> read = w.back();
    for (int s = 0; s < std::ssize(stages); ++s) {
      const int delay = c.options.schedule == "2bw" ? 1 : c.stages - 1 - s;
      const auto& from = w[static_cast<std::size_t>(std::max(0, t - delay))];
      for (const Slice& slice : stages[static_cast<std::size_t>(s)])
        std::copy(from.begin() + slice.begin, from.begin() + slice.end, read.begin() + slice.begin);
    }
    parameters.values().blocks()[0].copy_from(Tensor::of(read, {std::ssize(read)}, DType::f64));
    const auto [x, y] = c.batch(step);
    StepContext context;
    context.batch.seed = 5;
    context.batch.step = static_cast<std::uint64_t>(step);
    context.batch.global_batch = x.dim(0);
    const StepScope scope(std::move(context));
    const Tensor loss = cross_entropy(model(x), y);
    result.losses.push_back(loss.item());
    parameters.clear_grads();
    loss.backward();
    parameters.zero_missing_grads();
    const std::vector<double> g = parameters.grads().to_vector();
    std::vector<double> next = w.back();
    for (std::size_t i = 0; i < g.size(); ++i) {
      v[i] = c.momentum * v[i] + g[i] + c.weight_decay * next[i];
      next[i] -= c.lr(step - (c.skipped >= 0 && step > c.skipped)) * v[i];
    }
    w.push_back(std::move(next));
    if (c.flushed[static_cast<std::size_t>(step)]) w = {w.back()};
  }
  result.weights = w.back();
  for (auto& b : parameters.buffers())
    for (double number : b.tensor.to_vector()) result.buffers.push_back(number);
  return result;
}

/// from, to: run directories of checkpoints; steps [begin, end) are trained, those before only to be loaded.
Result pipelined(const Case& c, World& world, int begin = 0, int end = -1, const std::string& from = "",
                 const std::string& to = "", std::vector<std::vector<Slice>>* stages = nullptr) {
  std::vector<Axis> axes = {{"pipe", c.stages}};
  if (c.data > 1) axes.insert(axes.begin(), {"data", c.data});
  Mesh mesh(world, axes);
  const Strategy strategy =
      c.data > 1 ? pipeline(c.options) | data_parallel({.first_bucket = 16, .bucket = 40}) : pipeline(c.options);
  Step step(c.model(), cross_entropy, c.optimizer_config(), mesh, strategy, {.seed = 5});
  if (!from.empty()) step.load_checkpoint(find_latest(from).value().path);
  Result result;
  const int last = end < 0 ? static_cast<int>(c.rows.size()) : end;
  for (int t = begin; t < last; ++t) {
    auto [x, y] = c.batch(t);
    const auto [first, behind] = share(x.dim(0), step.shard().rank, step.shard().size);
    result.losses.push_back(step(x.view_rows(first, behind), y.view_rows(first, behind)).item());
    result.in_flight.push_back(StepProbe(step).most_in_flight());
    if (c.flushed[static_cast<std::size_t>(t)]) t % 2 ? step.flush() : StepProbe(step).consolidate();
  }
  if (!to.empty())
    save_checkpoint(to, step.parameters(), step.optimizer(), {.step = last}, {.shard = step.checkpoint_shard()});
  StepProbe(step).consolidate();
  Outcome all = outcome(world, {}, step.parameters());
  result.weights = step.parameters().values().to_vector();
  result.buffers = all.buffers;
  result.agreed = all.agreed;
  if (stages != nullptr && (world.main() || under_mpi()))
    for (std::size_t s = 0; s < step.plan().programs.size(); ++s) stages->push_back(step.plan().updated(s));
  return result;
}

void check_equal(const Case& c, double tolerance = 1e-12) {
  INFO(c.text());
  std::vector<std::vector<Slice>> stages;
  const Result got = on_ranks(c.stages * c.data, [&](World& w) { return pipelined(c, w, 0, -1, "", "", &stages); });
  const Result want = serial_loop(c, stages);
  CHECK(got.agreed);
  CHECK(distance(got.losses, want.losses) <= tolerance);
  CHECK(distance(got.weights, want.weights) <= tolerance);
  CHECK(distance(got.buffers, want.buffers) <= tolerance);
  if (under_mpi()) return;
  for (Index alive : got.in_flight) CHECK(alive <= c.stages);  // of the first stage
  const Result again = on_ranks(
      c.stages * c.data, [&](World& w) { return pipelined(c, w); }, true);  // in virtual time
  CHECK(again.losses == got.losses);
  CHECK(again.weights == got.weights);
}

}  // namespace

TEST_CASE("asynchronous pipelines equal a serial loop with the delays of their papers") {
  for (const char* schedule : {"2bw", "pipedream"})
    for (int stages : rank_counts({2, 3, 4}))
      for (std::uint64_t seed = 1; seed <= (under_mpi() || brief() ? 4 : 12); ++seed)
        check_equal(random_case(seed * 10 + static_cast<std::uint64_t>(stages), schedule, stages));
}

TEST_CASE("asynchronous pipelines whose gradients are averaged over a data axis equal the loop on whole batches") {
  if (processes().size() != 4 && threads_only("meshes of 4 ranks and more")) return;
  for (const char* schedule : {"2bw", "pipedream"})
    for (auto [data, stages] : {std::pair{2, 2}, {2, 3}, {3, 2}})
      for (std::uint64_t seed = 1; seed <= 3; ++seed)
        if (!under_mpi() || data * stages == 4) check_equal(random_case(seed + 500, schedule, stages, data));
}

TEST_CASE("on one rank asynchronous schedules are accumulation") {
  if (threads_only()) return;
  for (const char* schedule : {"2bw", "pipedream"}) {
    Case c = random_case(3, schedule, 1);
    const Result got = on_ranks(1, [&](World& world) { return pipelined(c, world); });
    c.options.schedule = "pipedream";
    CHECK(distance(got.weights, serial_loop(c, {{{0, 0}}}).weights) <= 1e-12);
  }
}

TEST_CASE("asynchronous pipelines stop anywhere and go on with the same bits") {
  if (threads_only("run directories are of one process here")) return;
  for (const char* schedule : {"2bw", "pipedream"})
    for (int stages : rank_counts({2, 3, 4}))
      for (bool virtual_time : {false, true}) {
        Case c = random_case(40 + static_cast<std::uint64_t>(stages), schedule, stages);
        INFO(c.text());
        for (int stop : {1, 4, 7}) {
          Temporary folder;
          c.flushed.assign(c.rows.size(), false);
          c.flushed[static_cast<std::size_t>(stop - 1)] = true;  // as saving there does
          const auto run = [&](int begin, int end, const std::string& from, const std::string& to) {
            return on_ranks(
                stages, [&](World& world) { return pipelined(c, world, begin, end, from, to); }, virtual_time);
          };
          const Result whole = run(0, -1, "", ""), first = run(0, stop, "", folder.path());
          const Result rest = run(stop, -1, folder.path(), "");
          CHECK(rest.weights == whole.weights);
          CHECK(rest.buffers == whole.buffers);
          auto losses = first.losses;
          losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
          CHECK(losses == whole.losses);
        }
      }
}

TEST_CASE("what asynchronous pipelines send is what their plans say, in every step and when they are flushed") {
  if (threads_only()) return;
  for (const char* schedule : {"2bw", "pipedream"})
    for (int stages : {2, 3, 4}) {
      const Case c = random_case(70, schedule, stages);
      INFO(c.text());
      std::mutex guard;
      std::string wrong;
      World::threads(stages, [&](World& world) {
        Mesh mesh(world, {{"pipe", stages}});
        Step step(c.model(), cross_entropy, Sgd{.lr = 0.1}, mesh, pipeline(c.options));
        const auto compare = [&](int t, const char* phase) {
          const auto [planned, counted] = StepProbe(step).traffic(phase);
          const std::lock_guard lock(guard);
          if (planned != counted) wrong += fmt::format("rank {}, step {} {}\n", world.rank(), t, phase);
        };
        for (int t = 0; t < std::ssize(c.rows); ++t) {
          const auto [x, y] = c.batch(t);
          step(x, y);
          compare(t, "");
          if (t % 4 == 3) {
            step.flush();
            compare(t, phases::flush);
          }
        }
        step.flush();
      });
      CHECK(wrong == "");
    }
}

TEST_CASE("a step whose loss is not finite is refused on all stages, and those in flight before it are not lost") {
  for (const char* schedule : {"2bw", "pipedream"})
    for (int stages : rank_counts({2, 3, 4}))
      for (int bad : {0, 1, 4}) {
        Case c = random_case(90 + static_cast<std::uint64_t>(stages), schedule, stages);
        c.normed = c.dropped = false;
        c.flushed.assign(c.rows.size(), false);
        INFO(c.text() << ", refused: " << bad);
        std::vector<std::vector<Slice>> slices;
        std::mutex guard;
        std::string text;
        on_ranks(stages, [&](World& world) { return pipelined(c, world, 0, 1, "", "", &slices); });
        Case without = c;  // the loop never sees the batch, and begins anew behind it
        without.skipped = bad;
        const Result want = serial_loop(without, slices);
        const auto rows = [&](World& world) {
          Mesh mesh(world, {{"pipe", stages}});
          Step step(c.model(), cross_entropy, c.optimizer_config(), mesh, pipeline(c.options), {.seed = 5});
          for (int t = 0; t < std::ssize(c.rows); ++t) {
            auto [x, y] = c.batch(t);
            if (t == bad) x.copy_from(Tensor::full(x.shape(), std::nan(""), DType::f64));
            try {
              step(x, y);
            } catch (const Error& e) {
              const std::lock_guard lock(guard);
              text = e.what();
            }
          }
          StepProbe(step).consolidate();
          return step.parameters().values().to_vector();
        };
        CHECK(distance(on_ranks(stages, rows), want.weights) <= 1e-12);
        CHECK(text.find(fmt::format("step {}: loss is nan", bad + 1)) != std::string::npos);
      }
}

TEST_CASE("a step that an exception has left in its midst is not gone on with") {
  if (threads_only()) return;
  std::string said;
  const auto body = [&](World& world) {
    Mesh mesh(world, {{"pipe", 2}});
    const Case c = random_case(7, "2bw", 2);
    int losses = 0;
    const Loss failing = [&](const Tensor& x, const Tensor& y) {
      check(++losses < 3 * c.options.micro, "loss", "it fails");
      return cross_entropy(x, y);
    };
    Step step(c.model(), failing, c.optimizer_config(), mesh, pipeline(c.options), {.seed = 5});
    const auto three = [&] {
      for (int t = 0; t < 3; ++t) step(c.batch(t).first, c.batch(t).second);
    };
    if (world.rank() == 1) return three();  // and ends the job
    try {
      three();
    } catch (const Error&) {
      try {
        StepProbe(step).consolidate();
      } catch (const Error& e) { said = e.what(); }
    }
  };
  CHECK_ERROR(World::threads(2, body), usage, "loss");
  CHECK_THAT(said, mentions("step", "exception"));
}

TEST_CASE("what a Step does not do in asynchronous pipelines is refused in a line") {
  if (processes().size() != 4 && threads_only("a mesh of 4 ranks")) return;
  struct Refused {
    const char *strategy, *text;
    OptimizerConfig optimizer_config = Sgd{.lr = 0.1};
    StepOptions options = {};
  };
  const std::vector<Refused> all = {
      {"pipeline(schedule=2bw)", "leave clip_norm, LARS and LAMB out", Sgd{.lr = 0.1}, {.optimizer = {.clip_norm = 1}}},
      {"pipeline(schedule=pipedream)", "leave clip_norm, LARS and LAMB out", Lars{.lr = 0.1}},
      {"pipeline(schedule=2bw)", "loss scaling cannot be combined with schedules", Sgd{.lr = 0.1}, {.loss_scale = 8}},
      {"pipeline(schedule=2bw) | spatial(axes=h)", "layers that are split over ranks"},
      {"pipeline(schedule=pipedream) | spatial(axes=h)", "layers that are split over ranks"}};
  for (const Refused& r : all) {
    const std::string what = on_ranks(4, [&](World& world) {
      try {
        Case c{.stages = 2, .convolved = true};
        Mesh mesh(world, {{std::string(r.strategy).find('|') == std::string::npos ? "data" : "h", 2}, {"pipe", 2}});
        Strategy strategy = parse_strategy(r.strategy);
        if (mesh.axes()[0].name == "data") strategy = strategy | data_parallel();
        Step step(c.model(), cross_entropy, r.optimizer_config, mesh, strategy, r.options);
      } catch (const Error& e) { return std::string(e.what()); }
      return std::string();
    });
    INFO(r.strategy << ": " << what);
    CHECK(what.find(r.text) != std::string::npos);
    CHECK(what.find('\n') == std::string::npos);
  }
}

TEST_CASE("each strategy with an asynchronous pipeline trains or is refused in a line") {
  if (threads_only()) return;
  const std::vector<std::string> known = {"use schedule=1f1b", "accumulate and pipeline", "all workers run one program",
                                          "layers that are split over ranks use views of their weights",
                                          "one_weird_trick gathers the rows of all ranks"};
  std::map<std::string, int> outcomes;
  for (const char* pipe : {"pipeline(schedule=2bw, micro=2, partition=even)", "pipeline(schedule=pipedream)"})
    for (auto& row : strategies()) {
      if (row.name == "context" || row.name == "experts") continue;  // they need texts
      const std::string name = row.name == "compress" ? "compress(codec=topk)" : row.name;
      const std::string text = std::string(pipe) + " | " + name;
      std::vector<Axis> mesh = {{"pipe", 2}};
      if (!row.axis.empty() && row.axis != "pipe") mesh.push_back({row.axis, 2});
      std::string what = on_ranks(ranks_of(mesh), [&](World& world) {
        try {
          const Case c{.stages = 4, .rows = {4, 6, 5}, .convolved = true};
          Mesh axes(world, mesh);
          Step step(c.model(), cross_entropy, Sgd{.lr = 0.1}, axes, parse_strategy(text));
          for (int t = 0; t < 3; ++t) {
            auto [x, y] = c.batch(t);
            const auto [first, end] = share(x.dim(0), step.shard().rank, step.shard().size);
            step(x.view_rows(first, end), y.view_rows(first, end));
          }
          StepProbe(step).consolidate();
        } catch (const Error& e) { return std::string(e.what()); }
        return std::string("trains");
      });
      INFO(text << ": " << what);
      CHECK(what.find('\n') == std::string::npos);
      for (const std::string& words : known)
        if (what.find(words) != std::string::npos) what = words;
      ++outcomes[what];
    }
  std::string table;
  for (auto& [what, count] : outcomes) table += fmt::format("{} {}\n", count, what);
  CHECK(table == R"(4 accumulate and pipeline
2 all workers run one program
6 layers that are split over ranks use views of their weights
2 one_weird_trick gathers the rows of all ranks
4 trains
12 use schedule=1f1b
)");
}

}  // namespace test_async_pipelines
