// OptimizerConfig: the settings of any optimizer, by value. An optimizer is a plain struct of settings that also has a
// name, a table of its fields, its state and its update function. The library's optimizers are in
// framework/optim/optimizers.h; write your own the same way, in any file.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/optim/schedule.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// A setting: its name and a pointer to the member. One table of them serves texts and checks.
struct OptimizerField {
  /// Allowed numbers: a test, and its text for error messages, in which {} is the field's name.
  struct Range {
    bool (*holds)(double);  ///< whether a number is in the range
    const char* text;       ///< for messages: "0 <= {} < 1"
  };
  static const Range not_negative,  ///< >= 0 and finite
      positive,                     ///< > 0 and finite
      fraction,                     ///< [0, 1)
      unit;                         ///< [0, 1]

  const char* name;                               ///< name of the member: "lr"
  std::variant<Schedule*, double*, bool*> value;  ///< pointer to the member
  Range range = not_negative;                     ///< allowed values of a double; validate() tests them
};

/// A state buffer: one number per parameter.
struct OptimizerState {
  std::string name;    ///< in checkpoints: PyTorch's name ("exp_avg"), except momentum
  double initial = 0;  ///< initial value of every element
};

/// The arguments of an optimizer's update(): n adjacent parameters on one device.
struct OptimizerUpdate {
  Tensor value;               ///< f32 or f64 [n]; to be overwritten
  Tensor grad;                ///< [n], of value's type; the gradient is grad_scale times this
  std::vector<Tensor> state;  ///< [n] each, of value's type, in the order of state(); to be overwritten
  double lr;                  ///< learning rate of this step
  /// Times the trust ratio in update(). 0 for no_decay entries if OptimizerOptions::decay_biases is false.
  double weight_decay;
  /// Clipping factor divided by the loss scale, in update() times the trust ratio. In update() after direction(): the
  /// trust ratio alone.
  double grad_scale;
  std::int64_t step;  ///< number of updates done before, from 0
};

/// A struct that OptimizerConfig can hold. In addition to the members below, it may have
///   void validate() const;  // throws Error for settings that contradict each other
///   double trust_ratio(double value_norm, double grad_norm, double weight_decay) const;
///   void direction(const OptimizerUpdate&) const;
/// trust_ratio() returns a factor of each weight's gradient and weight decay (LARS). Its norms are L2 norms of the
/// whole weight and of its gradient, over all ranks that have parts of them. Other entries (biases) have the ratio 1.
/// direction() runs before the norms are taken, and overwrites u.grad with a direction (LAMB). The direction takes the
/// gradient's place: in the norm, and in update(). It includes the weight decay, which update() then leaves out. Rules
/// with direction() have trust_ratio().
template <class R>
concept OptimizerRule = requires(R r, const R& rule, const OptimizerUpdate& update) {
  { R::name } -> std::convertible_to<std::string>;
  { r.lr } -> std::same_as<Schedule&>;
  { r.weight_decay } -> std::same_as<double&>;
  { r.fields() } -> std::same_as<std::vector<OptimizerField>>;
  { rule.state() } -> std::same_as<std::vector<OptimizerState>>;
  rule.update(update);
};

class OptimizerConfig {
 public:
  /// Copies the settings without checking them (see validate()).
  template <OptimizerRule R>
  OptimizerConfig(R rule)  // NOLINT: implicit
      : name_(R::name),
        has_trust_ratio_(requires { &R::trust_ratio; }),
        has_direction_(requires { &R::direction; }),
        rule_(std::make_shared<Model<R>>(std::move(rule))) {
    static_assert(
        requires { &R::trust_ratio; } || !requires { &R::direction; }, "direction() needs trust_ratio()");
    static_assert(
        !requires { R::whole_tensors; }, "whole_tensors is gone: give the rule trust_ratio() and direction()");
  }

  const std::string& name() const { return name_; }              ///< R::name: "sgd"
  const Schedule& lr() const { return rule_->lr(); }             ///< learning rate as a function of the step
  double weight_decay() const { return rule_->weight_decay(); }  ///< for parameters with weight decay
  /// The settings, for reading or writing. They belong to this object; other copies do not change.
  std::vector<OptimizerField> fields() { return (rule_ = rule_->clone())->fields(); }
  /// Throws Error for a number outside its field's range, and for settings that contradict each other.
  void validate() const;
  std::vector<OptimizerState> state() const { return rule_->state(); }  ///< buffers that update() needs, in order
  void update(const OptimizerUpdate& u) const { rule_->update(u); }     ///< overwrites u.value and u.state
  bool has_trust_ratio() const { return has_trust_ratio_; }             ///< whether R has trust_ratio()
  bool has_direction() const { return has_direction_; }                 ///< whether R has direction()
  /// Overwrites u.grad and u.state; does nothing if R has no direction().
  void direction(const OptimizerUpdate& u) const { rule_->direction(u); }
  /// R's factor for a tensor's learning rate, from the L2 norms of its value and gradient; 1 if R has no trust_ratio().
  double trust_ratio(double value_norm, double grad_norm, double weight_decay) const {
    return rule_->trust_ratio(value_norm, grad_norm, weight_decay);
  }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual std::shared_ptr<Concept> clone() const = 0;
    virtual const Schedule& lr() const = 0;
    virtual double weight_decay() const = 0;
    virtual std::vector<OptimizerField> fields() = 0;
    virtual void validate() const = 0;
    virtual std::vector<OptimizerState> state() const = 0;
    virtual void update(const OptimizerUpdate&) const = 0;
    virtual void direction(const OptimizerUpdate&) const = 0;
    virtual double trust_ratio(double value_norm, double grad_norm, double weight_decay) const = 0;
  };
  template <class R>
  struct Model final : Concept {
    explicit Model(R r) : rule(std::move(r)) {}
    std::shared_ptr<Concept> clone() const override { return std::make_shared<Model>(rule); }
    const Schedule& lr() const override { return rule.lr; }
    double weight_decay() const override { return rule.weight_decay; }
    std::vector<OptimizerField> fields() override { return rule.fields(); }
    void validate() const override {
      if constexpr (requires { rule.validate(); }) rule.validate();
    }
    std::vector<OptimizerState> state() const override { return rule.state(); }
    void update(const OptimizerUpdate& u) const override { rule.update(u); }
    void direction(const OptimizerUpdate& u) const override {
      if constexpr (requires { &R::direction; }) rule.direction(u);
    }
    double trust_ratio(double value_norm, double grad_norm, double weight_decay) const override {
      if constexpr (requires { &R::trust_ratio; }) return rule.trust_ratio(value_norm, grad_norm, weight_decay);
      return 1;
    }
    R rule;
  };
  std::string name_;
  bool has_trust_ratio_, has_direction_;
  std::shared_ptr<Concept> rule_;
};

/// "sgd(lr=0.1, momentum=0.9, dampening=0, weight_decay=0, nesterov=false)". Equal settings give equal texts.
std::string to_string(OptimizerConfig);

/// Every registered optimizer with its default settings, by name.
const std::vector<OptimizerConfig>& optimizers();
/// Registers an optimizer for configuration files, before main: const bool added = add_optimizer(Lion{}); Throws Error
/// if the name exists.
bool add_optimizer(OptimizerConfig defaults);

}  // namespace trireme
