#include "parallel/runtime/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

#include "framework/tensor/shard_spec.h"
#include "parallel/async/channels.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/gather_layout.h"
#include "parallel/runtime/consolidator.h"
#include "parallel/runtime/executor.h"
#include "parallel/runtime/initial_weights.h"
#include "parallel/runtime/non_finite.h"
#include "parallel/runtime/output_keeper.h"
#include "parallel/runtime/settings.h"
#include "parallel/runtime/step_flags.h"
#include "parallel/runtime/step_forward.h"
#include "parallel/runtime/step_graph.h"
#include "parallel/runtime/step_plan.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"
#include "parallel/runtime/step_tickets.h"
#include "parallel/runtime/traffic_audit.h"
#include "parallel/strategies/on_call.h"

namespace trireme {

struct Step::Impl {
  Impl(Module m, Loss l, OptimizerConfig optimizer_config, std::unique_ptr<Mesh> owned, Mesh* given,
       std::optional<Strategy> s, StepOptions o)
      : options(std::move(o)),
        own_mesh(std::move(owned)),
        mesh(own_mesh ? *own_mesh : *given),
        strategy(std::move(s).value_or(mesh.world().size() > 1 ? data_parallel() : Strategy())),
        model(agreed(std::move(m), l, optimizer_config)),
        chain(model, options.keep_outputs ? Loss() : l),
        parameters(model, options.initialize.has_value()),
        optimizer(parameters, std::move(optimizer_config), options.optimizer),
        plan(make_plan(strategy, chain, l, optimizer, mesh, options)),
        ranks(plan, mesh, strategy, tensor_parallel_axes(options, strategy.split)),
        audit(plan, program(), chain, optimizer, l, mesh),
        kept(options.keep_outputs, plan.microbatches),
        channels(plan, plan.programs[static_cast<std::size_t>(program())], parameters, mesh),
        executor(plan, program(), chain, kept.watching(std::move(l)), optimizer, mesh, ranks, channels, options),
        consolidator(plan, program(), mesh, optimizer),
        forward(plan, program(), chain, parameters, mesh, consolidator) {
    optimizer.keep(executor.updated());
    if (options.initialize)
      draw_weights(*options.initialize);
    else
      audit.on_call(phases::set_up, [&] { consolidator.run(phases::set_up); });
    if (options.profile.example && mesh.world().size() > 1) declare_comms();  // a single rank sends nothing
    if (options.cuda_graphs && StepGraph::serves(plan)) graph.emplace(plan.parts.front().device, parameters);
  }

  /// Flushes steps in flight: their messages could be received by another Step on these ranks.
  ~Impl() {
    if (std::uncaught_exceptions() > unwinding || executor.in_midst()) return;
    try {
      executor.flush();
    } catch (...) {}  // the job has failed, which other ranks report
  }

  /// The model, split as the strategy needs it. First checks that all ranks make the same calls, because the later code
  /// needs equal calls on all ranks.
  Module agreed(Module m, const Loss& l, const OptimizerConfig& optimizer_config) {
    Communicator& everyone = mesh.world().comm();
    compare_ranks(everyone, "step", options.settings);
    std::string text = settings_text(mesh, strategy, l, optimizer_config, options);
    if (options.layer_axes.empty()) text += model_text(m);
    compare_ranks(everyone, "step", text);
    if (options.initialize) initial.emplace(m);
    return split_layers(strategy, std::move(m), mesh, options.profile.example, !options.initialize);
  }

  void draw_weights(std::uint64_t seed) {
    initial->draw(parameters, consolidator.allocate(), seed);
    initial.reset();
  }

  int program() const {
    return plan.program_at([&](const std::string& axis) { return mesh.index(axis); });
  }

  bool serves() const { return plan.programs[static_cast<std::size_t>(program())].serves(); }

  void declare_comms() {
    const Tensor x = microbatch_example(plan, strategy, options.profile);
    const auto parts = audit.dry(ranks.surroundings(), x, {}).parts;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      plan.parts[p].comms = parts[p].comms;
      plan.parts[p].outputs = parts[p].outputs;
      plan.parts[p].read_as = parts[p].read_as;
    }
    agree_on_types();
  }

  /// Keeps the types of PartInfo::read_as that all ranks have found: the ranks of a gather must send the same blocks.
  void agree_on_types() {
    const auto is_as_read = [](const Action& a) { return find_argument(a, GatherLayout::as_read).has_value(); };
    const auto gathers = [&](const Program& p) { return std::ranges::any_of(p.actions, is_as_read); };
    if (std::ranges::none_of(plan.programs, gathers)) return;
    std::map<Index, std::int64_t> found;  // by first element; 0: f32
    for (const PartInfo& part : plan.parts) {
      for (const auto& [begin, shape] : part.tensors) found[begin] = 0;
      for (const auto& [begin, type] : part.read_as) found[begin] = 1 + static_cast<std::int64_t>(type);
    }
    const auto count = std::ssize(parameters.entries());
    const Tensor both = Tensor::empty({2 * count}, DType::i64);  // the largest type of any rank, and less the smallest
    std::int64_t* const most = both.data<std::int64_t>();
    for (Index i = 0; i < count; ++i) {
      constexpr std::int64_t none = -1000;  // a tensor of which this rank has no part
      const auto at = found.find(parameters.entries()[static_cast<std::size_t>(i)].slice.begin);
      most[i] = at == found.end() ? none : at->second;
      most[count + i] = at == found.end() ? none : -at->second;
    }
    mesh.world().comm().all_reduce(both, ReduceOp::max).wait();
    for (Index i = 0; i < count; ++i)
      if (most[i] != -most[count + i])
        for (PartInfo& part : plan.parts)
          part.read_as.erase(parameters.entries()[static_cast<std::size_t>(i)].slice.begin);
  }

  bool shares() const { return plan.tickets > 0; }

  /// The share of the next step, for which the optimizer then has the learning rate; none: no ticket is left, or the
  /// plan has none.
  std::optional<RankShare> next_share() {
    if (!shares() || channels.tickets().empty()) return {};
    const Ticket ticket = ticket_of(plan, channels.tickets().front());
    optimizer.set_steps(first + ticket.batch);
    return ticket.share;
  }

  Tensor run(const Tensor& x, const Tensor& y) {
    const std::optional<RankShare> share = next_share();
    check(share || !shares(), "step", "no ticket is left: after open(), train only the batches of granted()");
    if (serves()) return serve(x, y);
    const std::int64_t number = executor.steps();
    const StepContext context = ranks.context(x, y, options.seed, static_cast<std::uint64_t>(number), share);
    consolidator.begin_step();
    if (!executor.in_flight().any()) parameters.clear_grads();  // gradients of a refused step
    audit.begin(context, x, y, number, executor.in_flight().first(number));
    train(x, y, context);
    if (share) {
      channels.end_ticket();
      --told;
    }
    return executor.agreement().take_loss();
  }

  /// Runs the passes and the update. A captured graph runs the passes if there is one for this kind of step.
  void train(const Tensor& x, const Tensor& y, const StepContext& context) {
    const double loss_scale = executor.agreement().scale.value();
    optimizer.set_loss_scale(loss_scale);
    kept.begin(graph.has_value());
    StepContext scaled = context;
    scaled.loss_scale = loss_scale;
    replayed = graph && !recording && graph->ready(executor, x, y, scaled, loss_scale);
    const StepScope scope(replayed ? graph->captured_context(scaled) : scaled);
    const Tensor input = replayed ? graph->x() : x;  // gather_weights() before a refusal drops the graph
    const std::string fault = replayed ? executor.run(graph->x(), graph->y(), &*graph) : executor.run(x, y);
    consolidator.end_step();
    kept.end(replayed);
    audit.end();
    if (!fault.empty()) refuse(fault, input);
  }

  Tensor serve(const Tensor& x, const Tensor& y) {
    consolidator.begin_step();
    audit.begin(ranks.surroundings(), x, y, optimizer.steps(), 0);
    executor.serve();
    audit.end();
    return executor.agreement().take_loss();
  }

  /// Throws Error with the first tensor that is not finite.
  [[noreturn]] void refuse(const std::string& fault, const Tensor& x) {
    const bool alone = meets_by_messages(plan);  // other ranks wait for messages, or continue, meanwhile
    const std::int64_t number = executor.steps() + !executor.in_flight().any();
    if (alone) {
      executor.break_off();
    } else {
      audit.on_call(phases::flush, [&] { executor.flush(true); });
      gather_weights();
    }
    std::string place;
    StepContext context = StepContext::current();
    context.divided_outputs = chain.divided_outputs();
    const StepScope as_trained(std::move(context));
    audit.on_call(phases::diagnosis, [&] { place = first_non_finite(model, x, alone ? nullptr : everyone()); });
    const char* const hint = sums_in_f16(plan) ? ". Sums in f16 end at 65504: use compress(codec=bf16), or a smaller "
                                                 "learning rate"
                                               : "";
    throw NonFiniteError(fmt::format("step {}: {}; {}{}", number, fault,
                                     !place.empty() ? "first seen in " + place
                                     : alone        ? "everything before it is finite on this rank"
                                                    : "everything before it is finite",
                                     hint),
                         std::source_location::current());
  }

  void flush() {
    audit.on_call(phases::flush, [&] { executor.flush(); });
  }

  /// Before a collective call: completes messages that other ranks wait for.
  void meet() {
    if (meets_by_messages(plan)) flush();
  }

  void gather_weights() {
    if (graph) graph->drop();
    flush();
    audit.on_call(phases::evaluation, [&] { consolidator.gather_weights(); });
  }

  /// All ranks, for phases on call; null: this rank is alone.
  Communicator* everyone() {
    const std::string axes = all_axes(plan);
    return axes.empty() ? nullptr : &mesh.comm(axes);
  }

  /// If ranks train separately, the weights in a checkpoint that all ranks may load are their mean.
  CheckpointShard checkpoint_shard() {
    check(!shares() || left == 0, "step", "a checkpoint before close() could not be resumed: close() first");
    flush();
    if (consolidator.own().differ() && !consolidator.own().served()) gather_weights();
    return shard_of_checkpoint();
  }

  CheckpointShard shard_of_checkpoint() {
    CheckpointShard shard = consolidator.checkpoint_shard();
    if (Communicator* all = everyone())
      shard.all_gather = [this, all](const std::string& mine) { return audit.gather(*all, mine); };
    if (!depends_on_arrivals(plan) && !(consolidator.own().differ() && consolidator.own().served())) return shard;
    shard.local["optimizer.steps"] = Tensor::full({1}, static_cast<double>(optimizer.steps()), DType::i64);
    channels.save(shard.local);
    return shard;
  }

  /// Before weights are overwritten: ends what belongs to the old ones, and keeps only what a rank holds between steps.
  void forget_weights() {
    if (graph) graph->drop();
    left = told = 0;   // open batches and messages belong to the old steps
    executor.flush();  // ends messages in flight
    consolidator.end_step();
    consolidator.release();
  }

  std::vector<std::string> import_weights(const std::string& path) {
    forget_weights();
    return import_but_head(path, parameters, shard_of_checkpoint());
  }

  LoadedCheckpoint load_weights(const std::string& directory) {
    forget_weights();
    return trireme::load_checkpoint(directory, parameters, nullptr, shard_of_checkpoint());
  }

  LoadedCheckpoint load_checkpoint(const std::string& directory) {
    forget_weights();
    optimizer.keep(executor.updated());
    CheckpointShard shard = shard_of_checkpoint();
    LoadedCheckpoint loaded = trireme::load_checkpoint(directory, parameters, &optimizer, shard);
    for (auto& [name, tensor] : shard.local)  // states of the plan, which older checkpoints do not have
      if (const auto at = loaded.local.find(name); at != loaded.local.end() && !name.starts_with("inbox."))
        tensor.copy_from(at->second);
    if (const auto at = loaded.local.find("optimizer.steps"); at != loaded.local.end()) {
      optimizer.set_steps(static_cast<std::int64_t>(at->second.item()));
      channels.load(loaded.local);
    } else {
      channels.arrivals().load({});  // a different layout: the order since the start of the run is unknown
    }
    return loaded;
  }

  StepOptions options;
  std::unique_ptr<Mesh> own_mesh;
  Mesh& mesh;
  Strategy strategy;
  std::optional<InitialWeights> initial;  // until the weights are drawn; none: the caller has initialized the model
  Module model;
  Chain chain;
  Parameters parameters;
  Optimizer optimizer;
  Plan plan;
  StepRanks ranks;
  Recorder recorder;
  TrafficAudit audit;
  OutputKeeper kept;
  Channels channels;
  Executor executor;
  Consolidator consolidator;
  PartsForward forward;
  std::optional<StepGraph> graph;  // none: not asked for, or not possible
  bool recording = false, replayed = false;
  std::int64_t left = 0, told = 0, first = 0;  // open batches; tickets returned so far; number of steps before these
                                               // batches
  const int unwinding = std::uncaught_exceptions();
};

Step::Step(Module model, Loss loss, OptimizerConfig optimizer_config, World& world, std::optional<Strategy> strategy,
           StepOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), std::move(optimizer_config),
                                   std::make_unique<Mesh>(world), nullptr, std::move(strategy), std::move(options))) {}
Step::Step(Module model, Loss loss, OptimizerConfig optimizer_config, Mesh& mesh, std::optional<Strategy> strategy,
           StepOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), std::move(optimizer_config), nullptr, &mesh,
                                   std::move(strategy), std::move(options))) {}
Step::~Step() = default;

Tensor Step::operator()(const Tensor& x, const Tensor& y) { return impl_->run(x, y); }
Parameters& Step::parameters() { return impl_->parameters; }
Optimizer& Step::optimizer() { return impl_->optimizer; }
const Plan& Step::plan() const { return impl_->plan; }
Module& Step::model() { return impl_->model; }
RankShare Step::shard() const { return impl_->ranks.share(); }
void Step::flush() { impl_->flush(); }
void Step::gather_weights() { impl_->gather_weights(); }
CheckpointShard Step::checkpoint_shard() { return impl_->checkpoint_shard(); }
LoadedCheckpoint Step::load_checkpoint(const std::string& directory) { return impl_->load_checkpoint(directory); }

void StepFlags::raise(const std::string& flag) {
  const auto& flags = step_.plan.flags;
  check(std::ranges::find(flags, flag) != flags.end(), "step",
        "there is no flag '{}': name it in StepOptions::flags (with servers and asynchronous gossip there are no flags "
        "yet)",
        flag);
  step_.executor.agreement().raise(flag);
}
bool StepFlags::raised(const std::string& flag) const { return step_.executor.agreement().told(flag); }

bool StepForward::is_needed() const { return step_.forward.is_needed(); }
RankShare StepForward::share() const { return {step_.ranks.share().rank, step_.ranks.share().size}; }
World& StepForward::world() const { return step_.mesh.world(); }
Tensor StepForward::operator()(const Tensor& x, const PartsForward::RunPart& run) const {
  step_.flush();
  return step_.forward(x, run);
}

void StepTickets::open(std::int64_t batches) {
  check(batches > 0 && step_.left == 0, "step",
        "open({}): expected at least 1 batch, and a close() since the last open()", batches);
  step_.left = batches;
  step_.told = 0;
  step_.first = step_.executor.steps();
  if (!step_.shares()) return;
  const Program& program = step_.plan.programs[static_cast<std::size_t>(step_.program())];
  step_.channels.open(batches, step_.first / (step_.serves() ? updates_in_step(step_.plan, program) : 1));
}

std::vector<Ticket> StepTickets::granted() {
  std::vector<Ticket> all;
  if (!step_.shares())
    while (step_.told < step_.left) all.push_back({step_.told++, step_.ranks.share()});
  else
    for (const auto& held = step_.channels.tickets(); step_.told < std::ssize(held);)
      all.push_back(ticket_of(step_.plan, held[static_cast<std::size_t>(step_.told++)]));
  step_.next_share();
  return all;
}

void StepTickets::close() {
  const std::int64_t batches = std::exchange(step_.left, 0);
  if (!step_.shares() || batches == 0) return;
  step_.consolidator.begin_step();
  if (step_.serves()) return step_.audit.add_sent([&] { step_.executor.serve(); });
  const auto tickets = std::ssize(step_.channels.tickets());
  check(tickets == 0, "step", "close(): this rank has {} tickets that it has not trained: train them first", tickets);
  step_.audit.add_sent([&] { step_.executor.serve(); });
  (void)step_.executor.agreement().take_loss();
  step_.optimizer.set_steps(step_.first + batches);
}

std::vector<std::string> StepResume::import_weights(const std::string& path) { return step_.import_weights(path); }
LoadedCheckpoint StepResume::load_weights(const std::string& directory) { return step_.load_weights(directory); }
LossScaleState StepResume::loss_scale() const { return step_.executor.agreement().scale.state(); }
void StepResume::set_loss_scale(const LossScaleState& state) {
  check(state.scale >= 1 && state.good_steps >= 0 && state.good_steps < LossScale::period, "step",
        "a loss scale of {} with {} good steps: expected at least 1, and 0 to {} steps", state.scale, state.good_steps,
        LossScale::period - 1);
  if (step_.executor.agreement().scale.on()) step_.executor.agreement().scale.set(state);
}
void StepResume::replay(const std::string& checkpoint) {
  check(depends_on_arrivals(step_.plan), "replay",
        "no rank's steps depend on the order of messages, so there is no order to repeat: leave the call out");
  step_.channels.replay(read_local_state(checkpoint, step_.shard_of_checkpoint()));
}

Tensor StepProbe::outputs() const { return step_.kept.outputs(); }
Tensor StepProbe::targets() const { return step_.kept.targets(); }
double StepProbe::grad_norm() const { return step_.executor.agreement().norm(); }
void StepProbe::consolidate() {
  step_.gather_weights();
  step_.audit.on_call(phases::consolidation, [&] { step_.consolidator.gather_state(); });
}
void StepProbe::record(bool on) {
  if (step_.graph) step_.graph->drop();
  step_.recording = on;
  step_.executor.record(on ? &step_.recorder : nullptr);
}
Timeline StepProbe::timeline() {
  step_.meet();
  return step_.recorder.gather(step_.mesh.world().comm(), step_.program());
}
std::vector<RankMemory> StepProbe::memory() {
  step_.meet();
  return step_.recorder.gather_memory(step_.mesh.world().comm(), step_.optimizer);
}
StepTraffic StepProbe::traffic(const std::string& phase) const { return step_.audit.compare(phase); }
Index StepProbe::bytes_sent() const { return step_.audit.sent(); }
int StepProbe::most_in_flight() const { return step_.executor.most_in_flight(); }
bool StepProbe::replayed() const { return step_.replayed; }
std::string StepProbe::not_replayed() const { return step_.graph ? step_.graph->refusal() : ""; }
const std::vector<Slice>& StepProbe::updated() const { return step_.executor.updated(); }
bool StepProbe::trains_apart() const { return step_.ranks.trains_apart(); }
bool StepProbe::is_tensor_parallel() const {
  return std::ranges::any_of(step_.parameters.entries(), [](const auto& e) { return is_part(e.tensor); });
}
const SplitOptions& StepProbe::split() const { return step_.strategy.split; }
Claim StepProbe::claim() const {
  return step_.strategy.claim(!step_.parameters.buffers().empty() && step_.ranks.share().size > 1);
}
std::string StepProbe::batch_norm() const {
  const bool any = !step_.parameters.buffers().empty();
  return any ? step_.strategy.batch_norm(step_.ranks.share().size, step_.plan.microbatches) : "";
}
std::string StepProbe::evaluated_weights() const {
  const OwnWeights& own = step_.consolidator.own();
  return own.served() ? "the servers' weights" : own.differ() ? "the mean of all workers' weights" : "";
}

}  // namespace trireme
