// Collective algorithms as data: their rounds are played by one thread for many ranks, and run on threads and
// processes.
#include <numeric>
#include <random>

#include "parallel/comm/collectives/collectives.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_collectives {

using namespace trireme;
using namespace trireme::collectives;

namespace {

constexpr CallKind kinds[] = {CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather, CallKind::broadcast,
                              CallKind::reduce};

/// All by name, some with numbers that fit few ranks, and two that say only what must be said.
std::vector<Algorithm> all_algorithms() {
  std::vector<Algorithm> all;
  for (const std::string& name : algorithm_names()) all.push_back(find_algorithm(name));
  for (const char* name : {"hierarchical(2)", "hierarchical(5)", "torus(2)", "torus(3)", "torus(50)"})
    all.push_back(find_algorithm(name));
  all.push_back({.name = "reduce alone", .reduce = tree().reduce});
  all.push_back({.name = "reduce_scatter alone", .reduce_scatter = rabenseifner().reduce_scatter});
  return all;
}

std::vector<Rounds> schedules(const Algorithm& a, CallKind kind, const Blocks& blocks, int root = 0) {
  std::vector<Rounds> all;
  for (int r = 0; r < ranks(blocks); ++r) all.push_back(schedule(a, kind, r, blocks, root));
  return all;
}

using Vector = std::vector<std::uint64_t>;

/// What the engine does, on all ranks at once: a message goes when its sender and its receiver are in the rounds that
/// name each other. Returns the time that the last rank ends; -1: some wait for ever.
struct Player {
  const std::vector<Rounds>& rounds;
  std::vector<Vector>& x;
  LinkCost link = {};
  struct State {
    std::size_t round = 0;
    bool sent = false, received = false;
    double ready = 0, start = 0;
    Vector in = {};
  };
  std::vector<State> states = std::vector<State>(rounds.size());

  const Round* round(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return states[r].round < rounds[r].size() ? &rounds[r][states[r].round] : nullptr;
  }
  bool deliver(int rank) {
    const Round& mine = *round(rank);
    State& me = states[static_cast<std::size_t>(rank)];
    if (me.sent || mine.out.size() == 0) return false;
    const Round* theirs = round(mine.to);
    State& peer = states[static_cast<std::size_t>(mine.to)];
    if (!theirs || theirs->from != rank || peer.received || theirs->in.size() != mine.out.size()) return false;
    const Vector& from = x[static_cast<std::size_t>(rank)];
    peer.in.assign(from.begin() + mine.out.begin, from.begin() + mine.out.end);
    me.sent = peer.received = true;
    me.start = peer.start = std::max({me.start, peer.start, me.ready, peer.ready});
    return true;
  }
  bool finish(int rank) {
    const Round& mine = *round(rank);
    State& me = states[static_cast<std::size_t>(rank)];
    if ((mine.out.size() > 0 && !me.sent) || (mine.in.size() > 0 && !me.received)) return false;
    for (Index i = 0; i < mine.in.size(); ++i) {
      std::uint64_t& to = x[static_cast<std::size_t>(rank)][static_cast<std::size_t>(mine.in.begin + i)];
      to = (mine.reduce ? to : 0) + me.in[static_cast<std::size_t>(i)];
    }
    const Index most = std::max(mine.in.size(), mine.out.size());
    double ready = std::max(me.ready, me.start);
    if (most > 0)
      ready += link.latency + static_cast<double>(most) * link.per_byte +
               static_cast<double>(mine.reduce ? mine.in.size() : 0) * link.per_reduced_byte;
    me = {.round = me.round + 1, .ready = ready};
    return true;
  }
  double play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < static_cast<int>(rounds.size()); ++r)
        while (round(r) && (deliver(r) || finish(r))) moved = true;
    }
    double last = 0;
    for (std::size_t r = 0; r < rounds.size(); ++r)
      last = round(static_cast<int>(r)) ? -1 : std::max(last, states[r].ready);
    for (std::size_t r = 0; r < rounds.size(); ++r)
      if (round(static_cast<int>(r))) return -1;
    return last;
  }
};

struct Random {
  std::mt19937 engine;
  int operator()(int below) { return static_cast<int>(engine() % static_cast<unsigned>(below)); }
};

Blocks random_blocks(Random& random, int p, int elements) {
  Blocks b{0};
  for (int i = 1; i < p; ++i) b.push_back(random(elements + 1));
  b.push_back(elements);
  std::ranges::sort(b);
  return b;
}

/// What rank r holds in element i before a collective, of sums that show who is missing or counted twice.
std::uint64_t value(int r, Index i) {
  return test::mix(static_cast<std::uint64_t>(r) << 32 | static_cast<std::uint64_t>(i));
}

/// Where rank r's result is, and who is summed up in an element of it.
Slice result_of(CallKind kind, int r, const Blocks& b, int root) {
  if (kind == CallKind::reduce_scatter) return block(b, r);
  return kind == CallKind::reduce && r != root ? Slice{} : Slice{0, b.back()};
}
std::vector<int> sources(CallKind kind, Index i, const Blocks& b, int root) {
  if (kind == CallKind::broadcast) return {root};
  if (kind == CallKind::all_gather) return {static_cast<int>(std::ranges::upper_bound(b, i) - b.begin()) - 1};
  std::vector<int> all(static_cast<std::size_t>(ranks(b)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string wrong_play(const Algorithm& a, CallKind kind, const Blocks& b, int root) {
  const auto rounds = schedules(a, kind, b, root);
  std::vector<Vector> x;
  for (int r = 0; r < ranks(b); ++r) {
    x.emplace_back();
    for (Index i = 0; i < b.back(); ++i) x.back().push_back(value(r, i));
  }
  for (const Rounds& s : rounds)
    for (const Round& r : s)
      if (!r.reduce && r.in.size() > 0 && r.out.size() > 0 && r.in.overlaps(r.out))
        return "receives into what it sends";
  if (Player{rounds, x}.play() < 0) return "waits for ever";
  for (int r = 0; r < ranks(b); ++r) {
    const Slice result = result_of(kind, r, b, root);
    for (Index i = result.begin; i < result.end; ++i) {
      std::uint64_t want = 0;
      for (const int from : sources(kind, i, b, root)) want += value(from, i);
      if (x[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)] != want)
        return fmt::format("rank {} has not the result in element {}", r, i);
    }
  }
  return "";
}

Index bytes_sent(const Rounds& rounds) {
  Index sum = 0;
  for (const Round& r : rounds) sum += r.out.size();
  return sum;
}
Index messages(const Rounds& rounds) {
  return std::ranges::count_if(rounds, [](const Round& r) { return r.out.size() > 0; });
}

// Small integers: every sum is exact in every type.
double number(int rank, Index i) { return static_cast<double>((i * 7 + rank * 3) % 11); }
Tensor numbers(int rank, Index count, DType t) {
  std::vector<double> v;
  for (Index i = 0; i < count; ++i) v.push_back(number(rank, i));
  return Tensor::of(v, {count}, t);
}

// The test library's checks are not for threads: the first difference is thrown.
void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("differs: " + what);
}
void expect_result(const Tensor& x, Slice result, CallKind kind, const Blocks& b, int root, const std::string& what) {
  const auto got = x.to_vector();
  double sums[11] = {};  // numbers() repeat
  for (Index i = 0; i < 11; ++i)
    for (int r = 0; r < ranks(b); ++r) sums[i] += number(r, i);
  for (Index i = result.begin; i < result.end; ++i) {
    const bool copied = kind == CallKind::broadcast || kind == CallKind::all_gather;
    const double want = copied ? number(sources(kind, i, b, root)[0], i) : sums[i % 11];
    if (got[static_cast<std::size_t>(i)] != want)
      expect(false, fmt::format("{} [{}]: {} instead of {}", what, i, got[static_cast<std::size_t>(i)], want));
  }
}

/// One collective of each kind by the engine on uneven blocks, and by the wrapped communicator on even ones.
void check_runs(World& world, const Algorithm& a, unsigned seed) {
  Communicator& link = world.comm();
  const int p = link.size(), me = link.rank();
  const auto sent = std::make_shared<std::atomic<Index>>(0);
  const auto comm = with_algorithm(link.split(0, me), a, sent);
  Index planned = 0;
  Random random{std::mt19937(seed)};
  constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};
  for (int k = 0; k < (p < 4 ? 7 : 3); ++k) {  // of many ranks, which take turns on few cores, by turns
    const DType t = types[(3 * p + k) % 7];
    const int n = random(3) ? random(5001) : random(4), root = random(p);
    const Blocks uneven = random_blocks(random, p, n), even = even_blocks(n / p * p, p);
    const std::string what = fmt::format("{} {} {}", a.name, t, n);
    for (const CallKind kind : kinds) {
      const Rounds rounds = schedule(a, kind, me, uneven, root);
      const Tensor x = numbers(me, n, t);
      const Index bytes = run(link, rounds, x);
      expect(bytes == bytes_sent(rounds) * size_of(t), what + " bytes");
      expect_result(x, result_of(kind, me, uneven, root), kind, uneven, root,
                    fmt::format("{} {}", what, name_of(kind)));
      planned += bytes_sent(schedule(a, kind, me, even, root)) * size_of(t);
    }
    const auto whole = [&](const Tensor& x, CallKind kind) {
      expect_result(x, {0, even.back()}, kind, even, root, what);
    };
    const Tensor x = numbers(me, even.back(), t), y = x.clone(), z = x.clone(), all = Tensor::full({even.back()}, 9, t),
                 out = Tensor::full({n / p}, 9, t), sum = Tensor::full({even.back()}, 9, t);
    const Slice own = block(even, me);
    Work reduced = comm->all_reduce(x), sums = comm->reduce_scatter(out, y),
         gathered = comm->all_gather(all, y.rows(own.begin, own.end)), sent_out = comm->broadcast(z, root),
         to_root = comm->reduce(sum, y, root);
    for (Work* w : {&to_root, &sent_out, &reduced, &gathered, &sums}) w->wait();
    expect(y.to_vector() == numbers(me, even.back(), t).to_vector(), what + " wrote to an input");
    const Tensor placed = Tensor::zeros({even.back()}, t);
    placed.rows(own.begin, own.end).copy_from(out);
    expect_result(placed, own, CallKind::reduce_scatter, even, 0, what);
    if (me == root) whole(sum, CallKind::reduce);
    whole(x, CallKind::all_reduce);
    whole(all, CallKind::all_gather);
    whole(z, CallKind::broadcast);
    comm->reduce_scatter(y.rows(own.begin, own.end), y).wait();
    expect_result(y, own, CallKind::reduce_scatter, even, 0, what + " in place");
    planned += bytes_sent(schedule(a, CallKind::reduce_scatter, me, even)) * size_of(t);
    std::vector<Index> counts;
    for (int r = 0; r < p; ++r) counts.push_back(block(uneven, r).size());
    const Slice mine = block(uneven, me);
    const Tensor v = numbers(me, n, t), part = Tensor::zeros({n}, t), parts = Tensor::full({n}, 9, t);
    comm->reduce_scatterv(part.rows(mine.begin, mine.end), v, counts).wait();
    expect_result(part, mine, CallKind::reduce_scatter, uneven, 0, what + " uneven");
    comm->all_gatherv(parts, v.rows(mine.begin, mine.end), counts).wait();
    expect_result(parts, {0, n}, CallKind::all_gather, uneven, 0, what + " uneven");
    for (const CallKind kind : {CallKind::reduce_scatter, CallKind::all_gather})
      planned += bytes_sent(schedule(a, kind, me, uneven)) * size_of(t);
  }
  expect(*sent == planned, fmt::format("{}: {} bytes counted, {} planned", a.name, sent->load(), planned));
}

}  // namespace

TEST_CASE("every algorithm's rounds do each collective on any ranks, sizes and roots") {
  if (test::threads_only()) return;
  Random random{std::mt19937(15)};
  for (const Algorithm& a : all_algorithms())
    for (int p = 1; p <= 33; ++p)
      for (const CallKind kind : kinds) {
        const int root = random(p);
        for (const int n : {0, 1, random(p + 1), random(200)}) {
          CAPTURE(a.name, name_of(kind), p, n, root);
          REQUIRE(wrong_play(a, kind, random_blocks(random, p, n), root).empty());
        }
      }
}

TEST_CASE("bytes and messages are those of the papers") {
  const Index n = 5040 * 16;
  for (int p = 1; p <= 32; ++p) {
    const double count = p, log_p = std::log2(count);
    const bool power = std::has_single_bit(static_cast<unsigned>(p));
    const auto sum = [&](const Algorithm& a, CallKind kind) {
      Index all = 0;
      for (const Rounds& s : schedules(a, kind, even_blocks(n * p, p))) all += bytes_sent(s);
      return static_cast<double>(all) / static_cast<double>(n * p);  // vectors sent by all ranks together
    };
    CAPTURE(p);
    for (const CallKind kind : {CallKind::reduce_scatter, CallKind::all_gather}) CHECK(sum(ring(), kind) == p - 1);
    CHECK(sum(ring(), CallKind::all_reduce) == 2 * (p - 1));
    for (const CallKind kind : {CallKind::broadcast, CallKind::reduce}) {
      CHECK(sum(tree(), kind) == p - 1);
      CHECK(sum(hierarchical(3), kind) == p - 1);
    }
    CHECK(sum(tree(), CallKind::all_reduce) == 2 * (p - 1));
    for (int r = 0; r < p; ++r) {
      const Blocks b = even_blocks(n * p, p);
      CHECK(messages(schedule(ring(), CallKind::all_reduce, r, b)) == 2 * (p - 1));
      CHECK(bytes_sent(schedule(ring(), CallKind::all_reduce, r, b)) == 2 * n * (p - 1));
      if (!power) continue;
      CHECK(messages(schedule(recursive_doubling(), CallKind::all_reduce, r, b)) == log_p);
      CHECK(static_cast<double>(bytes_sent(schedule(recursive_doubling(), CallKind::all_reduce, r, b))) ==
            log_p * static_cast<double>(n * p));
      CHECK(messages(schedule(rabenseifner(), CallKind::all_reduce, r, b)) == 2 * log_p);
      CHECK(bytes_sent(schedule(rabenseifner(), CallKind::all_reduce, r, b)) == 2 * n * (p - 1));
      CHECK(messages(schedule(rabenseifner(), CallKind::reduce_scatter, r, b)) == log_p);
      CHECK(bytes_sent(schedule(rabenseifner(), CallKind::all_gather, r, b)) == n * (p - 1));
    }
    if (p % 4) continue;
    for (int r = 0; r < p; ++r) {
      const Blocks b = even_blocks(n * p, p);
      CHECK(messages(schedule(torus(4), CallKind::all_reduce, r, b)) == 2 * (p / 4 - 1) + 2 * 3);
      CHECK(bytes_sent(schedule(torus(4), CallKind::all_reduce, r, b)) == 2 * n * (p - 1));
      CHECK(bytes_sent(schedule(torus(4), CallKind::reduce_scatter, r, b)) == n * (p - 1));
    }
  }
}

TEST_CASE("the price is the time of the rounds when all ranks play") {
  if (test::threads_only()) return;
  const Index bytes = 3000;
  for (const Algorithm& a : all_algorithms())
    for (int p = 1; p <= 24; ++p)
      for (const CallKind kind : kinds)
        for (const LinkCost& link : {LinkCost{1, 0, 0}, LinkCost{2000, 2, 1}, LinkCost{10, 3, 0}, LinkCost{0, 1, 4}}) {
          CAPTURE(a.name, p, name_of(kind), link.latency);
          const auto rounds = schedules(a, kind, even_blocks(bytes, p));
          std::vector<Vector> x(static_cast<std::size_t>(p), Vector(static_cast<std::size_t>(bytes)));
          const double played = Player{rounds, x, link}.play(), priced = cost(a, kind, p, bytes, link);
          REQUIRE(priced <= played * (1 + 1e-12));
          // Blocks differ by a byte.
          REQUIRE(played - priced <= 2 * p * (link.per_byte + link.per_reduced_byte));
        }
}

TEST_CASE("prices are the papers' and quick for many ranks") {
  const LinkCost link{1e-5, 1e-9, 2e-10};
  const double a = link.latency, b = link.per_byte, c = link.per_reduced_byte;
  const Index n = Index{1} << 28;
  for (const int p : {2, 4, 16, 64, 1024}) {
    const double steps = std::log2(p), bytes = static_cast<double>(n), part = bytes * (p - 1) / p;
    const auto price = [&](const char* name) {
      return Approx(cost(find_algorithm(name), CallKind::all_reduce, p, n, link));
    };
    CHECK(2 * (p - 1) * a + 2 * part * b + part * c == price("ring"));
    CHECK(steps * (a + bytes * b + bytes * c) == price("recursive_doubling"));
    CHECK(2 * steps * a + 2 * part * b + part * c == price("rabenseifner"));
    CHECK(2 * steps * (a + bytes * b) + steps * bytes * c == price("tree"));
    CHECK((2 * (p / 2 - 1) + 2) * a + 2 * part * b + part * c == price("torus(2)"));
    const double among = p / 2, rest = bytes * (among - 1) / among;
    CHECK(2 * (a + bytes * b) + bytes * c + 2 * (among - 1) * a + 2 * rest * b + rest * c == price("hierarchical(2)"));
  }
  CHECK(cost(ring(), CallKind::all_reduce, 100000, 1000000, link) == Approx(2 * 99999 * (a + 10 * b) + 99999 * 10 * c));
}

TEST_CASE("every algorithm does each collective on ranks that talk") {
  for (const Algorithm& a : all_algorithms())
    for (const int ranks : test::rank_counts({1, 2, 3, 4, 5, 6, 7, 8, 9})) {
      CAPTURE(a.name, ranks);
      REQUIRE_NOTHROW(test::on_ranks(ranks, [&](World& world) {
        check_runs(world, a, static_cast<unsigned>(ranks));
        return true;
      }));
    }
}

TEST_CASE("split communicators have the algorithm, and one collective may have it alone") {
  for (const int ranks : test::rank_counts({4, 6}))
    REQUIRE_NOTHROW(test::on_ranks(ranks, [](World& world) {
      const auto sent = std::make_shared<std::atomic<Index>>(0);
      const auto all = with_algorithm(
          world.comm().split(0, world.rank()),
          [](CallKind kind, int, Index) {
            return kind == CallKind::broadcast ? std::make_shared<const Algorithm>(tree()) : nullptr;
          },
          sent);
      const auto half = all->split(world.rank() % 2, world.rank());
      const Tensor x = numbers(world.rank(), 10, DType::f32);
      half->broadcast(x, 0).wait();
      expect(x.to_vector() == numbers(world.rank() % 2, 10, DType::f32).to_vector(), "broadcast in a split");
      const Index expected =
          bytes_sent(schedule(tree(), CallKind::broadcast, half->rank(), even_blocks(10, half->size()))) * 4;
      half->all_reduce(x).wait();
      expect(*sent == expected, "bytes of a split");
      return true;
    }));
}

TEST_CASE("names of algorithms are read, or refused with what there is") {
  CHECK(find_algorithm("torus(4)").name == "torus(4)");
  CHECK(find_algorithm("hierarchical").name == "hierarchical");
  CHECK_ERROR(find_algorithm("tours"), usage, "all_reduce", "torus");
  for (const char* name : {"torus(0)", "torus(-1)", "torus(x)", "torus()", "torus(", "torus(2", "torus(2) "})
    CHECK_ERROR(find_algorithm(name), usage, name, "torus(N)");
  CHECK_ERROR(find_algorithm("ring(2)"), usage, "all_reduce", "ring");
}

TEST_CASE("a table of algorithms goes into a text and back, and answers with the nearest row") {
  const AlgorithmTable table{{{CallKind::all_reduce, 8, 1024, "recursive_doubling"},
                              {CallKind::all_reduce, 8, 1048576, "torus(2)"},
                              {CallKind::all_reduce, 2, 1024, "default"},
                              {CallKind::broadcast, 8, 1024, "tree"}}};
  const AlgorithmTable again = AlgorithmTable::of_text(table.to_text());
  CHECK(again.rows == table.rows);
  CHECK(again.find(CallKind::all_reduce, 8, 0) == "recursive_doubling");
  CHECK(again.find(CallKind::all_reduce, 6, 30000) == "recursive_doubling");
  CHECK(again.find(CallKind::all_reduce, 100, 40000) == "torus(2)");
  CHECK(again.find(CallKind::all_reduce, 3, 1 << 30) == "default");
  CHECK(again.find(CallKind::broadcast, 2, 1 << 30) == "tree");
  CHECK(again.find(CallKind::all_gather, 8, 1024) == "default");
  CHECK(again.choice()(CallKind::all_reduce, 8, 1 << 20)->name == "torus(2)");
  CHECK(again.choice()(CallKind::all_reduce, 2, 1 << 20) == nullptr);
  for (const char* line : {"all_reduce 8 1024", "all_reduce 8 1024 ring 1", "all_sum 8 1024 ring",
                           "all_reduce 0 1024 ring", "all_reduce 8 1k ring", "all_reduce 8 -4 ring"})
    CHECK_ERROR(AlgorithmTable::of_text(line), usage, line);
  CHECK_ERROR(AlgorithmTable::of_text("all_reduce 8 1024 rong"), usage, "all_reduce", "ring");
}

TEST_CASE("a measured table is the same on every rank and serves a communicator") {
  for (const int ranks : test::rank_counts({1, 2, 5}))
    REQUIRE_NOTHROW(test::on_ranks(ranks, [](World& world) {
      const AlgorithmTable table = measure_algorithms(world.comm(), {.bytes = {64, 20000}, .rounds = 1});
      expect(world.size() < 2 || table.rows.size() >= 8, "rows of the table");
      const auto hash = static_cast<double>(std::hash<std::string>()(table.to_text()) >> 16);
      expect(test::agree(world, Tensor::full({1}, hash, DType::f64)), "tables of ranks");
      for (const bool automatic : {false, true}) {
        auto comm = world.comm().split(0, world.rank());
        comm = automatic ? with_all_reduce(std::move(comm), "auto") : with_algorithm(std::move(comm), table.choice());
        const Tensor x = numbers(world.rank(), 5000, DType::f32);
        comm->all_reduce(x).wait();
        expect_result(x, {0, 5000}, CallKind::all_reduce, even_blocks(5000, world.size()), 0, "all_reduce by a table");
      }
      return true;
    }));
}

}  // namespace test_collectives
