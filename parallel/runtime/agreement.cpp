#include "parallel/runtime/agreement.h"

#include <fmt/format.h>

#include <cmath>

#include "framework/tensor/shard_spec.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"

namespace trireme {

Agreement::Agreement(Optimizer& optimizer, const Program& program, const std::vector<Slice>& updated,
                     const StepOptions& options)
    : scale(options.loss_scale), optimizer_(optimizer), updated_(updated), check_finite_(options.checks.finite) {
  const auto shards = names_in(shard_axis(program));
  for (const ParameterStore::Entry& e : optimizer.parameters().entries())
    if (const ShardSpec* spec = e.tensor.shard_spec())
      for (const std::string& name : shards)
        if (const int axis = spec->mesh().find(name); axis >= 0) shards_ |= 1u << axis;
}

void Agreement::begin() {
  count_ = loss_ = flags_ = square_ = ratios_ = {};
  summed_over_ = nullptr;
  told_.clear();
  finite_ = true;
  read_ = {};
  norm_ = NAN;
  has_norm_ = false;
}

void Agreement::set_loss(const Tensor& share, bool is_final) {
  loss_ = share;
  if (is_final && check_finite_) read_ = HostCopy(loss_);
}

Work Agreement::start(const Action& a, Communicator* comm) {
  if (a.payload == OperandKind::loss && a.peer.root >= 0) {
    const Parameters& parameters = optimizer_.parameters();
    const Device device = parameters.values().blocks().back().device();
    loss_ = comm->rank() == a.peer.root ? loss_.to(parameters.dtype()).to(device)
                                        : Tensor::empty({}, parameters.dtype(), device);
    return comm->broadcast(loss_, a.peer.root);
  }
  if (a.payload == OperandKind::loss) {
    if (loss_.device().kind == DeviceKind::cpu) return comm->all_reduce(loss_);
    read_ = HostCopy(loss_);
    summed_over_ = comm;
    return {};
  }
  if (a.payload == OperandKind::count) return comm ? comm->all_reduce(count_) : Work{};
  if (agrees_on_flags(a)) {
    std::vector<double> flags;
    for (const std::string& name : a.names) {
      if (name != finite_gradients) {
        flags.push_back(raised_.erase(name) == 0);
        continue;
      }
      const std::vector<Slice> slices = detail::joined(updated_);  // of adjacent updates
      const double norm = optimizer_.grad_norm(slices, shards_);
      // A weight that is not finite may not affect the loss or a gradient: relu and max-pooling treat NaN as small.
      flags.push_back(std::isfinite(norm) && (scale.on() || optimizer_.has_finite_values(slices)));
      if (shards_ == 0 && slices == std::vector<Slice>{{0, optimizer_.parameters().size()}}) norm_ = norm;
    }
    flags_ = Tensor::of(flags, {std::ssize(flags)}, DType::i64);
    return comm ? comm->all_reduce(flags_, ReduceOp::min) : Work{};
  }
  if (!square_) square_ = Tensor::full({1}, std::pow(optimizer_.grad_norm(updated_, shards_), 2), DType::f64);
  return comm ? comm->all_reduce(square_) : Work{};
}

Work Agreement::start_ratios(const std::vector<Slice>& updated, const std::vector<Slice>& copies, double grad_scale,
                             Communicator* comm) {
  if (!ratios_) {
    ratios_ = optimizer_.start_update(updated, grad_scale, shards_);
    const auto& entries = optimizer_.parameters().entries();
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (overlaps(copies, entries[i].slice))
        for (const std::size_t row : {0, 1}) ratios_.data<double>()[row * entries.size() + i] = 0;
  }
  return comm ? comm->all_reduce(ratios_) : Work{};
}

void Agreement::finish(const Action& a) {
  if (a.payload == OperandKind::ratios && ratios_) optimizer_.set_squares(ratios_);
  if (Communicator* comm = a.payload == OperandKind::loss ? std::exchange(summed_over_, nullptr) : nullptr) {
    loss_ = Tensor::scalar(read_.item(), loss_.dtype());
    read_ = {};
    comm->all_reduce(loss_).wait();
  }
  if (!agrees_on_flags(a)) return;
  const auto* flag = flags_.data<std::int64_t>();
  for (const std::string& name : a.names) {
    const bool raised = *flag++ == 0;
    if (name == finite_gradients)
      finite_ = !raised;
    else if (raised)
      told_.insert(name);
  }
}

std::string Agreement::fault() {
  if (!check_finite_) return "";
  const double value = read_ ? read_.item() : loss_.item();
  if (!std::isfinite(value)) return fmt::format("loss is {}", std::isnan(value) ? NAN : value);
  if (scale.on()) return "";
  if (optimizer_.wants_norm()) find_norm();
  if (finite_ && (!optimizer_.wants_norm() || std::isfinite(norm_))) return "";
  const auto told = [&](const std::string& what) {
    return fmt::format("loss is {}, but {} is not finite", value, what);
  };
  if (const auto entry = optimizer_.parameters().first_non_finite_grad())
    return told(fmt::format("the gradient of '{}'", entry->name));
  if (const auto entry = optimizer_.parameters().first_non_finite_value(updated_))
    return told(fmt::format("the weight '{}'", entry->name));
  return told("a weight or gradient");
}

double Agreement::clip_scale() {
  if (!optimizer_.wants_norm()) return 1;
  find_norm();
  return optimizer_.clip_scale(norm_);
}

void Agreement::find_norm() {
  if (has_norm_) return;
  norm_ = square_ ? std::sqrt(square_.item()) : optimizer_.grad_norm(updated_);
  has_norm_ = true;
}

}  // namespace trireme
