// The tape: who gets which gradient when, what is shared, what is freed.
#include <cmath>
#include "framework/autograd/tape.h"
#include "framework/layers/inference.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/trace.h"
#include "framework/ops/ops.h"
#include "kernels/core/runtime.h"
#include "kernels/formulas/pointwise.h"
#include "tests/support/catch.h"

namespace test_tape {

using namespace trireme;
using Values = std::vector<double>;

namespace {

Tensor leaf(const Values& values, DType dtype = DType::f64) {
  Tensor t = Tensor::of(values, {static_cast<Index>(values.size())}, dtype);
  return t.require_grad();
}
Tensor leaf(const Values& values, const Shape& shape) {
  Tensor t = Tensor::of(values, shape, DType::f64);
  return t.require_grad();
}
std::size_t in_use() { return runtime(DeviceKind::cpu).in_use(); }
bool says(const std::function<void()>& f, const std::string& text) {
  try {
    f();
  } catch (const Error& e) {
    INFO(e.what());
    return std::string(e.what()).find(text) != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("a gradient that add hands to both inputs is not overwritten by either") {
  const Tensor x = leaf({1, 2});
  const Tensor a = scale(x, 1), b = scale(x, 1);
  // a's gradient collects from two sums; b's must not see that.
  const Tensor s = add(a, b), t = add(s, a);
  sum(t).backward();
  CHECK(x.grad().to_vector() == Values{3, 3});

  const Tensor p = leaf({1, -1}), q = leaf({2, 2});
  const Tensor r = add(relu(p), q);
  sum(mul(add(r, relu(r)), r)).backward();
  // r = relu(p) + q = (3, 2); d/dr 2 r^2 = 4 r
  CHECK(p.grad().to_vector() == Values{12, 0});
  CHECK(q.grad().to_vector() == Values{12, 8});
}

TEST_CASE("a seed is never written to") {
  const Tensor x = leaf({1, -2}), seed = Tensor::of(Values{1, 1}, {2}, DType::f64);
  relu(x).backward(seed);
  CHECK(seed.to_vector() == Values{1, 1});
  CHECK(x.grad().to_vector() == Values{1, 0});
}

TEST_CASE("an input used twice, also as both operands") {
  const Tensor x = leaf({3, 4});
  sum(mul(x, x)).backward();
  CHECK(x.grad().to_vector() == Values{6, 8});
  sum(mul(x, x)).backward();  // adds
  CHECK(x.grad().to_vector() == Values{12, 16});
  x.clear_grad();
  CHECK_FALSE(has_grad(x));
  sum(div(x, x)).backward();
  CHECK(x.grad().to_vector() == Values{0, 0});

  const Tensor m = leaf({1, 2, 3, 4}, {2, 2});
  sum(matmul(m, m)).backward();
  CHECK(m.grad().to_vector() == Values{7, 11, 9, 13});
}

TEST_CASE("a leaf's gradient stays in its block") {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2}), flat = Tensor::full({8}, 9, DType::f64);
  detail::set_grad_block(w, flat.rows(4, 8));
  const void* block = flat.rows(4, 8).view().data;
  const Tensor x = Tensor::of(Values{1, 1}, {1, 2}, DType::f64);
  for (int round = 1; round <= 2; ++round) {
    sum(linear(x, w)).backward();
    CHECK(w.grad().view().data == block);
    CHECK(flat.to_vector() == Values{9, 9, 9, 9, 1. * round, 1. * round, 1. * round, 1. * round});
  }
  w.clear_grad();
  sum(scale(w, 2)).backward();
  CHECK(flat.to_vector() == Values{9, 9, 9, 9, 2, 2, 2, 2});
  CHECK(says([&] { detail::set_grad_block(w, Tensor::zeros({4}, DType::f32)); },
             "set_grad_block: the leaf is f64 [2, 2]"));
}

TEST_CASE("shared weights, one of which already holds something") {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2}), b1 = leaf({0, 0}), b2 = leaf({0, 0});
  const Tensor x = Tensor::of(Values{1, 2}, {1, 2}, DType::f64);
  const Tensor y = linear(linear(x, w, b1), w, b2);  // w accumulates at the second layer met, b1 does not
  sum(y).backward();
  CHECK(b2.grad().to_vector() == Values{1, 1});
  CHECK(b1.grad().to_vector() == Values{4, 6});
  CHECK(w.grad().to_vector() == Values{5 + 4, 11 + 8, 5 + 6, 11 + 12});
}

TEST_CASE("hooks fire once per backward, when all contributions are in, in the midst of it") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  std::vector<std::string> log;
  Values seen;
  add_grad_hook(a, [&](const Tensor& t) {
    log.push_back("a");
    seen = t.grad().to_vector();
  });
  const auto id = add_grad_hook(b, [&](const Tensor& t) {
    log.push_back("b");
    CHECK(t.id() == b.id());
  });
  const Tensor h = scale(a, 2);
  const auto noted = [&](const Tensor& x, const char* name) {
    return record("noted", x.detach(), {x}, [&log, name](const Tensor& dy, Gradients& g) {
      log.push_back(name);
      g.set_grad(0, dy);
    });
  };
  const Tensor first = noted(mul(h, a), "first"), second = add(mul(b, b), a);
  sum(add(first, second)).backward();
  CHECK(log == std::vector<std::string>{"b", "first", "a"});
  CHECK(seen == Values{5, 9});  // 4 a + 1
  remove_grad_hook(b, id);
  log.clear();
  sum(mul(a, b)).backward();
  CHECK(log == std::vector<std::string>{"a"});
}

TEST_CASE("deferred weight halves give the same, later, with their hooks") {
  Values normal_w, normal_x;
  for (const bool deferred : {false, true}) {
    for (const DType data : {DType::f64, DType::bf16}) {  // bf16: the weight's gradient passes a recorded cast
      Tensor w = Tensor::of(Values{1, 2, 3, 4}, {2, 2}, DType::f64), b = Tensor::of(Values{1, 0}, {2}, DType::f64);
      w.require_grad();
      b.require_grad();
      Tensor x = Tensor::of(Values{1, -2}, {1, 2}, data);
      x.require_grad();
      int fired = 0;
      add_grad_hook(w, [&](const Tensor&) { ++fired; });
      add_grad_hook(b, [&](const Tensor&) { ++fired; });
      Deferred later;
      const Tensor y = sum(linear(linear(x, w, b, true), w, b));
      const Tensor seed = Tensor::full({}, 1, data);
      backward({&y, 1}, {&seed, 1}, {.defer_weights = deferred ? &later : nullptr});
      CHECK(has_grad(x));
      CHECK(fired == (deferred ? 0 : 2));
      CHECK(has_grad(w) != deferred);
      CHECK(later.size() == (deferred ? 2u : 0u));
      later.run();
      CHECK(later.empty());
      CHECK(fired == 2);
      if (!deferred && data == DType::f64) {
        normal_w = w.grad().to_vector();
        normal_x = x.grad().to_vector();
      }
      CHECK(w.grad().to_vector() == normal_w);
      CHECK(x.grad().to_vector() == normal_x);
      CHECK(b.grad().to_vector() == Values{1, 1});
    }
  }
}

TEST_CASE("a weights half runs while the op that it waits for waits for messages") {
  for (const DType data : {DType::f64, DType::bf16})  // bf16: the weight's gradient passes a recorded cast
    for (const bool asks : {true, false}) {
      std::vector<std::string> log;
      Tensor w = Tensor::of(Values{1, 2, 3, 4}, {2, 2}, DType::f64), x = Tensor::of(Values{1, -2}, {1, 2}, data);
      w.require_grad();
      x.require_grad();
      add_grad_hook(w, [&](const Tensor&) { log.push_back("weight"); });
      const auto travels = [&](const Tensor& t) {
        return record("travels", t.detach(), {t},
                      Backward{.inputs =
                                   [&](const Tensor& dy, Gradients& g) {
                                     log.push_back("starts");
                                     if (asks) g.run_kept();
                                     log.push_back("ends");
                                     g.set_grad(0, dy);
                                   },
                               .waits = true});
      };
      const Tensor in = travels(scale(x, 1));
      const Tensor y = sum(add(linear(in, w), linear(in, w))), seed = Tensor::full({}, 1, data);
      on_grad(in, [&](const Tensor& dy) {
        log.push_back("input");
        return dy;
      });
      backward({&y, 1}, {&seed, 1}, {.retain_graph = true});
      const std::vector<std::string> first = asks ? std::vector<std::string>{"input", "starts", "weight", "ends"}
                                                  : std::vector<std::string>{"input", "starts", "ends", "weight"};
      CHECK(log == first);
      CHECK(w.grad().to_vector() == Values{2, -4, 2, -4});
      CHECK(x.grad().to_vector() == Values{8, 12});
      CHECK(grad({y}, {w}, {}, {.retain_graph = true})[0].to_vector() == Values{2, -4, 2, -4});
      log.clear();
      Deferred later;
      backward({&y, 1}, {&seed, 1}, {.defer_weights = &later});
      CHECK(log == std::vector<std::string>{"input", "starts", "ends"});
      CHECK(later.size() == 2);
      later.run();
      CHECK(log.back() == "weight");
      CHECK(w.grad().to_vector() == Values{4, -8, 4, -8});
    }
}

TEST_CASE("several backwards before their deferred halves, as pipeline schedules run them") {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2});
  int fired = 0;
  add_grad_hook(w, [&](const Tensor&) { ++fired; });
  std::vector<Deferred> later(3);
  for (int micro = 0; micro < 3; ++micro) {
    const Tensor x = Tensor::of(Values{1. + micro, 1}, {1, 2}, DType::f64);
    const Tensor y = linear(x, w), seed = Tensor::full(y.shape(), 1, DType::f64);
    backward({&y, 1}, {&seed, 1}, {.defer_weights = &later[static_cast<std::size_t>(micro)]});
  }
  for (auto& d : later) d.run();
  CHECK(fired == 3);
  CHECK(w.grad().to_vector() == Values{6, 3, 6, 3});
}

TEST_CASE("several roots, one of which leads to another") {
  const Tensor x = leaf({1, 2});
  const Tensor h = square(x), y = square(h), plain = Tensor::full({2}, 1, DType::f64);
  const std::vector<Tensor> roots{h, y, plain, x}, seeds(4, Tensor::full({2}, 1, DType::f64));
  backward(roots, seeds);
  CHECK(x.grad().to_vector() == Values{2 + 4 + 1, 4 + 32 + 1});
}

TEST_CASE("nothing is recorded under NoGrad, Inference, or without a leaf") {
  const Tensor x = leaf({1});
  {
    const NoGrad off;
    CHECK_FALSE(scale(x, 2).requires_grad());
    { const NoGrad nested; }
    CHECK_FALSE(is_recorded_or_traced({&x}));
  }
  CHECK(is_recorded_or_traced({&x}));
  {
    const Inference eval;
    CHECK_FALSE(StepContext::current().batch.training);
    CHECK_FALSE(scale(x, 2).requires_grad());
  }
  CHECK(StepContext::current().batch.training);
  const Tensor plain = Tensor::full({1}, 1, DType::f64);
  CHECK_FALSE(add(plain, plain).requires_grad());
  CHECK(says([&] { plain.backward(); }, "no leaf with require_grad()"));
  CHECK_FALSE(x.detach().requires_grad());
  CHECK_FALSE(x.clone().requires_grad());
}

TEST_CASE("misuse gets a clear error") {
  const Tensor x = leaf({1, 2});
  const Tensor h = exp(x), y = sum(h);
  y.backward();
  CHECK_ERROR(y.backward(), usage, "backward", "'sum'", "freed");
  const Tensor z = sum(scale(h, 2));
  CHECK(says([&] { z.backward(); }, "'exp' was freed"));
  const Tensor again = sum(scale(x, 2));  // the walk that failed left nothing behind
  again.backward();
  CHECK_ERROR(exp(x).backward(), usage, "backward", "seed", "[2]");
  CHECK(says([&] { exp(x).backward(Tensor::zeros({3}, DType::f64)); }, "its seed f64 [3]"));
  Tensor result = exp(x);
  CHECK(says([&] { result.require_grad(); }, "the result of 'exp'"));
  CHECK(says([&] { result.grad(); }, "wants a leaf"));
  CHECK(says([&] { Tensor::zeros({2}, DType::i64).require_grad(); }, "floating type"));
  CHECK(says([&] { Tensor().shape(); }, "undefined"));
  CHECK_ERROR(x.reshape({3}), usage, "reshape", "[2]", "[3]");
  const Tensor none = Tensor::zeros({0, 4, 6});  // of a rank that has no rows of a batch
  CHECK(none.reshape({0, -1}).shape() == Shape{0, 24});
  CHECK(none.reshape({0, -1, 3}).shape() == Shape{0, 8, 3});
  CHECK(none.reshape({-1, 3}).shape() == Shape{0, 3});
  CHECK(none.reshape({0, 7}).shape() == Shape{0, 7});
  CHECK_ERROR(none.reshape({0, -1, 5}), usage, "[0, 4, 6]", "[0, -1, 5]");
  CHECK_ERROR(none.reshape({0, 0, -1}), usage, "[0, 4, 6]", "[0, 0, -1]");
  CHECK_ERROR(Tensor::zeros({4, 0}).reshape({0, -1}), usage, "[4, 0]", "[0, -1]");
  CHECK_ERROR(add(x, leaf({1, 2, 3})), usage, "add", "[2]", "[3]");
  CHECK_ERROR(add(x, x.to(DType::f32)), usage, "add", "f64", "f32");
  CHECK_ERROR(add(x, x.to(cpu(1))), usage, "add", "cpu:0", "cpu:1");
  const Tensor wrong = record("wrong", x.detach(), {x},
                              [](const Tensor&, Gradients& g) { g.set_grad(0, Tensor::zeros({3}, DType::f64)); });
  CHECK_ERROR(sum(wrong).backward(), usage, "'leaf'", "f64 [2]", "f64 [3]");
}

TEST_CASE("chains of 200,000 ops need no stack, neither in backward nor in death") {
  const Tensor x = leaf({1});
  Tensor y = x, dropped = x;
  for (int i = 0; i < 200'000; ++i) {
    y = add(y, x);
    dropped = exp(scale(dropped, 0.5));
  }
  sum(y).backward();
  CHECK(x.grad().item() == 200'001);
}

TEST_CASE("backward frees what it goes past") {
  const std::size_t before = in_use();
  const Tensor x = Tensor::full({1 << 16}, 0.5, DType::f32).require_grad();
  const std::size_t one = in_use() - before;
  {
    Tensor y = x;
    for (int i = 0; i < 16; ++i) y = silu(y);  // keeps its input
    std::size_t during = 0;
    y = record("look", y.detach(), {y}, [](const Tensor& dy, Gradients& g) { g.set_grad(0, dy); });
    Tensor early = record("early", x.detach(), {x}, [&](const Tensor& dy, Gradients& g) {
      during = in_use() - before;
      g.set_grad(0, dy);
    });
    Tensor z = early;
    for (int i = 0; i < 16; ++i) z = silu(z);
    const Tensor loss = sum(z);
    const std::size_t recorded = in_use() - before;
    CHECK(recorded >= 32 * one);
    z = Tensor();
    loss.backward();
    // y's chain stands (16 blocks), x, the gradient under way; z's chain is gone but for what `early` shares.
    CHECK(during <= 20 * one);
    CHECK(has_grad(x));
  }
  CHECK(in_use() - before <= 2 * one);  // x and its gradient
}

TEST_CASE("to another device and type, and back, is differentiable") {
  const Tensor x = leaf({1, 2});
  const Tensor there = x.to(cpu(1));
  CHECK(there.device() == cpu(1));
  CHECK(there.view().data != x.view().data);
  sum(square(there.to(DType::f32))).to(cpu(0)).backward();
  CHECK(x.grad().device() == cpu(0));
  CHECK(x.grad().dtype() == DType::f64);
  CHECK(x.grad().to_vector() == Values{2, 4});
  x.clear_grad();
  sum(mul(x.reshape({2, -1}), x.reshape({1, 2}))).backward();  // outer product
  CHECK(x.grad().to_vector() == Values{6, 6});
}

TEST_CASE("tensors: rows share, clones do not, empty ones are defined") {
  const Tensor x = Tensor::of(Values{1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(x.rows(1, 3).to_vector() == Values{3, 4, 5, 6});
  x.rows(1, 2).copy_from(Tensor::zeros({1, 2}, DType::f64));
  CHECK(x.to_vector() == Values{1, 2, 0, 0, 5, 6});
  const Tensor c = x.clone();
  c.rows(0, 1).copy_from(Tensor::full({1, 2}, 7));
  CHECK(x.to_vector()[0] == 1);
  CHECK(says([&] { x.rows(2, 4); }, "rows: [2, 4) of 3 rows"));
  const Tensor none = Tensor::zeros({0, 2});
  CHECK(none.defined());
  CHECK(none.view());
  CHECK(none.to_vector().empty());
  CHECK(x.to(DType::i64).to_vector() == Values{1, 2, 0, 0, 5, 6});
  CHECK_FALSE(Tensor().view());
}

TEST_CASE("a gradient is not differentiated again as if it were a constant") {
  const Tensor w = leaf({1, -2, 3});
  const auto first = [&] { return grad({sum(pow(w, 3))}, {w})[0]; };
  CHECK(first().to_vector() == Values{3, 12, 27});
  CHECK_ERROR(sum(first()).backward(), usage, "grad", "detach");
  CHECK_ERROR((sum(w) + sum(square(first()))).backward(), usage, "grad", "detach");
  CHECK_ERROR(grad({sum(w) + sum(first())}, {w}), usage, "grad", "detach");
  w.clear_grad();
  (sum(w) + sum(first().detach() * w)).backward();
  CHECK(w.grad().to_vector() == Values{4, 13, 28});
  {
    const NoGrad off;
    CHECK_FALSE(grad({w}, {w}, {ones({3}, DType::f64)})[0].requires_grad());
  }
  // By way of a result, which the second derivative would pass, too.
  const Tensor h = w * w, g = grad({sum(h * h)}, {h}, {}, {.retain_graph = true})[0];
  CHECK(g.to_vector() == Values{2, 8, 18});
  CHECK_ERROR(grad({sum(g * h)}, {h}), usage, "grad", "detach");
  // What the caller gives stays what it was.
  const Tensor seed = ones({3}, DType::f64);
  CHECK(grad({w}, {w}, {seed})[0].requires_grad());
  CHECK_FALSE(seed.requires_grad());
}

TEST_CASE("with create_graph a gradient is differentiated again, as often as one likes") {
  const Tensor w = leaf({1, -2, 3});
  const BackwardOptions again{.create_graph = true};
  const Tensor first = grad({sum(pow(w, 3))}, {w}, {}, again)[0];  // 3 w^2, whose derivative is 6 w
  CHECK(first.to_vector() == Values{3, 12, 27});
  (sum(w) + sum(first)).backward();
  CHECK(w.grad().to_vector() == Values{7, -11, 19});
  w.clear_grad();
  Tensor y = sum(pow(w, 4));
  for (const Values& expected : {Values{4, -32, 108}, Values{12, 48, 108}, Values{24, -48, 72}, Values{24, 24, 24}}) {
    y = grad({y}, {w}, {}, again)[0];
    CHECK(y.to_vector() == expected);
    y = sum(y);
  }
  CHECK_FALSE(has_grad(w));
  // By way of a result, of which the second derivative has two paths.
  const Tensor h = w * w, g = grad({sum(h * h)}, {h}, {}, again)[0];
  CHECK(grad({sum(g * h)}, {w})[0].to_vector() == Values{8, -64, 216});  // of 2 w^4
  // The gradient has the rows of its input, so that a mean over the batch is that of all ranks.
  StepContext context = StepContext::current();
  context.batch.samples = Tensor::of(Values{0, 1, 2}, {3}, DType::i64);
  context.batch.global_batch = 6;
  const StepScope scope(std::move(context));
  const Tensor x = leaf({1, -2, 3}).detach().with_batch(StepContext::current().batch).require_grad();
  const double penalty = batch_mean(square(grad({sum(square(x))}, {x}, {}, again)[0])).item();
  CHECK(std::abs(penalty - (4 + 16 + 36) / 6.0) < 1e-14);
}

TEST_CASE("jvp is the product of the Jacobian with tangents") {
  const Tensor a = leaf({1, -2, 3}), b = leaf({2, 5, -1}), ta = leaf({1, 0, 2}).detach(),
               tb = leaf({-1, 4, 0.5}).detach();
  const std::vector<Tensor> moved = jvp({a * b, sum(a * a)}, {a, b}, {ta, tb});
  CHECK(moved[0].to_vector() == Values{1, -8, -0.5});
  CHECK(moved[1].item() == 14);
  CHECK_ERROR(jvp({a * b}, {a, b}, {ta}), usage, "jvp", 1);
  const Tensor half = leaf({1, 2}).detach().to(DType::bf16).require_grad();
  const Tensor w = Tensor::full({2, 2}, 0.5, DType::bf16).require_grad();
  CHECK_ERROR(grad({sum(linear(half, w))}, {half}, {}, {.create_graph = true}), usage, "create_graph", "linear");
}

TEST_CASE("a trace lists ops with their options, and keeps them off the tape") {
  const Tensor x = leaf({1, -2});
  {
    const NoGrad no_grad;
    scale(x, 3);  // before the trace
    const Trace outer;
    Trace trace;
    const Tensor y = relu(scale(x, 3)), z = permute(y.reshape({1, 2}), {1, 0});
    REQUIRE(trace.ops.size() == 4);
    CHECK(outer.ops.empty());
    CHECK(trace.ops[0].name == std::string("scale"));
    CHECK(trace.ops[0].inputs[0].id() == x.id());
    CHECK(std::any_cast<double>(trace.ops[0].detail) == 3);
    CHECK(trace.ops[1].inputs[0].id() == trace.ops[0].output.id());
    CHECK(trace.ops[1].output.id() == y.id());
    CHECK(std::any_cast<pointwise::Relu>(&trace.ops[1].detail) != nullptr);
    CHECK_FALSE(trace.ops[2].detail.has_value());
    CHECK(std::any_cast<Shape>(trace.ops[3].detail) == Shape{1, 0});
    CHECK_FALSE(z.requires_grad());
  }
  CHECK(relu(x).requires_grad());
}

}  // namespace test_tape
