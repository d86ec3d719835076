// What max, min and sum make of NaN, infinities and signed zeros: the same on every rank, by every algorithm and
// transport.
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_reductions {

using namespace trireme;

namespace {

constexpr DType floats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};
const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

/// What the ranks that hold no NaN hold in an element, by rank.
double filler(int kind, int rank) {
  switch (kind) {
    case 0: return 3 - rank;
    case 1: return rank % 2 ? -0.0 : 0.0;
    case 2: return rank % 2 ? 0.0 : -0.0;
    case 3: return -infinity;
    default: return rank % 2 ? infinity : rank;
  }
}
constexpr int kinds = 5;

/// Sets of ranks that hold a NaN: all of them, or, of many ranks, those of one or two ranks.
std::vector<unsigned> sets(int ranks) {
  std::vector<unsigned> all;
  for (unsigned set = 0; set < 1u << ranks; ++set)
    if (ranks <= 4 || std::popcount(set) <= 2) all.push_back(set);
  return all;
}

/// Element i: set i / kinds, filler i % kinds. NaNs of two signs.
std::vector<double> values(int rank, int ranks) {
  std::vector<double> v;
  for (unsigned set : sets(ranks))
    for (int kind = 0; kind < kinds; ++kind)
      v.push_back(set >> rank & 1 ? std::copysign(nan, rank % 2 ? -1 : 1) : filler(kind, rank));
  return v;
}

double expected(unsigned set, int kind, int ranks, ReduceOp op) {
  if (set) return nan;
  double r = filler(kind, 0);
  for (int k = 1; k < ranks; ++k) {
    const double v = filler(kind, k);
    if (op == ReduceOp::sum)
      r += v;
    else if (v == r ? std::signbit(v) == (op == ReduceOp::min) : (v < r) == (op == ReduceOp::min))
      r = v;
  }
  return r;
}

// The test library's checks are not for threads: throw at the first difference.
void expect_equal(const std::vector<double>& got, Index from, int ranks, ReduceOp op, const std::string& what) {
  const auto all = sets(ranks);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t at = i + static_cast<std::size_t>(from);
    const unsigned set = all[at / kinds];
    const int kind = static_cast<int>(at % kinds);
    const double want = expected(set, kind, ranks, op);
    const bool same =
        std::isnan(want) ? std::isnan(got[i]) : got[i] == want && std::signbit(got[i]) == std::signbit(want);
    if (!same)
      throw std::runtime_error(fmt::format("{}: NaN on the ranks of {:b} of {}, filler {}: {} instead of {}", what, set,
                                           ranks, kind, got[i], want));
  }
}

void expect_same_bits(Communicator& comm, const Tensor& x, const std::string& what) {
  const Tensor mine = Tensor::of(std::vector<double>(static_cast<std::size_t>(x.view().bytes())), {x.view().bytes()},
                                 DType::u8),
               all = Tensor::empty({x.view().bytes() * comm.size()}, DType::u8);
  std::memcpy(mine.view().data, x.view().data, static_cast<std::size_t>(x.view().bytes()));
  comm.all_gather(all, mine).wait();
  for (int r = 0; r < comm.size(); ++r)
    if (std::memcmp(all.data<std::uint8_t>() + r * x.view().bytes(), mine.view().data,
                    static_cast<std::size_t>(x.view().bytes())) != 0)
      throw std::runtime_error(fmt::format("{}: ranks {} and {} hold different bits", what, comm.rank(), r));
}

bool check_all(World& world, const std::string& algorithm) {
  const auto comm = with_all_reduce(world.comm().split(0, world.rank()), algorithm);
  const int p = comm->size();
  for (DType t : floats)
    for (ReduceOp op : ops) {
      const std::string what = fmt::format("{} {} {}", algorithm, t, static_cast<int>(op));
      const auto v = values(comm->rank(), p);
      const Tensor x = Tensor::of(v, {std::ssize(v)}, t);
      comm->all_reduce(x, op).wait();
      expect_equal(x.to_vector(), 0, p, op, what);
      if (op != ReduceOp::sum) expect_same_bits(*comm, x, what);
      if (algorithm != "default" || p > 5) continue;
      const Index block = std::ssize(v) / p;
      const Tensor part = Tensor::empty({block}, t), in = Tensor::of(v, {std::ssize(v)}, t).rows(0, block * p);
      comm->reduce_scatter(part, in, op).wait();
      expect_equal(part.to_vector(), comm->rank() * block, p, op, "reduce_scatter " + what);
    }
  return true;
}

}  // namespace

TEST_CASE("NaN, infinities and signed zeros are reduced to the same on every rank") {
  for (const char* algorithm :
       {"default", "ring", "recursive_doubling", "rabenseifner", "tree", "hierarchical", "torus(2)"})
    for (int ranks : test::rank_counts({2, 3, 4, 5, 8})) {
      CAPTURE(algorithm, ranks);
      REQUIRE_NOTHROW(test::on_ranks(ranks, [&](World& world) { return check_all(world, algorithm); }));
    }
}

}  // namespace test_reductions
