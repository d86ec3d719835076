// ONNX files: what lies in them, what is refused, and what onnx.checker and onnxruntime make of them.
#include "framework/io/onnx/onnx.h"
#include "framework/layers/inference.h"

#include <algorithm>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/io/onnx/onnx_graph.h"
#include "framework/layers/init.h"
#include "models/vision/mobilenet.h"
#include "models/vision/resnet.h"
#include "models/vision/unet.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/protobuf_reader.h"
#include "tests/support/temporary.h"

namespace test_onnx {

using namespace trireme;
using test::contains;
using test::Fields;

namespace {

/// Random weights, and scales, shifts and running statistics that tell channels apart.
void scatter(Module& model, Parameters& parameters) {
  initialize(model, 5);
  std::uint64_t key = 100;
  for (auto& e : parameters.entries())
    if (e.tensor.rank() == 1)
      uniform(e.tensor, e.name.ends_with("weight") ? 0.5 : -0.2, e.name.ends_with("weight") ? 1 : 0.2, ++key);
  for (auto& b : parameters.buffers())
    uniform(b.tensor, b.name.ends_with("var") ? 0.5 : -0.2, b.name.ends_with("var") ? 2 : 0.2, ++key);
}

Tensor to_channels_first(const Tensor& t) {
  Shape order{0};
  if (t.rank() < 3) return t;
  order.push_back(t.rank() - 1);
  for (int i = 1; i < t.rank() - 1; ++i) order.push_back(i);
  return permute(t, order);
}

struct Exported {
  std::string name;
  Module model;
  Shape sample;
};

/// Batches of 1 and 3 in onnxruntime against the model itself; onnx.checker on the file.
void beside_onnxruntime(std::vector<Exported> all) {
  const Inference inference;
  test::Oracle oracle;
  std::map<std::string, std::vector<double>> expected;
  for (Exported& e : all) {
    INFO(e.name);
    Parameters parameters(e.model);
    scatter(e.model, parameters);
    export_onnx(e.model, parameters, e.sample, oracle.folder() / (e.name + ".onnx"));
    for (Index rows : {1, 3}) {
      Shape shape{rows};
      for (Index extent : e.sample) shape.push_back(extent);
      const Tensor x = Tensor::empty(shape);
      uniform(x, -1, 1, static_cast<std::uint64_t>(rows));
      const std::string key = fmt::format("{}.{}", e.name, rows);
      oracle.put(key + ".x", to_channels_first(x));
      expected[key] = to_channels_first(e.model(x)).to_vector();
    }
  }
  oracle.run("onnx_oracle.py", "check");
  if (!oracle.run("onnx_oracle.py", "run", test::Python::oracles)) return;
  for (const auto& [key, values] : expected) {
    const std::vector<double> theirs = oracle.get(key + ".y");
    INFO(key);
    REQUIRE(theirs.size() == values.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference = std::max(difference, std::abs(values[i] - theirs[i]));
      size = std::max(size, std::abs(values[i]));
    }
    CHECK(size > 1e-3);
    CHECK(difference <= 1e-4 * std::max(1.0, size));
  }
}

/// A lambda with one layer's weights, or more.
template <class F>
struct Around {
  std::vector<std::pair<std::string, Module>> parts;
  F run;
  Tensor operator()(const Tensor& x) const { return run(parts, x); }
  void visit(const StateVisitor& v) {
    for (auto& [name, part] : parts) v(name, part);
  }
};
using Parts = std::vector<std::pair<std::string, Module>>;
template <class F>
Module around(Parts parts, F run) {
  return Around<F>{std::move(parts), std::move(run)};
}

ConvNd odd_conv(const Shape& kernel, Index groups = 1) {
  return ConvNd(
      4, 6, kernel,
      {.stride = {2, 1, 1}, .pad_begin = {1, 0, 2}, .pad_end = {2, 1, 0}, .dilation = {1, 2, 1}, .groups = groups},
      true);
}
MaxPool odd_max_pool() {
  MaxPool pool(3);
  pool.options = {
      .window = {3, 2, 2}, .stride = {2, 1, 1}, .pad_begin = {1, 0, 1}, .pad_end = {0, 1, 1}, .dilation = {1, 2, 1}};
  return pool;
}
AvgPool odd_avg_pool(bool count_padding) {
  AvgPool pool(3);
  pool.options = {.window = {3, 2, 2},
                  .stride = {2, 1, 1},
                  .pad_begin = {1, 0, 1},
                  .pad_end = {0, 1, 1},
                  .count_padding = count_padding};
  return pool;
}
Module prelu_of(Index channels) { return PReLU(channels, 0.3); }

}  // namespace

TEST_CASE("onnxruntime computes what the small models do") {
  std::vector<Exported> all;
  for (const char* name : {"mlp", "lenet5", "mnist_cnn"}) all.push_back({name, make_model(name), {28, 28, 1}});
  all.push_back({"resnet18", make_model("resnet18", {.input = {64, 64, 3}, .classes = 10}), {64, 64, 3}});
  all.push_back({"resnet20", make_model("resnet20"), {32, 32, 3}});
  beside_onnxruntime(std::move(all));
}
TEST_CASE("onnxruntime computes what resnet50 does") {
  beside_onnxruntime({{"resnet50", make_model("resnet50", {.input = {64, 64, 3}, .classes = 1000}), {64, 64, 3}}});
}

TEST_CASE("onnxruntime computes convolutions, pools and norms of every form") {
  std::vector<Exported> all{
      {"conv1d", Sequential{odd_conv({3}), relu}, {11, 4}},
      {"conv2d_plain", Sequential{odd_conv({3, 2}), sigmoid}, {9, 8, 4}},
      {"conv2d_relu", Sequential{odd_conv({3, 2}, 2), relu}, {9, 8, 4}},
      {"conv3d", Sequential{odd_conv({3, 2, 2}), relu, BatchNorm(6)}, {6, 7, 5, 4}},
      {"fused_tail",
       Sequential{Conv2d(4, 6, 3), relu, MaxPool(2), Dropout(0.5), flatten, Linear(54, 5), relu},
       {9, 8, 4}},
      {"norm_relu", Sequential{BatchNorm(4), relu, BatchNorm(4, {.eps = 0.1})}, {9, 8, 4}},
      {"norm_rows", Sequential{Linear(7, 4), BatchNorm(4), relu}, {7}},
      {"global_max", Sequential{odd_conv({3, 2}), global_max_pool, softmax}, {9, 8, 4}},
      {"global_avg", Sequential{odd_conv({3}), global_avg_pool, log_softmax}, {11, 4}},
      {"one_cell", Sequential{Conv2d(4, 6, 3), MaxPool(2), flatten, Linear(6, 2)}, {5, 5, 4}},
      {"one_channel", Sequential{Conv2d(4, 1, 3), flatten, Linear(42, 2)}, {9, 8, 4}},
      {"channels", Sequential{Conv2d(4, 6, 3), softmax, Linear(6, 3), LayerNorm(3), log_softmax}, {9, 8, 4}},
  };
  const Parts conv{{"conv", odd_conv({3, 2})}}, norm{{"norm", BatchNorm(4, {.relu = true})}},
      line{{"line", Linear(4, 4)}};
  all.push_back({"pools",
                 around(conv,
                        [](const Parts& p, const Tensor& x) {
                          return concat({flatten(odd_max_pool()(x)), flatten(odd_avg_pool(true)(x)),
                                         flatten(odd_avg_pool(false)(x)), flatten(p[0].second(x))},
                                        1);
                        }),
                 {9, 8, 4}});
  all.push_back(
      {"residual",
       around(norm, [](const Parts& p, const Tensor& x) { return (*p[0].second.as<BatchNorm>())(x, relu(x)); }),
       {9, 8, 4}});
  all.push_back({"bias_elsewhere",
                 around(conv,
                        [](const Parts& p, const Tensor& x) {
                          const ConvNd& c = *p[0].second.as<ConvNd>();
                          const Tensor y = trireme::conv(x, c.weight, {}, c.options);
                          PoolOptions tiles{.window = {2, 2, 2}, .stride = {2, 2, 2}};
                          return concat({flatten(y), flatten(bias_relu_pool_dropout(y, c.bias, tiles, 0.5, 1))}, 1);
                        }),
                 {9, 8, 4}});
  all.push_back({"shapes",
                 around(line,
                        [](const Parts& p, const Tensor& x) {
                          const std::vector<Tensor> halves = split(pad(x, {0, 1, 0, 2}, {0, 0, 2, 0}), {2, 4}, -1);
                          const Tensor y = concat({halves[1], reduce(halves[0], ReduceKind::sum, {-1})}, 3);
                          const Tensor rows = permute(y, {0, 2, 1, 3}).reshape({x.dim(0), -1, 5});
                          const Tensor product = matmul(rows, rows, {.transpose_b = true});
                          return concat(
                              {flatten(product), flatten(p[0].second(x)), reduce(flatten(x), ReduceKind::mean, {1}),
                               flatten(reduce(x, ReduceKind::max, {1, 3}))},
                              1);
                        }),
                 {3, 5, 4}});
  beside_onnxruntime(std::move(all));
}

TEST_CASE("onnxruntime computes transposed convolutions, resampling, group norms, selections") {
  const auto linear_upsample = [](const Shape& size, bool corners = false) {
    return Upsample({.size = size, .mode = ResampleMode::linear, .align_corners = corners});
  };
  std::vector<Exported> all{
      {"transposed",
       Sequential{ConvTranspose2d(4, 6, {3, 2}, {.stride = {2, 3}, .pad = 1, .output_pad = {1, 0}}), relu},
       {5, 4, 4}},
      {"transposed_1d", ConvTranspose1d(4, 4, 3, {.stride = 2, .dilation = 2, .groups = 2, .bias = false}), {6, 4}},
      {"transposed_3d", ConvTranspose3d(2, 3, 2, {.stride = 2}), {3, 2, 4, 2}},
      {"same",
       Sequential{Conv2d(4, 3, {4, 3}, {.pad = LayerPadding::same(), .dilation = {1, 2}}), prelu_of(3)},
       {9, 8, 4}},
      {"groups", Sequential{GroupNorm(2, 4), relu, Conv2d(4, 6, 3), GroupNorm(3, 6, 1e-3)}, {9, 8, 4}},
      {"instance", Sequential{InstanceNorm(4), Linear(4, 3), RMSNorm(3), LayerNorm(3)}, {9, 8, 4}},
      {"nearest", Sequential{Upsample({.scale = 2}), Conv2d(4, 2, 3)}, {5, 4, 4}},
      {"nearest_odd", Sequential{Linear(3, 3), Upsample({.size = {7, 9}})}, {5, 4, 3}},
      {"bilinear", Sequential{Linear(3, 3), linear_upsample({9, 3})}, {5, 4, 3}},
      {"corners", Sequential{Linear(3, 3), linear_upsample({9, 3}, true)}, {5, 4, 3}},
      {"scaled", Sequential{Linear(3, 3), Upsample({.scale = 1.3, .mode = ResampleMode::linear})}, {5, 7, 3}},
      {"linear_1d", Sequential{Linear(3, 3), linear_upsample({8})}, {5, 3}},
      {"trilinear", Sequential{Linear(2, 2), linear_upsample({5, 4, 3})}, {3, 2, 4, 2}},
      {"adaptive", Sequential{AdaptiveAvgPool({3, 4}), flatten, Linear(48, 3)}, {8, 7, 4}},
      {"adaptive_even", Sequential{Linear(4, 4), AdaptiveAvgPool({4, 2}), AdaptiveMaxPool({2, 2})}, {8, 6, 4}},
      {"ceil",
       Sequential{Linear(2, 2), MaxPool(2, {.stride = 2, .ceil_mode = true}),
                  AvgPool(3, {.stride = 2, .pad = 1, .ceil_mode = true})},
       {7, 9, 2}},
      {"mobilenet", mobilenet_v2({.input = {32, 32, 3}, .classes = 5}), {32, 32, 3}},
      {"unet", unet({.input = {32, 16, 3}, .classes = 2}, 2), {32, 16, 3}}};
  all.push_back({"selected",
                 around({{"line", Linear(5, 5)}},
                        [](const Parts& p, const Tensor& in) {
                          const Tensor x = p[0].second(in);
                          const Tensor kept = where((x > 0.1) & (x <= 0.7), x * 2, -0.5),
                                       some = masked_fill(x, x < 0, 3);
                          return concat({kept, cumsum(some, 1), tril(x), where(ne(x, 0), reciprocal(x + 5), x)}, 1);
                        }),
                 {4, 5}});
  all.push_back({"moved",
                 around({{"line", Linear(3, 3)}},
                        [](const Parts& p, const Tensor& in) {
                          const Tensor x = p[0].second(in);
                          const Tensor far = slice(x, 1, 0, 9, 2), turned = roll(flip(x, {2}), 2, 1);
                          return concat(
                              {far, turned, pad(x, {0, 2, 0}, {0, 1, 0}, PadMode::reflect),
                               pad(x, {0, 1, 0}, {0, 0, 0}, 2.5), expand(slice(x, 1, 0, 1), {x.dim(0), 2, x.dim(2)})},
                              1);
                        }),
                 {6, 3}});
  beside_onnxruntime(std::move(all));
}

TEST_CASE("what a model reads beside its input are inputs of the graph by their names") {
  const Inference inference;
  test::Oracle oracle;
  // An image, a vector and a picture of other channels, and ids; a layer that puts a tensor beside its result.
  const Parts parts{{"conv", Conv2d(3, 4, 3)}, {"line", Linear(5, 4)}, {"table", Embedding(7, 4)}};
  Module model = around(parts, [](const Parts& p, const Tensor& x) {
    const Tensor joined = p[0].second(concat({x, x.at("mask")}, 3)).with("line", p[1].second(x.at("vector")));
    const Tensor ids = mean(p[2].second(x.at("ids")), std::vector<int>{1});
    return global_avg_pool(relu(joined)) * joined.at("line") + ids;
  });
  Parameters parameters(model);
  initialize(model, 4);
  const OnnxOptions options{.fields = {{"mask", {{6, 5, 1}}}, {"vector", {{5}}}, {"ids", {{3}, DType::i64}}}};
  export_onnx(model, parameters, {6, 5, 2}, oracle.folder() / "fields.onnx", options);
  std::map<std::string, std::vector<double>> expected;
  for (const Index rows : {1, 3}) {
    const Tensor x = Tensor::empty({rows, 6, 5, 2}), mask = Tensor::empty({rows, 6, 5, 1}),
                 vector = Tensor::empty({rows, 5});
    uniform(x, -1, 1, 1);
    uniform(mask, -1, 1, 2);
    uniform(vector, -1, 1, 3);
    std::vector<Index> numbers;
    for (Index i = 0; i < 3 * rows; ++i) numbers.push_back(i * i % 7);
    const Tensor ids = Tensor::from(numbers, {rows, 3});
    const std::string key = fmt::format("fields.{}", rows);
    oracle.put(key + ".x", to_channels_first(x));
    oracle.put(key + ".x.mask", to_channels_first(mask));
    oracle.put(key + ".x.vector", vector);
    oracle.put(key + ".x.ids", ids);
    expected[key] = model(x.with("mask", mask).with("vector", vector).with("ids", ids)).to_vector();
  }
  const auto inputs_of = [](const std::filesystem::path& path) {
    const std::string file = test::slurp(path);
    std::vector<std::string> inputs;
    const Fields all(file), graph = all.message(7);
    for (const auto& f : graph.all(11)) inputs.push_back(Fields(f.bytes).text(1));
    return inputs;
  };
  CHECK(inputs_of(oracle.folder() / "fields.onnx") == std::vector<std::string>{"input", "ids", "mask", "vector"});
  oracle.run("onnx_oracle.py", "check");
  if (oracle.run("onnx_oracle.py", "run", test::Python::oracles))
    for (const auto& [key, values] : expected) {
      const std::vector<double> theirs = oracle.get(key + ".y");
      REQUIRE(theirs.size() == values.size());
      for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(theirs[i] - values[i]) < 1e-5);
    }
  const test::Temporary folder;
  OnnxOptions more = options;
  more.fields["unread"] = {{2}};
  export_onnx(model, parameters, {6, 5, 2}, folder / "unread.onnx", more);
  CHECK(inputs_of(folder / "unread.onnx") == std::vector<std::string>{"input", "ids", "mask", "unread", "vector"});
  CHECK_ERROR(export_onnx(model, parameters, {6, 5, 2}, folder / "x.onnx", {.fields = {{"mask", {{6, 5, 1}}}}}), usage,
              "vector");
  CHECK_ERROR(export_onnx(model, parameters, {6, 5, 2}, folder / "x.onnx", {.fields = {{"output", {{5}}}}}), usage,
              "output");
  CHECK_ERROR(export_onnx(model, parameters, {6, 5, 2}, folder / "x.onnx", {.fields = {{"mask", {{5}, DType::f16}}}}),
              usage, "mask", "f16");
}

TEST_CASE("an ONNX file holds the parameters by name, in PyTorch's layout") {
  const test::Temporary folder;
  Module model = make_model("mnist_cnn");
  initialize(model, 3);
  Parameters parameters(model);
  export_onnx(model, parameters, {28, 28, 1}, folder / "m.onnx", {.metadata = {{"weights", "of a test"}}});
  const std::string file = test::slurp(folder / "m.onnx");
  const Fields all(file), graph = all.message(7);
  CHECK(all.one(1).number == 8);
  CHECK(all.message(8).one(2).number == 17);
  CHECK(all.message(14).text(2) == "of a test");
  std::map<std::string, std::string> raw;
  for (const auto& f : graph.all(5)) raw[Fields(f.bytes).text(8)] = Fields(f.bytes).text(9);
  for (const NamedTensor& t : export_weights(parameters)) {
    INFO(t.name);
    const auto* bytes = static_cast<const char*>(t.tensor.view().data);
    CHECK((raw[t.name] == std::string(bytes, static_cast<std::size_t>(t.tensor.view().bytes()))));
  }
  std::vector<std::string> types;
  for (const auto& f : graph.all(1)) types.push_back(Fields(f.bytes).text(4));
  CHECK(types ==
        std::vector<std::string>{"Conv", "Relu", "Conv", "Relu", "MaxPool", "Flatten", "Gemm", "Relu", "Gemm"});
  const auto dims = Fields(graph.one(11).bytes).message(2).message(1).message(2);
  CHECK(Fields(dims.all(1)[0].bytes).text(2) == "N");
  CHECK(Fields(dims.all(1)[3].bytes).one(1).number == 28);

  Module same = make_model("mnist_cnn");
  initialize(same, 3);
  convert(same, DType::f64);
  Parameters doubles(same);
  export_onnx(same, doubles, {28, 28, 1}, folder / "d.onnx", {.metadata = {{"weights", "of a test"}}});
  CHECK((test::slurp(folder / "d.onnx") == file));
  CHECK_ERROR(export_onnx(same, doubles, {28, 28, 1}, folder / "big.onnx", {.at_most = 4'000'000}), usage, "export",
              4000000);
  CHECK(test::slurp(folder / "big.onnx").empty());
}

TEST_CASE("what has no ONNX form is refused by name") {
  const test::Temporary folder;
  const Parts line{{"line", Linear(4, 4)}};
  const auto refused = [&](auto run, const auto&... values) {
    Module model = around(line, run);
    Parameters parameters(model);
    CHECK_ERROR(export_onnx(model, parameters, {4}, folder / "x.onnx"), usage, values...);
  };
  refused([](const Parts& p, const Tensor& x) { return record("own", p[0].second(x), {x}, Backward{}); }, "'own'",
          "ONNX");
  refused([](const Parts& p, const Tensor& x) { return p[0].second(x) * Tensor::full({4}, 2); }, "'mul'", "[4]");
  refused([](const Parts& p, const Tensor& x) { return relu(p[0].second(x).detach()); }, "'relu'");
  refused([](const Parts& p, const Tensor& x) { return p[0].second(x).clone(); }, "output");
  refused([](const Parts& p, const Tensor& x) { return p[0].second(x).reshape({-1}); }, "first axis");
  refused([](const Parts& p,
             const Tensor& x) { return p[0].second(x) * scale(sum(x), 1. / static_cast<double>(x.dim(0))); },
          "'scale'", "[]", 3, 4);
  refused(
      [](const Parts& p, const Tensor& x) {
        return slice(p[0].second(x).reshape({2, -1}), 1, 0, 2);
      },
      "axis 1", "[2, 6]");
  refused([](const Parts& p, const Tensor& x) { return matmul(x, p[0].second(x), {.transpose_b = true}); }, "[3, 3]",
          "[4, 4]");
  refused([](const Parts& p, const Tensor& x) { return x.dim(0) == 3 ? relu(p[0].second(x)) : p[0].second(x); },
          "3 samples (2)", "4 samples (1)");
  refused(
      [](const Parts& p, const Tensor& x) {
        return relu(split(p[0].second(x), {1, x.dim(0) - 1}, 0)[1]);
      },
      "axis 0", "[3, 4]");
  refused([](const Parts& p, const Tensor& x) { return relu(p[0].second(x).rows(1, 3)); }, "axis 0");
  // An axis 0 that is not the batch may be cut, be it as long as any usual one.
  for (Index n : {2, 3, 4, 5}) {
    const Parts part{{"line", Linear(n, n)}};
    Module turned = around(part, [n](const Parts& p, const Tensor& x) {
      const Tensor channels_first = permute(p[0].second(x), {1, 0});
      const std::vector<Tensor> cut = split(channels_first, {1, n - 1}, 0);
      return permute(add(cut[1], channels_first.rows(0, 1)), {1, 0});
    });
    Parameters whole(turned);
    CHECK_NOTHROW(export_onnx(turned, whole, {n}, folder / "cut.onnx"));
  }
  // An op that the output does not need is nobody's business.
  Module model = around(line, [](const Parts& p, const Tensor& x) {
    sum(x);
    return p[0].second(x);
  });
  export_onnx(model, Parameters(model), {4}, folder / "x.onnx");
  // A module that only hands on its input.
  Module same = around(line, [](const Parts&, const Tensor& x) { return x; });
  Parameters unused(same);
  export_onnx(same, unused, {4}, folder / "same.onnx");
  CHECK(Fields(Fields(test::slurp(folder / "same.onnx")).message(7).one(1).bytes).text(4) == "Identity");
}

TEST_CASE("protobuf fields read back as they were written") {
  for (std::int64_t v : {0L, 1L, 127L, 128L, 300L, -1L, INT64_MAX, INT64_MIN}) {
    const Protobuf p = Protobuf().integer(1, v).integer(536'870'911, v);  // the largest field number
    CHECK(static_cast<std::int64_t>(Fields(p.bytes()).one(1).number) == v);
    CHECK(static_cast<std::int64_t>(Fields(p.bytes()).one(536'870'911).number) == v);
  }
  CHECK(Protobuf().integer(1, 150).bytes() == "\x08\x96\x01");  // the example of the specification
  for (double v : {0.0, -0.5, 1e300, 5e-324}) {
    const std::vector<double> values{v, 1};
    const Protobuf p = Protobuf().real(3, v).number(4, static_cast<float>(v)).reals(5, values).text(2, "text");
    const Fields f(p.bytes());
    CHECK(f.one(3).real() == v);
    CHECK(f.one(4).single() == static_cast<float>(v));
    CHECK(f.text(2) == "text");
    CHECK((f.text(5) == std::string(reinterpret_cast<const char*>(values.data()), 16)));
    CHECK(Fields(Protobuf().message(9, p).bytes()).message(9).text(2) == "text");
  }
}

}  // namespace test_onnx
