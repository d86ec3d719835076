// The algorithms by name, and their choice by measurement.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {
namespace {

/// A new algorithm gets a row here.
struct Named {
  std::string name;
  Algorithm (*make)(int number);
  bool takes_number = false;  // "torus(4)"; 0 without a number
};
const Named algorithms[] = {{"ring", [](int) { return ring(); }},
                            {"recursive_doubling", [](int) { return recursive_doubling(); }},
                            {"rabenseifner", [](int) { return rabenseifner(); }},
                            {"tree", [](int) { return tree(); }},
                            {"hierarchical", hierarchical, true},
                            {"torus", torus, true}};
constexpr CallKind kinds[] = {CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather, CallKind::broadcast,
                              CallKind::reduce};

std::shared_ptr<const Algorithm> own_or_named(const std::string& name) {
  return name == "default" ? nullptr : std::make_shared<const Algorithm>(find_algorithm(name));
}

/// Starts a call on x. Blocks have equal sizes.
Work start(Communicator& comm, CallKind kind, const Tensor& x) {
  const Slice mine = block(even_blocks(x.numel(), comm.size()), comm.rank());
  const Tensor own = x.view_rows(mine.begin, mine.end);
  switch (kind) {
    case CallKind::all_reduce: return comm.all_reduce(x);
    case CallKind::reduce_scatter: return comm.reduce_scatter(own, x);
    case CallKind::all_gather: return comm.all_gather(x, own);
    case CallKind::broadcast: return comm.broadcast(x, 0);
    case CallKind::reduce: return comm.reduce(x, x, 0);
    default: fail("measure_algorithms", "there are no algorithms for {}", name_of(kind));
  }
}

/// Index of the candidate whose slowest rank is fastest, as measured on rank 0.
std::size_t fastest(Communicator& all, std::size_t candidates, int rounds,
                    const std::function<void(std::size_t)>& call) {
  const Tensor times = Tensor::full({static_cast<Index>(candidates)}, std::numeric_limits<double>::max(), DType::f64);
  const auto best = times.view().span<double>();
  for (int round = 0; round <= rounds; ++round)
    for (std::size_t i = 0; i < candidates; ++i) {
      all.barrier();
      const auto begin = std::chrono::steady_clock::now();
      call(i);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round > 0) best[i] = std::min(best[i], took.count());
    }
  all.all_reduce(times, ReduceOp::max).wait();
  const Tensor decided =
      Tensor::full({1}, static_cast<double>(std::ranges::min_element(best) - best.begin()), DType::i64);
  all.broadcast(decided, 0).wait();
  return static_cast<std::size_t>(*decided.data<std::int64_t>());
}

}  // namespace

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Named& a : algorithms) names.push_back(a.name);
  return names;
}

Algorithm find_algorithm(const std::string& name) {
  const std::string base = name.substr(0, name.find('('));
  const auto row = std::ranges::find(algorithms, base, &Named::name);
  check(row != std::end(algorithms), "all_reduce", "{}", [&] {
    auto known = algorithm_names();
    known.insert(known.begin(), {"default", "auto"});
    return unknown_name(name, known);
  });
  int number = 0;
  if (base == name) return row->make(number);
  check(
      row->takes_number && name.ends_with(')') &&
          parse_number(std::string_view(name).substr(base.size() + 1, name.size() - base.size() - 2), number) &&
          number > 0,
      "all_reduce", "got '{}', expected '{}'", [&] { return shortened(name); },
      [&] { return base + (row->takes_number ? "(N)" : ""); });
  return row->make(number);
}

std::string AlgorithmTable::find(CallKind kind, int ranks, Index bytes) const {
  const auto distance = [](auto a, auto b) {
    return std::abs(std::log(static_cast<double>(std::max<Index>(a, 1)) / static_cast<double>(b)));
  };
  const Row* nearest = nullptr;
  std::pair<double, double> least;
  for (const Row& row : rows) {
    const std::pair far{distance(ranks, row.ranks), distance(bytes, row.bytes)};
    if (row.kind == kind && (!nearest || far < least)) {
      nearest = &row;
      least = far;
    }
  }
  return nearest ? nearest->algorithm : "default";
}

std::string AlgorithmTable::to_text() const {
  std::string text;
  for (const Row& r : rows) text += fmt::format("{} {} {} {}\n", name_of(r.kind), r.ranks, r.bytes, r.algorithm);
  return text;
}

AlgorithmTable AlgorithmTable::of_text(const std::string& text) {
  AlgorithmTable table;
  for (const std::string& line : split_text(text, '\n')) {
    if (line.empty()) continue;
    const auto words = split_text(line, ' ');
    const auto kind = std::ranges::find_if(kinds, [&](CallKind k) { return name_of(k) == words[0]; });
    Row row{kind == std::end(kinds) ? CallKind::all_reduce : *kind, 0, 0, words.back()};
    check(words.size() == 4 && kind != std::end(kinds) && parse_number(words[1], row.ranks) && row.ranks > 0 &&
              parse_number(words[2], row.bytes) && row.bytes > 0,
          "algorithms", "got the line '{}', expected one like 'all_reduce 8 65536 ring'",
          [&] { return shortened(line); });
    own_or_named(row.algorithm);
    table.rows.push_back(row);
  }
  return table;
}

Choice AlgorithmTable::choice() const {
  std::map<std::string, std::shared_ptr<const Algorithm>> known;
  for (const Row& row : rows) known.emplace(row.algorithm, own_or_named(row.algorithm));
  return [table = *this, known](CallKind kind, int ranks, Index bytes) -> std::shared_ptr<const Algorithm> {
    const auto at = known.find(table.find(kind, ranks, bytes));
    return at == known.end() ? nullptr : at->second;
  };
}

AlgorithmTable measure_algorithms(Communicator& all, const MeasureOptions& options) {
  check(!all.clock(), "all_reduce", "in virtual time nothing can be measured: name an algorithm instead of \"auto\"");
  std::vector<std::shared_ptr<const Algorithm>> candidates{nullptr};
  for (const std::string& name : algorithm_names()) candidates.push_back(own_or_named(name));
  AlgorithmTable table;
  for (int ranks = all.size(); ranks > 1; ranks /= 2) {
    const auto now = std::make_shared<std::shared_ptr<const Algorithm>>();
    const auto group =
        with_algorithm(all.split(all.rank() / ranks, all.rank()), [now](CallKind, int, Index) { return *now; });
    for (const CallKind kind : options.kinds)
      for (const Index bytes : options.bytes) {
        const Tensor x = Tensor::zeros({std::max<Index>(bytes / 4 / group->size(), 1) * group->size()});
        const std::size_t best = fastest(all, candidates.size(), options.rounds, [&](std::size_t i) {
          *now = candidates[i];
          start(*group, kind, x).wait();
        });
        table.rows.push_back({kind, ranks, bytes, best == 0 ? "default" : candidates[best]->name});
      }
  }
  return table;
}

}  // namespace trireme::collectives
