// Collectives to and from a root, uneven blocks and averages, drawn at random: the same checks on threads and, when
// started by mpiexec, on processes.
#include <fmt/ranges.h>

#include <cstring>
#include <thread>

#include "framework/ops/ops.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_uneven {

using namespace trireme;
using trireme::test::contains;

namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

// Small integers: every sum is exact in every type.
double number(int rank, Index i) { return static_cast<double>((i * 7 + rank * 3) % 11); }
Tensor numbers(int rank, Index begin, Index end, DType type) {
  std::vector<double> v;
  for (Index i = begin; i < end; ++i) v.push_back(number(rank, i));
  return Tensor::of(v, {end - begin}, type);
}

/// Draws the same on every rank.
struct Draws {
  std::uint64_t state;
  Index below(Index n) { return static_cast<Index>(test::mix(state++) % static_cast<std::uint64_t>(n)); }
};

enum Form : int { reduce, reduce_scatter, all_gather, gather, scatter, forms };

/// One call of a form, its operands and what it is to give.
struct Case {
  Form form = reduce;
  bool even = false, in_place = false;
  int root = 0;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<Index> counts = {}, offsets = {0};

  Case(Draws& draws, int ranks)
      : form(static_cast<Form>(draws.below(forms))),
        even(draws.below(3) == 0),
        in_place(draws.below(2) == 0),
        root(static_cast<int>(draws.below(ranks))),
        type(types[draws.below(std::size(types))]),
        op(static_cast<ReduceOp>(draws.below(3))) {
    const Index most = std::array<Index, 4>{1, 6, 400, 40000}[static_cast<std::size_t>(draws.below(4))];
    for (int r = 0; r < ranks; ++r) counts.push_back(even && r > 0 ? counts[0] : draws.below(most + 1));
    for (const Index count : counts) offsets.push_back(offsets.back() + count);
  }
  std::string name() const {
    constexpr const char* names[] = {"reduce", "reduce_scatter", "all_gather", "gather", "scatter"};
    return fmt::format("{}{} of {} {}, root {}, op {}{}", names[form], even ? "" : "v", counts, type, root,
                       static_cast<int>(op), in_place ? ", in place" : "");
  }
  double reduced(Index i) const {
    double r = number(0, i);
    for (int k = 1; k < std::ssize(counts); ++k) {
      const double v = number(k, i);
      r = op == ReduceOp::sum ? r + v : op == ReduceOp::max ? std::max(r, v) : std::min(r, v);
    }
    return r;
  }
};

/// A case under way on one rank.
struct Running {
  Case what;
  Tensor in, out;
  Work work;

  Running(Case c, Communicator& comm) : what(std::move(c)) {
    const int me = comm.rank();
    const Index begin = what.offsets[static_cast<std::size_t>(me)], total = what.offsets.back();
    const Index end = begin + what.counts[static_cast<std::size_t>(me)];
    const bool root = me == what.root;
    const std::span<const Index> counts = what.counts;
    const auto room = [&](Index n) { return Tensor::full({n}, 9, what.type); };
    switch (what.form) {
      case reduce:
        in = numbers(me, 0, total, what.type);
        if (root) out = what.in_place ? in : room(total);
        work = comm.reduce(out, in, what.root, what.op);
        break;
      case reduce_scatter:
        in = numbers(me, 0, total, what.type);
        out = what.in_place ? in.rows(begin, end) : room(end - begin);
        work = what.even ? comm.reduce_scatter(out, in, what.op) : comm.reduce_scatterv(out, in, counts, what.op);
        break;
      case all_gather:
      case gather: {
        const bool whole = what.form == all_gather || root;
        if (whole) out = room(total);
        in = whole && what.in_place ? out.rows(begin, end) : room(end - begin);
        in.copy_from(numbers(7, begin, end, what.type));
        if (what.form == gather)
          work = what.even ? comm.gather(out, in, what.root) : comm.gatherv(out, in, counts, what.root);
        else
          work = what.even ? comm.all_gather(out, in) : comm.all_gatherv(out, in, counts);
        break;
      }
      default:
        if (root) in = numbers(7, 0, total, what.type);
        out = root && what.in_place ? in.rows(begin, end) : room(end - begin);
        work = what.even ? comm.scatter(out, in, what.root) : comm.scatterv(out, in, counts, what.root);
    }
  }
  void expect_result(int me) const {
    if (!out) return;
    const bool reduces = what.form <= reduce_scatter;
    const bool part = what.form == reduce_scatter || what.form == scatter;
    const Index at = part ? what.offsets[static_cast<std::size_t>(me)] : 0;
    const auto got = out.to_vector();
    for (Index i = 0; i < out.numel(); ++i)
      if (const double want = reduces ? what.reduced(at + i) : number(7, at + i);
          got[static_cast<std::size_t>(i)] != want)
        throw std::runtime_error(
            fmt::format("{}: [{}] is {} instead of {}", what.name(), i, got[static_cast<std::size_t>(i)], want));
    if (what.form == reduce && out.view().data != in.view().data &&
        in.to_vector() != numbers(me, 0, in.numel(), what.type).to_vector())
      throw std::runtime_error(what.name() + ": wrote to in");
  }
};

void check_cases(World& world) {
  Communicator& comm = world.comm();
  Draws draws{11};
  for (int round = 0; round < 40; ++round) {
    std::vector<Running> running;
    for (Index n = 1 + draws.below(4); n > 0; --n) running.emplace_back(Case(draws, comm.size()), comm);
    for (std::size_t i = 0; i < running.size(); ++i)
      running[(i + static_cast<std::size_t>(comm.rank())) % running.size()].work.wait();
    for (auto& one : running) one.expect_result(comm.rank());
  }
}

/// average against the sum, divided here.
void check_average(World& world) {
  Communicator& comm = world.comm();
  const int p = comm.size();
  Draws draws{5};
  for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Index block : {0, 1, 300, 30000}) {
      std::vector<double> v;
      for (Index i = 0; i < block * p; ++i)
        v.push_back(1.0 / (1.0 + static_cast<double>((i * 31 + comm.rank() * 17) % 1009)));
      const Tensor x = Tensor::of(v, {block * p}, type);
      const auto same = [&](const Tensor& sum, const Tensor& average, const char* what) {
        std::vector<double> by_hand = sum.to_vector();
        for (double& s : by_hand)
          s = type == DType::f64 ? s / p : static_cast<double>(static_cast<float>(s) / static_cast<float>(p));
        const Tensor want = Tensor::of(by_hand, sum.shape(), type);
        if (std::memcmp(want.view().data, average.view().data, static_cast<std::size_t>(want.view().bytes())) != 0)
          throw std::runtime_error(fmt::format("{} of {} {}: other bits", what, block, type));
      };
      const Tensor sum = x.clone(), average = x.clone();
      Work first = comm.all_reduce(sum), second = comm.all_reduce(average, ReduceOp::average);
      second.wait();
      first.wait();
      same(sum, average, "all_reduce");
      const Tensor own = Tensor::empty({block}, type), part = Tensor::empty({block}, type);
      comm.reduce_scatter(own, x).wait();
      Work polled = comm.reduce_scatter(part, x, ReduceOp::average);
      while (!polled.done()) std::this_thread::yield();
      same(own, part, "reduce_scatter");
      const int root = static_cast<int>(draws.below(p));
      const Tensor all = Tensor::like(x), mean = Tensor::like(x);
      comm.reduce(all, x, root).wait();
      comm.reduce(mean, x, root, ReduceOp::average).wait();
      if (comm.rank() == root) same(all, mean, "reduce");
    }
}

void on_ranks(const std::function<void(World&)>& body) {
  for (int ranks : test::rank_counts({1, 2, 3, 4, 5})) {
    CAPTURE(ranks);
    if (test::under_mpi())
      REQUIRE_NOTHROW(body(test::processes()));
    else
      REQUIRE_NOTHROW(test::launch(ranks, body));
  }
}

}  // namespace

TEST_CASE("calls to and from a root, and of uneven blocks") { on_ranks(check_cases); }

TEST_CASE("an average has the bits of the sum, divided") { on_ranks(check_average); }

TEST_CASE("operands, counts and roots that do not fit are refused") {
  World world;
  auto& comm = world.comm();
  const Tensor x = Tensor::zeros({3}), y = Tensor::zeros({2}), ints = Tensor::zeros({3}, DType::i64);
  const auto counts = [](std::vector<Index> list) { return list; };
  REQUIRE_ERROR(comm.reduce(x, x, 1), usage, "reduce", 1);
  REQUIRE_ERROR(comm.reduce(y, x, 0), usage, 3, 2);
  REQUIRE_ERROR(comm.reduce(ints, x, 0), usage, "f32", "i64");
  REQUIRE_ERROR(comm.reduce({}, x, 0), usage, "reduce");
  REQUIRE_ERROR(comm.gather(y, x, 0), usage, 2, 3, 1);
  REQUIRE_ERROR(comm.scatter(x, x, -1), usage, -1, 1);
  REQUIRE_ERROR(comm.gatherv(x, x, counts({3, 3}), 0), usage, 2, 1);
  REQUIRE_ERROR(comm.all_gatherv(x, x, counts({-3})), usage, 0, -3, "all_gather");
  REQUIRE_ERROR(comm.all_gatherv(x, x, counts({2})), usage, 3, 2);
  REQUIRE_ERROR(comm.reduce_scatterv(x, y, counts({3})), usage, "reduce_scatter", 3);
  for (DType type : {DType::i32, DType::i64, DType::u8})
    REQUIRE_ERROR(comm.all_reduce(Tensor::zeros({3}, type), ReduceOp::average), usage, "all_reduce");
}

TEST_CASE("counts, roots and averages that differ between ranks are told apart") {
  if (test::threads_only()) return;
  const auto refused = [](const std::function<void(World&, bool)>& call) {
    try {
      World::threads(2, [&](World& world) { call(world, world.rank() == 1); });
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("nothing was thrown");
  };
  CHECK_THAT(refused([&](World& world, bool second) {
               const std::vector<Index> counts{second ? 3 : 1, 1}, others{1, second ? 1 : 3};
               world.comm().all_gatherv(Tensor::zeros({4}), Tensor::zeros({1}), second ? counts : others).wait();
             }),
             contains("all_gatherv of 4 f32 (counts ") && contains("every rank must make the same calls"));
  CHECK_THAT(refused([&](World& world, bool second) {
               world.comm().reduce(Tensor::zeros({4}), Tensor::zeros({4}), second).wait();
             }),
             contains("reduce of 4 f32 (sum) to rank 1") && contains("reduce of 4 f32 (sum) to rank 0"));
  CHECK_THAT(refused([&](World& world, bool second) {
               world.comm().all_reduce(Tensor::zeros({4}), second ? ReduceOp::average : ReduceOp::sum).wait();
             }),
             contains("all_reduce of 4 f32 (average)") && contains("all_reduce of 4 f32 (sum)"));
  CHECK_THAT(refused([&](World& world, bool second) {
               if (second) return world.comm().gather({}, Tensor::zeros({2}), 0).wait();
               world.comm().scatter(Tensor::zeros({2}), Tensor::zeros({4}), 0).wait();
             }),
             contains("gather of 4 f32 to rank 0") && contains("scatter of 4 f32 from rank 0"));
}

}  // namespace test_uneven
