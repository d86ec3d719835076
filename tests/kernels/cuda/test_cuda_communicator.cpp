// Communicators with tensors on devices: through the host, and by NCCL. On threads and, when started by mpiexec, on
// processes. The CUDA plugin is the one that TRIREME_CUDA_PLUGIN names: the emulated one, with at least 8 devices.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "kernels/core/runtime.h"
#include "parallel/comm/transport/device_communicator.h"
#include "parallel/comm/world/mesh.h"
#include "tests/parallel/training.h"
#include "tests/support/catch.h"

namespace test_cuda_communicator {

using namespace trireme;

namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

/// Where a rank keeps its tensors.
using Place = std::function<Device(int rank)>;
Device own(int rank) { return cuda(rank % std::max(1, open_backend(DeviceKind::cuda).devices)); }
Device shared(int) { return cuda(0); }
Device mixed(int rank) { return rank % 2 == 0 ? cuda(0) : cpu(); }

double number(int rank, Index i) { return static_cast<double>((i * 7 + rank * 3) % 11); }
double reduced(int size, Index i, ReduceOp op) {
  double r = number(0, i);
  for (int k = 1; k < size; ++k) {
    const double v = number(k, i);
    r = op == ReduceOp::sum ? r + v : op == ReduceOp::max ? std::max(r, v) : std::min(r, v);
  }
  return r;
}

// The test library's checks are not for threads: throw at the first difference.
void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("differs: " + what);
}
void expect_values(const Tensor& x, const std::function<double(Index)>& want, const std::string& what) {
  const auto got = x.to_vector();
  for (Index i = 0; i < x.numel(); ++i) {
    const double v = got[static_cast<std::size_t>(i)];
    if (v != want(i)) expect(false, fmt::format("{} [{}]: {} instead of {}", what, i, v, want(i)));
  }
}

struct Rank {
  Communicator& comm;
  Device device;
  int me = comm.rank(), p = comm.size();

  /// Small integers: every sum is exact in every type.
  Tensor numbers(int seed, Index count, DType type = DType::f32) const {
    std::vector<double> v(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) v[static_cast<std::size_t>(i)] = number(seed, i);
    return Tensor::of(v, {count}, type).to(device);
  }
  Tensor room(Index count, DType type = DType::f32) const {
    return Tensor::of(std::vector<double>(static_cast<std::size_t>(count), 9), {count}, type).to(device);
  }
};

/// What NCCL has no call for, and averages.
void check_roots(const Rank& r, Index block, DType t) {
  const int p = r.p, me = r.me, root = p - 1;
  const Tensor total = r.room(block, t), whole = r.room(block * p, t), mine = r.room(block, t);
  r.comm.reduce(total, r.numbers(me, block, t), root).wait();
  r.comm.gather(whole, r.numbers(me, block, t), root).wait();
  r.comm.scatter(mine, r.numbers(4, block * p, t), root).wait();
  if (me == root) {
    expect_values(
        total, [&](Index i) { return reduced(p, i, ReduceOp::sum); }, "reduce");
    expect_values(
        whole, [&](Index i) { return number(static_cast<int>(i / block), i % block); }, "gather");
  }
  expect_values(
      mine, [&](Index i) { return number(4, me * block + i); }, "scatter");
  std::vector<Index> counts(static_cast<std::size_t>(p), 2);
  counts[0] = block;
  const Tensor uneven = r.room(block + 2 * (p - 1), t);
  r.comm.all_gatherv(uneven, r.numbers(me, me ? 2 : block, t), counts).wait();
  expect_values(
      uneven,
      [&](Index i) { return i < block ? number(0, i) : number(1 + static_cast<int>(i - block) / 2, (i - block) % 2); },
      "all_gatherv");
  if (t != DType::f32 && t != DType::f64) return;
  const Tensor sum = r.numbers(me, block, t), mean = r.numbers(me, block, t);
  r.comm.all_reduce(sum).wait();
  r.comm.all_reduce(mean, ReduceOp::average).wait();
  const auto by_hand = sum.to_vector();
  expect_values(
      mean,
      [&](Index i) {
        const double s = by_hand[static_cast<std::size_t>(i)];
        return t == DType::f64 ? s / p : static_cast<double>(static_cast<float>(s) / static_cast<float>(p));
      },
      "average");
}

void check_collectives(const Rank& r, Index block, DType t) {
  const int p = r.p, me = r.me;
  const auto sum = [&](Index i) { return reduced(p, i, ReduceOp::sum); };
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    const Tensor x = r.numbers(me, block, t);
    r.comm.all_reduce(x, op).wait();
    expect_values(
        x, [&](Index i) { return reduced(p, i, op); }, fmt::format("all_reduce {} {}", t, block));
  }
  const Tensor in = r.numbers(me, block * p, t), out = r.room(block, t);
  const auto mine = [&](const Tensor& x) { return x.rows(me * block, (me + 1) * block); };
  r.comm.reduce_scatter(out, in).wait();
  expect_values(
      out, [&](Index i) { return sum(me * block + i); }, "reduce_scatter");
  r.comm.reduce_scatter(mine(in), in, ReduceOp::max).wait();
  expect_values(
      mine(in), [&](Index i) { return reduced(p, me * block + i, ReduceOp::max); }, "reduce_scatter in place");
  const auto by_rank = [&](Index i) { return number(static_cast<int>(i / block), i % block); };
  const Tensor all = r.room(block * p, t), inside = r.room(block * p, t);
  r.comm.all_gather(all, r.numbers(me, block, t)).wait();
  expect_values(all, by_rank, "all_gather");
  mine(inside).copy_from(r.numbers(me, block, t));
  r.comm.all_gather(inside, mine(inside)).wait();
  expect_values(inside, by_rank, "all_gather in place");
  const Tensor x = r.numbers(me, block, t);
  r.comm.broadcast(x, p - 1).wait();
  expect_values(
      x, [&](Index i) { return number(p - 1, i); }, "broadcast");
  const Tensor swapped = r.room(block * p, t);
  r.comm.all_to_all(swapped, r.numbers(me, block * p, t)).wait();
  expect_values(
      swapped, [&](Index i) { return number(static_cast<int>(i / block), me * block + i % block); }, "all_to_all");
  check_roots(r, block, t);
}

void check_messages(const Rank& r) {
  ReceivedMessage message;
  Work sent = r.comm.send_to({.channel = 2, .clock = r.me}, r.numbers(r.me, 70), (r.me + 1) % r.p);
  r.comm.recv_any(message, 2).wait();
  sent.wait();
  const int from = (r.me + r.p - 1) % r.p;
  expect(message.header.clock == from && message.payload.device() == cpu(), "the header of a message to a channel");
  expect_values(
      message.payload, [&](Index i) { return number(from, i); }, "a message to a channel");
  const int right = (r.me + 1) % r.p, left = (r.me + r.p - 1) % r.p;
  for (Index count : {0, 5, 20000}) {
    const Tensor in = r.room(count), second = r.room(count), tagged = r.room(count);
    // Order within a tag; tags apart; sends that nobody has asked for yet.
    Work s1 = r.comm.send(r.numbers(r.me, count), right), s2 = r.comm.send(r.numbers(r.me + 2, count), right, 7),
         s3 = r.comm.send(r.numbers(r.me + 1, count), right);
    Work r3 = r.comm.recv(tagged, left, 7), r1 = r.comm.recv(in, left), r2 = r.comm.recv(second, left);
    for (Work* w : {&r1, &r2, &r3, &s1, &s2, &s3}) w->wait();
    expect_values(
        in, [&](Index i) { return number(left, i); }, "first message");
    expect_values(
        second, [&](Index i) { return number(left + 1, i); }, "second message");
    expect_values(
        tagged, [&](Index i) { return number(left + 2, i); }, "tagged message");
  }
}

// Several operations under way at once, waited for in another order on each rank; polled; forgotten; on both sides.
void check_outstanding(const Rank& r) {
  std::vector<Tensor> x;
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) {
    x.push_back(r.numbers(r.me + i, 1 + 5000 * (i % 3)));
    if (i % 2) x.back() = x.back().to(cpu());
    works.push_back(r.comm.all_reduce(x.back()));
  }
  for (int i = 0; i < 6; ++i) works[static_cast<std::size_t>((i + r.me) % 6)].wait();
  const auto sum = [&](int shift) {
    return [&r, shift](Index i) {
      double total = 0;
      for (int k = 0; k < r.p; ++k) total += number(k + shift, i);
      return total;
    };
  };
  for (int k = 0; k < 6; ++k) expect_values(x[static_cast<std::size_t>(k)], sum(k), "outstanding all_reduce");
  const Tensor y = r.numbers(r.me, 20000);
  Work polled = r.comm.all_reduce(y);
  while (!polled.done()) std::this_thread::yield();
  polled.wait();
  expect_values(y, sum(0), "polled all_reduce");
  const Tensor forgotten = r.numbers(r.me, 20000);
  { Work dropped = r.comm.all_reduce(forgotten); }
  expect_values(forgotten, sum(0), "all_reduce waited for by its destructor");
  // Its memory is given back while the operation may still run.
  for (int i = 0; i < 20; ++i) r.comm.all_reduce(r.numbers(r.me, 1000)).wait();
}

void check_split(World& world, Device device) {
  const int me = world.rank(), p = world.size(), color = me % 2, members = (p + 1 - color) / 2;
  const bool nccl = world.transport().find("+nccl") != std::string::npos;
  const Tensor y = Rank{world.comm(), device}.numbers(me, 20000);
  Work outstanding = world.comm().all_reduce(y);
  const auto half = world.comm().split(color, -me);  // reversed order
  outstanding.wait();
  expect_values(
      y, [&](Index i) { return reduced(p, i, ReduceOp::sum); }, "all_reduce outstanding during a split");
  const auto by_nccl = [](Communicator& c) { return c.transport().find("+nccl") != std::string::npos; };
  expect(by_nccl(world.comm()) == nccl && by_nccl(*half) == (nccl && members > 1), "NCCL after a split");
  expect(half->size() == members && half->rank() == members - 1 - me / 2, "place in a split");
  const Tensor x = Tensor::of(std::vector<double>{me * 1.0}, {1}).to(device);
  half->all_reduce(x).wait();
  double sum = 0;
  for (int r = color; r < p; r += 2) sum += r;
  expect(x.item() == sum, "all_reduce in a split");
  check_collectives({*half, device}, 3, DType::f32);
  const auto other = half->split(0, half->rank());
  check_collectives({*other, device}, 5, DType::i32);
  half->barrier();
}

void check_everything(World& world, const Place& place) {
  const Rank r{world.comm(), place(world.rank())};
  for (DType t : types)
    for (Index block : {0, 1, 3, 257}) check_collectives(r, block, t);
  check_collectives(r, 50001, DType::f32);
  check_messages(r);
  check_outstanding(r);
  check_split(world, r.device);
  Mesh mesh(world);
  check_collectives({mesh.comm("data"), r.device}, 17, DType::bf16);
}

using test::threads_only;
using test::under_mpi;

void on_ranks(const std::function<void(World&)>& body, std::initializer_list<int> counts = {1, 2, 3, 4}) {
  if (under_mpi()) {
    REQUIRE_NOTHROW(body(test::processes()));
    return;
  }
  for (int ranks : counts) {
    CAPTURE(ranks);
    REQUIRE_NOTHROW(World::threads(ranks, body));
  }
}

struct Environment {
  Environment(const char* n, const char* value) : name(n) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name); }
  const char* name;
};

}  // namespace

TEST_CASE("tensors on devices, through the host") {
  for (const Place& place : {Place(own), Place(shared), Place(mixed)})
    on_ranks([&](World& world) {
      check_everything(world, place);
      expect(world.transport().find("staged") == std::string::npos, "nothing was decided");
    });
}

/// NCCL takes processes for ranks of several hosts, which may share a device (bench/gpu_nccl).
bool on_named_hosts() {
  if (std::getenv("NCCL_HOSTID")) SUCCEED("each process has a host of its own");
  return std::getenv("NCCL_HOSTID") != nullptr;
}
bool emulated() { return std::getenv("TRIREME_CUDA_PLUGIN") != nullptr; }

TEST_CASE("ranks that share a device go through the host") {
  if (on_named_hosts()) return;
  on_ranks([](World& world) {
    const std::string why = world.use(shared(world.rank()));
    expect(world.size() == 1 ? why.empty() : why == "ranks 0 and 1 share a device", why);
    expect(world.transport().ends_with("staged through the host") == (world.size() > 1), world.transport());
    check_everything(world, shared);
    expect(world.use(cpu()).empty(), "back on the host");
    expect(world.transport().find("staged") == std::string::npos, "back on the host");
  });
}

TEST_CASE("ranks of which some have no device go through the host") {
  on_ranks(
      [](World& world) {
        std::string why = world.use(mixed(world.rank()));
        expect(why == (world.size() == 2 ? "1 of 2 ranks are on the host" : "ranks 0 and 2 share a device"), why);
        check_everything(world, mixed);
        why = world.use(world.rank() == 1 ? cuda(99) : own(world.rank()));
        expect(why.starts_with("rank 1 has no way from its device to others'"), why);
        if (world.rank() == 1) expect(why.find("there is no cuda:99") != std::string::npos, why);
        check_everything(world, own);
      },
      {2, 3});
}

TEST_CASE("NCCL where every rank has a device of its own") {
  on_ranks([](World& world) {
    const std::string why = world.use(own(world.rank()));
    if (under_mpi() && emulated()) {
      expect(why.find("nccl") != std::string::npos, why);  // the emulated one serves threads
      expect(world.transport().starts_with("mpi") && world.transport().ends_with(", staged through the host"),
             world.transport());
    } else {
      expect(why.empty(), why);
      expect(world.size() == 1 || world.transport().find("+nccl") != std::string::npos, world.transport());
    }
    check_everything(world, own);
    if (world.use(cpu()).empty()) check_everything(world, mixed);
  });
}

TEST_CASE("named algorithms take tensors on devices") {
  for (const char* name : {"default", "auto", "ring", "rabenseifner"})
    on_ranks([&](World& world) {
      world.use_all_reduce(name);
      check_everything(world, shared);
      (void)world.use(own(world.rank()));
      check_everything(world, own);
    });
}

TEST_CASE("one rank alone") {
  World world;
  REQUIRE(world.use(cuda(0)).empty());
  REQUIRE(world.transport() == "single");
  check_everything(world, shared);
  REQUIRE_ERROR(world.comm().all_gather(Tensor::zeros({2}).to(cuda(0)), Tensor::zeros({3}).to(cuda(0))), usage, 2, 3);
  REQUIRE_ERROR(world.comm().split(-1, 0), usage, -1, 0);
}

/// The text of the Error that f() throws; empty: none.
template <class F>
std::string failure_of(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}

/// Calls of ncclGetUniqueId, ncclCommInitRankConfig and ncclCommSplit by all ranks so far.
std::array<int, 3> nccl_calls() {
  std::array<int, 3> calls{};
  (void)open_backend(DeviceKind::cuda);
  void* const plugin = dlopen(std::getenv("TRIREME_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(plugin);
  const auto count = reinterpret_cast<void (*)(int*)>(dlsym(plugin, "emulated_nccl_calls"));
  REQUIRE(count);
  count(calls.data());
  return calls;
}

TEST_CASE("a world connects NCCL once and splits for each axis of a mesh") {
  if (threads_only()) return;
  const auto before = nccl_calls();
  const auto body = [](World& world) {
    const Device device = own(world.rank());
    expect(world.use(device).empty(), "no NCCL");
    Mesh mesh(world, {{"pipe", 2}, {"data", 2}, {"tensor", 2}});
    for (const char* axis : {"pipe", "data", "tensor", "pipe+data", "data+tensor"}) {
      expect(mesh.comm(axis).transport() == "threads+nccl", axis);
      check_collectives({mesh.comm(axis), device}, 5, DType::f32);
    }
    const Mesh single(world, {{"data", 8}, {"tensor", 1}});  // tensor: no rank has another one to talk to
  };
  REQUIRE_NOTHROW(World::threads(8, body));
  const auto after = nccl_calls();
  CHECK(after[0] - before[0] == 1);
  CHECK(after[1] - before[1] == 8);
  CHECK(after[2] - before[2] == 8 * 6);
}

TEST_CASE("a split reports an earlier failure of NCCL") {
  if (threads_only()) return;
  const Environment timeout("TRIREME_TIMEOUT", "2");
  on_ranks(
      [&](World& world) {
        const int me = world.rank();
        DeviceCommunicator comm(world.comm().split(0, me));
        const std::string& why = comm.use(own(me));
        expect(why.empty(), why);
        const Tensor y = Rank{comm, own(me)}.numbers(me, 1000 - 100 * me);
        const std::string text = failure_of([&] {
          comm.all_reduce(y).wait();
          (void)comm.split(0, me);
        });
        expect(text.find("different calls") != std::string::npos, text);
      },
      {2});
}

TEST_CASE("all ranks report one rank that fails or hangs in a split of NCCL") {
  if (threads_only()) return;
  const Environment timeout("TRIREME_TIMEOUT", "2");
  for (const char* fault : {"TRIREME_EMULATOR_NCCL_SPLIT_REFUSES", "TRIREME_EMULATOR_NCCL_SPLIT_HANGS"}) {
    CAPTURE(fault);
    const Environment faulty(fault, "2");
    const bool refuses = std::string(fault).ends_with("REFUSES");
    on_ranks(
        [&](World& world) {
          const int me = world.rank(), p = world.size();
          DeviceCommunicator comm(world.comm().split(0, me));
          const std::string& why = comm.use(own(me));
          expect(why.empty(), why);
          const auto before = comm.split(0, me);
          const std::string want = refuses && me == 1
                                       ? "nccl: split: NCCL says: unhandled system error"
                                       : fmt::format("rank {} of {} has had no answer from other ranks for 1 s", me, p);
          const Tensor y = Rank{comm, own(me)}.numbers(me, 1000);
          Work earlier = comm.all_reduce(y);
          const std::string text = failure_of([&] { (void)comm.split(me / 2, me); });
          expect(text.find(want) != std::string::npos, text);
          earlier.wait();
          expect_values(
              y, [&](Index i) { return reduced(p, i, ReduceOp::sum); }, "all_reduce before a split that fails");
          expect(before->transport() == "threads+nccl", before->transport());
          expect(comm.transport() == "threads, staged through the host", comm.transport());
          const auto after = comm.split(0, me);
          for (Communicator* c : {static_cast<Communicator*>(&comm), before.get(), after.get()})
            check_collectives({*c, own(me)}, 7, DType::f32);
        },
        {3});
  }
}

TEST_CASE("one rank that cannot join NCCL has all go through the host") {
  if (threads_only()) return;
  const Environment refuses("TRIREME_EMULATOR_NCCL_REFUSES", "1"), timeout("TRIREME_TIMEOUT", "2");
  on_ranks(
      [](World& world) {
        const std::string why = world.use(own(world.rank()));
        expect(why.find(world.rank() == 1 ? "NCCL says: unhandled system error" : "nccl") != std::string::npos, why);
        expect(world.transport() == "threads, staged through the host", world.transport());
        check_everything(world, own);
      },
      {2, 3});
}

TEST_CASE("an error on one rank ends NCCL's operations on all") {
  if (threads_only()) return;
  for (int ranks : {2, 4}) {
    std::atomic<int> ended = 0;
    const auto body = [&](World& world) {
      (void)world.use(own(world.rank()));
      Mesh mesh(world);
      if (world.rank() == 1) throw std::runtime_error("the coffee is out");
      const Tensor x = Tensor::of(std::vector<double>(1000, 1), {1000}).to(own(world.rank()));
      try {
        Work work = mesh.comm("data").all_reduce(x);
        work.wait();
        (void)x.to_vector();
      } catch (const Error& e) {
        if (std::string(e.what()).find("ended because of rank 1: the coffee is out") != std::string::npos) ++ended;
        throw;
      }
    };
    REQUIRE_ERROR(World::threads(ranks, body), internal, "rank 1", "the coffee is out");
    REQUIRE(ended == ranks - 1);
  }
  on_ranks([](World& world) {  // nothing of that stays
    (void)world.use(own(world.rank()));
    check_everything(world, own);
  });
}

TEST_CASE("an operation of NCCL's that lasts too long") {
  if (threads_only()) return;
  const Environment timeout("TRIREME_TIMEOUT", "1");
  std::atomic<bool> over = false;
  std::string first, second;
  const auto body = [&](World& world) {
    (void)world.use(own(world.rank()));
    if (world.rank() == 1) {
      while (!over && world.comm().ended().empty()) std::this_thread::yield();
      return;
    }
    const Tensor x = Tensor::of(std::vector<double>(5, 1), {5}).to(own(0));
    first = failure_of([&] {
      world.comm().all_reduce(x).wait();
      (void)x.to_vector();  // where wait() does not hold up the host, this does
    });
    second = failure_of([&] { world.comm().broadcast(x, 0).wait(); });
    over = true;
    fail("test", "the end");
  };
  REQUIRE_ERROR(World::threads(2, body), usage, "rank 0", "the end");
  REQUIRE_THAT(first, test::contains("all_reduce of 5 f32 (sum) on rank 0 of 2: rank 0 of 2 has had no answer"));
  REQUIRE_THAT(second, test::contains("broadcast of 5 f32 from rank 0 on rank 0 of 2: ended because of all_reduce"));
}

TEST_CASE("an operation of NCCL's is no part of a captured graph") {
  if (threads_only()) return;
  on_ranks(
      [](World& world) {
        const Device device = own(world.rank());
        (void)world.use(device);
        const Tensor x = Tensor::full({5}, 1, DType::f32, device);
        auto graph = runtime(device.kind).make_graph(device);
        graph->begin();
        const std::string why = failure_of([&] { world.comm().all_reduce(x).wait(); });
        graph.reset();
        expect(why.find("capturing a CUDA graph") != std::string::npos, why);
        world.comm().all_reduce(x).wait();
        expect_values(
            x, [](Index) { return 2; }, "after the capture");
      },
      {2});
}

TEST_CASE("what NCCL finds wrong is told") {
  if (threads_only()) return;
  const auto body = [](World& world) {
    (void)world.use(own(world.rank()));
    const Tensor x = Tensor::of(std::vector<double>(5, 1), {5}).to(own(world.rank()));
    world.comm().all_reduce(x.rows(0, 4 + world.rank())).wait();
    (void)x.to_vector();
  };
  REQUIRE_ERROR(World::threads(2, body), communicator, "all_reduce");
}

}  // namespace test_cuda_communicator
