// A program whose ranks fail in the way that its first word says. tests/parallel/mpi_failures.py starts it and looks at
// what comes of it.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "parallel/comm/world/world.h"

using namespace trireme;

namespace {

void call(Communicator& comm, const std::string& kind) {
  const Index p = comm.size();
  const Tensor x = Tensor::zeros({4 * p}), part = Tensor::zeros({4});
  if (kind == "all_reduce") comm.all_reduce(x).wait();
  if (kind == "all_reduce_max") comm.all_reduce(x, ReduceOp::max).wait();
  if (kind == "all_reduce_long") comm.all_reduce(Tensor::zeros({1'000'000})).wait();
  if (kind == "all_reduce_none") comm.all_reduce(Tensor::zeros({0})).wait();
  if (kind == "reduce_scatter") comm.reduce_scatter(part, x).wait();
  if (kind == "all_gather") comm.all_gather(x, part).wait();
  if (kind == "all_gather_f64")
    comm.all_gather(Tensor::zeros({4 * p}, DType::f64), Tensor::zeros({4}, DType::f64)).wait();
  if (kind == "broadcast") comm.broadcast(x, 0).wait();
  if (kind == "broadcast_1") comm.broadcast(x, 1).wait();
  if (kind == "all_to_all") comm.all_to_all(Tensor::zeros({4 * p}), x).wait();
  if (kind == "barrier") comm.barrier();
  if (kind == "split") comm.split(0, 0);
  if (kind == "send_2") comm.send(Tensor::zeros({2}), 0).wait();
  if (kind == "recv_1") comm.recv(Tensor::zeros({1}), 1).wait();
  if (kind == "recv_3_late") {
    Work work = comm.recv(Tensor::zeros({3}), 1);
    while (!work.done()) std::this_thread::yield();
    work.wait();
  }
  if (kind == "recv_3") comm.recv(Tensor::zeros({3}), 1).wait();
}

// Rank 1 fails in the midst of things.
void fail_so(World& world, const std::string& how) {
  Communicator& comm = world.comm();
  for (int i = 0; i < 3; ++i) {
    call(comm, "all_reduce_long");
    call(comm, "all_gather");
  }
  if (world.rank() == 1) {
    if (how == "throw") throw std::runtime_error("the coffee is out");
    if (how == "kill") std::raise(SIGKILL);
    if (how == "exit") std::_Exit(3);
    if (how == "abort") {
      comm.abort("no tea either");
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // it lives on
    }
    if (how == "sleep") std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
}

}  // namespace

// fail_so HOW CALL: rank 1 fails, the others make the call. differ CALL CALL: rank 0 makes the first, others the
// second. own HOW CALL: as the first, with a World of its own and no World::run.
int main(int argc, char** argv) {
  const std::string mode = argv[1], first = argv[2], second = argv[3];
  const auto body = [&](World& world) {
    if (mode == "differ") {
      call(world.comm(), world.rank() == 0 ? first : second);
      return world.comm().barrier();
    }
    fail_so(world, first);
    call(world.comm(), second);
  };
  if (mode != "own") return World::run(argc, argv, 1, body);
  try {
    World world(argc, argv);
    body(world);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "caught: %s\n", e.what());
    return 4;
  }
  return 0;
}
