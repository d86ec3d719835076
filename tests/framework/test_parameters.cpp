#include "framework/optim/parameters.h"

#include "framework/autograd/tape.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "tests/support/catch.h"

namespace test_parameters {

using namespace trireme;
using test::contains;

namespace {

/// Two linear layers over one weight.
struct Tied {
  Linear a{3, 3}, b{3, 3};
  Tied() { b.weight = a.weight; }
  Tensor operator()(const Tensor& x) const { return b(a(x)); }
  void visit(const StateVisitor& v) {
    v("a", a);
    v("b", b);
  }
};

struct DuplicateName {
  Linear a{3, 3}, b{3, 3};
  Tensor operator()(const Tensor& x) const { return b(a(x)); }
  void visit(const StateVisitor& v) {
    v("a", a);
    v("a", b);
  }
};

Sequential small() { return {Linear(3, 5), relu, BatchNorm(5), Dropout(0.5), Linear(5, 2, {.bias = false})}; }

}  // namespace

TEST_CASE("entries lie in one flat block, aligned, in visit order, with their values kept") {
  Sequential model = small();
  const std::vector<double> before = model[0].as<Linear>()->weight.to_vector();
  Parameters p(model);
  std::vector<std::string> names;
  for (auto& e : p.entries()) names.push_back(e.name);
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight"});
  REQUIRE(p.buffers().size() == 2);
  CHECK(p.buffers()[1].name == "2.running_var");
  CHECK(p.count() == 15 + 5 + 5 + 5 + 10);
  CHECK(p.size() == 5 * 16);
  for (auto& e : p.entries()) {
    CHECK(e.slice.begin % 16 == 0);
    CHECK(e.tensor.data<char>() == p.values().rows(0, p.size()).data<char>() + e.slice.begin * 4);
    CHECK(e.tensor.requires_grad());
  }
  CHECK(p.entries()[2].kind == StateKind::no_decay);
  // The layers see the block, and so does every copy of the model.
  Sequential copy = model;
  CHECK(copy[0].as<Linear>()->weight.id() == p.entries()[0].tensor.id());
  CHECK(model[0].as<Linear>()->weight.to_vector() == before);
  p.values().rows(0, p.size()).copy_from(Tensor::full({p.size()}, 7));
  CHECK(model[4].as<Linear>()->weight.to_vector() == std::vector<double>(10, 7.0));
}

TEST_CASE("backward writes gradients into the flat block; missing ones become zero, once") {
  Sequential used{Linear(3, 2)};
  Sequential spare{Linear(2, 2)};
  Sequential both;
  both.add("used", used).add("spare", spare);
  Parameters p(both);
  p.grads().rows(0, p.size()).copy_from(Tensor::full({p.size()}, 99));
  sum(used(Tensor::full({4, 3}, 1))).backward();
  const auto& weight = p.entries()[0];
  CHECK(p.grads().rows(weight.slice.begin, weight.slice.end).to_vector() == std::vector<double>(6, 4.0));
  CHECK(weight.tensor.grad().data<char>() == p.grads().rows(0, p.size()).data<char>());
  CHECK(p.zero_missing_grads() == std::vector<std::string>{"spare.0.weight", "spare.0.bias"});
  const auto& missing = p.entries()[2];
  const Tensor zeroed = p.grads().rows(missing.slice.begin, missing.slice.end);
  CHECK(zeroed.to_vector() == std::vector<double>(4, 0.0));
  // Another rank's share, added by a reduction, survives a second call.
  zeroed.copy_from(Tensor::full(zeroed.shape(), 3));
  CHECK(p.zero_missing_grads().empty());
  CHECK(zeroed.to_vector() == std::vector<double>(4, 3.0));
  // The next backward overwrites.
  p.clear_grads();
  CHECK(p.zero_missing_grads().size() == 4);
  p.clear_grads();
  sum(used(Tensor::full({1, 3}, 1))).backward();
  CHECK(p.grads().rows(weight.slice.begin, weight.slice.end).to_vector() == std::vector<double>(6, 1.0));
}

TEST_CASE("a shared tensor is entered once and collects both gradients") {
  Tied tied;
  Module model = tied;
  Parameters p(model);
  REQUIRE(p.entries().size() == 3);
  CHECK(p.entries()[0].name == "a.weight");
  CHECK(p.entries()[2].name == "b.bias");
  sum(model(Tensor::full({1, 3}, 1))).backward();
  CHECK(has_grad(tied.b.weight));
  CHECK(tied.a.weight.grad().to_vector() == p.grads().rows(0, 9).to_vector());
}

TEST_CASE("random layers get the key of their name") {
  Sequential inner{Dropout(0.5)}, model;
  model.add("body", inner).add("head", Linear(2, 2)).add("drop", Dropout(0.1));
  Parameters p(model);
  const auto a = inner[0].as<Dropout>()->key, b = model[2].as<Dropout>()->key;
  CHECK(a != 0);
  CHECK(b != 0);
  CHECK(a != b);
}

TEST_CASE("what cannot be trained is refused by name") {
  CHECK_ERROR(Parameters(Sequential{relu}), usage, "parameters");
  CHECK_ERROR(Parameters(Module()), usage, "parameters");
  CHECK_ERROR(Parameters(DuplicateName()), usage, "parameters", "a.weight");
  Sequential mixed{Linear(2, 2), Linear(2, 2)};
  Module second = mixed[1];
  convert(second, DType::f64);
  CHECK_ERROR(Parameters(mixed), usage, "1.weight", "f64", "0.weight", "f32");
  Module half = Linear(2, 2);
  convert(half, DType::bf16);
  CHECK_ERROR(Parameters(half), usage, "weight", "bf16", "f32", "f64");
}

TEST_CASE("convert changes every tensor in place, and only outside of Parameters") {
  Module model = small();
  const auto before = model.as<Sequential>()->operator[](0).as<Linear>()->weight.to_vector();
  convert(model, DType::f64);
  Parameters p(model);
  CHECK(p.dtype() == DType::f64);
  CHECK(p.buffers()[0].tensor.dtype() == DType::f64);
  CHECK(p.entries()[0].tensor.to_vector() == before);
  CHECK_ERROR(convert(model, DType::f32), usage, "convert", "0.weight");
  Module loaded = small();
  { const Parameters gone(loaded); }
  convert(loaded, DType::f64);
  Parameters again(loaded);
  CHECK(again.dtype() == DType::f64);
  CHECK(again.entries()[0].tensor.requires_grad());
}

TEST_CASE("a gradient or value that is not finite is found by name") {
  Sequential model{Linear(2, 2), Linear(2, 2)};
  Parameters p(model);
  sum(model(Tensor::full({1, 2}, 1))).backward();
  CHECK(p.first_non_finite_grad() == nullptr);
  p.find("1.bias")->tensor.grad().copy_from(Tensor::full({2}, std::numeric_limits<double>::quiet_NaN()));
  REQUIRE(p.first_non_finite_grad() != nullptr);
  CHECK(p.first_non_finite_grad()->name == "1.bias");
  CHECK(p.find("2.bias") == nullptr);

  const Index last = p.entries().back().slice.end;
  CHECK(p.first_non_finite_value({{0, last}}) == nullptr);
  p.values().rows(last - 1, last).copy_from(Tensor::full({1}, std::numeric_limits<double>::infinity()));
  REQUIRE(p.first_non_finite_value({{0, 1}, {1, last}}) != nullptr);
  CHECK(p.first_non_finite_value({{0, 1}, {1, last}})->name == "1.bias");
  CHECK(p.first_non_finite_value({{0, last - 1}}) == nullptr);
}

}  // namespace test_parameters
