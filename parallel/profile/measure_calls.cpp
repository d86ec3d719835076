#include <algorithm>
#include <array>
#include <functional>

#include "framework/autograd/backward.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizers.h"
#include "framework/tensor/flat_buffer.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/profile/measure.h"
#include "parallel/runtime/encoded_reduction.h"

namespace trireme {
namespace {

constexpr std::array measured_kinds{CallKind::all_reduce, CallKind::reduce_scatter, CallKind::all_gather,
                                    CallKind::broadcast, CallKind::send};

/// Operands of a call of a kind: `whole` elements in all, in blocks of its ranks.
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

double seconds_now() { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; }

/// One rank arrives this much later than the others. They then sleep and must be woken, as in a real step.
constexpr double late = 3e-4;  // seconds

/// Seconds from the start of the last rank to the end of all. Rank `last` (-1: none) arrives when all others wait.
double timed(Communicator& comm, const Tensor& clocks, int last, const std::function<void()>& work) {
  comm.barrier();
  double* const c = clocks.data<double>();
  const double met = seconds_now();
  while (comm.rank() == last && seconds_now() - met < late) {}
  c[0] = seconds_now();
  work();
  c[1] = seconds_now();
  comm.all_reduce(clocks, ReduceOp::max).wait();
  return c[1] - c[0];
}

}  // namespace

std::vector<MeasuredCall> measure_calls(Communicator& comm, std::span<const Index> bytes, int runs) {
  const int ranks = comm.size();
  std::vector<MeasuredCall> calls;
  if (ranks < 2) return calls;
  const Tensor clocks = Tensor::empty({2}, DType::f64);
  for (const Index size : bytes) {
    const Index each = std::max<Index>(1, size / 4 / ranks);
    const Operands operands{Tensor::zeros({each * ranks}), Tensor::zeros({each})};
    for (const CallKind kind : measured_kinds) {
      std::vector<double> seconds;
      for (int run = -2; run < runs; ++run) {
        launch<kernel::Fill>(operands.whole, 0.0);
        launch<kernel::Fill>(operands.block, 0.0);  // puts the block into this core's cache, as gradients are
        const double took = timed(comm, clocks, kind == CallKind::send ? 0 : (run + 2) % ranks,
                                  [&] { operands.start(comm, kind).wait(); });
        if (run >= 0) seconds.push_back(took);
      }
      calls.push_back({kind, kind == CallKind::send ? 2 : ranks, each * ranks * 4, measured(seconds).value});
    }
  }
  return calls;
}

Measured measure_fresh(Communicator& comm, int runs) {
  // A slice that does not begin at a page boundary, of which each rank keeps its block.
  const Index ranks = comm.size(), rank = comm.rank(), each = (Index{1} << 22) / ranks, front = 18'816;
  const FlatBuffer buffer({{front + each * ranks, cpu()}}, 0, DType::f32);
  const Tensor whole = buffer.rows(front, front + each * ranks),
               block = whole.view_rows(rank * each, (rank + 1) * each), clocks = Tensor::empty({2}, DType::f64);
  Runtime& memory = runtime(DeviceKind::cpu);
  const auto drop = [&](Index begin, Index end) {
    if (begin < end) memory.discard(whole.data<float>() + begin, static_cast<std::size_t>(4 * (end - begin)), cpu());
  };
  const auto gather = [&] {
    memory.restore(whole.data<float>(), static_cast<std::size_t>(4 * each * ranks), cpu());
    comm.all_gather(whole, block).wait();
  };
  std::vector<double> seconds;
  for (int run = -2; run < runs; ++run) {
    const double anew = timed(comm, clocks, -1, [&] {
      drop(0, rank * each);
      drop((rank + 1) * each, ranks * each);
      gather();
    });
    const double again = timed(comm, clocks, -1, gather);
    if (run >= 0) seconds.push_back(std::max(0.0, anew - again) / static_cast<double>(4 * each * (ranks - 1)));
  }
  return measured(seconds);
}

Measured measure_vector_ops(Communicator& comm, Index size, int runs) {
  check(size > 0, "profile", "vectors of {} numbers: there must be one at least", size);
  const NoGrad off;
  const Tensor mine = Tensor::zeros({size}), theirs = Tensor::zeros({size}), clocks = Tensor::empty({2}, DType::f64);
  std::vector<double> seconds;
  for (int run = -2; run < runs; ++run) {
    const double took = timed(comm, clocks, -1, [&] {  // four vectors, as in gossip
      const Tensor mixed = scale(mine, 0.5);
      add_into(mixed, scale(theirs, 0.5));
      mine.copy_from(mixed);
    });
    if (run >= 0) seconds.push_back(took / 4 / static_cast<double>(4 * size));
  }
  return measured(seconds);
}

double measure_encoded(Communicator& comm, const Plan& plan, const Action& a, std::int64_t step, int runs) {
  const Index size = a.slice.size();
  CodecContext context(plan, a, size_of(DType::f32), step);
  context.rank = comm.rank();
  for (const std::string& name : codec_states(a))
    context.states.push_back(name.empty() ? Tensor() : Tensor::zeros({size}));
  const Tensor x = Tensor::empty({size}), clocks = Tensor::empty({2}, DType::f64);
  EncodedReduction reduction;
  std::vector<double> seconds;
  for (int run = -2; run < runs; ++run) {
    for (Index i = 0; i < size; ++i) x.data<float>()[i] = static_cast<float>((i * 2654435761u) % 1009) / 1009 - 0.5F;
    const double took = timed(comm, clocks, (run + 2) % comm.size(), [&] {
      reduction.start(comm, context, x).wait();
      reduction.finish(comm, x);
    });
    if (run >= 0) seconds.push_back(took);
  }
  return measured(seconds).value;
}

double measure_mixing(Communicator& comm, const Plan& plan, const Action& a, std::int64_t step, int runs) {
  const NoGrad off;
  const Index size = std::max(plan.parameters, a.slice.end);
  ParameterStore store(StoreSpec{.tensors = {{.name = "weights", .shape = {size}}}, .buffers = {}, .size = size});
  for (const State& state : plan.state) store.add_state(state.name, state.initial, state.dtype);
  Optimizer optimizer(store, Sgd{.lr = 1e-3});
  Arrivals arrivals(false);
  std::any memory;
  ActionContext seconds_now{plan, a, optimizer, &comm, step, 1, memory, arrivals};
  const Tensor clocks = Tensor::empty({2}, DType::f64);
  std::vector<double> seconds;
  for (int run = -2; run < runs; ++run) {
    launch<kernel::Fill>(seconds_now.values(), 1.0);  // as the update leaves them in the cache
    const double took = timed(comm, clocks, (run + 2) % comm.size(), [&] {
      a.kind->start(seconds_now).wait();
      if (a.kind->finish) a.kind->finish(seconds_now);
    });
    if (run >= 0) seconds.push_back(took);
  }
  return measured(seconds).value;
}

}  // namespace trireme
