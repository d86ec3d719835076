#include "framework/optim/optimizers.h"

#include <cmath>

#include "framework/tensor/launch.h"
#include "kernels/contracts/update.h"

namespace trireme {
namespace {

using Field = OptimizerField;

template <class R>
std::vector<Field> adam_fields(R& r) {
  return {{"lr", &r.lr},
          {"beta1", &r.beta1, Field::fraction},
          {"beta2", &r.beta2, Field::fraction},
          {"eps", &r.eps, Field::positive},
          {"weight_decay", &r.weight_decay}};
}
void update_adam(const OptimizerUpdate& u, double beta1, double beta2, double eps, bool decoupled) {
  const auto t = static_cast<double>(u.step + 1);
  const kernel::AdamUpdate::Args args{.lr = u.lr,
                                      .beta1 = beta1,
                                      .beta2 = beta2,
                                      .eps = eps,
                                      .weight_decay = u.weight_decay,
                                      .bias1 = 1 - std::pow(beta1, t),
                                      .bias2 = 1 - std::pow(beta2, t),
                                      .grad_scale = u.grad_scale,
                                      .decoupled = decoupled};
  launch<kernel::AdamUpdate>(u.value, u.grad, u.state[0], u.state[1], args);
}

const bool added = add_optimizer(Sgd{}) && add_optimizer(Adagrad{}) && add_optimizer(Adadelta{}) &&
                   add_optimizer(Adam{}) && add_optimizer(AdamW{}) && add_optimizer(Lars{});

}  // namespace

std::vector<Field> Sgd::fields() {
  return {{"lr", &lr},
          {"momentum", &momentum, Field::fraction},
          {"dampening", &dampening, Field::unit},
          {"weight_decay", &weight_decay},
          {"nesterov", &nesterov}};
}
void Sgd::validate() const {
  check(!nesterov || (momentum > 0 && dampening == 0), name,
        "nesterov needs momentum and no dampening, got momentum {} and dampening {}", momentum, dampening);
}
std::vector<OptimizerState> Sgd::state() const {
  if (momentum == 0) return {};
  return {{"momentum"}};
}
void Sgd::update(const OptimizerUpdate& u) const {
  const kernel::SgdUpdate::Args args{.lr = u.lr,
                                     .momentum = momentum,
                                     .dampening = dampening,
                                     .weight_decay = u.weight_decay,
                                     .grad_scale = u.grad_scale,
                                     .nesterov = nesterov,
                                     .first = u.step == 0};
  launch<kernel::SgdUpdate>(u.value, u.grad, u.state.empty() ? Tensor() : u.state[0], args);
}

std::vector<Field> Adagrad::fields() {
  return {{"lr", &lr}, {"eps", &eps, Field::positive}, {"weight_decay", &weight_decay}, {"initial", &initial}};
}
void Adagrad::update(const OptimizerUpdate& u) const {
  const kernel::AdagradUpdate::Args args{
      .lr = u.lr, .eps = eps, .weight_decay = u.weight_decay, .grad_scale = u.grad_scale};
  launch<kernel::AdagradUpdate>(u.value, u.grad, u.state[0], args);
}

std::vector<Field> Adadelta::fields() {
  return {{"lr", &lr}, {"rho", &rho, Field::fraction}, {"eps", &eps, Field::positive}, {"weight_decay", &weight_decay}};
}
void Adadelta::update(const OptimizerUpdate& u) const {
  const kernel::AdadeltaUpdate::Args args{
      .lr = u.lr, .rho = rho, .eps = eps, .weight_decay = u.weight_decay, .grad_scale = u.grad_scale};
  launch<kernel::AdadeltaUpdate>(u.value, u.grad, u.state[0], u.state[1], args);
}

std::vector<Field> Adam::fields() { return adam_fields(*this); }
void Adam::update(const OptimizerUpdate& u) const { update_adam(u, beta1, beta2, eps, false); }

std::vector<Field> AdamW::fields() { return adam_fields(*this); }
void AdamW::update(const OptimizerUpdate& u) const { update_adam(u, beta1, beta2, eps, true); }

std::vector<Field> Lars::fields() {
  return {{"lr", &lr},
          {"momentum", &momentum, Field::fraction},
          {"weight_decay", &weight_decay},
          {"trust_coefficient", &trust_coefficient, Field::positive},
          {"eps", &eps, Field::positive}};
}
void Lars::update(const OptimizerUpdate& u) const { Sgd{.momentum = momentum}.update(u); }
double Lars::trust_ratio(double value_norm, double grad_norm, double weight_decay) const {
  if (value_norm == 0 || grad_norm == 0) return 1;
  return trust_coefficient * value_norm / (grad_norm + weight_decay * value_norm + eps);
}

}  // namespace trireme
