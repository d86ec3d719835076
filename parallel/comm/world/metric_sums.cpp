#include "parallel/comm/world/metric_sums.h"

#include <algorithm>
#include <set>

namespace trireme {
namespace {

constexpr std::size_t sum_width = ExactSum::digits + 3;

/// Sums over all ranks. The numbers are exact in a double.
std::vector<double> all_reduced(const std::vector<double>& mine, World& world) {
  if (mine.empty()) return {};
  const Tensor all = Tensor::of(mine, {std::ssize(mine)}, DType::f64);
  world.comm().all_reduce(all).wait();
  return all.to_vector();
}

}  // namespace

MetricState sum_over_ranks(const MetricState& mine, int share, World& world) {
  constexpr std::size_t width = 5;
  const auto size = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  std::vector<double> table(size * width);  // a row per rank, zeros elsewhere: the sum gathers the rows
  const std::array<std::size_t, width> own{static_cast<std::size_t>(share), static_cast<std::size_t>(mine.samples),
                                           mine.counts.size(), mine.sums.size(), mine.rows.size()};
  std::ranges::transform(own, table.begin() + static_cast<std::ptrdiff_t>(rank * width),
                         [](std::size_t n) { return static_cast<double>(n); });
  table = all_reduced(table, world);

  MetricState all;
  std::set<double> seen;
  bool counts_here = false;
  std::size_t counts = 0, sums = 0, rows = 0, my_rows = 0;
  for (std::size_t r = 0; r < size; ++r) {
    const double* row = table.data() + r * width;
    if (row[1] == 0 || !seen.insert(row[0]).second) continue;
    if (r == rank) {
      counts_here = true;
      my_rows = rows;
    }
    all.samples += static_cast<Index>(row[1]);
    counts = std::max(counts, static_cast<std::size_t>(row[2]));
    sums = std::max(sums, static_cast<std::size_t>(row[3]));
    rows += static_cast<std::size_t>(row[4]);
  }
  std::vector<double> packed(counts + sums * sum_width + rows);
  if (counts_here) {
    auto at = std::ranges::transform(mine.counts, packed.begin(), [](auto n) { return static_cast<double>(n); }).out;
    at = packed.begin() + static_cast<std::ptrdiff_t>(counts);
    for (const ExactSum& sum : mine.sums) at = std::ranges::copy(sum.parts(), at).out;
    std::ranges::copy(mine.rows, packed.begin() + static_cast<std::ptrdiff_t>(counts + sums * sum_width + my_rows));
  }
  packed = all_reduced(packed, world);
  const double* at = packed.data();
  for (std::size_t i = 0; i < counts; ++i) all.counts.push_back(static_cast<std::int64_t>(*at++));
  for (std::size_t i = 0; i < sums; ++i, at += sum_width)
    all.sums.push_back(ExactSum::from_parts(std::span<const double, sum_width>(at, sum_width)));
  all.rows.assign(packed.end() - static_cast<std::ptrdiff_t>(rows), packed.end());
  return all;
}

void sum_over_ranks(std::span<Metric> metrics, int share, World& world) {
  for (Metric& metric : metrics) metric.set_state(sum_over_ranks(metric.state(), share, world));
}

}  // namespace trireme
