// The uses of the op table: see tests/framework/cases.h.
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <regex>
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
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
