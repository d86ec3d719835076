// The same checks on threads and, when started by mpiexec, on processes.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "kernels/core/environment.h"
#include "parallel/comm/transport/launcher.h"
#include "parallel/comm/world/mesh.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_communicator {

using namespace trireme;

namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

// Small integers: every sum is exact in every type.
Tensor numbers(int rank, Index count, DType type) {
  std::vector<double> v(count);
  for (Index i = 0; i < count; ++i) v[i] = static_cast<double>((i * 7 + rank * 3) % 11);
  return Tensor::of(v, {count}, type);
}
double number(int rank, Index i) { return static_cast<double>((i * 7 + rank * 3) % 11); }

double reduced(int size, Index i, ReduceOp op) {
  double r = number(0, i);
  for (int k = 1; k < size; ++k) {
    double v = number(k, i);
    r = op == ReduceOp::sum ? r + v : op == ReduceOp::max ? std::max(r, v) : std::min(r, v);
  }
  return r;
}

// The test library's checks are not for threads: collect the first difference and throw.
void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("differs: " + what);
}
void expect_values(const Tensor& x, const std::function<double(Index)>& want, const std::string& what) {
  auto got = x.to_vector();
  for (Index i = 0; i < x.numel(); ++i)
    if (got[i] != want(i)) expect(false, fmt::format("{} [{}]: {} instead of {}", what, i, got[i], want(i)));
}

// Long enough for several pieces, on every transport.
void check_long(Communicator& comm) {
  const Index count = 150007, block = 80003;
  Tensor x = numbers(comm.rank(), count, DType::f32);
  comm.all_reduce(x).wait();
  expect_values(
      x, [&](Index i) { return reduced(comm.size(), i, ReduceOp::sum); }, "long all_reduce");
  Tensor out = Tensor::empty({block}), in = numbers(comm.rank(), block * comm.size(), DType::f32);
  comm.reduce_scatter(out, in).wait();
  expect_values(
      out, [&](Index i) { return reduced(comm.size(), comm.rank() * block + i, ReduceOp::sum); },
      "long reduce_scatter");
  comm.all_gather(in, out).wait();
  expect_values(
      in, [&](Index i) { return reduced(comm.size(), i, ReduceOp::sum); }, "long all_gather");
}

void check_all_reduce(Communicator& comm, Index count) {
  for (DType t : types)
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      Tensor x = numbers(comm.rank(), count, t);
      comm.all_reduce(x, op).wait();
      expect_values(
          x, [&](Index i) { return reduced(comm.size(), i, op); }, fmt::format("all_reduce {} {}", t, count));
    }
}

void check_blocks(Communicator& comm, Index block) {
  const int p = comm.size(), me = comm.rank();
  for (DType t : types) {
    Tensor in = numbers(me, block * p, t), out = Tensor::full({block}, 9, t);
    comm.reduce_scatter(out, in).wait();
    expect_values(
        out, [&](Index i) { return reduced(p, me * block + i, ReduceOp::sum); }, "reduce_scatter");
    comm.reduce_scatter(in.rows(me * block, (me + 1) * block), in, ReduceOp::max).wait();
    expect_values(
        in.rows(me * block, (me + 1) * block), [&](Index i) { return reduced(p, me * block + i, ReduceOp::max); },
        "reduce_scatter in place");
    Tensor all = Tensor::full({block * p}, 9, t);
    comm.all_gather(all, numbers(me, block, t)).wait();
    expect_values(
        all, [&](Index i) { return number(static_cast<int>(i / block), i % block); }, "all_gather");
    Tensor own = Tensor::full({block * p}, 9, t);
    own.rows(me * block, (me + 1) * block).copy_from(numbers(me, block, t));
    comm.all_gather(own, own.rows(me * block, (me + 1) * block)).wait();
    expect_values(
        own, [&](Index i) { return number(static_cast<int>(i / block), i % block); }, "all_gather in place");
    Tensor x = numbers(me, block, t);
    comm.broadcast(x, p - 1).wait();
    expect_values(
        x, [&](Index i) { return number(p - 1, i); }, "broadcast");
    Tensor swapped = Tensor::full({block * p}, 9, t);
    comm.all_to_all(swapped, numbers(me, block * p, t)).wait();
    expect_values(
        swapped, [&](Index i) { return number(static_cast<int>(i / block), me * block + i % block); }, "all_to_all");
  }
}

void check_messages(Communicator& comm) {
  const int p = comm.size(), me = comm.rank(), right = (me + 1) % p, left = (me + p - 1) % p;
  for (Index count : {0, 1, 5, 20000}) {
    Tensor in = Tensor::zeros({count}), second = Tensor::zeros({count}), tagged = Tensor::zeros({count});
    Tensor a = numbers(me, count, DType::f32), b = numbers(me + 1, count, DType::f32),
           c = numbers(me + 2, count, DType::f32);
    // Order within a tag; tags apart; sends that nobody has asked for yet.
    Work s1 = comm.send(a, right), s2 = comm.send(c, right, 7), s3 = comm.send(b, right);
    Work r3 = comm.recv(tagged, left, 7), r1 = comm.recv(in, left), r2 = comm.recv(second, left);
    for (Work* w : {&r1, &r2, &r3, &s1, &s2, &s3}) w->wait();
    expect_values(
        in, [&](Index i) { return number(left, i); }, "first message");
    expect_values(
        second, [&](Index i) { return number(left + 1, i); }, "second message");
    expect_values(
        tagged, [&](Index i) { return number(left + 2, i); }, "tagged message");
  }
}

// Several operations under way at once, waited for in another order on each rank.
void check_outstanding(Communicator& comm) {
  std::vector<Tensor> x;
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) {
    x.push_back(numbers(comm.rank() + i, 1 + 5000 * (i % 3), DType::f32));
    works.push_back(comm.all_reduce(x.back()));
  }
  for (int i = 0; i < 6; ++i) works[(i + comm.rank()) % 6].wait();
  for (int k = 0; k < 6; ++k)
    expect_values(
        x[k],
        [&](Index i) {
          double sum = 0;
          for (int r = 0; r < comm.size(); ++r) sum += number(r + k, i);
          return sum;
        },
        "outstanding all_reduce");
  Tensor y = numbers(comm.rank(), 20000, DType::f32);
  Work polled = comm.all_reduce(y);
  while (!polled.done()) std::this_thread::yield();
  polled.wait();
  expect_values(
      y, [&](Index i) { return reduced(comm.size(), i, ReduceOp::sum); }, "polled all_reduce");
  Tensor dropped = numbers(comm.rank(), 20000, DType::f32);
  { Work forgotten = comm.all_reduce(dropped); }
  expect_values(
      dropped, [&](Index i) { return reduced(comm.size(), i, ReduceOp::sum); },
      "all_reduce waited for by its destructor");
}

void check_split(Communicator& comm) {
  auto half = comm.split(comm.rank() % 2, -comm.rank());  // reversed order
  const int p = comm.size(), color = comm.rank() % 2, members = (p + 1 - color) / 2;
  expect(half->size() == members, "size of a split");
  expect(half->rank() == members - 1 - comm.rank() / 2, "rank in a split");
  Tensor x = Tensor::scalar(comm.rank());
  half->all_reduce(x).wait();
  double sum = 0;
  for (int r = color; r < p; r += 2) sum += r;
  expect(x.item() == sum, "all_reduce in a split");
  half->barrier();
  auto same = comm.split(0, 7);  // equal keys: in the order of ranks
  expect(same->size() == p && same->rank() == comm.rank(), "order of ranks with equal keys");
}

// Same bits on every rank, twice, whatever the order of arrival.
void check_bits(Communicator& comm) {
  std::vector<double> v(10001);
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = 1.0 / (1.0 + static_cast<double>((i * 31 + comm.rank() * 17) % 1009));
  Tensor x = Tensor::of(v, {10001}), y = x.clone();
  comm.all_reduce(x).wait();
  comm.all_reduce(y).wait();
  Tensor all = Tensor::empty({10001 * comm.size()});
  comm.all_gather(all, x).wait();
  auto mine = y.to_vector(), gathered = all.to_vector();
  for (int r = 0; r < comm.size(); ++r)
    expect(std::equal(mine.begin(), mine.end(), gathered.begin() + r * 10001), "bits");
}

void check_everything(World& world) {
  Communicator& comm = world.comm();
  for (Index count : {0, 1, 3, 1000}) check_all_reduce(comm, count);
  for (Index block : {0, 1, 3, 257}) check_blocks(comm, block);
  check_long(comm);
  check_messages(comm);
  check_outstanding(comm);
  check_split(comm);
  check_bits(comm);
}

void check_algorithm(World& world, const std::string& name) {
  auto comm = with_all_reduce(world.comm().split(0, world.rank()), name);
  for (Index count : {0, 1, 2, 5, 5001}) {
    Tensor x = numbers(comm->rank(), count, DType::f32), y = numbers(comm->rank(), count, DType::bf16);
    Work first = comm->all_reduce(x), second = comm->all_reduce(y, ReduceOp::max);
    second.wait();
    first.wait();
    expect_values(
        x, [&](Index i) { return reduced(comm->size(), i, ReduceOp::sum); }, name + " sum");
    expect_values(
        y, [&](Index i) { return reduced(comm->size(), i, ReduceOp::max); }, name + " max");
  }
  check_bits(*comm);
  check_outstanding(*comm);
  check_split(*comm);
}

// Under mpiexec all cases run on its processes; otherwise on threads.
void on_ranks(const std::function<void(World&)>& body) {
  if (test::under_mpi()) {
    REQUIRE_NOTHROW(body(test::processes()));
    return;
  }
  for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    CAPTURE(ranks);
    REQUIRE_NOTHROW(test::launch(ranks, body));
  }
}

}  // namespace

TEST_CASE("all operations, types and sizes") { on_ranks(check_everything); }

TEST_CASE("all-reduce algorithms") {
  for (const char* name : {"default", "ring", "recursive_doubling", "rabenseifner", "tree", "hierarchical",
                           "hierarchical(2)", "torus", "torus(2)"})
    on_ranks([&](World& world) { check_algorithm(world, name); });
}

TEST_CASE("an unknown algorithm is refused with the list") {
  World world;
  REQUIRE_ERROR(world.use_all_reduce("rign"), usage, "all_reduce", "recursive_doubling");
  REQUIRE_ERROR(world.use_all_reduce("vendor"), usage, "all_reduce", "default");
}

TEST_CASE("an error on one rank ends all") {
  if (test::under_mpi()) {
    SUCCEED("not under MPI: it brings its own ranks, as threads");
    return;
  }
  for (int ranks : {2, 4}) {
    std::atomic<int> ended = 0;
    auto body = [&](World& world) {
      if (world.rank() == 1) throw std::runtime_error("the coffee is out");
      Tensor x = Tensor::zeros({100000});
      try {
        if (world.rank() == 0) world.comm().recv(x, 1).wait();
        world.comm().all_reduce(x).wait();
      } catch (const Error&) {
        ++ended;
        throw;
      }
    };
    for (const auto& run : test::launches()) REQUIRE_ERROR(run(ranks, body), internal, 1, "the coffee is out");
    REQUIRE(ended == 2 * (ranks - 1));
  }
}

TEST_CASE("an error on one rank ends queued algorithms") {
  if (test::under_mpi()) {
    SUCCEED("not under MPI: it brings its own ranks, as threads");
    return;
  }
  auto body = [&](World& world) {
    world.use_all_reduce("ring");
    Tensor x = Tensor::zeros({100000});
    Work work = world.comm().all_reduce(x);
    if (world.rank() == 2) throw std::runtime_error("no tea either");
    world.comm().barrier();
  };
  for (const auto& run : test::launches()) REQUIRE_ERROR(run(3, body), internal, 2, "no tea either");
}

TEST_CASE("different calls are told apart") {
  if (test::under_mpi()) {
    SUCCEED("not under MPI: it brings its own ranks, as threads");
    return;
  }
  auto counts = [](World& world) { world.comm().all_reduce(Tensor::zeros({world.rank() + 1})).wait(); };
  for (const auto& run : test::launches()) REQUIRE_ERROR(run(2, counts), communicator, 1, "f32", 2);
  auto kinds = [](World& world) {
    if (world.rank())
      world.comm().barrier();
    else
      world.comm().broadcast(Tensor::zeros({2}), 0).wait();
  };
  for (const auto& run : test::launches()) REQUIRE_ERROR(run(2, kinds), communicator, "barrier", "broadcast");
  auto messages = [](World& world) {
    if (world.rank())
      world.comm().recv(Tensor::zeros({3}), 0).wait();
    else
      world.comm().send(Tensor::zeros({2}), 1).wait();
  };
  for (const auto& run : test::launches()) REQUIRE_ERROR(run(2, messages), communicator, 2, "f32");
}

TEST_CASE("bad operands are refused") {
  World world;
  auto& comm = world.comm();
  REQUIRE_THROWS_AS(comm.reduce_scatter(Tensor::zeros({2}), Tensor::zeros({3})), Error);
  REQUIRE_THROWS_AS(comm.all_gather(Tensor::zeros({2}), Tensor::zeros({2}, DType::f64)), Error);
  REQUIRE_THROWS_AS(comm.broadcast(Tensor::zeros({2}), 1), Error);
  REQUIRE_THROWS_AS(comm.send(Tensor::zeros({2}), 0, 40000), Error);
  REQUIRE_THROWS_AS(comm.all_reduce(Tensor()), Error);
}

TEST_CASE("a wait that lasts too long says for whom") {
  if (test::under_mpi()) {
    SUCCEED("not under MPI: it brings its own ranks, as threads");
    return;
  }
  setenv("TRIREME_TIMEOUT", "0.2", 1);
  std::atomic<bool> over = false;
  auto body = [&](World& world) {
    if (world.rank() == 1)
      while (!over) std::this_thread::yield();
    else
      try {
        world.comm().all_reduce(Tensor::zeros({5})).wait();
      } catch (...) {
        over = true;
        throw;
      }
  };
  for (const auto& run : test::launches()) {
    over = false;
    REQUIRE_ERROR(run(2, body), communicator, "all_reduce", 5, "f32", 1);
  }
  unsetenv("TRIREME_TIMEOUT");
}

TEST_CASE("operations that are done already are waited for as parts of others") {
  const auto first = [](const Work& work, int& runs) { return when_all({work}, [&runs] { ++runs; }); };
  int inner = 0, outer = 0;
  for (const bool asked : {false, true}) {
    inner = outer = 0;
    Work both = first(first(Work{}, inner), outer);
    if (asked) REQUIRE(both.done());
    both.wait();
    REQUIRE((inner == 1 && outer == 1));
  }
  Work once = first(Work{}, inner), copy = once;
  once.wait();
  Work around = first(copy, outer);
  std::vector<Work> works{around, first(copy, outer)};
  REQUIRE(wait_any(works) == 0);
  REQUIRE(works[1].wait_for(0));
  REQUIRE((inner == 2 && outer == 3));
}

TEST_CASE("every variable of the environment is read strictly") {
  const auto with = [](const char* name, const char* value, const auto& look) {
    const char* before = std::getenv(name);
    const std::optional<std::string> kept = before ? std::optional<std::string>(before) : std::nullopt;
    setenv(name, value, 1);
    look();
    kept ? setenv(name, kept->c_str(), 1) : unsetenv(name);
  };
  for (const EnvironmentVariable& v : environment_variables()) {
    const bool number = v.type == EnvironmentVariable::seconds || v.type == EnvironmentVariable::whole;
    std::vector<const char*> wrong{""};
    if (number) wrong = {"", "abc", "nan", "inf", "-3", "99999999999999999999", "5x", " 5", "0x10", "1e999"};
    if (v.type == EnvironmentVariable::whole) wrong.insert(wrong.end(), {"1.5", "1e2"});
    if (v.type == EnvironmentVariable::word) wrong = {"", "maybe", "0, 1", ","};
    if (v.type == EnvironmentVariable::other) wrong = {};
    for (const char* value : wrong)
      with(v.name, value, [&] { CHECK_ERROR(check_environment(), usage, v.name, fmt::format("\"{}\"", value)); });
    const std::string first(v.words.substr(0, v.words.find(',')));
    with(v.name, number ? "1" : first.empty() ? "some" : first.c_str(), [&] { CHECK_NOTHROW(check_environment()); });
  }
  with("TRIREME_TIMEOUT", "2.5", [] { CHECK(collective_timeout().count() == 2.5); });
  with("TRIREME_TIMEOUT", "soon", [] {
    CHECK_ERROR(collective_timeout(), usage, "TRIREME_TIMEOUT", "soon");
    CHECK_ERROR(World::threads(2, [](World&) {}), usage, "TRIREME_TIMEOUT", "soon");
  });
}

TEST_CASE("an all-reduce algorithm waits as long as the thread that called it may") {
  if (test::threads_only()) return;
  setenv("TRIREME_TIMEOUT", "0.2", 1);
  World::threads(2, [](World& world) {
    scale_timeouts(100);
    world.use_all_reduce("ring");
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Tensor x = Tensor::full({64}, 1);
    world.comm().all_reduce(x).wait();
    CHECK(x.to_vector() == std::vector<double>(64, 2));
  });
  unsetenv("TRIREME_TIMEOUT");
}

TEST_CASE("what the environment says of the launcher") {
  auto find = [](std::map<std::string, std::string> env) {
    return find_launcher([&](const char* name) { return env.contains(name) ? env[name].c_str() : nullptr; });
  };
  REQUIRE(find({}).ranks == 1);
  REQUIRE(find({{"PMI_FD", "6"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}).ranks == 4);
  REQUIRE(find({{"OMPI_COMM_WORLD_SIZE", "3"}}).name == "mpirun (Open MPI)");
  CHECK_ERROR(find({{"PMI_SIZE", "many"}}), usage, "PMI_SIZE", "many");
  std::map<std::string, std::string> batch{{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}};
  REQUIRE(find(batch).ranks == 1);
  batch["SLURM_STEP_ID"] = "4294967291";
  REQUIRE(find(batch).ranks == 1);
  batch["SLURM_STEP_ID"] = "0";
  batch["SLURM_STEP_NUM_TASKS"] = "4";
  REQUIRE(find(batch).name == "srun");
  REQUIRE_ERROR(check_not_singletons(find(batch), 1, "some MPI"), communicator, "world", "pmi2");
  REQUIRE_NOTHROW(check_not_singletons(find(batch), 4, "some MPI"));
  batch["SLURM_STEP_NUM_TASKS"] = "1";  // a step of one task within a job of four
  CHECK(find(batch).ranks == 1);
  // Launchers whose processes MPI does not know of; a job's WORLD_SIZE without a process's LOCAL_RANK is none.
  const std::map<std::string, std::string> torch{{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "3"}},
      horovod{{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}};
  CHECK_ERROR(check_not_singletons(find(torch), 1, "some MPI"), communicator, "torchrun", 3, "mpiexec");
  CHECK_ERROR(check_not_singletons(find(horovod), 1, "some MPI"), communicator, "horovodrun", 2, "mpiexec");
  CHECK(find({{"RANK", "0"}, {"WORLD_SIZE", "3"}}).ranks == 1);
  std::map<std::string, std::string> within = torch;  // mpiexec, started by one of them
  within["PMI_SIZE"] = "2";
  CHECK(find(within).name == "mpiexec");
}

}  // namespace test_communicator
