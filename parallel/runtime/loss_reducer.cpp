#include "parallel/runtime/loss_reducer.h"

#include <fmt/format.h>

#include <cmath>

namespace trireme {
namespace {

/// ReLU may turn NaN into 0, so that weights go bad behind a finite loss; looking at all gradients in every
/// step would cost too much.
constexpr std::int64_t gradient_check_period = 64;

}  // namespace

LossReducer::LossReducer(const StepRanks& ranks, int last_stage, Communicator& everyone, Optimizer& optimizer,
                         const std::vector<Slice>& updated, double loss_scale, bool check_finite)
    : scale(loss_scale),
      ranks_(ranks),
      last_stage_(last_stage),
      everyone_(everyone),
      optimizer_(optimizer),
      updated_(updated),
      check_finite_(check_finite) {}

void LossReducer::start(const Tensor& share) {
  loss_ = share.clone();
  if (ranks_.batch())
    sum_ = ranks_.batch()->all_reduce(loss_);
  else if (check_finite_ && !ranks_.stages())
    read_ = HostCopy(loss_);
}

std::string LossReducer::finish() {
  sum_.wait();
  if (Communicator* stages = ranks_.stages()) {
    const Parameters& parameters = optimizer_.parameters();
    loss_ = stages->rank() == last_stage_
                ? loss_.to(parameters.dtype())
                : Tensor::empty({}, parameters.dtype(), parameters.values().blocks().back().device());
    stages->broadcast(loss_, last_stage_).wait();
  }
  if (!check_finite_) return "";
  const double value = read_ ? read_.item() : loss_.item();
  if (!std::isfinite(value)) return fmt::format("loss is {}", std::isnan(value) ? NAN : value);
  if (scale.on() || optimizer_.steps() % gradient_check_period != 0 || gradients_finite()) return "";
  const auto entry = optimizer_.parameters().first_non_finite_grad();
  return fmt::format("loss is {}, but the gradient{} is not finite", value,
                     entry ? fmt::format(" of '{}'", entry->name) : "'s norm");
}

/// Of all stages and shards, wherever they lie: every rank gets the same answer.
bool LossReducer::gradients_finite() {
  const bool finite = std::isfinite(optimizer_.grad_norm(updated_));
  const Tensor all = Tensor::full({1}, finite ? 1 : 0, DType::i64);
  everyone_.all_reduce(all, ReduceOp::min).wait();
  return all.item() == 1;
}

}  // namespace trireme
