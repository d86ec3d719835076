#include "tools/training/counts.h"

#include <set>

namespace trireme {

Counts sum_shares(const Counts& mine, int share, World& world) {
  constexpr Index width = 5;
  std::vector<double> rows(static_cast<std::size_t>(world.size() * width), 0);
  const auto row = rows.begin() + world.rank() * width;
  row[0] = share, row[1] = mine.loss, row[2] = static_cast<double>(mine.correct);
  row[3] = static_cast<double>(mine.in_top5), row[4] = static_cast<double>(mine.samples);
  Tensor table = Tensor::of(rows, {world.size(), width}, DType::f64);  // zeros elsewhere: the sum gathers the rows
  world.comm().all_reduce(table).wait();
  rows = table.to_vector();
  Counts all;
  std::set<double> seen;
  for (auto at = rows.begin(); at != rows.end(); at += width) {
    if (at[4] == 0 || !seen.insert(at[0]).second) continue;
    all.loss += at[1], all.correct += static_cast<Index>(at[2]), all.in_top5 += static_cast<Index>(at[3]);
    all.samples += static_cast<Index>(at[4]);
  }
  return all;
}

}  // namespace trireme
