#include "parallel/step.h"

#include <fmt/format.h>

#include <cmath>

#include "framework/pass.h"
#include "kernels/runtime.h"
#include "parallel/executor.h"
#include "parallel/non_finite.h"

namespace trireme {
namespace {

/// ReLU may turn NaN into 0, so that weights go bad behind a finite loss; looking at all gradients in every
/// step would cost too much.
constexpr std::int64_t gradient_check_period = 64;

/// The mesh axis over which a plan sums gradients.
std::string reduced_axis(const Plan& plan) {
  for (auto& role : plan.roles)
    for (auto& a : role.actions)
      if (a.verb == Verb::all_reduce || a.verb == Verb::reduce_scatter) return a.peer.axis;
  return "data";
}

Plan make_plan(const Strategy& strategy, const Chain& chain, const Parameters& parameters) {
  Index buffers = 0;
  for (auto& b : parameters.buffers()) buffers += b.tensor.numel();
  return strategy(serial(chain.parts(parameters), parameters.size(), buffers));
}

void check_plan(const Plan& plan, const Mesh& mesh, const std::string& axis) {
  for (auto& a : mesh.axes())
    check(a.name == axis || a.size == 1, "step", "mesh axis '{}' has {} ranks, but strategy '{}' uses only '{}'",
          a.name, a.size, plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | ")),
          axis);
  auto faults = check(plan, mesh.size(axis));
  check(faults.empty(), "plan", "{}", fmt::join(faults, "\n      "));
  check(plan.roles.size() == 1, "step", "the plan has {} roles; one is what can be run", plan.roles.size());
}

/// Throws on every rank, and names the odd ones, unless all ranks are about to do the same.
void compare(World& world, const Plan& plan, const std::string& what) {
  if (world.size() == 1) return;
  Plan signature = plan;
  signature.strategies.push_back(what);
  const Tensor mine = Tensor::empty({1}, DType::i64), all = Tensor::empty({world.size()}, DType::i64);
  *mine.data<std::int64_t>() = static_cast<std::int64_t>(signature.hash());
  world.comm().all_gather(all, mine).wait();
  auto hashes = all.view().as<std::uint64_t>();
  std::string others;
  for (int r = 1; r < world.size(); ++r)
    if (hashes[r] != hashes[0])
      others += fmt::format("{}rank {} has {:016x}", others.empty() ? "" : ", ", r, hashes[r]);
  check(others.empty(), "step",
        "the ranks are not about to do the same: rank 0 has plan {:016x}, {}. Here, on rank {}: {} parts, {} "
        "parameters, {}",
        hashes[0], others, world.rank(), plan.parts.size(), plan.parameters, what);
}

void sum_in_place(Communicator& comm, const View& v) {
  const Tensor t = Tensor::empty(v.shape, v.dtype, v.device);
  runtime(v.device.kind).copy(t.view().data, v.data, static_cast<std::size_t>(v.bytes()), v.device);
  comm.all_reduce(t).wait();
  runtime(v.device.kind).copy(v.data, t.view().data, static_cast<std::size_t>(v.bytes()), v.device);
}

}  // namespace

struct Step::Impl {
  Impl(Module m, Loss l, Recipe recipe, std::unique_ptr<Mesh> owned, Mesh* given, std::optional<Strategy> s,
       StepOptions o)
      : loss(std::move(l)),
        options(o),
        own_mesh(std::move(owned)),
        mesh(own_mesh ? *own_mesh : *given),
        model(std::move(m)),
        chain(model),
        parameters(model),
        optimizer(parameters, std::move(recipe), o.optimizer),
        strategy(s                         ? *std::move(s)
                 : mesh.world().size() > 1 ? data_parallel()
                                           : Strategy()),
        plan(make_plan(strategy, chain, parameters)) {
    const std::string axis = reduced_axis(plan);
    check_plan(plan, mesh, axis);
    compare(mesh.world(), plan,
            fmt::format("{} {}, optimizer {}, batch norm scope {} by {}, seed {}, clip {}", strategy.name(),
                        parameters.dtype(), optimizer.name(), static_cast<int>(strategy.norm_scope),
                        strategy.norm_group, o.seed, o.optimizer.clip_norm));
    broadcast_state(parameters, mesh.world());
    broadcast_state(optimizer, mesh.world());
    executor = std::make_unique<Executor>(plan, 0, chain, loss, optimizer, mesh);
    if (mesh.size(axis) > 1) join(mesh.comm(axis));
  }

  /// The small sums in the midst of a pass have their own communicators, so that they cannot mix with the
  /// buckets'.
  void join(Communicator& data) {
    sums = data.split(0, data.rank());
    if (strategy.norm_scope != NormScope::group) return;
    check(strategy.norm_group > 0 && data.size() % strategy.norm_group == 0, "step",
          "batch norm groups of {} ranks do not divide {} ranks: set norm_group", strategy.norm_group, data.size());
    if (strategy.norm_group > 1) norm = data.split(data.rank() / strategy.norm_group, data.rank());
  }

  Tensor run(const Tensor& x, const Tensor& y);
  Pass make_pass(Index rows);
  void number_rows(Pass&, Index rows);
  void refuse_non_finite(const Tensor& x);  ///< when a loss, or a gradient it looks at, is not finite

  Loss loss;
  StepOptions options;
  std::unique_ptr<Mesh> own_mesh;
  Mesh& mesh;
  Module model;
  Chain chain;
  Parameters parameters;
  Optimizer optimizer;
  Strategy strategy;
  Plan plan;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Communicator> sums, norm;  // null: nobody to sum with
  Tensor global_loss;
  Work loss_work;
};

/// Rows of all ranks are the batch, in rank order.
void Step::Impl::number_rows(Pass& pass, Index rows) {
  const Tensor counts = Tensor::zeros({sums->size()}, DType::i64);
  auto count = counts.data<std::int64_t>();
  count[sums->rank()] = rows;
  sums->all_reduce(counts).wait();
  Index before = 0, total = 0;
  for (int r = 0; r < sums->size(); ++r) before += r < sums->rank() ? count[r] : 0, total += count[r];
  if (pass.global_batch == 0) pass.global_batch = total;
  if (pass.samples) return;
  pass.samples = Tensor::empty({rows}, DType::i64);
  for (Index i = 0; i < rows; ++i) pass.samples.data<std::int64_t>()[i] = before + i;
}

Pass Step::Impl::make_pass(Index rows) {
  Pass pass = Pass::current();
  check(!pass.samples || pass.samples.numel() == rows, "step",
        "x has {} rows, but the loader's batch at hand has {} here", rows, pass.samples ? pass.samples.numel() : 0);
  pass.seed = options.seed;
  pass.step = static_cast<std::uint64_t>(optimizer.steps());
  if (sums && (pass.global_batch == 0 || !pass.samples)) number_rows(pass, rows);
  if (pass.global_batch == 0) pass.global_batch = rows;
  check(pass.global_batch > 0, "step", "the global batch has no rows");
  if (!sums) return pass;
  pass.sum = [comm = sums.get()](View v) { sum_in_place(*comm, v); };
  if (strategy.norm_scope == NormScope::global) pass.norm_sum = pass.sum;
  if (norm) pass.norm_sum = [comm = norm.get()](View v) { sum_in_place(*comm, v); };
  return pass;
}

Tensor Step::Impl::run(const Tensor& x, const Tensor& y) {
  check(x.rank() > 0 && y.rank() > 0 && x.dim(0) == y.dim(0), "step", "x {} and y {} must have one row per sample",
        x.shape(), y.shape());
  PassScope scope(make_pass(x.dim(0)));
  executor->run(
      x, y,
      [this](const Tensor& share) {
        global_loss = share.clone();
        if (sums) loss_work = sums->all_reduce(global_loss);
      },
      [&] {
        loss_work.wait();
        if (options.check_finite) refuse_non_finite(x);
      });
  return std::exchange(global_loss, {});
}

void Step::Impl::refuse_non_finite(const Tensor& x) {
  const double value = global_loss.item();
  std::string what = fmt::format("loss is {}", std::isnan(value) ? NAN : value);
  if (std::isfinite(value)) {
    if (optimizer.steps() % gradient_check_period != 0 || std::isfinite(optimizer.grad_norm())) return;
    auto entry = parameters.first_non_finite_grad();
    what += fmt::format(", but the gradient{} is not finite", entry ? fmt::format(" of '{}'", entry->name) : "'s norm");
  }
  auto place = first_non_finite(model, x, sums.get());
  fail(fmt::format("step {}", optimizer.steps() + 1), "{}; {}", what,
       place.empty() ? "everything before it is finite" : "first seen in " + place);
}

Step::Step(Module model, Loss loss, Recipe recipe, World& world, std::optional<Strategy> strategy, StepOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), std::move(recipe), std::make_unique<Mesh>(world),
                                   nullptr, std::move(strategy), options)) {}
Step::Step(Module model, Loss loss, Recipe recipe, Mesh& mesh, std::optional<Strategy> strategy, StepOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(loss), std::move(recipe), nullptr, &mesh,
                                   std::move(strategy), options)) {}
Step::~Step() = default;

Tensor Step::operator()(const Tensor& x, const Tensor& y) { return impl_->run(x, y); }
Parameters& Step::parameters() { return impl_->parameters; }
Optimizer& Step::optimizer() { return impl_->optimizer; }
const Plan& Step::plan() const { return impl_->plan; }
Module& Step::model() { return impl_->model; }

}  // namespace trireme
