// Random cases of tests/parallel/sweep/sweep.h: a number of them with fixed seeds, or, for an hour, others.
//   SWEEP_SECONDS=3600 [SWEEP_SEED=first] [SWEEP_KIND=ops|loader|runs|models] build/tests/test_sweep       tools/sweep:
//   the same under sanitizers
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>

#include "tests/parallel/sweep/sweep.h"
#include "tests/support/catch.h"

namespace test_sweep {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Kind {
  std::string name;
  std::string (*run)(RandomChoice);
  int cases;     // of a run in continuous integration
  int compared;  // at least this many of them are computed and compared; the others are refused
};
const std::vector<Kind> kinds = {{"ops", sweep_ops, 50, 50},
                                 {"loader", sweep_loader, 40, 40},
                                 {"runs", sweep_runs, 50, 20},
                                 {"models", sweep_models, 40, 12}};

double setting(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atof(text) : otherwise;
}

/// Runs a case in a child; what it ended with, or "FAILED: " and why.
std::string attempt(const Kind& kind, std::uint64_t seed) {
  int pipe_ends[2];
  check(pipe(pipe_ends) == 0, "sweep", "no pipe");
  const pid_t child = fork();
  check(child >= 0, "sweep", "no process");
  if (child == 0) {
    close(pipe_ends[0]);
    alarm(static_cast<unsigned>(setting("SWEEP_PATIENCE", 300)));  // ends what hangs
    setenv("TRIREME_TIMEOUT", "100", 0);
    std::string said;
    try {
      said = kind.run(RandomChoice(seed));
    } catch (const std::exception& e) { said = std::string("FAILED: ") + e.what(); }
    said.resize(std::min<std::size_t>(said.size(), 4000));  // a pipe takes so much at once
    const auto written = write(pipe_ends[1], said.data(), said.size());
    _exit(written == std::ssize(said) ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string said(4096, 0);
  std::size_t size = 0;
  for (ssize_t got; size < said.size() && (got = read(pipe_ends[0], said.data() + size, said.size() - size)) > 0;)
    size += static_cast<std::size_t>(got);
  close(pipe_ends[0]);
  said.resize(size);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "FAILED: it ended by signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "FAILED: it ended with " + std::to_string(WEXITSTATUS(status));
  return said;
}

}  // namespace

TEST_CASE("whatever is drawn is right or refused") {
  const auto start = std::chrono::steady_clock::now();
  const double seconds = setting("SWEEP_SECONDS", 0);
  const auto first = static_cast<std::uint64_t>(setting("SWEEP_SEED", 1));
  const bool one = std::getenv("SWEEP_SEED") != nullptr && seconds == 0;
  const char* only = std::getenv("SWEEP_KIND");
  struct Count {
    int times = 0;
    std::uint64_t first = 0;  ///< the seed of the first of them
  };
  std::map<std::string, std::map<std::string, Count>> ends;
  for (std::uint64_t i = 0;; ++i) {
    bool any = false;
    for (auto& kind : kinds) {
      if (only != nullptr && kind.name != only) continue;
      if (seconds == 0 && static_cast<int>(i) >= (one ? 1 : kind.cases)) continue;
      any = true;
      const std::string end = attempt(kind, first + i);
      if (end.starts_with("FAILED")) {
        std::cerr << "sweep: SWEEP_KIND=" << kind.name << " SWEEP_SEED=" << first + i << " build/tests/test_sweep\n"
                  << end << "\n";
        CHECK(end == "");
      } else {
        Count& count = ends[kind.name][end];
        if (count.times++ == 0) count.first = first + i;
      }
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (!any || (seconds > 0 && passed.count() > seconds)) break;
  }
  REQUIRE(!ends.empty());
  for (auto& kind : kinds) {
    std::string found;
    int compared = 0;
    for (auto& [end, count] : ends[kind.name]) {
      found += std::to_string(count.times) + " " + end + " (" + std::to_string(count.first) + ")\n";
      if (!end.starts_with("refused")) compared += count.times;
    }
    std::cout << kind.name << "\n" << found;
    if (seconds == 0 && !one && (only == nullptr || kind.name == only)) CHECK(compared >= kind.compared);
  }
}

}  // namespace test_sweep
