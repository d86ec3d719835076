#include "parallel/runtime/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/tensor/host_copy.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/core/runtime.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/norm_ranks.h"
#include "parallel/model/part_costs.h"
#include "parallel/runtime/executor.h"
#include "parallel/runtime/gatherer.h"
#include "parallel/runtime/loss_scale.h"
#include "parallel/runtime/non_finite.h"
#include "parallel/runtime/preflight.h"
#include "parallel/runtime/settings.h"
#include "parallel/runtime/step_graph.h"
#include "parallel/split/split.h"

namespace trireme {
namespace {

/// ReLU may turn NaN into 0, so that weights go bad behind a finite loss; looking at all gradients in every
/// step would cost too much.
constexpr std::int64_t gradient_check_period = 64;

Strategy chosen(std::optional<Strategy> given, Mesh& mesh) {
  if (given) return *std::move(given);
  return mesh.world().size() > 1 ? data_parallel() : Strategy();
}

/// The model as the strategy splits its layers. Rank 0's start is what counts, so it goes round while all ranks have
/// whole weights.
Module split_by(const Strategy& strategy, Module model, Mesh& mesh) {
  if (!strategy.split.any()) return model;
  model.visit(StateVisitor([&](const NamedState& leaf) { mesh.world().comm().broadcast(*leaf.tensor, 0).wait(); }));
  return split(model, mesh, strategy.split);
}

/// Those along which ranks hold different parts of the weights.
std::vector<std::string> layer_axes(StepOptions options, const SplitOptions& split) {
  for (const std::string& name : {split.tensor, split.one_weird})
    if (!name.empty()) options.layer_axes.push_back(name);
  return options.layer_axes;
}

/// What rank 0 measures on the example, so that all cut alike. Layers that are split over ranks need the others, too.
void measure(std::vector<PartInfo>& parts, const Chain& chain, Parameters& parameters, const Tensor& example, bool all,
             World& world) {
  std::vector<PartCost> costs(parts.size());
  if (world.rank() == 0 || all) costs = measure_costs(chain, parameters, example);
  const Tensor shared = Tensor::zeros({5 * static_cast<Index>(parts.size())}, DType::f64);
  auto* v = shared.data<double>();
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const PartCost& c = costs[i];
    const double saved = static_cast<double>(c.saved), output = static_cast<double>(c.output);
    for (double number : {c.forward, c.backward_input, c.backward_weight, saved, output}) *v++ = number;
  }
  world.comm().broadcast(shared, 0).wait();
  v = shared.data<double>();
  for (auto& part : parts) {
    part.cost = {v[0], v[1], v[2], static_cast<Index>(v[3]), static_cast<Index>(v[4])};
    v += 5;
  }
}

void compare_plans(Communicator& comm, const Plan& plan) {
  compare_ranks(comm, "step", plan.hash(), [&] {
    const std::string text = plan.to_string();  // the hash of the first line says nothing of where they differ
    return text.substr(text.find('\n') + 1) + fmt::format("plan hash {:016x}", plan.hash());
  });
}

Plan make_plan(const Strategy& strategy, const Chain& chain, Parameters& parameters, Mesh& mesh, const StepOptions& o) {
  auto parts = chain.parts(parameters);
  for (PartInfo& part : parts) part.divided = divided_over(parameters, part.slice);
  const Index buffers = parts.back().buffers.end;
  if (o.example && strategy.wants_costs && o.partition.empty())
    measure(parts, chain, parameters, o.example, strategy.split.any() || !o.layer_axes.empty(), mesh.world());
  Plan plan = serial(std::move(parts), parameters.size(), buffers, mesh.axes());
  plan.partition = o.partition;
  plan = strategy(std::move(plan));
  if (plan.roles.size() == 1) plan.partition.clear();
  return plan;
}

/// The ranks that hold one model, wherever it is split within layers.
std::unique_ptr<Communicator> split_replicas(Mesh& mesh, const std::vector<std::string>& layer_axes) {
  int color = 0;
  for (auto& axis : layer_axes) color = color * mesh.size(axis) + mesh.index(axis);
  return mesh.world().comm().split(color, mesh.world().rank());
}

void sum_in_place(Communicator& comm, const View& v) {
  const MemoryScope packed(MemoryKind::packed);
  const Tensor t = Tensor::empty(v.shape, v.dtype, v.device);
  copy_block(t, v);
  comm.all_reduce(t).wait();
  copy_block(v, t);
}

}  // namespace

struct Step::Impl {
  Impl(Module m, Loss l, OptimizerConfig recipe, std::unique_ptr<Mesh> owned, Mesh* given, std::optional<Strategy> s,
       StepOptions o)
      : loss(std::move(l)),
        options(o),
        own_mesh(std::move(owned)),
        mesh(own_mesh ? *own_mesh : *given),
        strategy(chosen(std::move(s), mesh)),
        everyone(mesh.world().comm().split(0, mesh.world().rank())),
        model(agreed(std::move(m), recipe)),
        chain(model),
        parameters(model),
        optimizer(parameters, std::move(recipe), o.optimizer),
        plan(make_plan(strategy, chain, parameters, mesh, o)),
        axis(batch_axis(plan, strategy.split)) {
    check_mesh(plan, mesh, layer_axes(options, strategy.split));
    if (options.refuse_unsound) check_sound(plan, mesh);
    refuse_shared_across_roles(plan, chain);
    check(strategy.split.one_weird.empty() || plan.roles.size() == 1, "step",
          "one_weird brings the rows of all ranks together, which stages of a pipeline have at different times: leave "
          "one of the two out");
    replicas = split_replicas(mesh, layer_axes(options, strategy.split));
    compare_plans(*replicas, plan);  // where layers are split, others have running statistics of other lengths
    broadcast_state(parameters, *replicas);
    make_communicators();
    executor = std::make_unique<Executor>(plan, role(), chain, loss, optimizer, mesh);
    optimizer.keep(executor->updated());
    if (options.cuda_graphs && StepGraph::serves(plan, mesh.world()))
      graph.emplace(plan.parts.front().device, parameters);
    if (plan.roles.size() > 1) stages = mesh.comm(plan.role_axis).split(0, mesh.index(plan.role_axis));
    if (mesh.size(axis) > 1) join(mesh.comm(axis));
    gatherer.emplace(plan, role(), mesh, optimizer, stages.get());
  }

  /// All ranks make those of all roles, in one order: a stage without parameters sums nothing, yet the others' making
  /// one is a call on it too.
  void make_communicators() {
    std::set<std::string> axes;
    for (auto& r : plan.roles)
      for (auto& a : r.actions)
        if (mesh.size(a.peer.axis) > 1) axes.insert(a.peer.axis);
    for (auto& name : axes) (void)mesh.comm(name);
  }

  /// The small sums in the midst of a pass have their own communicators, so that they cannot mix with the
  /// buckets'.
  void join(Communicator& data) {
    sums = data.split(0, data.rank());
    if (strategy.scope() == NormScope::global) norm = std::make_shared<CommunicatorNormRanks>(*sums);
    if (strategy.scope() != NormScope::group) return;
    check(strategy.norm_group > 0 && data.size() % strategy.norm_group == 0, "step",
          "batch norm groups of {} ranks do not divide {} ranks: set norm_group", strategy.norm_group, data.size());
    if (strategy.norm_group == 1) return;
    group = data.split(data.rank() / strategy.norm_group, data.rank());
    norm = std::make_shared<CommunicatorNormRanks>(*group);
  }

  /// The model, split as the strategy wants it, once all ranks are known to be about to do the same: what follows wants
  /// equal calls on all.
  Module agreed(Module m, const OptimizerConfig& recipe) {
    compare_ranks(*everyone, "step", options.settings);
    std::string text = settings_text(mesh, strategy, loss, recipe, options);
    if (options.layer_axes.empty()) text += model_text(m);
    compare_ranks(*everyone, "step", text);
    return split_by(strategy, std::move(m), mesh);
  }

  int role() const { return plan.roles.size() > 1 ? mesh.index(plan.role_axis) : 0; }
  Tensor run(const Tensor& x, const Tensor& y);
  void start(const Tensor& x, const Tensor& y);
  void replay();
  bool may_update(const Tensor& x);
  void gather();
  void share_loss();
  bool gradients_finite();
  StepContext make_pass(const Tensor& x, const Tensor& y);
  void check_share(const BatchContext&, Index rows);
  void number_rows(BatchContext&, Index rows);
  void refuse_non_finite(const Tensor& x);  ///< when a loss, or a gradient it looks at, is not finite

  Loss loss;
  StepOptions options;
  std::unique_ptr<Mesh> own_mesh;
  Mesh& mesh;
  Strategy strategy;
  std::unique_ptr<Communicator> everyone;  // all ranks
  Module model;
  Chain chain;
  Parameters parameters;
  Optimizer optimizer;
  Plan plan;
  std::string axis;  // along which ranks have different rows of the batch
  Recorder recorder;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Communicator> replicas;     // the ranks of one model
  std::unique_ptr<Communicator> sums, group;  // null: nobody to sum with
  std::shared_ptr<const NormRanks> norm;      // whose rows batch norm's statistics cover; null: this rank's
  std::unique_ptr<Communicator> stages;       // along the role axis; null: one role
  std::optional<Gatherer> gatherer;           // always there, once stages are known
  std::optional<StepGraph> graph;             // none: not asked for, or of no use
  bool is_recorded_or_traced = false, replayed = false;
  LossScale scale{options.loss_scale};
  Tensor global_loss;
  HostCopy loss_read;
  Work loss_work;
};

/// The loader's share must be the one that this rank is to take: a batch that is dealt otherwise would be trained with
/// rows missing or twice.
void Step::Impl::check_share(const BatchContext& batch, Index rows) {
  check(!batch.samples || batch.samples.numel() == rows, "step", "x has {} rows, but its batch names {} samples", rows,
        batch.samples ? batch.samples.numel() : 0);
  check(!batch.sliced, "step", "x holds some rows of a batch: a step takes all of this rank's share");
  const std::optional<RankShare>& got = batch.share;
  const RankShare mine{mesh.index(axis), mesh.size(axis), plan.micros};
  check(!got || (got->rank == mine.rank && got->size == mine.size), "step",
        "the loader deals share {} of {} of each batch, this rank is to take share {} of {}: give the loader "
        ".shard = step.shard()",
        got ? got->rank : 0, got ? got->size : 0, mine.rank, mine.size);
}

/// Rows of all ranks are the batch, in rank order.
void Step::Impl::number_rows(BatchContext& batch, Index rows) {
  const Tensor counts = Tensor::zeros({sums->size()}, DType::i64);
  auto count = counts.data<std::int64_t>();
  count[sums->rank()] = rows;
  sums->all_reduce(counts).wait();
  Index before = 0, total = 0;
  for (int r = 0; r < sums->size(); ++r) before += r < sums->rank() ? count[r] : 0, total += count[r];
  check(batch.global_batch == 0 || batch.global_batch == total, "step",
        "the global batch is said to have {} rows, the ranks brought {}: each sample must come to one rank, once",
        batch.global_batch, total);
  batch.global_batch = total;
  if (batch.samples) return;
  batch.samples = Tensor::empty({rows}, DType::i64);
  for (Index i = 0; i < rows; ++i) batch.samples.data<std::int64_t>()[i] = before + i;
}

StepContext Step::Impl::make_pass(const Tensor& x, const Tensor& y) {
  const Index rows = x.dim(0);
  check(!x.batch() || !y.batch() || x.batch()->global_batch == y.batch()->global_batch, "step",
        "x is of a batch of {} rows, y of one of {}", x.batch() ? x.batch()->global_batch : 0,
        y.batch() ? y.batch()->global_batch : 0);
  StepContext pass = StepContext::current();
  const bool training = pass.batch.training;
  BatchContext& batch = pass.batch = batch_of(x, y);
  batch.training = batch.training && training;
  check_share(batch, rows);
  batch.seed = options.seed;
  batch.step = static_cast<std::uint64_t>(optimizer.steps());
  batch.calls = {};
  if (sums && (!batch.share || batch.global_batch == 0 || !batch.samples)) number_rows(batch, rows);
  if (batch.global_batch == 0) batch.global_batch = rows;
  check(batch.global_batch > 0, "step", "the global batch has no rows");
  check(mesh.size(axis) > 1 || batch.global_batch == rows, "step",
        "the global batch has {} rows, {} have come to this rank, which is to have them all: give the loader "
        ".shard = step.shard()",
        batch.global_batch, rows);
  if (!sums) return pass;
  pass.sum = [comm = sums.get()](View v) { sum_in_place(*comm, v); };
  pass.norm = norm;
  return pass;
}

Tensor Step::Impl::run(const Tensor& x, const Tensor& y) {
  check(x.rank() > 0 && y.rank() > 0 && x.dim(0) == y.dim(0), "step", "x {} and y {} must have one row per sample",
        x.shape(), y.shape());
  const StepContext pass = make_pass(x, y);
  gatherer->begin_step();
  parameters.clear_grads();  // those of a step that was refused
  executor->scale_loss(scale.value());
  replayed = graph && !is_recorded_or_traced && graph->ready(*executor, x, y, pass, scale.value());
  if (replayed) {
    const StepScope scope(graph->captured_context(pass));
    replay();
  } else {
    const StepScope scope(pass);
    start(x, y);
  }
  return std::exchange(global_loss, {});
}

/// Kernel by kernel.
void Step::Impl::start(const Tensor& x, const Tensor& y) {
  executor->run(
      x, y,
      [this](const Tensor& share) {
        global_loss = share.clone();
        if (sums)
          loss_work = sums->all_reduce(global_loss);
        else if (options.check_finite && !stages)
          loss_read = HostCopy(global_loss);  // on its way while backward runs
      },
      [&] { return may_update(x); });
}

void Step::Impl::replay() {
  graph->replay([&] {
    if (options.check_finite) loss_read = HostCopy(graph->loss());
  });
  global_loss = graph->loss().clone();
  const Tensor x = graph->x();  // gather() before a refusal gives the graph up
  executor->update([&] { return may_update(x); });
}

bool Step::Impl::may_update(const Tensor& x) {
  loss_work.wait();
  if (stages) share_loss();
  if (options.check_finite) refuse_non_finite(x);
  return !scale.on() || scale.see(gradients_finite());
}

/// From the stage that has it to the others.
void Step::Impl::share_loss() {
  const int last = plan.role_of(chain.size() - 1);
  if (stages->rank() == last)
    global_loss = global_loss.to(parameters.dtype());
  else
    global_loss = Tensor::empty({}, parameters.dtype(), parameters.values().blocks().back().device());
  stages->broadcast(global_loss, last).wait();
}

void Step::Impl::gather() {
  if (graph) graph->drop();
  gatherer->gather();
}

/// Of all stages and shards, wherever they lie: every rank gets the same answer.
bool Step::Impl::gradients_finite() {
  const bool finite = std::isfinite(optimizer.grad_norm(executor->updated()));
  const Tensor all = Tensor::full({1}, finite ? 1 : 0, DType::i64);
  everyone->all_reduce(all, ReduceOp::min).wait();
  return all.item() == 1;
}

void Step::Impl::refuse_non_finite(const Tensor& x) {
  const double value = loss_read ? loss_read.item() : global_loss.item();
  std::string what = fmt::format("loss is {}", std::isnan(value) ? NAN : value);
  if (std::isfinite(value)) {
    if (scale.on() || optimizer.steps() % gradient_check_period != 0 || gradients_finite()) return;
    auto entry = parameters.first_non_finite_grad();
    what += fmt::format(", but the gradient{} is not finite", entry ? fmt::format(" of '{}'", entry->name) : "'s norm");
  }
  gather();
  auto place = first_non_finite(model, x, mesh.world().size() > 1 ? everyone.get() : nullptr);
  fail(fmt::format("step {}", optimizer.steps() + 1), "{}; {}", what,
       place.empty() ? "everything before it is finite" : "first seen in " + place);
}

Step::Step(Module model, Loss loss, OptimizerConfig recipe, World& world, std::optional<Strategy> strategy,
           StepOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), std::move(recipe), std::make_unique<Mesh>(world),
                                   nullptr, std::move(strategy), options)) {}
Step::Step(Module model, Loss loss, OptimizerConfig recipe, Mesh& mesh, std::optional<Strategy> strategy,
           StepOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), std::move(recipe), nullptr, &mesh,
                                   std::move(strategy), options)) {}
Step::~Step() = default;

Tensor Step::operator()(const Tensor& x, const Tensor& y) { return impl_->run(x, y); }
LossScaleState Step::loss_scale() const { return impl_->scale.state(); }
void Step::set_loss_scale(const LossScaleState& state) {
  check(state.scale >= 1 && state.good_steps >= 0 && state.good_steps < LossScale::period, "step",
        "a loss scale of {} with {} good steps: wants at least 1, and 0 to {} steps", state.scale, state.good_steps,
        LossScale::period - 1);
  if (impl_->scale.on()) impl_->scale.set(state);
}
Parameters& Step::parameters() { return impl_->parameters; }
Optimizer& Step::optimizer() { return impl_->optimizer; }
const Plan& Step::plan() const { return impl_->plan; }
const std::vector<Slice>& Step::updated() const { return impl_->executor->updated(); }
int Step::most_in_flight() const { return impl_->executor->most_in_flight(); }
RankShare Step::shard() const {
  return {impl_->mesh.index(impl_->axis), impl_->mesh.size(impl_->axis), impl_->plan.micros};
}
void Step::gather() { impl_->gather(); }
std::string Step::batch_norm() const {
  const bool any = !impl_->parameters.buffers().empty();
  return any ? impl_->strategy.batch_norm(impl_->mesh.size(impl_->axis), impl_->plan.micros) : "";
}
Claim Step::claim() const {
  return impl_->strategy.claim(!impl_->parameters.buffers().empty() && impl_->mesh.size(impl_->axis) > 1);
}
bool Step::divided() const {
  const auto& entries = impl_->parameters.entries();
  return std::any_of(entries.begin(), entries.end(), [](const Parameters::Entry& e) { return is_part(e.tensor); });
}
bool Step::replayed() const { return impl_->replayed; }
std::string Step::not_replayed() const { return impl_->graph ? impl_->graph->refusal() : ""; }
void Step::record(bool on) {
  if (impl_->graph) impl_->graph->drop();
  impl_->is_recorded_or_traced = on;
  impl_->executor->record(on ? &impl_->recorder : nullptr);
}
std::vector<RankMemory> Step::memory() {
  return impl_->recorder.gather_memory(impl_->mesh.world().comm(), impl_->optimizer);
}
Timeline Step::timeline() { return impl_->recorder.gather(impl_->mesh.world().comm(), impl_->role()); }
Module& Step::model() { return impl_->model; }

}  // namespace trireme
