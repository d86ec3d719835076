// Mistakes that a user makes: each gives the right result or an Error of one line, never a wrong number in silence.
#include <future>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include "framework/autograd/tape.h"
#include "framework/io/safetensors.h"
#include "framework/io/weights.h"
#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/ops/ops.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameters.h"
#include "framework/tensor/create.h"
#include "framework/tensor/print.h"
#include "parallel/runtime/step.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_misuse {

using namespace trireme;
using test::contains;
using Values = std::vector<double>;

namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();
constexpr Index two_to_the(int n) { return Index{1} << n; }

Tensor leaf(const Values& values, const Shape& shape) {
  Tensor t = Tensor::of(values, shape, DType::f64);
  return t.require_grad();
}
Tensor plain(const Values& values, const Shape& shape) { return Tensor::of(values, shape, DType::f64); }

}  // namespace

TEST_CASE("sizes that overflow are refused, whatever makes the tensor") {
  const Shape huge[] = {{two_to_the(62) + 1},
                        {two_to_the(40), two_to_the(40)},
                        {two_to_the(33), two_to_the(31)},
                        {3, two_to_the(62) / 3 + 1},
                        {two_to_the(61)},
                        {two_to_the(40), 0, two_to_the(40)}};
  for (const Shape& shape : huge) {
    INFO(to_string(shape));
    CHECK_ERROR(Tensor::empty(shape), usage, "empty", 64);
    CHECK_THROWS_AS(Tensor::zeros(shape, DType::bf16), Error);
    CHECK_ERROR(Tensor::of({}, shape), usage, 64);
  }
  CHECK_ERROR(Tensor::empty({two_to_the(62)}, DType::u8), out_of_memory, "allocate", "4611686018427387904");
  CHECK_ERROR(Tensor::empty({2, -1}), usage, "empty", 0);
  CHECK(Tensor::empty({two_to_the(40), 0}).numel() == 0);
}

TEST_CASE("an axis that is not there is refused") {
  const Tensor t = Tensor::zeros({2, 3});
  CHECK(t.dim(-2) == 2);
  for (int axis : {2, 6, 7, -3, -9, std::numeric_limits<int>::min()}) {
    CHECK_ERROR(t.dim(axis), usage, 2, "[2, 3]");
    CHECK_ERROR(t.shape()[axis], usage, 2, "[2, 3]");
  }
  CHECK_ERROR(Tensor::scalar(1).dim(0), usage, "shape", 0);
}

TEST_CASE("elements are given out as what they are") {
  const Tensor f = Tensor::full({4}, 1), labels = Tensor::zeros({4}, DType::i64);
  CHECK_ERROR(f.data<double>(), usage, "f32", "f64");
  CHECK_ERROR(f.data<const std::int32_t>(), usage, "data", "i32");
  CHECK_ERROR(f.data<std::uint8_t>(), usage, "data", "u8");
  CHECK_ERROR(labels.view().span<float>(), usage, "data", "i64");
  CHECK_ERROR(labels.view().span<const double>(), usage, "data", "i64");
  CHECK(f.data<const float>()[3] == 1);
  CHECK(labels.view().span<std::int64_t>()[3] == 0);
  CHECK(f.data<void>() == f.data<std::byte>());
  CHECK(f.data<char>() == f.data<void>());
  CHECK(Tensor().data<double>() == nullptr);
}

TEST_CASE("numbers that an integer type does not have are refused") {
  CHECK(Tensor::of(Values{0, 255, 3.7, -0.5}, {4}, DType::u8).to_vector() == Values{0, 255, 3, 0});
  CHECK(Tensor::of(Values{-2147483648.0, 2147483647}, {2}, DType::i32).to_vector() ==
        Values{-2147483648.0, 2147483647});
  CHECK(Tensor::full({1}, -0x1p63, DType::i64).item() == -0x1p63);
  for (double v : {-1.0, 256.0, no_number, infinity, -infinity})
    CHECK_ERROR(Tensor::of(Values{1, v}, {2}, DType::u8), usage, "u8");
  for (double v : {0x1p31, -0x1p31 - 1, no_number}) CHECK_ERROR(Tensor::full({2}, v, DType::i32), usage, "full", "i32");
  for (double v : {0x1p63, -0x1p64, no_number}) CHECK_ERROR(Tensor::scalar(v, DType::i64), usage, "full", "i64");
}

TEST_CASE("devices that are not there are refused") {
  for (int index : {-3, -1, 64, 99}) {
    CHECK_ERROR(Tensor::zeros({1}, DType::f32, cpu(index)), usage, "device", 63);
    CHECK_ERROR(Tensor::zeros({1}).to(cpu(index)), usage, "device", 63);
  }
  CHECK_ERROR(Tensor::zeros({1}, DType::f32, cuda(-1)), usage, "device", "cuda:-1");
}

TEST_CASE("rows() has a gradient, and several of one tensor add up") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  const Tensor h = scale(x, 2);  // rows of a leaf, and of a result
  for (const Tensor& t : {x, h}) {
    x.clear_grad();
    const double by = t.id() == h.id() ? 2 : 1;
    // [0, 2) once, [1, 3) three times; nothing of row 3.
    sum(add(t.rows(0, 2), scale(t.rows(1, 3), 3))).backward();
    CHECK(x.grad().to_vector() == Values{by, by, 4 * by, 4 * by, 3 * by, 3 * by, 0, 0});
    if (t.id() == x.id()) {
      sum(t.rows(3, 4)).backward();  // adds to what there is
      CHECK(x.grad().to_vector() == Values{1, 1, 4, 4, 3, 3, 1, 1});
      sum(t.rows(2, 2)).backward();  // no rows
      CHECK(x.grad().to_vector() == Values{1, 1, 4, 4, 3, 3, 1, 1});
    }
  }
  const Tensor y = leaf({1, 2}, {2});
  sum(y.rows(1, 1)).backward();
  CHECK(y.grad().to_vector() == Values{0, 0});
  CHECK(x.rows(1, 3).data<double>() == x.data<double>() + 2);
  CHECK_FALSE(x.view_rows(1, 3).requires_grad());
  CHECK_FALSE(x.detach().rows(1, 3).requires_grad());
  CHECK_ERROR(x.rows(3, 5), usage, 3, 5, 4);
}

TEST_CASE("grad() is undefined after clear_grad() until a backward comes") {
  const Tensor x = leaf({1, 2}, {2});
  CHECK_FALSE(x.grad());
  sum(x).backward();
  CHECK(x.grad().to_vector() == Values{1, 1});
  x.clear_grad();
  CHECK_FALSE(x.grad());
  Sequential model{Linear(2, 2), Linear(2, 1)};
  Parameters p(model);
  CHECK_FALSE(p.entries()[0].tensor.grad());
  sum(model[0](Tensor::full({1, 2}, 1))).backward();
  CHECK(p.entries()[0].tensor.grad());
  CHECK_FALSE(p.entries()[2].tensor.grad());
  p.zero_missing_grads();
  CHECK(p.entries()[2].tensor.grad().to_vector() == Values{0, 0});
  p.clear_grads();
  for (auto& e : p.entries()) CHECK_FALSE(e.tensor.grad());
}

TEST_CASE("a tensor that backward needs must not be written to in place") {
  const std::string told = "[2]";
  const auto write_between = [](const std::function<void(const Tensor&)>& write) {
    const Tensor x = leaf({1, 2}, {2});
    const Tensor y = sum(mul(x, x));
    write(x);
    y.backward();
    return x.grad().to_vector();
  };
  CHECK(write_between([](const Tensor&) {}) == Values{2, 4});
  CHECK_ERROR(write_between([](const Tensor& x) { x.copy_from(plain({9, 9}, {2})); }), usage, told, "mul");
  CHECK_ERROR(write_between([](const Tensor& x) { x.detach().copy_from(plain({9, 9}, {2})); }), usage, told);
  CHECK_ERROR(write_between([](const Tensor& x) { x.view_rows(1, 2).copy_from(plain({9}, {1})); }), usage, told);
  CHECK_ERROR(write_between([](const Tensor& x) {
                x.reshape({2, 1}).detach().copy_from(plain({9, 9}, {2, 1}));
              }),
              usage, told);
  CHECK_ERROR(write_between([](const Tensor& x) { uniform(x, 0, 1, 1); }), usage, told);
  CHECK_ERROR(write_between([](const Tensor& x) { normal(x, 0, 1, 1); }), usage, told);
  // Not what it needs, or nothing new.
  CHECK(write_between([](const Tensor& x) { x.clone().copy_from(plain({9, 9}, {2})); }) == Values{2, 4});
  CHECK(write_between([](const Tensor& x) { x.copy_from(x.detach()); }) == Values{2, 4});
  const Tensor x = leaf({1, 2, 3, 4}, {4});
  const Tensor y = sum(square(x.rows(0, 2)));
  x.view_rows(2, 4).copy_from(plain({9, 9}, {2}));  // beside it
  y.backward();
  CHECK(x.grad().to_vector() == Values{2, 4, 0, 0});
}

TEST_CASE("an optimizer's step between forward and backward is found out; other weights of the block are left alone") {
  Sequential model{Linear(2, 2), Linear(2, 2)};
  Parameters p(model);
  Optimizer optimizer(p, Sgd{.lr = 0.1});
  const Tensor x = Tensor::full({1, 2}, 1);
  const Tensor loss = sum(model(x));
  p.find("0.weight")->tensor.copy_from(Tensor::zeros({2, 2}));  // x wants no gradient: nothing has kept this one
  loss.backward();
  optimizer.step();
  const Tensor again = sum(model(x));
  optimizer.step();
  CHECK_ERROR(again.backward(), usage, "linear", "[2, 2]");
}

TEST_CASE("many writes beside a tensor, and one to it") {
  const Tensor block = Tensor::zeros({3}, DType::f64);
  Tensor x = block.view_rows(0, 1);
  x.require_grad();
  for (const bool touched : {false, false, true}) {
    const Tensor y = sum(square(x));
    if (touched) x.copy_from(plain({1}, {1}));
    for (int i = 0; i < 1500; ++i) block.view_rows(1 + i % 2, 2 + i % 2).copy_from(plain({1. * i}, {1}));
    if (touched)
      CHECK_ERROR(y.backward(), usage, "square", "[1]");
    else
      CHECK_NOTHROW(y.backward());
  }
}

TEST_CASE("a result on the tape is not written to") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = scale(x, 2);
  CHECK_ERROR(y.copy_from(plain({1, 1}, {2})), usage, "copy_from", "scale");
  const NoGrad off;
  CHECK_NOTHROW(y.copy_from(plain({1, 1}, {2})));
}

TEST_CASE("copy_from between overlapping rows moves them") {
  const Tensor t = plain({0, 1, 2, 3, 4, 5}, {6});
  t.view_rows(1, 6).copy_from(t.view_rows(0, 5));
  CHECK(t.to_vector() == Values{0, 0, 1, 2, 3, 4});
  t.view_rows(0, 5).copy_from(t.view_rows(1, 6));
  CHECK(t.to_vector() == Values{0, 1, 2, 3, 4, 4});
}

TEST_CASE("a model lives in one Parameters at a time") {
  Sequential model{Linear(2, 2), Linear(2, 1)};
  CHECK(Parameters(model).count() == 9);
  CHECK(Parameters(model).count() == 9);
  const std::string told = "0.weight";
  {
    std::optional<Parameters> first(std::in_place, model);
    CHECK_ERROR(Parameters(model), usage, told);
    Parameters copy(*first);
    first.reset();
    CHECK_ERROR(Parameters(model), usage, told);
    Parameters moved(std::move(copy));
    CHECK_ERROR(Parameters(model), usage, told);
    // A part of it, too; and the one that owns it trains.
    CHECK_ERROR(Parameters(model[0]), usage, "parameters", "weight");
    Optimizer optimizer(moved, Sgd{.lr = 1});
    const Values before = model[0].as<Linear>()->bias.to_vector();
    sum(model[0](Tensor::full({1, 2}, 1))).backward();
    optimizer.step();
    CHECK(model[0].as<Linear>()->bias.to_vector()[1] == Approx(before[1] - 1).epsilon(1e-6));
  }
  Parameters last(model);
  CHECK(last.count() == 9);
}

TEST_CASE("a second Step over a model is refused") {
  World world;
  Sequential model{Linear(2, 2), Linear(2, 1)};
  {
    Step step(model, mse_loss, Sgd{.lr = 0.1}, world);
    CHECK_ERROR(Step(model, mse_loss, Sgd{.lr = 0.1}, world), usage, "parameters", "0.weight");
    CHECK_ERROR(Parameters(model), usage, "parameters", "0.weight");
    const Values before = model[0].as<Linear>()->weight.to_vector();
    step(Tensor::full({3, 2}, 1), Tensor::full({3, 1}, 1));
    CHECK(model[0].as<Linear>()->weight.to_vector() != before);
  }
  Step next(model, mse_loss, Sgd{.lr = 0.1}, world);
  CHECK(next.parameters().count() == 9);
}

TEST_CASE("two threads' backwards over the same weights are found out") {
  const Tensor w = leaf({1, 2}, {2});
  std::promise<void> inside, go_on;
  std::thread other([&] {
    const Tensor y = record("slow", scale(w.detach(), 1), {w}, [&](const Tensor& dy, Gradients& g) {
      inside.set_value();
      go_on.get_future().wait();
      g.set_grad(0, dy);
    });
    sum(y).backward();
  });
  inside.get_future().wait();
  CHECK_ERROR(sum(scale(w, 2)).backward(), usage, "backward");
  go_on.set_value();
  other.join();
  sum(scale(w, 2)).backward();
  CHECK(w.grad().to_vector() == Values{3, 3});
}

TEST_CASE("tensors that share memory by another handle are refused by name") {
  struct Tied {
    Linear a{2, 2}, b{2, 2};
    Tensor operator()(const Tensor& x) const { return b(a(x)); }
    void visit(const StateVisitor& v) {
      v("a", a);
      v("b", b);
    }
  };
  for (int kind = 0; kind < 3; ++kind) {
    Tied tied;
    const Tensor& w = tied.a.weight;
    tied.b.weight = kind == 0 ? w.detach() : kind == 1 ? w.reshape({4}).reshape({2, 2}) : Tensor::empty({2, 2});
    if (kind == 2) tied.b.bias = w.detach().reshape({4}).view_rows(2, 4);
    CHECK_ERROR(Parameters(Module(tied)), usage, "a.weight");
  }
  Tied tied;
  tied.b.weight = tied.a.weight;
  CHECK(Parameters(Module(tied)).entries().size() == 3);
}

TEST_CASE("freezing a weight that Parameters train says how it is done") {
  Module model = Linear(2, 2);
  Parameters p(model);
  Tensor w = p.entries()[0].tensor;
  CHECK_ERROR(w.require_grad(false), usage, "require_grad");
  CHECK(w.requires_grad());
}

TEST_CASE("what is not there, and layers that are empty") {
  test::Temporary folder;
  write_safetensors(folder / "a", {{"w", Tensor::scalar(2)}});
  const SafetensorsFile file = read_safetensors(folder / "a");
  CHECK(file.at("w").item() == 2);
  CHECK(file.find("v") == nullptr);
  CHECK_ERROR(file.at("v"), data, "safetensors", "v");
  CHECK_ERROR(Module()(Tensor::zeros({1})), usage, "module");
  CHECK_ERROR(Sequential{Module()}(Tensor::zeros({1})), usage, "sequential", 0);
  const Sequential two{relu, relu};
  CHECK_ERROR(two[2], usage, "sequential", 2);
  CHECK_ERROR(two.name(7), usage, 7, 2);
  Stashed none;
  CHECK_ERROR(two.run_group(9, Tensor::zeros({1}), none), usage, "sequential", 9);
  CHECK_ERROR(two.run_layer(2, Tensor::zeros({1}), none), usage, "sequential", 2);
}

TEST_CASE("images with the channels second get a hint") {
  Conv2d layer(3, 8, 3);
  CHECK_ERROR(layer(Tensor::zeros({1, 3, 8, 8})), usage, "conv", "[N, H, W, C]");
  CHECK_ERROR(layer(Tensor::zeros({1, 8, 8, 4})), usage, 4, 3);
}

TEST_CASE("a PyTorch file given as safetensors is recognised") {
  test::Temporary folder;
  test::spill(folder / "x.pt", std::string("PK\x03\x04\x00\x00\x08\x08", 8) + std::string(100, 'x'));
  CHECK_ERROR(read_safetensors(folder / "x.pt"), data, "safetensors", "PyTorch");
}

TEST_CASE("a mean of many f16 numbers is finite") {
  const Tensor ones = Tensor::full({100'000}, 1, DType::f16);
  CHECK(mean(ones).item() == 1);
  CHECK(mean(ones).dtype() == DType::f16);
}

TEST_CASE("uniform stays below its upper end") {
  const Tensor t = Tensor::empty({1024});
  uniform(t, 1, 1 + 0x1p-23, 5);  // one number of f32: half of the draws would round up
  CHECK(t.to_vector() == Values(1024, 1.0));
  uniform(t, 3, 3, 1);
  CHECK(t.to_vector()[7] == 3);
  CHECK_ERROR(uniform(t, 0, no_number, 1), usage, 0, "nan");
}

TEST_CASE("what is empty is refused by an Error, not by an exception of the standard library") {
  const FlatBuffer none;
  CHECK_ERROR(none.dtype(), usage, "flat buffer");
  CHECK_THROWS_AS(none.device_of(0), Error);
  CHECK_THROWS_AS(none.rows(0, 0), Error);
  CHECK_ERROR(Schedule(std::function<double(std::int64_t)>()), usage, "schedule");
  CHECK_ERROR(Module(std::function<Tensor(const Tensor&)>()), usage, "module");
  CHECK_THROWS_AS(Module(static_cast<Tensor (*)(const Tensor&)>(nullptr)), Error);
  CHECK_ERROR(Module()(Tensor()), usage, "module");
  Tensor leaf = Tensor::zeros({2});
  CHECK_ERROR(add_grad_hook(leaf.require_grad(), {}), usage, "add_grad_hook");
  CHECK_ERROR(join_batches({}), usage, "concat");
  CHECK_THROWS_AS(Sequential{relu}.stashed_behind(1), Error);
}

TEST_CASE("select() and unbind() have gradients, and refuse elements that are not there") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(select(x, 1, -1).to_vector() == Values{3, 6});
  CHECK(select(x, 0, 1).to_vector() == Values{4, 5, 6});
  CHECK(slice(x, 1, 1).to_vector() == Values{2, 3, 5, 6});
  const auto columns = unbind(x, 1);
  REQUIRE(columns.size() == 3);
  CHECK(columns[1].to_vector() == Values{2, 5});
  sum(columns[0] * columns[2]).backward();
  CHECK(x.grad().to_vector() == Values{3, 0, 1, 6, 0, 4});
  CHECK(unbind(Tensor::zeros({0, 2})).empty());
  CHECK_ERROR(select(x, 1, 3), usage, 3, 1, "[2, 3]");
  CHECK_ERROR(select(x, 0, -3), usage, -3, 2);
  CHECK_ERROR(select(x, 2, 0), usage, "select", 2);
  CHECK_ERROR(unbind(Tensor::scalar(1)), usage, 0, "[]");
  CHECK_ERROR(unbind(Tensor()), usage, "unbind");
}

TEST_CASE("padding before and behind an axis may differ") {
  const Tensor x = plain({1, 2, 3, 4}, {1, 4, 1});
  for (auto& [pad, extent] : {std::pair{LayerPadding(2, 0), 5}, {LayerPadding(1), 5}, {LayerPadding(1, 2), 6}})
    CHECK(Conv1d(1, 1, 2, {.pad = pad})(x.to(DType::f32)).dim(1) == extent);
  Conv2d layer(1, 1, {2, 3}, {.pad = {{2, 1}, {1, 0}}});
  CHECK(layer.options.pad_begin[0] == 2);
  CHECK(layer.options.pad_begin[1] == 1);
  CHECK(layer.options.pad_end[0] == 1);
  CHECK(layer.options.pad_end[1] == 0);
}

TEST_CASE("a schedule is any function of the step") {
  const Sgd sgd{.lr = [](std::int64_t step) { return 1 / (1 + static_cast<double>(step)); }};
  CHECK(sgd.lr(3) == 0.25);
  CHECK(sgd.lr.text() == "a function, 1 at step 0");
}

TEST_CASE("shapes and types print to streams") {
  std::ostringstream out;
  out << Shape{2, 3} << " " << DType::bf16;
  CHECK(out.str() == "[2, 3] bf16");
}

TEST_CASE("a file may have a tensor that layers share under each of their names") {
  struct Tied {
    Linear in{2, 2}, out{2, 2};
    Tied() { out.weight = in.weight; }
    Tensor operator()(const Tensor& x) const { return out(in(x)); }
    void visit(const StateVisitor& v) { v("in", in, "out", out); }
  };
  Module model = convert(Tied(), DType::f64);
  Parameters p(model);
  CHECK(p.ties() == std::map<std::string, std::string>{{"out.weight", "in.weight"}});
  const test::Temporary folder;
  const auto after = [&](const std::vector<std::pair<std::string, double>>& weights) {
    std::vector<NamedTensor> file{{"in.bias", Tensor::zeros({2})}, {"out.bias", Tensor::zeros({2})}};
    for (auto& [name, value] : weights) file.push_back({name, Tensor::full({2, 2}, value)});
    if (weights[0].first.starts_with("module.")) {
      file[0].name = "module.in.bias";
      file[1].name = "module.out.bias";
    }
    write_safetensors(folder / "w", file);
    import_weights(p, folder / "w");
    return p.find("in.weight")->tensor.to_vector();
  };
  CHECK(after({{"in.weight", 3}}) == Values{3, 3, 3, 3});
  CHECK(after({{"out.weight", 4}}) == Values{4, 4, 4, 4});
  CHECK(after({{"in.weight", 5}, {"out.weight", 5}}) == Values{5, 5, 5, 5});
  CHECK(after({{"module.in.weight", 6}, {"module.out.weight", 6}}) == Values{6, 6, 6, 6});
  CHECK_ERROR(after({{"in.weight", 7}, {"out.weight", 8}}), data, "in.weight", "out.weight");
  CHECK(p.find("in.weight")->tensor.to_vector() == Values{6, 6, 6, 6});
}

TEST_CASE("integers divided by a number are refused with the ops that divide them") {
  CHECK_ERROR(arange(3) / 2, usage, "i64", 2, "floor_divide");
  CHECK(floor_divide(arange(3), 2).to_vector() == std::vector<double>{0, 0, 1});
}

}  // namespace test_misuse
