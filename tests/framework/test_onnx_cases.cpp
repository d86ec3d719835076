// Every row of the op table (cases.h), and what has no gradient, as an ONNX graph: onnxruntime beside the op itself.
#include <algorithm>
#include <limits>
#include <map>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/io/onnx/onnx.h"
#include "framework/io/onnx/onnx_graph.h"
#include "framework/ops/ops.h"
#include "tests/framework/cases.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"
#include "tests/support/oracle.h"
#include "tests/support/protobuf_reader.h"
#include "tests/support/temporary.h"

namespace test_onnx_cases {

using namespace trireme;
using namespace trireme::test;

namespace {

bool of_batch(const Input& input) { return input.rows && input.shape.rank() > 0; }
Tensor first_channels(const Tensor& t) {
  if (t.rank() < 3) return t;
  Shape order{0, t.rank() - 1};
  for (int i = 1; i < t.rank() - 1; ++i) order.push_back(i);
  return permute(t, order);
}

/// A row of the table as a layer. Operands of the batch are its input: one as it is, several side by side in [N, all
/// their numbers]. The others are weights, or buffers. The result gets the samples in front.
struct RowLayer {
  RowLayer(const Case& c, bool pack) : row(c), operands(draw(c, DType::f32)) {
    const auto batch = std::ranges::count_if(c.inputs, of_batch);
    packed = pack || batch != 1;
    Index numbers = batch == 0;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (!of_batch(c.inputs[k])) continue;
      if (!packed) {
        for (int i = 1; i < c.inputs[k].shape.rank(); ++i) sample.push_back(c.inputs[k].shape[i]);
        type = operands[k].dtype();
      }
      numbers += c.inputs[k].shape.product(1, c.inputs[k].shape.rank());
      operands[k] = {};
    }
    if (packed) sample = {numbers};
    for (const Index rows : {5, 7}) shapes.push_back(c.op(draw(c, DType::f32, rows)).shape());
  }
  /// The input for so many samples.
  Tensor batch(Index rows) const {
    std::vector<Tensor> parts;
    const Inputs all = draw(row, DType::f32, rows);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (operands[k]) continue;
      if (!packed) return all[k];
      parts.push_back(all[k].to(DType::f32).reshape({rows, -1}));
    }
    return parts.empty() ? Tensor::full({rows, 1}, 1) : concat(parts, 1);
  }
  Tensor operator()(const Tensor& x) const {
    Inputs in = operands;
    for (std::size_t k = 0, at = 0; k < in.size(); ++k) {
      if (in[k]) continue;
      if (!packed) {
        in[k] = x;
        continue;
      }
      Shape shape = row.inputs[k].shape;
      shape[0] = x.dim(0);
      const auto from = static_cast<Index>(at), to = from + shape.product(1, shape.rank());
      in[k] = slice(x, 1, from, to).reshape(shape);
      if (row.inputs[k].draw == InputValues::label) in[k] = in[k].to(DType::i64);
      at = static_cast<std::size_t>(to);
    }
    return samples_first(row.op(in), x);
  }
  void visit(const StateVisitor& v) {
    for (std::size_t k = 0; k < operands.size(); ++k)
      if (operands[k])
        v(fmt::format("x{}", k), operands[k], row.inputs[k].grad ? StateKind::weight : StateKind::buffer);
    v("unused", unused, StateKind::weight);  // Parameters want one
  }

  Case row;
  Inputs operands;  // undefined: of the batch
  Tensor unused = Tensor::full({1}, 1);
  bool packed = false;
  Shape sample;
  DType type = DType::f32;
  std::vector<Shape> shapes;  // of the result of 5 and 7 samples

 private:
  Tensor samples_first(const Tensor& y, const Tensor& x) const {
    const Shape &five = shapes[0], &seven = shapes[1];
    for (int i = 0; i < y.rank(); ++i)
      if (five[i] == 5 && seven[i] == 7) return i == 0 ? y : transpose(y, 0, i);
    if (five != seven) return y.reshape({x.dim(0), -1});
    const Tensor zeros = sum(x.to(DType::f32).reshape({x.dim(0), -1}), {1}, true) * 0;
    return zeros + y.to(DType::f32).reshape({1, -1});
  }
};

using In = const Inputs&;
Input data(const Shape& s) { return {s}; }
Input constants(const Shape& s) { return {.shape = s, .grad = false, .rows = false}; }
Input labels(const Shape& s, double classes, bool rows = true) {
  return {.shape = s, .draw = InputValues::label, .high = classes, .grad = false, .rows = rows};
}
Input distinct(const Shape& s) { return {.shape = s, .draw = InputValues::distinct}; }

// A table: its lines stay lines.
// clang-format off
/// Ops whose results are integers or truth values, which the table of gradients has no use for; and a few more forms.
std::vector<Case> without_gradient() {
  const Shape s{3, 4, 5}, image{2, 3, 4, 5};
  return {
      {"bool/eq", {distinct(s)}, [](In x) { return eq(floor(x[0] * 4), 1); }, ""},
      {"bool/ne", {data(s), data(s)}, [](In x) { return ne(round(x[0]), round(x[1])); }, ""},
      {"bool/lt", {data(s), constants({5})}, [](In x) { return x[0] < x[1]; }, ""},
      {"bool/ge", {distinct(s)}, [](In x) { return x[0] >= 0.25; }, ""},
      {"bool/of_labels", {labels({4, 3}, 9)}, [](In x) { return (x[0] > 3) & ne(x[0], 7); }, ""},
      {"bool/xor", {data(s), data(s)}, [](In x) { return (x[0] > 0) ^ (x[1] > 0); }, ""},
      {"bool/not", {data(s)}, [](In x) { return ~(x[0] > 0) | logical_not(x[0]); }, ""},
      {"bool/isnan", {data(s)}, [](In x) { return isnan(trireme::log(x[0])); }, ""},
      {"bool/isfinite", {data(s)}, [](In x) { return isfinite(reciprocal(floor(x[0] * 2))); }, ""},
      {"bool/any", {distinct(s)}, [](In x) { return any(x[0] > 0.6, {1}); }, ""},
      {"bool/all", {distinct(s)}, [](In x) { return all(x[0] > -0.6, {-1}, true); }, ""},
      {"bool/any_of_numbers", {labels({6, 3}, 2)}, [](In x) { return any(x[0], {1}); }, ""},
      {"bool/moved", {data(s)}, [](In x) { return concat({flip(x[0] > 0, {2}), (x[0] < 0.5).rows(0, x[0].dim(0))}, 1); }, ""},
      {"bool/where", {data(s)}, [](In x) { return where(x[0] > 0, lt(x[0], 0.5), gt(x[0], -0.5)); }, ""},
      {"bool/masks_numbers", {data(s)}, [](In x) { return x[0] * (x[0] > 0).to(x[0].dtype()); }, ""},
      {"int/argmax_axis", {distinct(s)}, [](In x) { return argmax(x[0], 1); }, ""},
      {"int/argmax_images", {distinct(image)}, [](In x) { return argmax(x[0]); }, ""},
      {"int/argmax_of_ints", {labels({4, 6}, 50)}, [](In x) { return argmax(x[0]); }, ""},
      {"int/argmin", {distinct(s)}, [](In x) { return argmin(x[0]); }, ""},
      {"int/argmin_axis", {distinct(s)}, [](In x) { return argmin(x[0], 1); }, ""},
      {"int/topk", {distinct(image)}, [](In x) { return topk(x[0], 2, -1).index; }, ""},
      {"int/topk_axis", {distinct({2, 6, 4, 5})}, [](In x) { return topk(x[0], 3, 1, false).index; }, ""},
      {"int/topk_of_ints", {labels({4, 6}, 900)}, [](In x) { return topk(x[0], 2).values; }, ""},
      {"int/sort", {distinct(s)}, [](In x) { return sort(x[0], 1, true).index; }, ""},
      {"int/truncated", {data(s)}, [](In x) { return (x[0] * 9).to(DType::i64); }, ""},
      {"int/i32", {data(s)}, [](In x) { return (x[0] * 9).to(DType::i32) * 2; }, ""},
      {"int/arithmetic", {labels(s, 9), labels(s, 9)}, [](In x) { return abs(x[0] * 3 - x[1] * 4 + 1) + minimum(x[0], -x[1]); }, ""},
      {"int/floor_divide", {labels(s, 50), labels(s, 7)}, [](In x) { return floor_divide(x[0] - 25, x[1] + 1) + remainder(x[0] - 25, -3); }, ""},
      {"int/cumsum", {labels(s, 9)}, [](In x) { return cumsum(x[0], 1); }, ""},
      {"int/cumsum_reversed", {labels({3, 5}, 9)}, [](In x) { return flip(cumsum(flip(x[0], {1}), 1), {1}); }, ""},
      {"int/prod", {labels(s, 5)}, [](In x) { return prod(x[0] + 1, {2}); }, ""},
      {"int/sum", {labels(s, 9)}, [](In x) { return sum(x[0], {1}, true); }, ""},
      {"int/count", {data(s)}, [](In x) { return sum(x[0] > 0, {1, 2}); }, ""},
      {"int/amax", {labels({3, 4, 4, 5}, 99)}, [](In x) { return amax(x[0], {1, 2}) - amin(x[0], {1, 2}); }, ""},
      {"int/gather", {labels({3, 6}, 99), labels({3, 2}, 6)}, [](In x) { return gather(x[0], x[1], 1); }, ""},
      {"int/scatter_add", {labels({3, 6}, 99), labels({3, 4}, 6)}, [](In x) { return scatter_add(x[0], x[1], x[1], 1); }, ""},
      {"int/padded", {labels({3, 6}, 99)}, [](In x) { return pad(tril(x[0].reshape({-1, 2, 3})), {0, 1, 0}, {0, 0, 1}, 7); }, ""},
      {"int/embedded", {labels({3, 6}, 9), constants({9, 4})}, [](In x) { return argmax(take(x[1], x[0])); }, ""},
      {"more/class_token", {data(s), constants({1, 1, 5})}, [](In x) { return concat({expand(x[1], {x[0].dim(0), 1, 5}), x[0]}, 1); }, ""},
      {"more/token_of_rank_1", {data(s), constants({5})}, [](In x) { return concat({expand(x[1], {x[0].dim(0), 2, 5}), x[0]}, 1); }, ""},
      {"more/mean_of_all", {data(s)}, [](In x) { return x[0] - mean(x[0]) + sum(x[0]) * 0.1 + max(x[0]) - min(x[0]); }, ""},
      {"more/mean_of_samples", {data(s)}, [](In x) { return (x[0] - mean(x[0], {0}, true)) / norm(x[0], {0, 1}, true); }, ""},
      {"more/amin_keep", {data(image)}, [](In x) { return x[0] - amin(x[0], {1, 2}, true) + logsumexp(x[0], {-1}, true); }, ""},
      {"more/logsumexp_large", {data(s)}, [](In x) { return logsumexp(x[0] * 500, {1, 2}); }, ""},
      {"more/prod_keep", {data(image)}, [](In x) { return prod(x[0], {1, -1}, true) * softmax(x[0], 1); }, ""},
      {"more/channels", {data(image), constants({5}), constants({1})}, [](In x) { return where(x[0] > x[1], prelu(x[0], x[1]), x[2]) + x[1]; }, ""},
      {"more/two_ranks", {data(image), constants({4, 5}), constants({5})}, [](In x) { return x[0] * x[1] - where(x[1] > 0, x[2], x[0]); }, ""},
      {"more/self_product", {data(s)}, [](In x) { return matmul(matmul(x[0], x[0], {.transpose_b = true}), x[0]); }, ""},
      {"more/sorted_images", {distinct(image)}, [](In x) { return sort(x[0], 2).values + topk(x[0], 1, 1).values; }, ""},
      {"more/infinite", {data(s)}, [](In x) { return where(x[0] > 0.5, std::numeric_limits<double>::infinity(), x[0]) < 1e30; }, ""},
      {"more/transposed_batch", {data({3, 4})}, [](In x) { return transpose(transpose(x[0], 0, 1).reshape({2, 2, -1}), 0, 2); }, ""},
      {"more/flat_batch", {data({3, 4})}, [](In x) { return x[0].reshape({2, -1}).reshape({-1}).reshape({-1, 2, 2}); }, ""},
  };
}
// clang-format on

/// Rows whose graph does something else than the row in training, and why; refused: a word of the error of those that
/// no graph can hold.
struct Listed {
  std::string row, why, refused = {};
};
const std::vector<Listed>& listed() {
  const char *statistics = "evaluation: running statistics", *nothing = "evaluation: drops nothing";
  static const std::vector<Listed> all{
      {"batch_norm", statistics},
      {"batch_norm/2d", statistics},
      {"batch_norm/relu", statistics},
      {"batch_norm/add", statistics},
      {"batch_norm/add_relu", statistics},
      {"batch_norm/running", "evaluation: the statistics stay"},
      {"dropout", nothing},
      {"channel_dropout", nothing},
      {"row_dropout", nothing},
      {"attention/dropout", nothing},
      {"attention_packed/dropout", nothing},
      {"bias_relu_pool_dropout", nothing},
      {"bias_relu_pool_dropout/edge", nothing},
  };
  return all;
}
StepContext evaluation() {
  StepContext context = StepContext::current();
  context.batch.training = false;
  return context;
}
/// Whether a row is the same in training and in evaluation.
bool is_as_trained(const Case& c) {
  const std::vector<double> trained = c.op(draw(c, DType::f32)).to_vector();
  const StepScope context(evaluation());
  return c.op(draw(c, DType::f32)).to_vector() == trained;
}

std::string file_name(std::string row) {
  std::replace(row.begin(), row.end(), '/', '-');
  return row;
}
/// TensorProto.DataType of the file's output.
int output_type(const std::filesystem::path& path) {
  const std::string bytes = slurp(path);
  return static_cast<int>(Fields(bytes).message(7).message(12).message(2).message(1).one(1).number);
}

/// Files, what onnxruntime is to make of them, and what it made.
class Graphs {
 public:
  /// Throws Error where the row cannot be exported.
  void add(const Case& c, bool packed) {
    const RowLayer layer(c, packed);
    Module model = layer;
    Parameters parameters(model);
    const std::string name = file_name(c.name) + (packed ? "-packed" : "");
    const std::filesystem::path path = oracle_.folder() / (name + ".onnx");
    export_onnx(model, parameters, layer.sample, path, {.input = layer.type});
    const StepScope context(evaluation());
    const Index own = of_batch(c.inputs[0]) ? c.inputs[0].shape[0] : 2;
    for (const Index rows : {own, own + 2}) {
      const Tensor x = layer.batch(rows), y = model(x);
      const std::string key = fmt::format("{}.{}", name, rows);
      oracle_.put(key + ".x", first_channels(x));
      // Behind ids [N, T] a graph has its result as we have it.
      expected_[key] = (x.dtype() == DType::i64 && x.rank() <= 2 ? y : first_channels(y)).to_vector();
      CHECK(output_type(path) == onnx_type(y.dtype()));
    }
  }
  void compare() const {
    oracle_.run("onnx_oracle.py", "check");
    if (!oracle_.run("onnx_oracle.py", "run", Python::oracles)) return;
    for (const auto& [key, values] : expected_) {
      INFO(key);
      CHECK(distance(oracle_.get(key + ".y"), values) <= 1e-5);
    }
  }

 private:
  Oracle oracle_;
  std::map<std::string, std::vector<double>> expected_;
};

/// Returns how many of the rows were exported. Images are so in both orders of axes: channels first, as the graph's
/// input has them, and last.
std::size_t beside_onnxruntime(const std::vector<Case>& rows) {
  const NoGrad no_grad;
  Graphs graphs;
  std::size_t exported = 0;
  for (const Case& c : rows) {
    INFO(c.name);
    const auto at = std::ranges::find(listed(), c.name, &Listed::row);
    CHECK(is_as_trained(c) == (at == listed().end() || !at->refused.empty()));
    const bool image = of_batch(c.inputs[0]) && c.inputs[0].shape.rank() >= 3;
    if (at != listed().end() && !at->refused.empty()) {
      CHECK_ERROR(graphs.add(c, false), usage, "export", at->refused);
      continue;
    }
    try {
      graphs.add(c, false);
      if (image) graphs.add(c, true);
      ++exported;
    } catch (const Error& e) { FAIL_CHECK(e.what()); }
  }
  graphs.compare();
  return exported;
}

}  // namespace

TEST_CASE("onnxruntime computes every row of the op table") {
  const auto refused = std::ranges::count_if(listed(), [](const Listed& l) { return !l.refused.empty(); });
  const std::size_t exported = beside_onnxruntime(cases());
  CHECK(exported + static_cast<std::size_t>(refused) == cases().size());
  CHECK(exported >= 240);
  for (const Listed& l : listed()) CHECK(std::ranges::count(cases(), l.row, &Case::name) == 1);
}

TEST_CASE("onnxruntime computes what has no gradient: integers and truth values keep their types") {
  const std::vector<Case> rows = without_gradient();
  CHECK(beside_onnxruntime(rows) == rows.size());
}

}  // namespace test_onnx_cases
