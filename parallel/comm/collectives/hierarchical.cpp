// Algorithms that combine others on groups of ranks.
#include <fmt/format.h>

#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {
namespace {

// The given number, or the largest divisor of p up to its square root.
int group_size(int given, int p) {
  int size = given;
  if (given == 0)
    for (int i = 1; i * i <= p; ++i) size = p % i == 0 ? i : size;
  return std::min(size, p);
}
std::string with_number(const char* name, int given) { return given ? fmt::format("{}({})", name, given) : name; }

// Blocks [begin, end) as a separate vector.
Blocks part_of(const Blocks& b, int begin, int end) {
  Blocks part(b.begin() + begin, b.begin() + end + 1);
  for (Index& at : part) at -= b[static_cast<std::size_t>(begin)];
  return part;
}

// Joins each `size` consecutive blocks.
Blocks joined(const Blocks& b, int size) {
  Blocks all;
  for (int i = 0; i < ranks(b); i += size) all.push_back(block(b, i).begin);
  all.push_back(b.back());
  return all;
}

Rounds by_nodes(CallKind kind, int node_size, int rank, const Blocks& b) {
  const int size = group_size(node_size, ranks(b)), first = rank / size * size;
  const Blocks node = part_of(b, first, std::min(first + size, ranks(b)));
  const auto inside = [=](int i) { return first + i; };
  const Rounds inward = to_root(rank - first, even_blocks(b.back(), ranks(node)), true);
  Rounds rounds;
  append(rounds, inward, inside);
  if (rank == first)
    append(rounds, schedule(kind == CallKind::reduce ? tree() : ring(), kind, rank / size, joined(b, size)),
           [=](int i) { return i * size; });
  if (kind == CallKind::all_reduce) append(rounds, reversed(inward), inside);
  if (kind == CallKind::reduce_scatter)
    append(rounds, reversed(to_root(rank - first, node, false)), inside, block(b, first).begin);
  return rounds;
}

Rounds on_torus(CallKind kind, int rows, int rank, const Blocks& b) {
  const int columns = ranks(b) / rows, row = rank / columns, column = rank % columns;
  const auto along_row = [=](int i) { return row * columns + i; };
  const auto along_column = [=](int i) { return i * columns + column; };
  Rounds rounds;
  if (kind == CallKind::reduce_scatter) {  // columns first: the blocks of a row are neighbours
    append(rounds, ring_reduce_scatter(row, joined(b, columns)), along_column);
    append(rounds, ring_reduce_scatter(column, part_of(b, row * columns, (row + 1) * columns)), along_row,
           block(b, row * columns).begin);
    return rounds;
  }
  const Blocks shares = even_blocks(b.back(), columns);
  const Rounds scatter = ring_reduce_scatter(column, shares);
  const Slice share = block(shares, column);
  append(rounds, scatter, along_row);
  append(rounds, there_and_back(ring_reduce_scatter(row, even_blocks(share.size(), rows))), along_column, share.begin);
  append(rounds, reversed(scatter), along_row);
  return rounds;
}

}  // namespace

Algorithm hierarchical(int node_size) {
  const auto of = [=](CallKind kind) {
    return [=](int rank, const Blocks& b) { return by_nodes(kind, node_size, rank, b); };
  };
  return {.name = with_number("hierarchical", node_size),
          .reduce = of(CallKind::reduce),
          .reduce_scatter = of(CallKind::reduce_scatter),
          .all_reduce = of(CallKind::all_reduce)};
}

Algorithm torus(int rows) {
  const auto of = [=](CallKind kind) {
    return [=](int rank, const Blocks& b) {
      const int r = group_size(rows, ranks(b)), count = ranks(b) / r * r;
      if (kind == CallKind::reduce_scatter && count < ranks(b)) return ring_reduce_scatter(rank, b);
      return folded(rank, b, count, kind == CallKind::all_reduce,
                    [=](int i, const Blocks& among) { return on_torus(kind, r, i, among); });
    };
  };
  return {.name = with_number("torus", rows),
          .reduce_scatter = of(CallKind::reduce_scatter),
          .all_reduce = of(CallKind::all_reduce)};
}

}  // namespace trireme::collectives
