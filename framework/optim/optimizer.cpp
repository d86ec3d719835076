#include "framework/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <concepts>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/move.h"
#include "kernels/contracts/update.h"

namespace trireme {
namespace {

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

double weight_decay_of(const OptimizerConfig& recipe) {
  return std::visit([](const auto& r) { return r.weight_decay; }, recipe);
}

/// Names (PyTorch's, momentum aside) and starting values of the state.
std::vector<std::pair<std::string, double>> state_of(const OptimizerConfig& recipe) {
  using State = std::vector<std::pair<std::string, double>>;
  return std::visit(Cases{[](const Sgd& r) {
                            return r.momentum != 0 ? State{{"momentum", 0}} : State{};
                          },
                          [](const Adagrad& r) {
                            return State{{"sum", r.initial}};
                          },
                          [](const Adadelta&) {
                            return State{{"square_avg", 0}, {"acc_delta", 0}};
                          },
                          [](const Lars&) {
                            return State{{"momentum", 0}};
                          },
                          [](const auto&) {
                            return State{{"exp_avg", 0}, {"exp_avg_sq", 0}};
                          }},
                    recipe);
}

void check_share(const std::string& op, const char* what, double value) {
  check(value >= 0 && value < 1, op, "{} is {}, expected 0 <= {} < 1", what, value, what);
}
void check_positive(const std::string& op, const char* what, double value) {
  check(value > 0 && std::isfinite(value), op, "{} is {}, expected more than 0", what, value);
}
void check_not_negative(const std::string& op, const char* what, double value) {
  check(value >= 0 && std::isfinite(value), op, "{} is {}, expected at least 0, and finite", what, value);
}

void validate(const OptimizerConfig& recipe, const std::string& op) {
  check_not_negative(op, "weight_decay", weight_decay_of(recipe));
  std::visit(Cases{[&](const Sgd& r) {
                     check_share(op, "momentum", r.momentum);
                     check(r.dampening >= 0 && r.dampening <= 1, op, "dampening is {}, expected 0 <= dampening <= 1",
                           r.dampening);
                     check(!r.nesterov || (r.momentum > 0 && r.dampening == 0), op,
                           "nesterov needs momentum and no dampening, got momentum {} and dampening {}", r.momentum,
                           r.dampening);
                   },
                   [&](const Adagrad& r) {
                     check_positive(op, "eps", r.eps);
                     check_not_negative(op, "initial", r.initial);
                   },
                   [&](const Adadelta& r) { check_share(op, "rho", r.rho), check_positive(op, "eps", r.eps); },
                   [&](const Lars& r) {
                     check_share(op, "momentum", r.momentum);
                     check_positive(op, "trust_coefficient", r.trust_coefficient), check_positive(op, "eps", r.eps);
                   },
                   [&](const auto& r) {
                     check_share(op, "beta1", r.beta1), check_share(op, "beta2", r.beta2),
                         check_positive(op, "eps", r.eps);
                   }},
             recipe);
}

/// What one kernel call updates, and from what.
struct Operands {
  Tensor value, grad;
  Tensor state[2];
  double lr, weight_decay, grad_scale;
  std::int64_t steps;  // done before
};

void launch_update(const Operands& o, const Sgd& r) {
  const kernel::SgdUpdate::Args args{.lr = o.lr,
                                     .momentum = r.momentum,
                                     .dampening = r.dampening,
                                     .weight_decay = o.weight_decay,
                                     .grad_scale = o.grad_scale,
                                     .nesterov = r.nesterov,
                                     .first = o.steps == 0};
  launch<kernel::SgdUpdate>(o.value, o.grad, o.state[0], args);
}

void launch_update(const Operands& o, const Lars& r) { launch_update(o, Sgd{.momentum = r.momentum}); }

void launch_update(const Operands& o, const Adagrad& r) {
  const kernel::AdagradUpdate::Args args{
      .lr = o.lr, .eps = r.eps, .weight_decay = o.weight_decay, .grad_scale = o.grad_scale};
  launch<kernel::AdagradUpdate>(o.value, o.grad, o.state[0], args);
}

void launch_update(const Operands& o, const Adadelta& r) {
  const kernel::AdadeltaUpdate::Args args{
      .lr = o.lr, .rho = r.rho, .eps = r.eps, .weight_decay = o.weight_decay, .grad_scale = o.grad_scale};
  launch<kernel::AdadeltaUpdate>(o.value, o.grad, o.state[0], o.state[1], args);
}

/// Adam and AdamW.
template <class R>
void launch_update(const Operands& o, const R& r) {
  const auto t = static_cast<double>(o.steps + 1);
  const kernel::AdamUpdate::Args args{.lr = o.lr,
                                      .beta1 = r.beta1,
                                      .beta2 = r.beta2,
                                      .eps = r.eps,
                                      .weight_decay = o.weight_decay,
                                      .bias1 = 1 - std::pow(r.beta1, t),
                                      .bias2 = 1 - std::pow(r.beta2, t),
                                      .grad_scale = o.grad_scale,
                                      .decoupled = std::same_as<R, AdamW>};
  launch<kernel::AdamUpdate>(o.value, o.grad, o.state[0], o.state[1], args);
}

double squares_of(const FlatBuffer& flat, const Slice& slice) {
  double all = 0;
  for (const Slice& part : flat.cut(slice)) {
    const Tensor numbers = flat.rows(part.begin, part.end), sum = Tensor::zeros({1}, DType::f64, numbers.device());
    launch<kernel::SumSquares>(sum, numbers);
    all += sum.item();
  }
  return all;
}
/// Of an entry's part of a flat block, and of what other holders have of it.
double norm_of(double squares, const Parameters::Entry& e) {
  return std::sqrt(e.tensor.shard_spec() ? e.tensor.shard_spec()->sum(squares) : squares);
}

Slice common_of(const Slice& a, const Slice& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

}  // namespace

Optimizer::Optimizer(Parameters& parameters, OptimizerConfig recipe, OptimizerOptions options)
    : parameters_(parameters), recipe_(std::move(recipe)), options_(options), kept_{{0, parameters.size()}} {
  validate(recipe_, name());
  rate();
  if (!(options_.clip_norm >= 0))
    fail(name(), "clip_norm is {}, expected at least 0 (0: no clipping)", options_.clip_norm);

  const auto& entries = parameters_.entries();
  const bool one_group = options_.decay_biases || weight_decay_of(recipe_) == 0;
  const bool lars = std::holds_alternative<Lars>(recipe_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Parameters::Entry& e = entries[i];
    const Index end = i + 1 < entries.size() ? entries[i + 1].slice.begin : parameters_.size();
    const bool decays = one_group || e.use == StateKind::weight;
    Range* last = ranges_.empty() ? nullptr : &ranges_.back();
    const bool joins = last && last->decays == decays && last->entry->tensor.device() == e.tensor.device() &&
                       (!lars || (e.use == StateKind::no_decay && last->entry->use == StateKind::no_decay));
    if (joins)
      last->slice.end = end;
    else
      ranges_.push_back({{e.slice.begin, end}, &e, decays});
  }
}

void Optimizer::allocate_once() const {
  const std::lock_guard lock(allocation_);
  if (!allocated_) allocate();
}

void Optimizer::allocate() const {
  std::vector<FlatBuffer::Stretch> stretches;
  for (const Slice& kept : kept_)
    for (const Slice& part : parameters_.values().cut(kept))
      stretches.push_back({part.size(), options_.store.value_or(parameters_.values().device_of(part.begin))});
  std::vector<std::pair<std::string, FlatBuffer>> all;
  for (auto& [key, start] : state_of(recipe_)) all.emplace_back(key, FlatBuffer(stretches, start, parameters_.dtype()));
  state_ = std::move(all);
  allocated_ = true;
}

void Optimizer::keep(const std::vector<Slice>& slices) {
  if (slices == kept_) return;
  const std::lock_guard lock(allocation_);
  const auto old_slices = std::exchange(kept_, slices);
  if (!allocated_) return;
  const auto old = std::exchange(state_, {});
  allocate();
  for (std::size_t i = 0; i < old.size(); ++i) {
    Index from = 0;
    for (const Slice& o : old_slices) {
      Index to = 0;
      for (const Slice& s : kept_) {
        for (const Slice& both : parameters_.values().cut(common_of(o, s)))
          state_[i]
              .second.rows(to + both.begin - s.begin, to + both.end - s.begin)
              .copy_from(old[i].second.rows(from + both.begin - o.begin, from + both.end - o.begin));
        to += s.size();
      }
      from += o.size();
    }
  }
}

std::string to_string(const OptimizerConfig& recipe) {
  return std::visit(Cases{[](const Sgd& r) {
                            return fmt::format("sgd(lr={}, momentum={}, dampening={}, weight_decay={}, nesterov={})",
                                               r.lr.text(), r.momentum, r.dampening, r.weight_decay, r.nesterov);
                          },
                          [](const Adagrad& r) {
                            return fmt::format("adagrad(lr={}, eps={}, weight_decay={}, initial={})", r.lr.text(),
                                               r.eps, r.weight_decay, r.initial);
                          },
                          [](const Adadelta& r) {
                            return fmt::format("adadelta(lr={}, rho={}, eps={}, weight_decay={})", r.lr.text(), r.rho,
                                               r.eps, r.weight_decay);
                          },
                          [](const Lars& r) {
                            return fmt::format(
                                "lars(lr={}, momentum={}, weight_decay={}, trust_coefficient={}, eps={})", r.lr.text(),
                                r.momentum, r.weight_decay, r.trust_coefficient, r.eps);
                          },
                          [](const auto& r) {
                            return fmt::format("{}(lr={}, beta1={}, beta2={}, eps={}, weight_decay={})",
                                               std::same_as<std::decay_t<decltype(r)>, AdamW> ? "adamw" : "adam",
                                               r.lr.text(), r.beta1, r.beta2, r.eps, r.weight_decay);
                          }},
                    recipe);
}

std::string Optimizer::name() const {
  return std::visit(Cases{[](const Sgd&) { return "sgd"; }, [](const Adagrad&) { return "adagrad"; },
                          [](const Adadelta&) { return "adadelta"; }, [](const Adam&) { return "adam"; },
                          [](const AdamW&) { return "adamw"; }, [](const Lars&) { return "lars"; }},
                    recipe_);
}

double Optimizer::rate() const {
  const double lr = std::visit([&](const auto& r) { return r.lr(steps_); }, recipe_);
  if (!(lr >= 0 && std::isfinite(lr))) fail(name(), "lr is {} at step {}, expected at least 0, and finite", lr, steps_);
  return lr;
}

void Optimizer::step() {
  parameters_.zero_missing_grads();
  update({0, parameters_.size()}, clip_scale());
  finish();
}

void Optimizer::update(Slice slice, double grad_scale) {
  if (slice.begin < 0 || slice.end < slice.begin || slice.end > parameters_.size())
    fail(name(), "slice [{}, {}) lies outside the {} parameters", slice.begin, slice.end, parameters_.size());
  const Lars* lars = std::get_if<Lars>(&recipe_);
  const auto trusts = lars ? lars_trusts(*lars, slice, grad_scale / loss_scale_) : std::vector<double>();
  Index at = 0, done = 0;  // of the state
  for (const Slice& kept : kept_) {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const Slice common = common_of(common_of(slice, kept), ranges_[i].slice);
      if (common.size() <= 0) continue;
      apply(ranges_[i], common, at + common.begin - kept.begin, grad_scale / loss_scale_, lars ? trusts[i] : 1);
      done += common.size();
    }
    at += kept.size();
  }
  if (done != slice.size())
    fail(name(), "slice [{}, {}) is to be updated, but state is kept for other slices", slice.begin, slice.end);
}

void Optimizer::apply(const Range& range, Slice slice, Index state_begin, double grad_scale, double trust) {
  const Tensor home = parameters_.values().rows(slice.begin, slice.end);
  const Device store = options_.store.value_or(home.device());
  const auto& all = state();
  const auto part = [&](std::size_t i) {
    return i < all.size() ? all[i].second.rows(state_begin, state_begin + slice.size()) : Tensor();
  };
  const double weight_decay = range.decays ? weight_decay_of(recipe_) : 0;
  // The trust ratio multiplies g + weight_decay v, so it goes into both factors.
  const Operands o{.value = home.to(store),
                   .grad = parameters_.grads().rows(slice.begin, slice.end).to(store),
                   .state = {part(0), part(1)},
                   .lr = rate(),
                   .weight_decay = weight_decay * trust,
                   .grad_scale = grad_scale * trust,
                   .steps = steps_};
  std::visit([&](const auto& r) { launch_update(o, r); }, recipe_);
  if (store != home.device()) copy_unnoted(home, o.value);
}

std::vector<double> Optimizer::lars_trusts(const Lars& r, const Slice& slice, double grad_scale) const {
  std::vector<double> trusts(ranges_.size(), 1.0);
  std::vector<std::size_t> wanted;  // ranges; each is one entry's
  std::vector<FlatBuffer::Stretch> two_each;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const Parameters::Entry& e = *ranges_[i].entry;
    if (e.use != StateKind::weight || common_of(slice, ranges_[i].slice).size() <= 0) continue;
    check(slice.begin <= e.slice.begin && e.slice.end <= slice.end, "lars",
          "slice [{}, {}) cuts '{}' in two; its rate needs the norm of the whole tensor", slice.begin, slice.end,
          e.name);
    wanted.push_back(i), two_each.push_back({2, e.tensor.device()});
  }
  if (wanted.empty()) return trusts;
  const FlatBuffer sums(two_each, 0, DType::f64);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Slice& s = ranges_[wanted[k]].entry->slice;
    const auto at = static_cast<Index>(2 * k);
    launch<kernel::SumSquares>(sums.rows(at, at + 1), parameters_.values().rows(s.begin, s.end));
    launch<kernel::SumSquares>(sums.rows(at + 1, at + 2), parameters_.grads().rows(s.begin, s.end));
  }
  const std::vector<double> squares = sums.to_vector();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Range& range = ranges_[wanted[k]];
    const double value = norm_of(squares[2 * k], *range.entry);
    const double grad = norm_of(squares[2 * k + 1], *range.entry) * std::abs(grad_scale);
    const double weight_decay = range.decays ? r.weight_decay : 0;
    if (value != 0 && grad != 0)
      trusts[wanted[k]] = r.trust_coefficient * value / (grad + weight_decay * value + r.eps);
  }
  return trusts;
}

void Optimizer::finish() {
  ++steps_;
  for (const Tensor& block : parameters_.values().blocks()) note_write(block);
  parameters_.clear_grads();
}

double Optimizer::grad_norm(const std::vector<Slice>& slices) const {
  // What all holders have is summed apart from their parts, so that each gets the same number to the last bit.
  double all = 0, parts = 0;
  for (const Slice& slice : slices) {
    parameters_.zero_missing_grads(slice);
    Slice run{slice.begin, slice.begin};  // entries that are whole, joined
    const auto close = [&](Index next) {
      if (run.size() > 0) all += squares_of(parameters_.grads(), run);
      run = {next, next};
    };
    for (const Parameters::Entry& e : parameters_.entries()) {
      const Slice mine{std::max(e.slice.begin, slice.begin), std::min(e.slice.end, slice.end)};
      if (mine.size() <= 0) continue;
      run.end = mine.begin;
      if (is_part(e.tensor)) {
        close(mine.end);
        parts += squares_of(parameters_.grads(), mine);
      }
      run.end = mine.end;
    }
    run.end = slice.end;
    close(slice.end);
  }
  const auto& entries = parameters_.entries();  // other holders may have parts in their slices where this rank has none
  const auto part = std::ranges::find_if(entries, [](const Parameters::Entry& e) { return is_part(e.tensor); });
  return std::sqrt(part == entries.end() ? all : all + part->tensor.shard_spec()->sum(parts)) / loss_scale_;
}

bool Optimizer::wants_norm() const {
  return options_.clip_norm > 0 || options_.check_finite || std::holds_alternative<Lars>(recipe_);
}

double Optimizer::clip_scale(double norm) const {
  refuse_non_finite(norm);
  return options_.clip_norm > 0 ? std::min(1.0, options_.clip_norm / (norm + 1e-6)) : 1;
}

void Optimizer::refuse_non_finite(double norm) const {
  if (std::isfinite(norm)) return;
  const Parameters::Entry* bad = parameters_.first_non_finite_grad();
  fail(name(), "the gradient of '{}' is not finite at step {}; lower the learning rate (now {}) or look for bad input",
       bad ? bad->name : "all parameters together", steps_, rate());
}

}  // namespace trireme
