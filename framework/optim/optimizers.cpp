#include "framework/optim/optimizers.h"

#include <cmath>
#include <utility>

#include "framework/tensor/launch.h"
#include "kernels/formulas/update_rules.h"

namespace trireme {
namespace {

using Field = OptimizerField;

/// The kernel of a rule.
template <class Rule>
void apply(const OptimizerUpdate& u, const Rule& rule) {
  const auto state = [&](std::size_t i) { return i < u.state.size() ? u.state[i] : Tensor(); };
  launch<kernel::Update<Rule>>(u.value, u.grad, state(0), state(1), state(2), rule);
}

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
  apply(u, update::Adam{.lr = u.lr,
                        .weight_decay = u.weight_decay,
                        .grad_scale = u.grad_scale,
                        .beta1 = beta1,
                        .beta2 = beta2,
                        .eps = eps,
                        .bias1 = 1 - std::pow(beta1, t),
                        .bias2 = 1 - std::pow(beta2, t),
                        .decoupled = decoupled});
}

const bool added = add_optimizer(Sgd{}) && add_optimizer(Adagrad{}) && add_optimizer(Adadelta{}) &&
                   add_optimizer(Adam{}) && add_optimizer(AdamW{}) && add_optimizer(Lars{}) &&
                   add_optimizer(RMSprop{}) && add_optimizer(Lamb{});

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
  if (momentum == 0) return apply(u, update::Sgd{u.lr, u.weight_decay, u.grad_scale});
  apply(u, update::Momentum{u.lr, u.weight_decay, u.grad_scale, momentum, dampening, nesterov, u.step == 0});
}

std::vector<Field> Adagrad::fields() {
  return {{"lr", &lr}, {"eps", &eps, Field::positive}, {"weight_decay", &weight_decay}, {"initial", &initial}};
}
void Adagrad::update(const OptimizerUpdate& u) const {
  apply(u, update::Adagrad{u.lr, u.weight_decay, u.grad_scale, eps});
}

std::vector<Field> Adadelta::fields() {
  return {{"lr", &lr}, {"rho", &rho, Field::fraction}, {"eps", &eps, Field::positive}, {"weight_decay", &weight_decay}};
}
void Adadelta::update(const OptimizerUpdate& u) const {
  apply(u, update::Adadelta{u.lr, u.weight_decay, u.grad_scale, rho, eps});
}

std::vector<Field> Adam::fields() { return adam_fields(*this); }
void Adam::update(const OptimizerUpdate& u) const { update_adam(u, beta1, beta2, eps, false); }

std::vector<Field> AdamW::fields() { return adam_fields(*this); }
void AdamW::update(const OptimizerUpdate& u) const { update_adam(u, beta1, beta2, eps, true); }

std::vector<Field> RMSprop::fields() {
  return {{"lr", &lr},
          {"alpha", &alpha, Field::fraction},
          {"eps", &eps, Field::positive},
          {"weight_decay", &weight_decay},
          {"momentum", &momentum, Field::fraction},
          {"centered", &centered}};
}
void RMSprop::update(const OptimizerUpdate& u) const {
  apply(u, update::RMSprop{u.lr, u.weight_decay, u.grad_scale, alpha, eps, momentum, centered});
}

std::vector<Field> Lamb::fields() { return adam_fields(*this); }
void Lamb::direction(const OptimizerUpdate& u) const {
  const auto t = static_cast<double>(u.step + 1);
  OptimizerUpdate swapped = u;
  std::swap(swapped.value, swapped.grad);
  apply(swapped, update::LambDirection{.weight_decay = u.weight_decay,
                                       .grad_scale = u.grad_scale,
                                       .beta1 = beta1,
                                       .beta2 = beta2,
                                       .eps = eps,
                                       .bias1 = 1 - std::pow(beta1, t),
                                       .bias2 = 1 - std::pow(beta2, t)});
}
double Lamb::trust_ratio(double value_norm, double direction_norm, double) const {
  return value_norm > 0 && direction_norm > 0 ? value_norm / direction_norm : 1;
}
void Lamb::update(const OptimizerUpdate& u) const { apply(u, update::Sgd{u.lr, 0, u.grad_scale}); }

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
