#include "parallel/model/dry_run.h"

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/ops/moves.h"
#include "framework/tensor/memory_tracker.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/matmul.h"
#include "kernels/contracts/mixed_scale.h"
#include "kernels/contracts/norm.h"
#include "kernels/core/named_range.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/call.h"
#include "parallel/comm/world/norm_ranks.h"
#include "parallel/model/part_memory.h"
#include "parallel/model/weight_reads.h"

namespace trireme {

double operations_of(const LaunchWatch::Call& call) {
  if (call.operations > 0) return call.operations;
  const std::string_view op = call.op;
  const auto count = [&](std::size_t i) { return static_cast<double>(call.operands[i].numel()); };
  if (op == kernel::MatMul::name) {  // c [B,M,N], a [B,M,K] and b [B,K,N]: K follows from the sizes, for any
                                     // transposition
    const Shape& c = call.operands[0].shape;
    const double batch = c.rank() > 2 ? static_cast<double>(c[0]) : 1;
    const double a = count(1) / (call.operands[1].shape.rank() > 2 ? batch : 1);
    const double b = count(2) / (call.operands[2].shape.rank() > 2 ? batch : 1);
    return c.numel() == 0 ? 0 : 2 * count(0) * std::round(std::sqrt(a * b * batch / count(0)));
  }
  if (op == kernel::MixedScaleLayer::name || op == kernel::MixedScaleBackwardInput::name ||
      op == kernel::MixedScaleBackwardWeight::name) {  // operands (block, w, ...), or (dw, dbias, block, ...); blocks
                                                       // are complete
    const bool by_weight = op == kernel::MixedScaleBackwardWeight::name;
    const std::size_t block = by_weight ? 2 : 0, filter = by_weight ? 0 : 1;
    return 2 * count(filter) * count(block) / static_cast<double>(call.operands[block].shape[-1]);
  }
  if ((!op.starts_with("conv") && !op.starts_with("linear")) || call.operands.size() < 3) return 0;
  // Each number of the output costs a row of the filter [O, ...]. Operands: forward (y, x, w, ...), backward by input
  // (dx, dy, w), backward by weight (dw, db, x, dy).
  const bool by_weight = op.ends_with("backward_weight");
  const std::size_t filter = by_weight ? 0 : 2;
  const std::size_t out = by_weight ? call.operands.size() - 1 : op.ends_with("backward_input") ? 1 : 0;
  const Shape& w = call.operands[filter].shape;
  return w.rank() < 2 || w[0] == 0 ? 0 : 2 * count(out) * count(filter) / static_cast<double>(w[0]);
}

bool runs_dry(const LaunchWatch::Call& call) {
  const std::string_view op = call.op;
  const View& y = call.operands[0];
  return (op == kernel::Fill::name && y.bytes() <= 1 << 20 && has_memory(y)) || op == kernel::BatchNormMerge::name ||
         (op == kernel::CopyBox::name && y.dtype == DType::i64 && has_memory(y) && has_memory(call.operands[1]));
}

namespace {

/// Adds the kernels and messages of a pass, which are not run, to the cost of its part.
class DryPass {
 public:
  DryPass(const DryRunOptions& o, const WeightReads& reads)
      : reads_(reads), rates_(o.rates), watch_([this](const LaunchWatch::Call& c) { see(c); }, LaunchWatch::Mode::dry) {
    if (o.meter) dry_.emplace(*o.meter, [this](const std::string& axis, const Call& c) { see(axis, c); });
  }
  void run(PartInfo& part, ActionKind during, double& seconds, const std::function<void()>& pass) {
    part_ = &part;
    during_ = during;
    seconds_ = &seconds;
    pass();
    part_ = nullptr;
  }

 private:
  void see(const LaunchWatch::Call& call) {
    if (runs_dry(call)) call.kernel();
    if (part_) reads_.see(call);
    if (part_) *seconds_ += std::max(operations_of(call) / rates_.flops, call.bytes / rates_.memory_bandwidth);
  }
  void see(const std::string& axis, const Call& call) {
    if (call.kind == CallKind::recv || !part_) return;
    auto& comms = part_->comms[during_];
    const char* const named = NamedRange::current();
    const std::string_view range = named ? named : "";
    const bool moves = range == move_gather || range == move_exchange || range == move_halo || range == move_scatter;
    const bool names = call.kind == CallKind::send ? moves : range == norm_statistics;
    const std::string_view move = names ? range : "";
    auto at = std::find_if(comms.begin(), comms.end(), [&](const PlannedCall& c) {
      return c.kind == call.kind && c.axis == axis && c.move == move;
    });
    if (at == comms.end())
      at = comms.insert(comms.end(), {.kind = call.kind, .axis = axis, .calls = 0, .move = std::string(move)});
    ++at->calls;
    at->bytes += payload_bytes(call);
  }

  const WeightReads& reads_;
  const DeviceRates rates_;
  PartInfo* part_ = nullptr;  // part of the current pass; also for the two members below
  double* seconds_ = nullptr;
  ActionKind during_ = ActionKind::forward;
  LaunchWatch watch_;
  std::optional<TrafficMeter::Dry> dry_;
};

/// Pretends that this rank has all weights and statistics: a dry run reads no values.
class AllHere {
 public:
  explicit AllHere(Parameters& parameters) {
    for (auto& e : parameters.entries()) see(e.tensor);
    for (auto& b : parameters.buffers()) see(b.tensor);
  }
  ~AllHere() {
    for (const Tensor& t : released_) t.impl()->released = true;
  }
  AllHere(const AllHere&) = delete;

 private:
  void see(const Tensor& t) {
    if (std::exchange(t.impl()->released, false)) released_.push_back(t);
  }
  std::vector<Tensor> released_;
};

}  // namespace

DType run_parts(const Chain& chain, std::vector<PartInfo>& parts, Tensor x, const DryRunOptions& o,
                const SpendOn& spend) {
  const GradMode on(true);
  const MemoryTracker tracker;
  const MemoryScope memory(tracker);
  const auto program_of = [&](const PartInfo& part) {  // -1: in no program
    const auto at = std::ranges::find(o.plan->parts, part.name, &PartInfo::name);
    return o.plan->program_of(at == o.plan->parts.end() ? -1 : static_cast<int>(at - o.plan->parts.begin()));
  };
  DType loss = DType::f32;
  Stashed stashed;
  for (int p = 0; p < chain.size(); ++p) {  // x and stashed tensors become the part's outputs, without history
    PartInfo& part = parts[p];
    part.cost = {};
    part.comms.clear();
    const auto run = [&](const char* range, ActionKind during, double& cost, const std::function<void()>& pass) {
      const NamedRange phase(range);  // same name as in a step: out-of-memory errors then name the same place
      spend(part, during, cost, pass);
    };
    const int from = o.plan && p > 0 ? program_of(parts[p - 1]) : -1, to = from >= 0 ? program_of(part) : -1;
    const auto leaf = [&](const Tensor& t) {
      Tensor in = t.detach();
      in.impl()->batch = t.impl()->batch;
      in.require_grad(is_float(t.dtype()) && (t.requires_grad() || (to >= 0 && to != from)));
      return chain.entering(in);
    };
    const Tensor in = leaf(x);
    Stashed before;
    for (auto& [name, t] : stashed) before.emplace(name, t = leaf(t));
    const auto kept = [&tracker] { return tracker.now(MemoryKind::activations) + tracker.now(MemoryKind::offloaded); };
    const Index saved = kept(), halos = tracker.now(MemoryKind::halos);
    std::vector<Tensor> roots;
    run("forward", ActionKind::forward, part.cost.forward, [&] { roots = {chain.run(p, in, stashed)}; });
    part.cost.saved = kept() - saved;
    part.cost.halo = tracker.now(MemoryKind::halos) - halos;
    x = roots[0];
    part.outputs = 1 + static_cast<int>(stashed.size());
    part.cost.output = x.view().bytes();
    for (auto& [name, t] : stashed) {
      part.cost.output += t.view().bytes();
      if (const auto was = before.find(name); was == before.end() || was->second.id() != t.id()) roots.push_back(t);
    }
    Tensor labels = o.labels;
    if (p + 1 == chain.size() && !labels && x.shard_spec()) {
      const Shape& whole = x.shard_spec()->global_shape();
      labels = Tensor::zeros(whole.without(whole.rank() - 1), DType::i64, x.device());
    }
    double of_loss = 0;  // seconds of the loss's backward, which are no part's
    if (p + 1 == chain.size() && o.loss && labels) {
      double nobodys = 0;
      x = map_fields(x, [&](const Tensor& t) {  // backward gets here behind the loss's own
        if (!t.requires_grad()) return t;
        Tensor behind = t.detach();
        behind.impl()->batch = t.impl()->batch;
        return record("loss", std::move(behind), {t}, [&](const Tensor& dy, Gradients& g) {
          of_loss = part.cost.backward_input;
          g.set_grad(0, dy);
        });
      });
      StepContext context = StepContext::current();
      context.ignored = 0;  // as if ignored labels were counted
      const StepScope scope(std::move(context));
      run("loss", ActionKind::loss, nobodys, [&] { roots = {o.loss(x, labels)}; });
      loss = roots[0].dtype();
    }
    std::erase_if(roots, [](const Tensor& t) { return !t.requires_grad(); });
    if (roots.empty()) continue;
    std::vector<Tensor> seeds;
    for (const Tensor& root : roots) seeds.push_back(Tensor::full(root.shape(), 1, root.dtype(), root.device()));
    Deferred weights;
    run("backward", ActionKind::backward_input, part.cost.backward_input,
        [&] { backward(roots, seeds, {.defer_weights = &weights, .hooks = false}); });
    part.cost.backward_input -= of_loss;
    run("backward", ActionKind::backward_weight, part.cost.backward_weight, [&] { weights.run(); });
  }
  return loss;
}

SkipValues::SkipValues()
    : writes_(
          [](const LaunchWatch::Call& call) {
            if (call.operands[0].bytes() <= static_cast<Index>(SkipCopies::most)) call.kernel();
          },
          LaunchWatch::Mode::dry) {}

DryRun dry_run(const Chain& chain, Parameters& parameters, std::vector<PartInfo> parts, const Tensor& x,
               const DryRunOptions& options) {
  check(std::ssize(parts) == chain.size(), "dry_run", "{} parts are given of a chain of {}", parts.size(),
        chain.size());
  const AllHere all(parameters);
  std::map<Index, DType> types;  // by first element of a weight
  const WeightReads reads(parameters, [&types](const Parameters::Entry& e, DType as) {
    DType& before = types.try_emplace(e.slice.begin, as).first->second;
    if (before != as) before = DType::f32;
  });
  const SkipCopies nothing_copied([&reads](const View& from) { reads.see(from); });
  DryPass dry(options, reads);
  const DType loss = run_parts(chain, parts, x, options, std::bind_front(&DryPass::run, &dry));
  for (PartInfo& part : parts) {
    part.read_as.clear();
    for (const auto& [begin, type] : types)
      if (is_half(type) && part.tensors.contains(begin)) part.read_as[begin] = type;
  }
  if (options.memory) count_memory(chain, parameters, parts, x, options);
  for (PartInfo& part : parts)
    for (double* seconds : {&part.cost.forward, &part.cost.backward_input, &part.cost.backward_weight})
      *seconds = std::max(*seconds, 1e-9);
  parameters.clear_grads();
  return {std::move(parts), loss};
}

}  // namespace trireme
