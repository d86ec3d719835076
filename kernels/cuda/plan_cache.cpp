#include "kernels/cuda/plan_cache.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include "kernels/cuda/plugin.h"

namespace trireme::gpu {
namespace {

/// How many engines are measured, and how often after a first run that warms caches.
constexpr std::size_t most_measured = 5;
constexpr int timed_runs = 3;

/// A graph and what runs it; none: nothing does.
struct Planned {
  std::optional<Graph> graph;  // outlives its plan
  std::optional<Plan> plan;
};

/// What a device has for as long as the process lives. cuDNN's handles serve one thread at a time: so does this.
struct Cache {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::optional<PlanFile> file;
  std::unordered_map<PlanKey, Planned, PlanKeyHash> plans;

  void make(const On& on) {
    if (file) return;
    cudaDeviceProp about{};
    ok(cudaGetDeviceProperties(&about, on.device().index), on.op());
    ok(cudnnCreate(&handle), on.op());
    ok(cudnnSetStream(handle, on.stream()), on.op());
    file.emplace(PlanFile::usual_path(about.name));
  }
};

// Never destroyed, like the streams (device.cpp).
Cache& cache(Device device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::unordered_map<int, Cache>;
  const std::lock_guard lock(mutex);
  return all[device.index];
}

struct Timer {
  cudaEvent_t begin = nullptr, end = nullptr;
  explicit Timer(const On& on) {
    ok(cudaEventCreate(&begin), on.op());
    ok(cudaEventCreate(&end), on.op());
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { (void)cudaEventDestroy(begin), (void)cudaEventDestroy(end); }
};

constexpr float never = std::numeric_limits<float>::infinity();

/// Milliseconds of the fastest of a few runs; `never` when the engine does not run it.
float measured(const On& on, cudnnHandle_t handle, const Plan& plan, std::span<void* const> tensors, void* workspace,
               const Timer& timer) {
  float best = never;
  for (int i = 0; i <= timed_runs; ++i) {
    ok(cudaEventRecord(timer.begin, on.stream()), on.op());
    if (plan.run(handle, tensors, workspace) != CUDNN_STATUS_SUCCESS) return never;
    ok(cudaEventRecord(timer.end, on.stream()), on.op());
    ok(cudaEventSynchronize(timer.end), on.op());
    float ms = 0;
    ok(cudaEventElapsedTime(&ms, timer.begin, timer.end), on.op());
    if (i > 0) best = std::min(best, ms);
  }
  return best;
}

/// Number of the fastest of the plans; none when none runs. What the graph writes goes to scratch memory.
std::optional<std::size_t> fastest(const On& on, cudnnHandle_t handle, const std::vector<Plan>& plans,
                                   const PlanMemory& memory) {
  Index workspace_bytes = 0;
  for (const Plan& p : plans) workspace_bytes = std::max(workspace_bytes, p.workspace());
  const Scratch workspace(on, static_cast<std::size_t>(workspace_bytes)), written(on, memory.written_bytes);
  std::vector<void*> tensors(memory.tensors.begin(), memory.tensors.end());
  tensors[static_cast<std::size_t>(memory.written)] = written.data();
  const Timer timer(on);
  float best = never;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (const float ms = measured(on, handle, plans[i], tensors, workspace.data(), timer); ms < best)
      best = ms, found = i;
  return found;
}

/// The remembered plan, else the fastest of those that cuDNN recommends.
std::optional<Plan> choose(const On& on, Cache& c, const PlanKey& key, const Graph& graph, const EngineRules& rules,
                           const PlanMemory& memory) {
  const Target target(c.handle);
  if (const Engine* engine = c.file->find(key)) {
    try {
      return Plan(graph, target, *engine);
    } catch (const Error&) {  // a damaged file's engine: choose again
    }
  }
  std::string why;
  std::vector<Plan> all = plans(graph, target, rules, most_measured, why);
  if (all.empty()) return std::nullopt;
  std::optional<std::size_t> best = 0;
  try {
    if (all.size() > 1) best = fastest(on, c.handle, all, memory);
  } catch (const Error&) {  // no memory to measure with: cuDNN's own favourite, which is not worth remembering
    return std::move(all.front());
  }
  if (!best) return std::nullopt;
  c.file->add(key, all[*best].engine());
  return std::move(all[*best]);
}

Planned& planned(const On& on, Cache& c, const PlanKey& key, DType compute, const EngineRules& rules,
                 const PlanMemory& memory, const std::function<void(Graph&)>& build) {
  if (const auto at = c.plans.find(key); at != c.plans.end()) [[likely]]
    return at->second;
  Planned& p = c.plans[key];
  try {
    Graph& graph = p.graph.emplace(on.op(), compute);
    build(graph);
    graph.finish(Target(c.handle));
    p.plan = choose(on, c, key, graph, rules, memory);
  } catch (const Error&) {  // cuDNN refuses the graph
    p.plan.reset();
  }
  return p;
}

}  // namespace

PlanFile::PlanFile(std::string path) : path_(std::move(path)) { read(); }

std::string PlanFile::usual_path(std::string_view device_name) {
  auto variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v == nullptr ? "" : v);
  };
  if (const std::string path = variable("TRIREME_PLAN_CACHE"); !path.empty()) return path == "off" ? "" : path;
  std::string folder = variable("XDG_CACHE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") + "/.cache";
  if (folder.empty()) return "";
  std::string name = fmt::format("cudnn-plans-{}-{}.txt", cudnnGetVersion(), device_name);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '/'; }, '-');
  return folder + "/trireme/" + name;
}

const Engine* PlanFile::find(const PlanKey& key) const {
  const auto at = known_.find(key);
  return at == known_.end() ? nullptr : &at->second;
}

void PlanFile::read() {
  if (path_.empty()) return;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    PlanKey key;
    Engine engine;
    const char *at = line.data(), *end = at + line.size();
    bool good = true;
    for (Index& n : key.numbers) {
      const auto [next, error] = std::from_chars(at, end, n);
      good = good && error == std::errc{} && next != end && *next == ' ';
      at = next == end ? end : next + 1;
    }
    good = good && end - at > 2 && at[0] == ':' && at[1] == ' ' && from_string(engine, {at + 2, end});
    if (good) known_.try_emplace(key, std::move(engine));
  }
}

void PlanFile::write() const {
  const std::filesystem::path path(path_);
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  // Whole or not at all: other processes read while this one writes.
  const std::string part = fmt::format("{}.{}", path_, getpid());
  std::ofstream file(part, std::ios::trunc);
  for (const auto& [key, engine] : known_) {
    for (Index n : key.numbers) file << n << ' ';
    file << ": " << to_string(engine) << '\n';
  }
  file.close();
  if (file)
    std::filesystem::rename(part, path);
  else
    std::filesystem::remove(part);
}

void PlanFile::add(const PlanKey& key, const Engine& engine) noexcept {
  try {
    known_.insert_or_assign(key, engine);
    if (path_.empty()) return;
    read();  // what others have added meanwhile
    write();
  } catch (...) {}
}

bool run_planned(const On& on, const PlanKey& key, DType compute, const EngineRules& rules, const PlanMemory& memory,
                 const std::function<void(Graph&)>& build) {
  Cache& c = cache(on.device());
  const std::lock_guard lock(c.mutex);
  c.make(on);
  Planned& p = planned(on, c, key, compute, rules, memory, build);
  if (!p.plan) return false;
  const Scratch workspace(on, static_cast<std::size_t>(p.plan->workspace()));
  const cudnnStatus_t status = p.plan->run(c.handle, memory.tensors, workspace.data());
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) {
    p.plan.reset();
    return false;
  }
  ok(status, on.op());
  return true;
}

}  // namespace trireme::gpu
