// The uses of the op table: see tests/framework/cases.h.
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <regex>
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/ops/loss.h"
#include "framework/ops/ops.h"
#include "framework/ops/select.h"
#include "framework/tensor/create.h"
#include "framework/tensor/launch.h"
#include "kernels/core/kernel.h"
#include "kernels/core/random.h"
#include "tests/framework/case_outcome.h"
#include "tests/framework/cases.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_ops {

using namespace trireme;
using namespace trireme::test;

namespace {

/// What the case's scalar sum(dy * y) becomes with element i of input k moved.
double moved(const Case& c, std::size_t k, std::size_t i, double by) {
  const StepScope scope(a_pass(rows_of(c)));
  Inputs x = draw(c, DType::f64);
  x[k].data<double>()[i] += by;
  const Tensor y = c.op(x);
  const Values values = y.to_vector(), seed = seed_for(y).to_vector();
  return std::inner_product(values.begin(), values.end(), seed.begin(), 0.0);
}

}  // namespace

TEST_CASE("names of the table are unique") {
  std::set<std::string> names;
  for (const Case& c : cases()) CHECK(names.insert(c.name).second);
}

TEST_CASE("gradients agree with central differences in f64") {
  const double step = 1e-5;
  for (const Case& c : cases()) {
    INFO(c.name);
    const CaseOutcome o = outcome(c, DType::f64);
    if (!o.differentiable) continue;
    const NoGrad off;
    for (std::size_t k = 0; k < c.inputs.size(); ++k) {
      if (!c.inputs[k].grad) continue;
      INFO("input " << k);
      Values expected;
      for (std::size_t i = 0; i < o.dx[k].size(); ++i)
        expected.push_back((moved(c, k, i, step) - moved(c, k, i, -step)) / (2 * step));
      CHECK(relative(o.dx[k], expected) < 1e-7);
    }
  }
}

TEST_CASE("an input's gradient does not depend on which others want one, nor on deferred weight halves") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const CaseOutcome all = outcome(c, DType::f64);
    if (!all.differentiable) continue;
    for (std::size_t k = 0; k < c.inputs.size(); ++k) {
      if (!c.inputs[k].grad) continue;
      INFO("input " << k);
      const CaseOutcome alone = outcome(c, DType::f64, static_cast<int>(k));
      CHECK(relative(alone.dx[k], all.dx[k]) < 1e-14);
      CHECK(alone.y == all.y);
    }
    Deferred later;
    CHECK(outcome(c, DType::f64, -1, -1, {.defer_weights = &later}).dx == all.dx);
  }
}

TEST_CASE("a graph that is retained gives the same gradients again, and grad() gives them without a leaf's own") {
  for (const Case& c : cases()) {
    const CaseOutcome expected = outcome(c, DType::f64);
    if (!expected.differentiable) continue;
    INFO(c.name);
    const StepScope scope(a_pass(rows_of(c)));
    Inputs x = draw(c, DType::f64), wanted;
    for (std::size_t k = 0; k < x.size(); ++k)
      if (c.inputs[k].grad) wanted.push_back(x[k].require_grad());
    const Tensor y = c.op(x), seed = seed_for(y);
    for (const bool last : {false, true}) {
      std::vector<Tensor> gradients;
      try {
        gradients = grad({y}, wanted, {seed}, {.retain_graph = true});
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find("leads to no output") != std::string::npos);
        break;
      }
      for (std::size_t k = 0, i = 0; k < x.size(); ++k)
        if (c.inputs[k].grad) CHECK(gradients[i++].to_vector() == expected.dx[k]);
      for (const Tensor& leaf : wanted) CHECK_FALSE(has_grad(leaf));
      for (const Tensor& leaf : wanted)  // one alone: what does not lead there is left out
        CHECK(grad({y}, {leaf}, {seed}, {.retain_graph = true})[0].to_vector().size() ==
              static_cast<std::size_t>(leaf.numel()));
      if (!last) continue;
      backward({&y, 1}, {&seed, 1}, {.retain_graph = true});
      for (const Tensor& leaf : wanted) leaf.clear_grad();
      backward({&y, 1}, {&seed, 1});
      for (std::size_t k = 0; k < x.size(); ++k)
        if (c.inputs[k].grad) CHECK((has_grad(x[k]) ? x[k].grad().to_vector() : Values{}) == expected.dx[k]);
    }
  }
}

TEST_CASE(
    "create_graph: the same gradients, and second derivatives as central differences have them; or refused by name") {
  std::set<std::string> refused;
  int passed = 0;
  for (const Case& c : cases()) {
    const CaseOutcome expected = outcome(c, DType::f64);
    if (!expected.differentiable) continue;
    INFO(c.name);
    // The gradients of sum(dy * y) at the case's inputs, moved by `by` times a direction.
    std::vector<Values> along;
    const auto gradients = [&](double by, bool again, std::vector<Values>* product) -> std::vector<Values> {
      Inputs x = draw(c, DType::f64), wanted;
      for (std::size_t k = 0; k < x.size(); ++k) {
        if (!c.inputs[k].grad) continue;
        if (by == 0 && along.size() <= wanted.size()) along.push_back(seed_for(x[k]).to_vector());
        for (Index i = 0; by != 0 && i < x[k].numel(); ++i)
          x[k].data<double>()[i] += by * along[wanted.size()][static_cast<std::size_t>(i)];
        wanted.push_back(x[k].require_grad());
      }
      const StepScope scope(a_pass(rows_of(c)));
      const Tensor y = c.op(x);
      const std::vector<Tensor> first = grad({y}, wanted, {seed_for(y)}, {.retain_graph = true, .create_graph = again});
      std::vector<Values> numbers;
      for (const Tensor& g : first) numbers.push_back(g.to_vector());
      if (!product) return numbers;
      // The product of the second derivatives with the direction: the gradient of <first, direction>.
      std::vector<Tensor> roots, seeds, leaves;
      for (std::size_t k = 0; k < first.size(); ++k) {
        if (!first[k].requires_grad()) continue;
        roots.push_back(first[k]);
        seeds.push_back(Tensor::of(along[k], first[k].shape(), DType::f64));
      }
      for (const Tensor& leaf : wanted) leaf.clear_grad();
      if (!roots.empty()) backward(roots, seeds);
      for (const Tensor& leaf : wanted)
        product->push_back(has_grad(leaf) ? leaf.grad().to_vector() : Values(static_cast<std::size_t>(leaf.numel())));
      return numbers;
    };
    std::vector<Values> product, plain;
    try {
      plain = gradients(0, false, nullptr);
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("leads to no output") != std::string::npos);
      continue;
    }
    try {
      const std::vector<Values> recorded = gradients(0, true, &product);
      for (std::size_t k = 0; k < plain.size(); ++k) {
        INFO("input " << k);
        CHECK(relative(recorded[k], plain[k]) < 1e-12);
      }
    } catch (const Error& e) {
      INFO(e.what());
      CHECK(std::string(e.what()).find("has no second derivatives") != std::string::npos);
      refused.insert(c.name.substr(0, c.name.find('/')));
      continue;
    }
    const double step = 1e-5;
    const std::vector<Values> more = gradients(step, false, nullptr), less = gradients(-step, false, nullptr);
    for (std::size_t k = 0; k < plain.size(); ++k) {
      INFO("input " << k);
      Values numeric;
      double size = 0, slope = 0;
      for (std::size_t i = 0; i < plain[k].size(); ++i) {
        numeric.push_back((more[k][i] - less[k][i]) / (2 * step));
        size += numeric.back() * numeric.back();
        slope += plain[k][i] * plain[k][i];
      }
      // Where the second derivatives are 0, the differences show rounding.
      if (std::sqrt(size) < 1e-8 * (1 + std::sqrt(slope))) {
        for (const double v : product[k]) CHECK(std::abs(v) < 1e-9 * (1 + std::sqrt(slope)));
      } else {
        CHECK(relative(product[k], numeric) < 1e-6);
      }
    }
    ++passed;
  }
  CHECK(passed > 240);
  // Attention with dropout or ALiBi, and cross-entropy with a z-loss; the others in all forms.
  CHECK(refused == std::set<std::string>{"adaptive_max_pool", "attention", "attention_packed", "bias_relu_pool_dropout",
                                         "cross_entropy", "linear_cross_entropy", "max_pool", "mixed_scale_dense",
                                         "prod"});
}

TEST_CASE("an operand written to before backward: the right gradients, or an Error that says so") {
  int told = 0, harmless = 0;
  for (const Case& c : cases()) {
    const CaseOutcome expected = outcome(c, DType::f64);
    if (!expected.differentiable) continue;
    for (std::size_t written = 0; written < c.inputs.size(); ++written) {
      INFO(c.name << ", input " << written);
      StepScope scope(a_pass(rows_of(c)));
      Inputs x = draw(c, DType::f64);
      for (std::size_t k = 0; k < x.size(); ++k)
        if (c.inputs[k].grad) x[k].require_grad();
      const Tensor y = c.op(x);
      const bool label = !is_float(x[written].dtype());
      x[written].copy_from(label ? Tensor::zeros(x[written].shape(), x[written].dtype())
                                 : Tensor::full(x[written].shape(), 0.71875, x[written].dtype()));
      try {
        y.backward(seed_for(y));
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find("written to in place") != std::string::npos);
        ++told;
        continue;
      }
      ++harmless;
      for (std::size_t k = 0; k < x.size(); ++k)
        if (c.inputs[k].grad) CHECK((has_grad(x[k]) ? x[k].grad().to_vector() : Values{}) == expected.dx[k]);
    }
  }
  CHECK(told > 40);
  CHECK(harmless > 40);
}

TEST_CASE("f32 and bf16 agree with f64") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const CaseOutcome exact = outcome(c, DType::f64);
    for (const DType type : {DType::f32, DType::bf16}) {
      INFO(name_of(type));
      const double tolerance = type == DType::f32 ? 2e-6 : c.bf16;
      const CaseOutcome o = outcome(c, type);
      CHECK(o.shape == exact.shape);
      CHECK(relative(o.y, exact.y) < tolerance);
      for (std::size_t k = 0; k < o.dx.size(); ++k) {
        INFO("input " << k);
        CHECK(relative(o.dx[k], exact.dx[k]) < tolerance);
      }
    }
  }
}

TEST_CASE("f32 weights under bf16 data get gradients in f32, unrounded") {
  // Integers: the products and their sums are exact, and too long for bf16.
  const auto integers = [](const Shape& shape, DType type, int most) {
    Values v(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((i * 37 + 11) % (2 * most + 1)) - most;
    return Tensor::of(v, shape, type);
  };
  const auto gradients = [&](DType data, DType weights) {
    const Tensor x = integers({9, 5, 5, 3}, data, 15);
    Tensor w = integers({4, 3, 3, 3}, weights, 3), b = integers({4}, weights, 3), fc = integers({2, 100}, weights, 3);
    for (Tensor* t : {&w, &b, &fc}) t->require_grad();
    const Tensor y = conv(x, w, b, {.pad_begin = {1, 1}, .pad_end = {1, 1}}),
                 z = linear(x.reshape({9, 75}).detach(), integers({100, 75}, weights, 1), {});
    sum(y.to(DType::f64)).backward();
    sum(linear(z.detach(), fc, {}).to(DType::f64)).backward();
    CHECK(w.grad().dtype() == weights);
    return std::tuple{w.grad().to_vector(), b.grad().to_vector(), fc.grad().to_vector()};
  };
  const auto [w, b, fc] = gradients(DType::bf16, DType::f32);
  const auto [exact_w, exact_b, exact_fc] = gradients(DType::f64, DType::f64);
  CHECK(w == exact_w);
  CHECK(b == exact_b);
  CHECK(relative(fc, exact_fc) < 1e-2);
}

TEST_CASE("a rank without rows takes part: no values, no loss, zero gradients of weights") {
  for (const Case& c : cases()) {
    const auto counts = [](const Input& input) { return input.rows && input.shape.rank() > 0; };
    if (std::none_of(c.inputs.begin(), c.inputs.end(), counts)) continue;
    INFO(c.name);
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      const CaseOutcome o = outcome(c, type, -1, 0);
      if (o.shape.rank() == 0) CHECK(o.y == Values{0});
      for (std::size_t k = 0; k < o.dx.size(); ++k) {
        INFO("input " << k << " in " << name_of(type));
        if (counts(c.inputs[k]))
          CHECK(o.dx[k].empty());
        else
          CHECK(std::all_of(o.dx[k].begin(), o.dx[k].end(), [](double v) { return v == 0; }));
      }
    }
  }
}

TEST_CASE("ops agree with PyTorch") {
  Oracle oracle;
  std::string list;
  const auto file = [](std::size_t i, const char* what, std::size_t k) { return fmt::format("{}.{}{}", i, what, k); };
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    if (c.torch.empty()) continue;
    const Inputs x = draw(c, DType::f64);
    std::string kinds;
    for (std::size_t k = 0; k < x.size(); ++k) {
      oracle.put(file(i, "", k), x[k]);
      kinds += c.inputs[k].draw == InputValues::label ? 'l' : c.inputs[k].grad ? 'g' : 'c';
    }
    list += fmt::format("{}\t{}\t{}\n", i, kinds, c.torch);
    oracle.put(fmt::format("{}.dy", i), seed_for(Tensor::zeros(outcome(c, DType::f64).shape, DType::f64)));
  }
  oracle.note("cases.txt", list);
  if (!oracle.run("torch_ops.py")) return;
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    if (c.torch.empty()) continue;
    for (const DType type : {DType::f64, DType::f32}) {
      INFO(c.name << " " << name_of(type));
      const bool wide = type == DType::f64;
      const CaseOutcome o = outcome(c, type);
      CHECK(o.shape == oracle.tensor(fmt::format("{}.y", i)).shape());
      CHECK(distance(o.y, oracle.get(fmt::format("{}.y", i))) < (wide ? 1e-11 : 1e-5));
      for (std::size_t k = 0; k < o.dx.size(); ++k) {
        INFO("input " << k);
        if (c.inputs[k].grad) CHECK(distance(o.dx[k], oracle.get(file(i, "d", k))) < (wide ? 1e-11 : 1e-4));
      }
    }
  }
}

namespace {

/// A case's inputs with one number of one of them replaced: what an accident leaves in a batch or a weight.
struct Accident {
  std::size_t of;  // index of the case
  std::size_t input;
  double value;
  Inputs inputs(DType type) const {
    Inputs x = draw(cases()[of], type);
    if (std::isnan(value) || value != 0) {
      const Index at = x[input].numel() / 2;
      const Tensor flat = x[input].reshape({x[input].numel()});
      flat.rows(at, at + 1).copy_from(Tensor::full({1}, value, type));
    } else {
      x[input].copy_from(Tensor::zeros(x[input].shape(), type));
    }
    return x;
  }
};

/// The first number of `got` that is neither close to `wanted`, nor NaN where this is; or nothing.
std::string difference(const Values& got, const Values& wanted, double tolerance) {
  if (got.size() != wanted.size()) return fmt::format("{} numbers, not {}", got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = wanted[i];
    const bool same =
        std::isnan(b) ? std::isnan(a) : a == b || std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
    if (!same) return fmt::format("[{}] {}, not {}", i, a, b);
  }
  return "";
}

/// Whether the oracle multiplies numbers of input k by 0 that our op leaves out: of a filter by padding, of values by
/// the weight of keys that a query does not see, of a cell by its share at an edge. And prelu() multiplies its slope by
/// 0, and PyTorch's own attention adds its mask to scores.
bool meets_zeros(const Case& c, std::size_t k) {
  const auto of = [&](const char* op) { return c.name.starts_with(op); };
  return (k > 0 && (of("conv/") || of("mixed_scale_dense") || of("prelu"))) || (k == 2 && of("attention")) ||
         (k == 1 && of("attention/documents")) || of("interpolate/trilinear");
}
/// Whether gradients are compared, too. Where a number is NaN PyTorch's own differ between its vector code and the ends
/// of its loops, but those of ReLU and max pooling do not. Of ties topk() takes others; d kl_div / d target at 0 is 0
/// log 0.
bool compares_gradients(const Accident& a) {
  const std::string& name = cases()[a.of].name;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (!std::isnan(a.value)) return !has("topk") && !has("kl_div");
  return (has("relu") && !has("prelu") && !has("batch_norm/eval")) || name.starts_with("max_pool") || name == "abs";
}

}  // namespace

TEST_CASE("NaN in an operand, and operands of zeros, end as in PyTorch") {
  Oracle oracle;
  std::string list;
  std::vector<Accident> all;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    if (c.torch.empty()) continue;
    for (std::size_t k = 0; k < c.inputs.size(); ++k)
      for (const double value : {nan, 0.0}) {
        if (c.inputs[k].draw == InputValues::label || c.inputs[k].draw == InputValues::statistic) continue;
        if (std::isnan(value) && meets_zeros(c, k)) continue;
        all.push_back({i, k, value});
        const Inputs x = all.back().inputs(DType::f64);
        std::string kinds;
        for (std::size_t j = 0; j < x.size(); ++j) {
          oracle.put(fmt::format("{}.{}", all.size(), j), x[j]);
          kinds += c.inputs[j].draw == InputValues::label ? 'l' : c.inputs[j].grad ? 'g' : 'c';
        }
        list += fmt::format("{}\t{}\t{}\n", all.size(), kinds, c.torch);
        oracle.put(fmt::format("{}.dy", all.size()), seed_for(Tensor::zeros(outcome(c, DType::f64).shape, DType::f64)));
      }
  }
  oracle.note("cases.txt", list);
  if (!oracle.run("torch_ops.py")) return;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Accident& accident = all[n];
    const Case& c = cases()[accident.of];
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      INFO(c.name << " " << name_of(type) << ", input " << accident.input << " has " << accident.value);
      const double tolerance = type == DType::f64 ? 1e-9 : type == DType::f32 ? 1e-4 : 0.3;
      const CaseOutcome o = outcome_of(c, accident.inputs(type));
      CHECK(difference(o.y, oracle.get(fmt::format("{}.y", n + 1)), tolerance) == "");
      for (std::size_t k = 0; k < o.dx.size() && compares_gradients(accident); ++k) {
        INFO("gradient of input " << k);
        if (c.inputs[k].grad) CHECK(difference(o.dx[k], oracle.get(fmt::format("{}.d{}", n + 1, k)), tolerance) == "");
      }
    }
  }
}

TEST_CASE("a fused ReLU keeps the NaN that ReLU alone keeps, whichever implementation computes the product") {
  std::uint64_t state = 5;
  const auto pick = [&](Index from, Index to) {
    state = mix(state, 1);
    return from + static_cast<Index>(state % static_cast<std::uint64_t>(to - from + 1));
  };
  const auto nans = [](const Tensor& t) {
    std::vector<bool> all;
    for (const double v : t.to_vector()) all.push_back(std::isnan(v));
    return all;
  };
  const Index widths[] = {1, 3, 4, 8, 16, 24, 32, 48};
  for (int round = 0; round < 240; ++round) {
    const DType type = std::array{DType::f32, DType::f32, DType::bf16, DType::f64}[pick(0, 3)];
    const Index n = pick(1, 3), size = pick(3, 9), c_in = widths[pick(0, 7)], c_out = widths[pick(0, 7)];
    const Index k = std::array{1, 1, 2, 3, 5}[pick(0, 4)], groups = pick(0, 4) == 0 ? c_in : 1;
    ConvOptions o{.stride = {pick(1, 2), pick(1, 2), 1}, .pad_begin = {pick(0, 1), pick(0, 1)}, .groups = groups};
    o.pad_end = o.pad_begin;
    if (size + 2 * o.pad_begin[0] < k || size + 2 * o.pad_begin[1] < k) continue;
    Tensor x = normal({n, size, size, c_in}, 0, 1, state, type);
    Tensor w = normal({groups > 1 ? groups : c_out, k, k, c_in / groups}, 0, 1, state + 1, type);
    Tensor bias = pick(0, 1) ? normal({w.dim(0)}, 0, 1, state + 2, type) : Tensor();
    const Tensor shaped = conv(x, w, bias, o);
    Tensor residual = pick(0, 1) ? normal(shaped.shape(), 0, 1, state + 3, type) : Tensor();
    std::vector<Tensor> operands{x, w};
    for (const Tensor& t : {bias, residual})
      if (t) operands.push_back(t);
    const Tensor& hit = operands[static_cast<std::size_t>(pick(0, std::ssize(operands) - 1))];
    const Index at = pick(0, hit.numel() - 1);
    const double value = pick(0, 3) ? NAN : INFINITY;
    hit.reshape({hit.numel()}).rows(at, at + 1).copy_from(Tensor::full({1}, value, type));
    INFO(fmt::format("{}: {} {} by {}, stride {} {}, padding {} {}, operand of {}", round, type, x.shape(), w.shape(),
                     o.stride[0], o.stride[1], o.pad_begin[0], o.pad_begin[1], hit.shape()));
    ConvOptions fused = o;
    fused.relu = true;
    const Tensor product = conv(x, w, bias, o), alone = relu(residual ? product + residual : product);
    const bool own = pick(0, 1) == 1;
    const Tensor y = own && residual ? residual.clone() : Tensor::like(product);
    launch<kernel::Conv>(y, x, w, bias, own && residual ? y : residual, fused);
    CHECK(nans(y) == nans(alone));
    const Tensor rows = x.reshape({n * size * size, c_in}), matrix = w.reshape({-1, c_in / groups});
    if (groups == 1 && k == 1) {
      CHECK(nans(linear(rows, matrix, bias, true)) == nans(relu(linear(rows, matrix, bias))));
    }
  }
}

TEST_CASE("floor_divide and remainder are exact where the quotient is rounded, as in Python and PyTorch") {
  const Tensor a = Tensor::of(Values{1, 8, -1.75, 5, -5, -5, 5, 0}, {8}, DType::f64),
               b = Tensor::of(Values{0.1, 0.2, 1.0 / 12, INFINITY, INFINITY, 3, -3, -2}, {8}, DType::f64);
  CHECK(floor_divide(a, b).to_vector() == Values{9, 39, -22, 0, -1, -2, -2, 0});
  CHECK(remainder(a, b).to_vector() ==
        Values{0x1.9999999999996p-4, 0x1.999999999998ap-3, 0x1.555555555554ep-4, 5, INFINITY, 1, -1, 0});
  const Tensor zero = Tensor::zeros({2}, DType::f64), sevens = Tensor::of(Values{7, -7}, {2}, DType::f64);
  CHECK(floor_divide(sevens, zero).to_vector() == Values{INFINITY, -INFINITY});
  for (const double v : remainder(sevens, zero).to_vector()) CHECK(std::isnan(v));
  // fmod() of the C library is exact; torch.remainder gives the same bits.
  const Tensor large = Tensor::from({1e6F, 1e7F, 1e8F, 1e9F}), turn = Tensor::full({4}, 6.2831853);
  Values exact;
  for (const double v : large.to_vector()) exact.push_back(std::fmod(static_cast<float>(v), 6.2831853F));
  CHECK(remainder(large, 6.2831853).to_vector() == exact);
  CHECK(remainder(large, turn).to_vector() == exact);
  CHECK(std::abs(exact[3] - 4.165787696838379) < 1e-9);
  for (const double by : {3.0, -3.0}) {  // integers: Python's 7 % 3, -7 % 3, 7 % -3, -7 % -3
    const Tensor n = Tensor::from<std::int64_t>({7, -7, 6, 0});
    CHECK(remainder(n, by).to_vector() == (by > 0 ? Values{1, 2, 0, 0} : Values{-2, -1, 0, 0}));
    CHECK(remainder(n, 0).to_vector() == Values{7, -7, 6, 0});
  }
}

TEST_CASE("the gradients of norm() and standard_deviation() are 0 where these are 0, as in PyTorch") {
  for (const DType type : {DType::f32, DType::f64}) {
    Tensor x = Tensor::of(Values{0, 0, 0, 3, 0, 4}, {2, 3}, type).require_grad();
    sum(norm(x, {1})).backward();
    CHECK(distance(x.grad().to_vector(), Values{0, 0, 0, 0.6, 0, 0.8}) < 1e-6);
    Tensor flat = Tensor::full({4}, 2, type).require_grad();
    sum(standard_deviation(flat, {0})).backward();
    CHECK(flat.grad().to_vector() == Values{0, 0, 0, 0});
    Tensor zero = Tensor::zeros({2}, type).require_grad();
    sum(sqrt(zero)).backward();
    CHECK(zero.grad().to_vector() == Values{INFINITY, INFINITY});
  }
}

TEST_CASE("long rows are summed to the precision of short ones") {
  // Uniform numbers without a random generator: their moments are known to many digits by sums in f64.
  const Index n = Index{1} << 22;
  std::vector<float> v(static_cast<std::size_t>(n));
  std::uint32_t state = 1;
  for (float& x : v) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(state >> 8) / 16777216.F;
  }
  double mean = 0, spread = 0, squares = 0;
  for (const float x : v) mean += x / static_cast<double>(n);
  for (const float x : v) {
    spread += (x - mean) * (x - mean) / static_cast<double>(n);
    squares += double{x} * x / n;
  }
  const Tensor x = Tensor::from(v, {1, n});
  const auto mean_square = [&](const Tensor& y) {
    double all = 0;
    for (const float e : y.to_vector<float>()) all += double{e} * e / static_cast<double>(n);
    return all;
  };
  CHECK(std::abs(mean_square(layer_norm(x)) * (spread + 1e-5) / spread - 1) < 1e-6);
  CHECK(std::abs(mean_square(rms_norm(x, {}, 1e-5)) * (squares + 1e-5) / squares - 1) < 1e-6);
  Tensor leaf = x.clone();
  leaf.require_grad();
  layer_norm(leaf).backward(x);  // dx is orthogonal to 1 and to x: sums that cancel
  double along = 0, sum_of = 0, size = 0;
  const std::vector<float> dx = leaf.grad().to_vector<float>();
  for (std::size_t i = 0; i < v.size(); ++i) {
    along += double{dx[i]} * (v[i] - mean);
    sum_of += dx[i];
    size += double{dx[i]} * dx[i];
  }
  CHECK(std::abs(sum_of) / static_cast<double>(n) < 1e-6);
  CHECK(size > 0);
  CHECK(std::abs(along) / static_cast<double>(n) < 1e-4);
}

TEST_CASE("values and gradients of ops that sum long rows are those of f64") {
  const Index n = Index{1} << 22;
  Values v(static_cast<std::size_t>(n)), w = v;
  std::uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525U + 1013904223U;
    return (state >> 8) / 16777216.;
  };
  for (double& e : v) e = static_cast<float>(1 + next() / 2);
  for (double& e : w) e = static_cast<float>(0.3 + next());
  using Op = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<const char*, Op>> ops = {
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
      {"cross entropy, smoothed",
       [](const Tensor& x) {
         return cross_entropy_with({.label_smoothing = 0.1})(x, Tensor::from(std::vector<Index>{5}, {1}));
       }},
      {"layer norm", [](const Tensor& x) { return layer_norm(x); }},
      {"group norm of many channels",
       [](const Tensor& x) {
         return group_norm(x.reshape({1, 1, n}), 1);
       }},
      {"instance norm of many cells",
       [](const Tensor& x) {
         return group_norm(x.reshape({1, n / 2, 2}), 2);
       }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 1); }},
      {"sum", [](const Tensor& x) { return sum(x, std::vector<int>{1}); }},
      {"sum of columns",
       [](const Tensor& x) {
         return sum(x.reshape({n / 4, 4}), std::vector<int>{0});
       }},
      {"var", [](const Tensor& x) { return var(x, {1}); }},
      {"scatter_add",
       [](const Tensor& x) {
         return scatter_add(Tensor::zeros({1, 3}, x.dtype()), Tensor::zeros({1, n}, DType::i64), x, 1);
       }},
      {"average pooling of large windows", [](const Tensor& x) {
         return avg_pool(x.reshape({1, n, 1}), {.window = {n / 2, 1, 1}, .stride = {n / 2, 1, 1}});
       }}};
  for (const auto& [name, op] : ops) {
    INFO(name);
    Values value[2], gradient[2];
    for (const DType type : {DType::f64, DType::f32}) {
      Tensor x = Tensor::of(v, {1, n}, type).require_grad();
      const Tensor y = op(x);
      y.backward(y.numel() == n ? Tensor::of(w, y.shape(), type) : Tensor::full(y.shape(), 1, type));
      value[type == DType::f32] = y.detach().to_vector();
      gradient[type == DType::f32] = x.grad().to_vector();
    }
    const auto off = [](const Values(&of)[2]) {
      double most = 0, largest = 0;
      for (std::size_t i = 0; i < of[0].size(); ++i) {
        most = std::max(most, std::abs(of[0][i] - of[1][i]));
        largest = std::max(largest, std::abs(of[0][i]));
      }
      return most / largest;
    };
    CHECK(off(value) < 1e-6);
    CHECK(off(gradient) < 2e-6);
  }
}

TEST_CASE("no contract is without a CPU kernel") {
  std::set<std::string> present;
  for (const CensusRow& row : census())
    if (row.present[static_cast<std::size_t>(DeviceKind::cpu)]) present.insert(std::string(row.name));
  // The headers are the list of contracts: what nobody implements does not enlist itself.
  const std::regex name("name(?:\\[\\] = |, backward_name\\[\\] = )\"(\\w+)\"");
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / "kernels")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (auto m = std::sregex_iterator(text.begin(), text.end(), name); m != std::sregex_iterator(); ++m, ++found) {
      INFO((*m)[1].str() << " of " << entry.path().filename().string());
      CHECK(present.contains((*m)[1].str()));
    }
  }
  CHECK(found > 40);
}

}  // namespace test_ops
