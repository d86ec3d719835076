#include "tools/training/inject_fault.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {

namespace {

constexpr std::pair<std::string_view, int> signals[] = {
    {"term", SIGTERM}, {"segv", SIGSEGV}, {"abort", SIGABRT}, {"stop", SIGSTOP}};

struct Fault {
  std::string kind;
  int rank = 0;
  std::int64_t step = 0;
};

Fault parse_fault(const std::string& text, int ranks) {
  const std::vector<std::string> pieces = split_text(text, ':');
  constexpr std::array<std::string_view, 11> others{"throw",  "exit", "hang", "sleep", "nan",  "nantwice",
                                                    "weight", "flip", "kind", "count", "dtype"};
  Fault f{.kind = pieces[0]};
  check(pieces.size() == 3 && parse_number(pieces[1], f.rank) && parse_number(pieces[2], f.step) &&
            (std::ranges::find(signals, f.kind, &std::pair<std::string_view, int>::first) != std::end(signals) ||
             std::ranges::find(others, f.kind) != others.end()),
        "run.fault",
        "'{}' is not KIND:RANK:STEP with throw, exit, hang, sleep, term, segv, abort, stop, nan, nantwice, weight, "
        "flip, kind, count or dtype",
        text);
  check(f.rank >= 0 && f.rank < ranks && f.step >= 1, "run.fault",
        "'{}' is for rank {} and step {}, expected a rank from 0 to {} and a step from 1", text, f.rank, f.step,
        ranks - 1);
  return f;
}

/// Calls a collective that the other ranks do not call, or call differently.
void call_alone(std::string_view how, World& world) {
  const bool is_count = how == "count";
  const Tensor x = Tensor::zeros({is_count ? 3 : 2}, how == "dtype" ? DType::i64 : DType::f64);
  how == "kind" ? world.comm().broadcast(x, 0).wait() : world.comm().all_reduce(x).wait();
}

/// Sets one of this rank's weights to NaN; `number` selects it.
void poison(Step& step, std::int64_t number) {
  std::vector<Slice> held;
  for (const Slice& s : step.checkpoint_shard().holds)
    for (const auto& entry : step.parameters().entries()) {
      const Slice both{std::max(entry.slice.begin, s.begin), std::min(entry.slice.end, s.end)};
      if (both.size() > 0) held.push_back(both);
    }
  const Slice& part = held[static_cast<std::size_t>(number) % held.size()];
  const Index which = part.begin + number * 7919 % part.size();
  const FlatBuffer& weights = step.parameters().values();
  weights.rows(which, which + 1).copy_from(Tensor::full({1}, NAN, weights.dtype()));
}

}  // namespace

void check_fault(const std::string& fault, int ranks) {
  if (!fault.empty()) (void)parse_fault(fault, ranks);
}

void inject_fault(const std::string& fault, World& world, std::int64_t step, int& injected, const Injected& into) {
  if (fault.empty() || injected > 1) return;
  const auto [what, rank, at] = parse_fault(fault, world.size());
  const auto signal = std::ranges::find(signals, what, &std::pair<std::string_view, int>::first);
  if (world.rank() != rank || step < at || (injected > 0 && (what != "nantwice" || step > at))) return;
  ++injected;
  if (what == "nan" || what == "nantwice") {
    if (into.inputs) into.inputs.copy_from(Tensor::full(into.inputs.shape(), NAN, into.inputs.dtype()));
  } else if (what == "weight") {
    poison(into.step, step);
  } else if (what == "flip") {
    *into.step.parameters().values().blocks().front().data<std::byte>() ^= std::byte{1};
  } else if (what == "kind" || what == "count" || what == "dtype") {
    call_alone(what, world);
  } else if (what == "exit") {  // the launcher may kill the other ranks before one of them can report anything
    std::fprintf(stderr, "trireme: rank %d: run.fault: injected before step %lld: the process exits with status 3\n",
                 rank, static_cast<long long>(at));
    ::_exit(3);
  } else if (what == "hang") {
    for (volatile bool forever = true; forever;) continue;
  } else if (what == "sleep") {
    std::this_thread::sleep_for(std::chrono::hours(24));
  } else {
    check(signal != std::end(signals), ErrorKind::internal, "run.fault", "injected on rank {} before step {}", rank,
          at);
    ::pthread_kill(::pthread_self(), signal->second);
  }
}

}  // namespace trireme
