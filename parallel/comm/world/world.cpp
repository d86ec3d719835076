#include "parallel/comm/world/world.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "framework/io/options.h"
#include "kernels/core/environment.h"
#include "kernels/core/runtime.h"
#include "kernels/core/thread.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/transport/device_communicator.h"
#include "parallel/comm/transport/launcher.h"
#include "parallel/comm/transport/mpi_ranks.h"
#include "parallel/comm/transport/threads.h"
#include "parallel/comm/transport/virtual_time.h"
#include "parallel/comm/world/placement.h"

namespace trireme {

namespace {

/// An exception of a rank.
struct Failure {
  std::string text;
  std::source_location where;
  ErrorKind kind = ErrorKind::internal;
  bool refused = false;  ///< whether it is an OptionError
  [[noreturn]] void raise() const {
    if (refused) throw OptionError(text, where);
    throw Error(text, where, kind);
  }
};

/// Describes the current exception.
Failure current_failure(const std::string& prefix) {
  try {
    throw;
  } catch (const Error& e) {
    return {prefix + current_message(), e.where(), e.kind(), dynamic_cast<const OptionError*>(&e) != nullptr};
  } catch (const std::exception&) {
    return {prefix + current_message(), std::source_location::current(), current_kind()};
  } catch (...) { return {prefix + "an exception of unknown type", std::source_location::current()}; }
}

/// Threads for each of `sharing` ranks: its share of the cores, at most as many as this thread may use
/// (OMP_NUM_THREADS, set_threads()).
int share_of_threads(int sharing) { return std::clamp(cores() / sharing, 1, threads()); }

int report(const Failure& failure) {
  std::fflush(stdout);
  std::fputs(("trireme: " + failure.text + "\n").c_str(), stderr);
  std::fflush(stderr);
  return exit_status(failure.kind);
}

}  // namespace

World::World(int& argc, char**& argv) : World() {
  check_environment();
  const Launcher launcher = find_launcher([](const char* name) -> const char* { return std::getenv(name); });
  if (!launcher.name.empty()) end_with_parent();
  if (launcher.ranks == 1) return;
  auto ranks = join_mpi(argc, argv);
  check_not_singletons(launcher, ranks.comm->size(), mpi_version());
  process_ = std::move(ranks.process);
  comm_ = std::make_unique<DeviceCommunicator>(std::move(ranks.comm));
  local_rank_ = ranks.local_rank;
  local_size_ = ranks.local_size;
  place_ = ranks.place;
  sharing_ = ranks.sharing;
  set_threads(share_of_threads(sharing_));
}

World::World() : World(single_communicator(), 0, 1) {}
World::World(std::unique_ptr<Communicator> comm, int local_rank, int local_size)
    : comm_(std::make_unique<DeviceCommunicator>(std::move(comm))),
      local_rank_(local_rank),
      local_size_(local_size),
      place_(local_rank),
      sharing_(local_size) {}
World::World(World&&) noexcept = default;

World::~World() {
  if (!comm_) return;
  try {  // errors while leaving are ignored: a failed rank has reported its error already
    if (std::uncaught_exceptions() > unwinding_) {  // the other ranks may never arrive to leave together
      const AbortReason reason{fmt::format("rank {}: an exception left its World", rank())};
      process_ ? process_->abandon(reason) : comm_->abort(reason);
    } else if (process_) {
      comm_.reset();
      process_->leave();
    }
  } catch (...) {}
}

void World::threads(int ranks, const std::function<void(World&)>& body) {
  check_environment();
  run_threads(thread_communicators(ranks), body);
}

void World::virtual_time(int ranks, const Cluster& cluster, const std::function<void(World&)>& body) {
  VirtualRanks all = virtual_ranks(ranks, cluster);
  run_threads(std::move(all.communicators), [&](World& world) {
    auto& clock = all.time->at(world.rank());
    all.time->begin(clock);
    body(world);
    all.time->finish(clock);
  });
}

void World::run_threads(std::vector<std::unique_ptr<Communicator>> communicators,
                        const std::function<void(World&)>& body) {
  const int ranks = static_cast<int>(communicators.size());
  std::vector<World> worlds;
  for (auto& comm : communicators) worlds.emplace_back(std::move(comm), std::ssize(worlds), ranks);
  const int share = share_of_threads(ranks);
  std::mutex mutex;
  std::optional<Failure> first;
  const auto run = [&](int r) {
    World world(std::move(worlds[r]));
    const FlightRecorder recorder(r, ranks);
    try {
      set_threads(share);
      body(world);
    } catch (...) {
      const Failure failure = current_failure(ranks > 1 ? fmt::format("rank {}: ", r) : "");
      write_crash_report(failure.text.c_str(), name_of(failure.kind));
      {
        std::lock_guard lock(mutex);
        if (!first) first = failure;
      }
      world.comm().abort({failure.text, failure.kind});
    }
  };
  // No rank begins before all threads exist: if the system starts too few threads, no body has run.
  enum Signal : int { wait, begin, leave };
  std::atomic<Signal> signal = wait;
  std::vector<std::jthread> all;
  all.reserve(ranks);
  const auto tell = [&](Signal s) {
    signal = s;
    signal.notify_all();
  };
  try {
    for (int r = 0; r < ranks; ++r)
      all.push_back(start_thread<std::jthread>(fmt::format("rank {} of {}", r, ranks), [&, r] {
        signal.wait(wait);
        if (signal == begin) run(r);
      }));
  } catch (...) {
    tell(leave);
    throw;
  }
  tell(begin);
  all.clear();
  if (first) first->raise();
}

int World::run(int argc, char** argv, int ranks, const std::function<int(World&)>& body) {
  std::unique_ptr<World> world;
  std::atomic<int> status = 0;
  try {
    world = std::make_unique<World>(argc, argv);
    if (world->size() == 1 && ranks > 1) {
      World::threads(ranks, [&](World& each) {
        const int own = body(each);
        for (int most = status; most < own && !status.compare_exchange_weak(most, own);) {}
      });
      return status;
    }
  } catch (...) { return report(current_failure("")); }
  const FlightRecorder recorder(world->rank(), world->size());
  try {
    status = body(*world);
  } catch (...) {
    const FlightRecorder::Wait ending;  // for the JobMonitor
    const Failure failure = current_failure(world->size() == 1 ? "" : fmt::format("rank {}: ", world->rank()));
    write_crash_report(failure.text.c_str(), name_of(failure.kind));
    if (world->size() == 1) return report(failure);
    MpiProcess& process = *world->process_;
    if (process.first_to_fail({failure.text, failure.kind})) report(failure);
    process.end_job(exit_status(failure.kind));
  }
  const auto process = std::move(world->process_);
  world.reset();
  if (!process) return status;
  try {
    if (process->leave()) return status;
  } catch (...) {  // an exception on another rank, which reports it
    process->end_job(exit_status(current_kind()));
  }
  std::fflush(nullptr);
  _exit(status);
}

std::string World::bind(const std::string& to) {
  check(to == "none" || to == "numa" || to == "core", "bind", "got '{}', expected none, numa or core", to);
  if (to == "none" || clock() != nullptr) return "";
  if (cpus_.empty()) cpus_ = usable_cpus();
  check(!cpus_.empty(), "bind", "the system does not list the CPUs of this process; use none");
  const std::vector<CpuCore> all = find_cores(cpus_), mine = share_of_cores(all, place_, sharing_);
  std::vector<CpuCore> bound = mine;
  std::vector<std::vector<int>> places;
  if (to == "core") {
    for (const CpuCore& core : mine) places.push_back(core.cpus);
  } else {
    const auto is_near = [&](const CpuCore& core) {
      return std::ranges::any_of(mine, [&](const CpuCore& own) { return own.node == core.node; });
    };
    bound.clear();
    places.emplace_back();
    for (const CpuCore& core : all)
      if (is_near(core)) {
        bound.push_back(core);
        places[0].insert(places[0].end(), core.cpus.begin(), core.cpus.end());
      }
  }
  bind_threads(places);
  set_threads(std::min(trireme::threads(), static_cast<int>(mine.size())));
  return to_string(bound);
}

std::string World::use(Device device) { return static_cast<DeviceCommunicator&>(*comm_).use(device); }
void World::use_all_reduce(const std::string& algorithm) { comm_ = with_all_reduce(std::move(comm_), algorithm); }
void World::use_all_reduce(const collectives::AlgorithmTable& table) {
  comm_ = collectives::with_algorithm(std::move(comm_), table.choice());
}

}  // namespace trireme
