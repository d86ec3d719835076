#include <algorithm>
#include <array>

#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/profile/measure.h"

namespace trireme {
namespace {

constexpr std::array kinds{CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather, CallKind::broadcast,
                           CallKind::send};

/// What a call of the kind works on: `whole` elements in all, in the blocks of its ranks.
struct Operands {
  Tensor whole, block;

  Work start(Communicator& comm, CallKind kind) const {
    switch (kind) {
      case CallKind::all_reduce: return comm.all_reduce(whole);
      case CallKind::reduce_scatter: return comm.reduce_scatter(block, whole);
      case CallKind::all_gather: return comm.all_gather(whole, block);
      case CallKind::broadcast: return comm.broadcast(whole, 0);
      default:
        if (comm.rank() == 0) return comm.send(whole, 1);
        return comm.rank() == 1 ? comm.recv(whole, 0) : Work();
    }
  }
};

}  // namespace

std::vector<MeasuredCall> measure_calls(Communicator& comm, std::span<const Index> bytes, int runs) {
  const int ranks = comm.size();
  std::vector<MeasuredCall> calls;
  if (ranks < 2) return calls;
  const auto now = [] { return static_cast<double>(FlightRecorder::nanoseconds()); };
  const Tensor clocks = Tensor::empty({2}, DType::f64);
  for (const Index size : bytes) {
    const Index each = std::max<Index>(1, size / 4 / ranks);
    const Operands operands{Tensor::zeros({each * ranks}), Tensor::zeros({each})};
    for (const CallKind kind : kinds) {
      std::vector<double> seconds;
      for (int run = -2; run < runs; ++run) {
        launch<kernel::Fill>(operands.whole, 0.0),
            launch<kernel::Fill>(operands.block, 0.0);  // in this core's cache, as gradients are
        comm.barrier();
        const double begun = now();
        operands.start(comm, kind).wait();
        const double ended = now();
        double* const c = clocks.data<double>();
        c[0] = -begun, c[1] = ended;
        comm.all_reduce(clocks, ReduceOp::max).wait();
        if (run >= 0) seconds.push_back((c[1] + c[0]) / 1e9);
      }
      calls.push_back({kind, kind == CallKind::send ? 2 : ranks, each * ranks * 4, measured(seconds).value});
    }
  }
  return calls;
}

}  // namespace trireme
