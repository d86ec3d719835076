#include "kernels/cuda/plan_cache.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "kernels/core/environment.h"
#include "kernels/cuda/plugin.h"

namespace trireme::gpu {
namespace {

/// Seconds after which a job stops measuring and uses its best engine so far: TRIREME_PLAN_SECONDS, default 2; 0: uses
/// the first that runs.
double budget() { return environment_number("TRIREME_PLAN_SECONDS").value_or(2); }

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& k) const {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(k.numbers.data()), sizeof k.numbers});
  }
};

/// A way's graph and its plan; without a plan nothing can run it.
struct Planned {
  std::size_t way = 0;
  std::optional<Graph> graph;  // outlives its plan
  std::optional<Plan> plan;
  bool proven = false;  ///< it has run, or been measured
};

/// The objects of a device that live as long as the process. cuDNN's handles serve one thread at a time, and so does
/// this.
struct Cache {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;  // of the handle
  std::optional<PlanFolder> folder;
  std::unordered_map<PlanKey, Planned, PlanKeyHash> plans;

  void make(const On& on) {
    if (folder) return;
    cudaDeviceProp about{};
    ok(cudaGetDeviceProperties(&about, on.device().index), on.op());
    ok(cudnnCreate(&handle), on.op());
    folder.emplace(PlanFolder::usual_path(about.name));
  }
  /// Sets the stream of the current call: a graph that is captured has a separate one.
  void use(const On& on) {
    const cudaStream_t wanted = on.stream();
    if (std::exchange(stream, wanted) != wanted) ok(cudnnSetStream(handle, wanted), on.op());
  }
};

// Never destroyed, like the streams (device.cpp).
Cache& cache(Device device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::unordered_map<int, Cache>;
  const std::lock_guard lock(mutex);
  return all[device.index];
}

cudnnStatus_t run(const On& on, cudnnHandle_t handle, const Plan& plan, const PlanWay& way, void* out) {
  const Scratch product(on, way.product_bytes), workspace(on, static_cast<std::size_t>(plan.workspace()));
  std::array<void*, 7> tensors = way.tensors;
  void*& written = tensors[static_cast<std::size_t>(way.written)];
  written = way.product_bytes > 0 ? product.data() : out;
  if (!way.cleared.empty()) ok(cudaMemsetAsync(way.cleared.data(), 0, way.cleared.size_bytes(), on.stream()), on.op());
  const cudnnStatus_t status = plan.run(handle, tensors, workspace.data());
  if (status == CUDNN_STATUS_SUCCESS && way.then) way.then(out, written);
  return status;
}

/// Without a workspace there is no memory for partial sums: see EngineRules::sums.
bool suits(const Plan& plan, const EngineRules& rules) {
  const bool deterministic = !rules.sums || plan.workspace() > 0;
  return plan.workspace() <= rules.workspace && (deterministic || !rules.deterministic);
}

struct Timer {
  cudaEvent_t begin = nullptr, end = nullptr;
  explicit Timer(const On& on) {
    ok(cudaEventCreate(&begin), on.op());
    ok(cudaEventCreate(&end), on.op());
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
  }

  /// Milliseconds that the device spends on what f() gives it.
  template <class F>
  float operator()(const On& on, const F& f) const {
    ok(cudaEventRecord(begin, on.stream()), on.op());
    f();
    ok(cudaEventRecord(end, on.stream()), on.op());
    ok(cudaEventSynchronize(end), on.op());
    float ms = 0;
    ok(cudaEventElapsedTime(&ms, begin, end), on.op());
    return ms;
  }
};

constexpr float never = std::numeric_limits<float>::infinity();

/// Milliseconds of a run; `never` if the engine does not run it. Runs follow one another without a gap, as in a step,
/// so that the launch time of a way with two kernels does not count.
float measured(const On& on, cudnnHandle_t handle, const Plan& plan, const PlanWay& way, void* out) {
  constexpr int runs = 3, rounds = 2;
  constexpr float long_run = 100;
  const Timer timer(on);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  auto once = [&] {
    if (status == CUDNN_STATUS_SUCCESS) status = run(on, handle, plan, way, out);
  };
  float best = timer(on, once);  // loads its kernels, and the first time libraries, which may take longer than any run
  if (best >= long_run) best = std::min(best, timer(on, once));
  for (int round = 0; round < rounds && best < long_run; ++round)
    best = std::min(best, timer(on, [&] {
                            for (int i = 0; i < runs; ++i) once();
                          }) / runs);
  return status == CUDNN_STATUS_SUCCESS ? best : never;
}

/// Plans of the candidates until enough have been measured.
class Choice {
 public:
  Choice(const On& on, cudnnHandle_t handle, const PlanResult& result, std::span<const PlanWay> ways)
      : on_(on), handle_(handle), result_(result), ways_(ways), graphs_(ways.size()) {}

  Planned choose() {
    const auto start = std::chrono::steady_clock::now();
    const double most = budget();
    std::size_t tried = 0;
    for (const auto& [way, engine] : all_candidates()) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      if (tried == most_measured || (best_.plan && spent.count() > most)) break;
      try {
        tried += measure(way, Plan(*graphs_[way], Target(handle_), engine));
      } catch (const Error&) {}  // cuDNN refuses
    }
    Planned& chosen = best_.plan ? best_ : leanest_;
    chosen.proven = best_.plan.has_value();
    if (chosen.plan) chosen.graph = std::move(graphs_[chosen.way]);
    return std::move(chosen);
  }

 private:
  std::vector<std::pair<std::size_t, Engine>> all_candidates() {
    const Target target(handle_);
    std::vector<std::vector<Engine>> found(ways_.size());
    std::string why;
    for (std::size_t i = 0; i < ways_.size(); ++i) try {
        Graph& graph = graphs_[i].emplace(on_.op(), ways_[i].compute);
        ways_[i].build(graph);
        graph.finish(target);
        found[i] = engines(graph, target, ways_[i].rules, why);
      } catch (const Error&) {}  // cuDNN refuses the graph
    return candidates(found);
  }

  /// Whether it runs.
  bool measure(std::size_t way, Plan&& plan) {
    if (!suits(plan, ways_[way].rules)) return false;
    float ms = never;
    try {
      const Scratch out(on_, result_.bytes);
      ms = measured(on_, handle_, plan, ways_[way], out.data());
    } catch (const Error&) {  // no memory to measure with
      const std::size_t room = static_cast<std::size_t>(plan.workspace()) + ways_[way].product_bytes;
      if (!leanest_.plan || room < least_room_) {
        least_room_ = room;
        leanest_.way = way;
        leanest_.plan.emplace(std::move(plan));
      }
      return true;
    }
    if (ms < fastest_) {
      fastest_ = ms;
      best_.way = way;
      best_.plan.emplace(std::move(plan));
    }
    return ms < never;
  }

  const On& on_;
  cudnnHandle_t handle_;
  const PlanResult& result_;
  std::span<const PlanWay> ways_;
  std::vector<std::optional<Graph>> graphs_;
  float fastest_ = never;
  std::size_t least_room_ = 0;
  Planned best_, leanest_;
};

/// From the folder; no plan when it has none that cuDNN takes.
Planned restored(const On& on, const Cache& c, const PlanKey& key, std::span<const PlanWay> ways) {
  Planned p;
  const std::optional<KeptPlan> kept = c.folder->find(key);
  if (!kept || kept->way >= ways.size()) return p;
  p.way = kept->way;
  try {
    ways[p.way].build(p.graph.emplace(on.op(), ways[p.way].compute));
    p.plan.emplace(*p.graph, Target(c.handle), kept->json);
    if (!suits(*p.plan, ways[p.way].rules)) p.plan.reset();
  } catch (const Error&) { p.plan.reset(); }
  return p;
}

Planned chosen(const On& on, const Cache& c, const PlanKey& key, const PlanResult& result,
               std::span<const PlanWay> ways) {
  Planned p = Choice(on, c.handle, result, ways).choose();
  if (p.proven) try {
      c.folder->keep(key, {p.way, p.plan->json()});
    } catch (const Error&) {}  // an engine whose plans cannot be kept
  return p;
}

}  // namespace

std::vector<std::pair<std::size_t, Engine>> candidates(std::span<const std::vector<Engine>> ways) {
  std::vector<std::pair<std::size_t, Engine>> ready, compiled;
  std::vector<std::vector<Engine>> ready_of(ways.size());
  for (std::size_t way = 0; way < ways.size(); ++way) {
    const std::vector<Engine>& all = ways[way];
    const bool none_ready = std::all_of(all.begin(), all.end(), [](const Engine& e) { return e.compiled; });
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!all[i].compiled)
        ready_of[way].push_back(all[i]);
      else if (none_ready || i < most_measured)  // not where cuDNN itself names it as a last resort
        compiled.emplace_back(way, all[i]);
  }
  std::size_t longest = 0;
  for (const auto& of : ready_of) longest = std::max(longest, of.size());
  for (std::size_t turn = 0; turn < longest; ++turn)
    for (std::size_t way = 0; way < ways.size(); ++way)
      if (turn < ready_of[way].size()) ready.emplace_back(way, ready_of[way][turn]);
  if (ready.empty()) return compiled;
  // The compiled engine is measured last, since compiling may use up the budget.
  if (!compiled.empty())
    ready.insert(ready.begin() + static_cast<std::ptrdiff_t>(std::min(ready.size(), most_measured - 1)),
                 compiled.front());
  return ready;
}

bool run_planned(const On& on, const PlanKey& key, const PlanResult& result, std::span<const PlanWay> ways) {
  Cache& c = cache(on.device());
  const std::lock_guard lock(c.mutex);
  c.make(on);
  c.use(on);
  if (!c.plans.contains(key)) refuse_capture(on);  // to measure is to wait
  const auto [at, first] = c.plans.try_emplace(key);
  Planned& p = at->second;
  if (first) [[unlikely]] {
    p = restored(on, c, key, ways);
    if (!p.plan) p = chosen(on, c, key, result, ways);
  }
  if (!p.plan) return false;
  cudnnStatus_t status = run(on, c.handle, *p.plan, ways[p.way], result.data);
  if (status != CUDNN_STATUS_SUCCESS && !p.proven) {  // the plan from the folder is of another cuDNN
    p = chosen(on, c, key, result, ways);
    if (!p.plan) return false;
    status = run(on, c.handle, *p.plan, ways[p.way], result.data);
  }
  p.proven = true;
  // The plan was measured with better aligned operands. It stays in the cache: captured graphs may hold its kernels.
  if (status == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER || status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
    return false;
  ok(status, on.op());
  return true;
}

}  // namespace trireme::gpu
