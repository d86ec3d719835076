#include "tests/framework/cases.h"

#include "framework/autograd/step_context.h"
#include "framework/ops/loss_share.h"
#include "framework/ops/mixed_scale.h"
#include "framework/ops/ops.h"
#include "kernels/core/random.h"
#include "tests/framework/attention_cases.h"

// A table: its lines stay lines.
// clang-format off
namespace trireme::test {
namespace {

using In = const Inputs&;

Input weight(const Shape& s) { return {.shape = s, .rows = false}; }
Input positive(const Shape& s) { return {.shape = s, .low = 0.5, .high = 2}; }
Input away(const Shape& s) { return {.shape = s, .draw = InputValues::away, .low = 0.1, .high = 2}; }
Input wide(const Shape& s) { return {.shape = s, .low = -7, .high = 7}; }
Input distinct(const Shape& s) { return {.shape = s, .draw = InputValues::distinct}; }
Input labels(const Shape& s, double classes) { return {.shape = s, .draw = InputValues::label, .high = classes, .grad = false}; }
Input statistic(const Shape& s) {
  return {.shape = s, .draw = InputValues::statistic, .low = 0.5, .high = 2, .grad = false, .rows = false};
}

StepContext changed(const std::function<void(StepContext&)>& change) {
  StepContext context = StepContext::current();
  change(context);
  return context;
}
/// Runs f in evaluation mode.
Tensor evaluated(const std::function<Tensor()>& f) {
  StepScope scope(changed([](StepContext& p) { p.batch.training = false; }));
  return f();
}
/// Runs f as a share of a global batch.
Tensor in_batch_of(Index rows, const std::function<Tensor()>& f) {
  StepScope scope(changed([=](StepContext& p) { p.batch.global_batch = rows; }));
  return f();
}

template <Tensor (*F)(const Tensor&)>
Tensor one(In x) { return F(x[0]); }
template <Tensor (*F)(const Tensor&, const Tensor&)>
Tensor two(In x) { return F(x[0], x[1]); }

template <Tensor (*F)(const Tensor&, const Tensor&, Reduction)>
Tensor reduced(In x) { return F(x[0], x[1], Reduction::mean); }

std::vector<Case> elementwise() {
  const Shape s{3, 5}, big{128, 12, 12, 64};
  return {
      {"add", {data(s), data(s)}, two<add>, "x[0] + x[1]", {big, big}},
      {"add/broadcast", {data({2, 1, 3}), weight({4, 1})}, two<add>, "x[0] + x[1]"},
      {"add/bias", {data({2, 3, 4}), weight({4})}, two<add>, "x[0] + x[1]", {big, {64}}},
      {"sub", {data(s), data(s)}, two<sub>, "x[0] - x[1]"},
      {"sub/broadcast", {weight({4}), data({3, 4})}, two<sub>, "x[0] - x[1]"},
      {"mul", {data(s), data(s)}, two<mul>, "x[0] * x[1]", {big, big}},
      {"mul/broadcast", {data({3, 1}), weight({1, 4})}, two<mul>, "x[0] * x[1]"},
      {"div", {data(s), away(s)}, two<div>, "x[0] / x[1]"},
      {"div/broadcast", {weight({1, 5}), positive({3, 5})}, two<div>, "x[0] / x[1]"},
      {"div/scalar", {data({3, 5}), {.shape = {}, .low = 0.5, .high = 2, .rows = false}}, two<div>, "x[0] / x[1]"},
      {"maximum", {data(s), data(s)}, two<maximum>, "torch.maximum(x[0], x[1])"},
      {"maximum/ties", {data(s)}, [](In x) { return maximum(x[0], x[0].reshape({-1, 5})); }, "torch.maximum(x[0], x[0])"},
      {"minimum/broadcast", {data(s), weight({5})}, two<minimum>, "torch.minimum(x[0], x[1])"},
      {"scale", {data(s)}, [](In x) { return scale(x[0], -2.5); }, "x[0] * -2.5"},
      {"numbers", {data(s)}, [](In x) { return (2.5 * x[0] + 0.75) / 3 - 1; }, "(2.5 * x[0] + 0.75) / 3 - 1"},
      {"relu", {away(s)}, one<relu>, "F.relu(x[0])", {big}},
      {"leaky_relu", {away(s)}, one<leaky_relu>, "F.leaky_relu(x[0])"},
      {"leaky_relu/slope", {away(s)}, [](In x) { return leaky_relu(x[0], 0.2); }, "F.leaky_relu(x[0], 0.2)", {big}},
      {"elu", {away(s)}, one<elu>, "F.elu(x[0])"},
      {"elu/alpha", {away(s)}, [](In x) { return elu(x[0], 1.5); }, "F.elu(x[0], 1.5)"},
      {"gelu", {data(s)}, one<gelu>, "F.gelu(x[0])", {big}},
      {"silu", {data(s)}, one<silu>, "F.silu(x[0])", {big}},
      {"hardswish", {wide(s)}, one<hardswish>, "F.hardswish(x[0])", {big}},
      {"hardsigmoid", {wide(s)}, one<hardsigmoid>, "F.relu6(x[0] + 3) / 6"},
      {"hardtanh", {wide(s)}, [](In x) { return hardtanh(x[0], -2.5, 1.5); }, "F.hardtanh(x[0], -2.5, 1.5)"},
      {"relu6", {wide(s)}, one<relu6>, "F.relu6(x[0])"},
      {"clamp", {wide(s)}, [](In x) { return clamp(x[0], -0.5, 3.7); }, "torch.clamp(x[0], -0.5, 3.7)", {big}},
      {"sigmoid", {data(s)}, one<sigmoid>, "torch.sigmoid(x[0])", {big}},
      {"tanh", {data(s)}, one<tanh>, "torch.tanh(x[0])", {big}},
      {"softplus", {data(s)}, one<softplus>, "F.softplus(x[0])"},
      {"softplus/beta", {wide(s)}, [](In x) { return softplus(x[0], 2.5); }, "F.softplus(x[0], 2.5, 1000)"},
      {"softsign", {data(s)}, one<softsign>, "F.softsign(x[0])"},
      {"exp", {data(s)}, one<exp>, "torch.exp(x[0])", {big}},
      {"log", {positive(s)}, one<log>, "torch.log(x[0])"},
      {"expm1", {data(s)}, one<expm1>, "torch.expm1(x[0])"},
      {"log1p", {positive(s)}, one<log1p>, "torch.log1p(x[0])"},
      {"erf", {data(s)}, one<erf>, "torch.erf(x[0])"},
      {"sin", {wide(s)}, one<sin>, "torch.sin(x[0])"},
      {"cos", {wide(s)}, one<cos>, "torch.cos(x[0])"},
      {"pow", {positive(s)}, [](In x) { return pow(x[0], 2.5); }, "torch.pow(x[0], 2.5)"},
      {"pow/integer", {away(s)}, [](In x) { return pow(x[0], -3); }, "torch.pow(x[0], -3)"},
      {"pow/zero", {data(s)}, [](In x) { return pow(x[0], 0); }, "torch.pow(x[0], 0)"},
      {"floor", {distinct(s)}, [](In x) { return floor(x[0] * 4); }, "torch.floor(x[0] * 4)"},
      {"ceil", {distinct(s)}, [](In x) { return ceil(x[0] * 4); }, "torch.ceil(x[0] * 4)"},
      {"round", {distinct(s)}, [](In x) { return round(x[0] * 4); }, "torch.round(x[0] * 4)"},
      {"sign", {away(s)}, one<sign>, "torch.sign(x[0])"},
      {"gelu_tanh", {data(s)}, one<gelu_tanh>, "F.gelu(x[0], approximate='tanh')", {big}},
      {"mish", {data(s)}, one<mish>, "F.mish(x[0])"},
      {"numbers/from", {away(s)}, [](In x) { return 2 - x[0] + -x[0] / 3 + 0.5 / x[0]; }, "2 - x[0] + -x[0] / 3 + 0.5 / x[0]"},
      {"sqrt", {positive(s)}, one<sqrt>, "torch.sqrt(x[0])"},
      {"rsqrt", {positive(s)}, one<rsqrt>, "torch.rsqrt(x[0])"},
      {"reciprocal", {away(s)}, one<reciprocal>, "torch.reciprocal(x[0])"},
      {"square", {data(s)}, one<square>, "x[0] ** 2"},
      {"abs", {away(s)}, one<abs>, "torch.abs(x[0])"},
      {"neg", {data(s)}, one<neg>, "-x[0]"},
      {"floor_divide", {distinct(s)}, [](In x) { return floor_divide(x[0] * 4, 0.75); }, "(x[0] * 4 / 0.75).floor()"},
      {"remainder", {distinct(s), away(s)}, two<remainder>, "torch.remainder(x[0], x[1])"},
      {"assign", {data(s), data(s)}, [](In x) { Tensor y = x[0]; y += x[1]; y *= 2; y -= 0.5; y /= x[1] * x[1] + 1; return y + x[0]; },
       "((x[0] + x[1]) * 2 - 0.5) / (x[1] ** 2 + 1) + x[0]"},
      {"prelu", {away(s), weight({5})}, two<prelu>, "F.prelu(x[0], x[1])"},
      {"prelu/one", {away({2, 3, 4}), weight({1})}, two<prelu>, "F.prelu(x[0], x[1])"},
      {"glu", {data({3, 6})}, one<glu>, "F.glu(x[0])"},
      {"swiglu", {data({3, 6})}, one<swiglu>, "F.silu(x[0][:, :3]) * x[0][:, 3:]"},
      {"where", {data(s), weight({5})}, [](In x) { return where(x[0] > x[1], x[0] * 2, x[1]); }, "torch.where(x[0] > x[1], x[0] * 2, x[1])"},
      {"where/scalars", {data(s)}, [](In x) { return where(x[0] > 0, x[0], 2) + where(x[0] <= 0.25, -1, x[0]); },
       "torch.where(x[0] > 0, x[0], 2) + torch.where(x[0] <= 0.25, -1, x[0])"},
      {"where/logic", {data(s), data(s)}, [](In x) { return where(((x[0] > 0) & (x[1] < 0)) | (~(x[0] < x[1]) ^ eq(x[0], x[1])), x[0], x[1]); },
       "torch.where(((x[0] > 0) & (x[1] < 0)) | (~(x[0] < x[1]) ^ (x[0] == x[1])), x[0], x[1])"},
      {"masked_fill", {data(s)}, [](In x) { return masked_fill(x[0], x[0] < 0.3, -7); }, "x[0].masked_fill(x[0] < 0.3, -7)"},
      {"tril", {data({2, 4, 5})}, [](In x) { return tril(x[0], 1) + triu(x[0], -1) * 2; }, "x[0].tril(1) + x[0].triu(-1) * 2"},
      {"to", {data(s)}, [](In x) { return x[0].to(DType::f64).to(cpu(1)).to(cpu(0)).to(x[0].dtype()); }, "x[0]"},
      {"reshape", {data({3, 4})}, [](In x) { return x[0].reshape({-1, 2}); }, "x[0].reshape(-1, 2)"},
      {"rows", {weight({5, 3})}, [](In x) { return add(x[0].rows(1, 4), x[0].rows(2, 5)); }, "x[0][1:4] + x[0][2:5]"},
  };
}

std::vector<Case> products() {
  const auto times = [](bool a, bool b) {
    return [=](In x) { return matmul(x[0], x[1], {.transpose_a = a, .transpose_b = b}); };
  };
  const Index n = 512;
  return {
      {"matmul", {data({3, 4}), weight({4, 5})}, times(false, false), "x[0] @ x[1]", {{n, n}, {n, n}}},
      {"matmul/tn", {weight({4, 3}), weight({4, 5})}, times(true, false), "x[0].T @ x[1]"},
      {"matmul/nt", {data({3, 4}), weight({5, 4})}, times(false, true), "x[0] @ x[1].T"},
      {"matmul/tt", {weight({4, 3}), weight({5, 4})}, times(true, true), "x[0].T @ x[1].T"},
      {"matmul/batched", {data({2, 3, 4}), data({2, 4, 5})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/broadcast", {data({2, 1, 3, 4}), weight({5, 4, 2})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/broadcast_tt", {data({2, 1, 4, 3}), weight({5, 2, 4})}, times(true, true), "x[0].mT @ x[1].mT"},
      {"matmul/batch_of_one", {data({3, 3, 4}), weight({1, 4, 2})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/4d", {data({2, 3, 2, 4}), data({2, 3, 4, 2})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/rows", {data({2, 3, 4}), weight({4, 5})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/rows_tn", {data({2, 4, 3}), weight({4, 5})}, times(true, false), "x[0].mT @ x[1]"},
      {"matmul/vectors", {weight({4}), weight({4})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/vector_left", {weight({4}), weight({2, 4, 3})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/vector_right", {data({2, 3, 4}), weight({4})}, times(false, false), "x[0] @ x[1]"},
      {"matmul/batched_tt", {data({2, 4, 3}), data({2, 5, 4})}, times(true, true), "x[0].mT @ x[1].mT"},
      {"linear", {data({4, 6}), weight({5, 6}), weight({5})}, [](In x) { return linear(x[0], x[1], x[2]); },
       "F.linear(*x)", {{128, 9216}, {128, 9216}, {128}}},
      {"linear/no_bias", {data({4, 6}), weight({5, 6})}, [](In x) { return linear(x[0], x[1]); }, "F.linear(*x)"},
      {"linear/relu", {data({4, 6}), weight({5, 6}), weight({5})}, [](In x) { return linear(x[0], x[1], x[2], true); },
       "F.relu(F.linear(*x))"},
      {"linear/3d", {data({2, 3, 4}), weight({5, 4}), weight({5})}, [](In x) { return linear(x[0], x[1], x[2]); },
       "F.linear(*x)"},
  };
}

std::vector<Case> convolutions() {
  const auto transposed = [](const ConvOptions& o, const Extents& output_pad) {
    return [=](In x) { return conv_transpose(x[0], x[1], x.size() > 2 ? x[2] : Tensor{}, o, output_pad); };
  };
  const auto with = [](const ConvOptions& o) {
    return [=](In x) { return conv(x[0], x[1], x.size() > 2 ? x[2] : Tensor{}, o); };
  };
  return {
      {"conv/1d", {data({2, 7, 3}), weight({4, 3, 3}), weight({4})},
       with({.stride = {2}, .pad_begin = {2}, .pad_end = {1}, .dilation = {2}}),
       "conv(*x, stride=[2], begin=[2], end=[1], dilation=[2])"},
      {"conv/2d", {data({2, 5, 6, 3}), weight({4, 3, 3, 3}), weight({4})}, with({}), "conv(*x)",
       {{128, 26, 26, 32}, {64, 3, 3, 32}, {64}}},
      {"conv/2d_no_bias", {data({2, 5, 6, 3}), weight({4, 3, 3, 3})}, with({.pad_begin = {1, 1}, .pad_end = {1, 1}}),
       "conv(*x, begin=[1, 1], end=[1, 1])"},
      {"conv/2d_options_of_3", {data({2, 5, 6, 3}), weight({4, 3, 3, 3})},
       with({.stride = {2, 2, 2}, .pad_begin = {1, 1, 1}, .pad_end = {1, 1, 1}, .dilation = {1, 1, 3}}),
       "conv(*x, stride=[2, 2], begin=[1, 1], end=[1, 1])"},
      {"conv/2d_1x1", {data({2, 4, 4, 6}), weight({5, 1, 1, 6}), weight({5})}, with({}), "conv(*x)",
       {{32, 14, 14, 256}, {64, 1, 1, 256}, {64}}},
      {"conv/2d_strided_1x1", {data({2, 5, 5, 4}), weight({3, 1, 1, 4})}, with({.stride = {2, 2}}), "conv(*x, stride=[2, 2])"},
      {"conv/2d_asymmetric", {data({2, 6, 5, 2}), weight({3, 3, 2, 2}), weight({3})},
       with({.stride = {2, 1}, .pad_begin = {0, 1}, .pad_end = {1, 2}, .dilation = {1, 2}}),
       "conv(*x, stride=[2, 1], begin=[0, 1], end=[1, 2], dilation=[1, 2])"},
      {"conv/2d_groups", {data({2, 4, 4, 4}), weight({6, 3, 3, 2}), weight({6})},
       with({.pad_begin = {1, 1}, .pad_end = {1, 1}, .groups = 2}), "conv(*x, begin=[1, 1], end=[1, 1], groups=2)"},
      {"conv/2d_depthwise", {data({2, 5, 5, 4}), weight({4, 3, 3, 1}), weight({4})},
       with({.stride = {2, 2}, .pad_begin = {1, 0}, .pad_end = {1, 1}, .groups = 4}),
       "conv(*x, stride=[2, 2], begin=[1, 0], end=[1, 1], groups=4)"},
      {"conv/2d_relu", {data({2, 4, 5, 3}), weight({4, 3, 3, 3}), weight({4})}, with({.relu = true}), "F.relu(conv(*x))"},
      {"conv/2d_unused_edge", {data({1, 6, 6, 2}), weight({2, 2, 2, 2})}, with({.stride = {3, 3}}),
       "conv(*x, stride=[3, 3])"},
      {"conv/3d", {data({2, 3, 4, 3, 2}), weight({3, 2, 2, 2, 2}), weight({3})},
       with({.stride = {1, 2, 1}, .pad_begin = {1, 0, 0}, .pad_end = {0, 1, 1}}),
       "conv(*x, stride=[1, 2, 1], begin=[1, 0, 0], end=[0, 1, 1])"},
      {"mixed_scale_dense/2d", {data({2, 5, 6, 2}), weight({1, 3, 3, 2}), weight({1}), weight({2, 3, 3, 3}), weight({2}), weight({1, 3, 3, 5}), weight({1})},
       [](In x) { return mixed_scale_dense(x[0], {x[1], x[3], x[5]}, {x[2], x[4], x[6]}, {1, 3, 2}); }, "mixed_scale_dense(*x, dilations=[1, 3, 2])",
       {{4, 64, 64, 16}, {1, 3, 3, 16}, {1}, {2, 3, 3, 17}, {2}, {1, 3, 3, 19}, {1}}},
      {"mixed_scale_dense/3d", {data({2, 3, 4, 3, 1}), weight({2, 3, 3, 3, 1}), weight({2}), weight({1, 3, 3, 3, 3}), weight({1})},
       [](In x) { return mixed_scale_dense(x[0], {x[1], x[3]}, {x[2], x[4]}, {1, 2}); }, "mixed_scale_dense(*x, dilations=[1, 2])"},
      {"conv_transpose/1d", {data({2, 5, 4}), weight({4, 3, 3}), weight({3})}, transposed({.stride = {2}, .pad_begin = {1}, .pad_end = {1}}, {1}),
       "conv_transpose(*x, stride=2, padding=1, output_padding=1)"},
      {"conv_transpose/2d", {data({2, 4, 5, 3}), weight({3, 3, 2, 4}), weight({4})}, transposed({.stride = {2, 1}, .pad_begin = {1, 0}, .pad_end = {1, 0}}, {}),
       "conv_transpose(*x, stride=(2, 1), padding=(1, 0))", {{8, 28, 28, 128}, {128, 2, 2, 64}, {64}}},
      {"conv_transpose/2d_no_bias", {data({2, 3, 3, 2}), weight({2, 2, 2, 3})}, transposed({.stride = {2, 2}}, {}), "conv_transpose(*x, stride=2)"},
      {"conv_transpose/2d_dilated_groups", {data({2, 4, 4, 4}), weight({4, 3, 3, 2}), weight({4})},
       transposed({.stride = {2, 2}, .pad_begin = {1, 2}, .pad_end = {1, 2}, .dilation = {1, 2}, .groups = 2}, {1, 1}),
       "conv_transpose(*x, stride=2, padding=(1, 2), output_padding=1, dilation=(1, 2), groups=2)"},
      {"conv_transpose/3d", {data({1, 3, 2, 3, 2}), weight({2, 2, 3, 2, 3}), weight({3})}, transposed({.stride = {2, 1, 2}}, {1, 0, 0}),
       "conv_transpose(*x, stride=(2, 1, 2), output_padding=(1, 0, 0))"},
      {"conv/3d_groups", {data({1, 3, 3, 3, 4}), weight({4, 2, 2, 2, 2}), weight({4})},
       with({.dilation = {1, 1, 2}, .groups = 2}), "conv(*x, dilation=[1, 1, 2], groups=2)"},
  };
}

std::vector<Case> pools() {
  const auto largest = [](const PoolOptions& o) { return [=](In x) { return max_pool(x[0], o); }; };
  const auto average = [](const PoolOptions& o) { return [=](In x) { return avg_pool(x[0], o); }; };
  const auto block = [](double p) {
    return [=](In x) {
      return bias_relu_pool_dropout(x[0], x.size() > 1 ? x[1] : Tensor{}, {.window = {2, 2}, .stride = {2, 2}}, p, 11);
    };
  };
  const Shape mnist{128, 24, 24, 64};
  return {
      {"max_pool/1d", {distinct({2, 7, 3})}, largest({.window = {3}, .stride = {2}, .pad_begin = {1}, .pad_end = {1}}),
       "max_pool(x[0], [3], [2], [1], [1])"},
      {"max_pool/2d", {distinct({2, 4, 6, 3})}, largest({.window = {2, 2}, .stride = {2, 2}}),
       "max_pool(x[0], [2, 2], [2, 2])", {mnist}},
      {"max_pool/2d_overlapping", {distinct({2, 5, 5, 2})},
       largest({.window = {3, 3}, .stride = {2, 1}, .pad_begin = {1, 1}, .pad_end = {1, 0}}),
       "max_pool(x[0], [3, 3], [2, 1], [1, 1], [1, 0])", {{32, 56, 56, 64}}},
      {"max_pool/2d_dilated", {distinct({1, 6, 6, 2})}, largest({.window = {2, 3}, .stride = {1, 1}, .dilation = {2, 2}}),
       "max_pool(x[0], [2, 3], [1, 1], dilation=[2, 2])"},
      {"max_pool/large_window", {distinct({1, 17, 16, 1})}, largest({.window = {17, 16}, .stride = {1, 1}}),
       "max_pool(x[0], [17, 16], [1, 1])"},
      {"max_pool/3d", {distinct({1, 4, 4, 3, 2})}, largest({.window = {2, 2, 2}, .stride = {2, 1, 1}}),
       "max_pool(x[0], [2, 2, 2], [2, 1, 1])"},
      {"avg_pool/1d", {data({2, 7, 3})}, average({.window = {3}, .stride = {2}}), "avg_pool(x[0], [3], [2])"},
      {"avg_pool/2d", {data({2, 5, 6, 3})},
       average({.window = {3, 2}, .stride = {2, 2}, .pad_begin = {1, 0}, .pad_end = {1, 0}}),
       "avg_pool(x[0], [3, 2], [2, 2], [1, 0])", {mnist}},
      {"avg_pool/2d_valid_cells", {data({2, 5, 5, 3})},
       average({.window = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .count_padding = false}),
       "avg_pool(x[0], [3, 3], [2, 2], [1, 1], count_padding=False)"},
      {"avg_pool/3d", {data({1, 4, 4, 3, 2})}, average({.window = {2, 2, 2}, .stride = {2, 1, 1}}),
       "avg_pool(x[0], [2, 2, 2], [2, 1, 1])"},
      {"max_pool/ceil", {distinct({2, 6, 7, 2})}, largest({.window = {3, 2}, .stride = {2, 2}, .pad_begin = {1, 0}, .pad_end = {1, 0}, .ceil_mode = true}),
       "nhwc(F.max_pool2d(nchw(x[0]), (3, 2), 2, (1, 0), ceil_mode=True))"},
      {"max_pool/ceil_outside", {distinct({1, 5, 2})}, largest({.window = {1}, .stride = {3}, .ceil_mode = true}),
       "nhwc(F.max_pool1d(nchw(x[0]), 1, 3, ceil_mode=True))"},
      {"avg_pool/ceil", {data({2, 6, 7, 2})}, average({.window = {3, 2}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .ceil_mode = true}),
       "nhwc(F.avg_pool2d(nchw(x[0]), (3, 2), 2, 1, ceil_mode=True))"},
      {"avg_pool/ceil_valid", {data({2, 6, 7, 2})}, average({.window = {3, 2}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .count_padding = false, .ceil_mode = true}),
       "nhwc(F.avg_pool2d(nchw(x[0]), (3, 2), 2, 1, ceil_mode=True, count_include_pad=False))"},
      {"adaptive_avg_pool/1d", {data({2, 7, 3})}, [](In x) { return adaptive_avg_pool(x[0], {3}); }, "nhwc(F.adaptive_avg_pool1d(nchw(x[0]), 3))"},
      {"adaptive_avg_pool", {data({2, 5, 9, 3})}, [](In x) { return adaptive_avg_pool(x[0], {3, 4}); }, "nhwc(F.adaptive_avg_pool2d(nchw(x[0]), (3, 4)))"},
      {"adaptive_avg_pool/up", {data({2, 2, 3, 2, 3})}, [](In x) { return adaptive_avg_pool(x[0], {3, 3, 1}); }, "nhwc(F.adaptive_avg_pool3d(nchw(x[0]), (3, 3, 1)))"},
      {"adaptive_max_pool", {distinct({2, 5, 9, 3})}, [](In x) { return adaptive_max_pool(x[0], {3, 4}); }, "nhwc(F.adaptive_max_pool2d(nchw(x[0]), (3, 4)))"},
      {"adaptive_max_pool/even", {distinct({2, 6, 4, 3})}, [](In x) { return adaptive_max_pool(x[0], {3, 2}); }, "nhwc(F.adaptive_max_pool2d(nchw(x[0]), (3, 2)))"},
      {"interpolate/nearest", {data({2, 3, 4, 5})}, [](In x) { return interpolate(x[0], {.size = {7, 3}}); }, "nhwc(F.interpolate(nchw(x[0]), (7, 3)))"},
      {"interpolate/nearest_1d", {data({2, 5, 2})}, [](In x) { return interpolate(x[0], {.scale = 1.5}); }, "nhwc(F.interpolate(nchw(x[0]), scale_factor=1.5))"},
      {"interpolate/nearest_kept", {data({2, 4, 5, 2})}, [](In x) { return interpolate(x[0], {.scale = 1.15}); }, "nhwc(F.interpolate(nchw(x[0]), scale_factor=1.15))"},
      {"interpolate/nearest_doubled", {data({2, 4, 5, 2})}, [](In x) { return interpolate(x[0], {.scale = 2.1}); }, "nhwc(F.interpolate(nchw(x[0]), scale_factor=2.1))"},
      {"interpolate/linear_kept", {data({2, 4, 5, 2})}, [](In x) { return interpolate(x[0], {.scale = 1.15, .mode = ResampleMode::linear}); },
       "nhwc(F.interpolate(nchw(x[0]), scale_factor=1.15, mode='bilinear'))"},
      {"interpolate/linear_1d", {data({2, 5, 2})}, [](In x) { return interpolate(x[0], {.scale = 1.5, .mode = ResampleMode::linear}); },
       "nhwc(F.interpolate(nchw(x[0]), scale_factor=1.5, mode='linear'))"},
      {"interpolate/bilinear", {data({2, 3, 4, 5})}, [](In x) { return interpolate(x[0], {.scale = 2, .mode = ResampleMode::linear}); },
       "nhwc(F.interpolate(nchw(x[0]), scale_factor=2, mode='bilinear'))", {{8, 28, 28, 64}}},
      {"interpolate/bilinear_down", {data({2, 7, 6, 3})}, [](In x) { return interpolate(x[0], {.size = {3, 4}, .mode = ResampleMode::linear}); },
       "nhwc(F.interpolate(nchw(x[0]), (3, 4), mode='bilinear'))"},
      {"interpolate/corners", {data({2, 3, 4, 5})}, [](In x) { return interpolate(x[0], {.size = {5, 1}, .mode = ResampleMode::linear, .align_corners = true}); },
       "nhwc(F.interpolate(nchw(x[0]), (5, 1), mode='bilinear', align_corners=True))"},
      {"interpolate/trilinear", {data({1, 2, 3, 2, 3})}, [](In x) { return interpolate(x[0], {.size = {5, 4, 3}, .mode = ResampleMode::linear}); },
       "nhwc(F.interpolate(nchw(x[0]), (5, 4, 3), mode='trilinear'))"},
      {"interpolate/area", {data({2, 7, 6, 3})}, [](In x) { return interpolate(x[0], {.size = {3, 4}, .mode = ResampleMode::area}); },
       "nhwc(F.interpolate(nchw(x[0]), (3, 4), mode='area'))"},
      {"global_avg_pool", {data({2, 3, 4, 5})}, one<global_avg_pool>, "x[0].mean((1, 2))", {{32, 7, 7, 2048}}},
      {"global_max_pool", {distinct({2, 3, 4, 5})}, one<global_max_pool>, "x[0].amax((1, 2))"},
      {"bias_relu_pool_dropout", {distinct({3, 4, 4, 5}), weight({5})}, block(0.25),
       "dropout(max_pool(F.relu(x[0] + x[1]), [2, 2], [2, 2]), 0.25, 11)", {mnist, {64}}},
      {"bias_relu_pool_dropout/no_bias", {distinct({3, 4, 4, 5})}, block(0),
       "max_pool(F.relu(x[0]), [2, 2], [2, 2])"},
      {"bias_relu_pool_dropout/edge", {distinct({2, 5, 5, 3}), weight({3})}, block(0.5),
       "dropout(max_pool(F.relu(x[0] + x[1]), [2, 2], [2, 2]), 0.5, 11)"},
  };
}

std::vector<Case> norms() {
  const auto normalised = [](bool fused) {
    return [=](In x) {
      return batch_norm(x[0], x[1], x[2], x[3], x[4], {.relu = fused}, x.size() > 5 ? x[5] : Tensor{});
    };
  };
  const Input gamma = weight({3}), beta = weight({3}), mean = statistic({3}), var = statistic({3});
  const Shape image{32, 28, 28, 128}, channels{128};
  return {
      {"batch_norm", {data({4, 2, 3, 3}), gamma, beta, mean, var}, normalised(false), "batch_norm(*x)",
       {image, channels, channels, channels, channels}},
      {"batch_norm/2d", {data({6, 3}), gamma, beta, mean, var}, normalised(false), "batch_norm(*x)"},
      {"batch_norm/relu", {data({4, 2, 3, 3}), gamma, beta, mean, var}, normalised(true), "F.relu(batch_norm(*x))",
       {image, channels, channels, channels, channels}},
      {"batch_norm/add", {data({4, 2, 2, 3}), gamma, beta, mean, var, data({4, 2, 2, 3})}, normalised(false),
       "batch_norm(*x[:5]) + x[5]"},
      {"batch_norm/add_relu", {data({4, 2, 2, 3}), gamma, beta, mean, var, data({4, 2, 2, 3})}, normalised(true),
       "F.relu(batch_norm(*x[:5]) + x[5])", {image, channels, channels, channels, channels, image}},
      {"batch_norm/eval", {data({4, 2, 2, 3}), gamma, beta, mean, var},
       [=](In x) { return evaluated([&] { return normalised(false)(x); }); }, "batch_norm(*x, training=False)"},
      {"batch_norm/eval_add_relu", {data({4, 2, 2, 3}), gamma, beta, mean, var, data({4, 2, 2, 3})},
       [=](In x) { return evaluated([&] { return normalised(true)(x); }); },
       "F.relu(batch_norm(*x[:5], training=False) + x[5])"},
      {"batch_norm/running",  // what becomes of the running statistics
       {data({4, 2, 2, 3}), gamma, beta, mean, var},
       [](In x) {
         batch_norm(x[0], x[1], x[2], x[3], x[4], {.momentum = 0.3});
         return concat({x[3], x[4]}, 0);
       },
       "(batch_norm(*x, momentum=0.3), torch.cat(x[3:]))[1]"},
      {"layer_norm", {data({4, 6}), weight({6}), weight({6})}, [](In x) { return layer_norm(x[0], x[1], x[2]); },
       "F.layer_norm(x[0], [6], x[1], x[2])", {{4096, 768}, {768}, {768}}},
      {"layer_norm/plain", {data({2, 3, 5})}, [](In x) { return layer_norm(x[0], {}, {}, 1e-3); },
       "F.layer_norm(x[0], [5], eps=1e-3)"},
      {"layer_norm/axes", {data({2, 3, 5}), weight({3, 5}), weight({3, 5})}, [](In x) { return layer_norm_over(x[0], {3, 5}, x[1], x[2]); },
       "F.layer_norm(x[0], [3, 5], x[1], x[2])"},
      {"rms_norm", {data({4, 6}), weight({6})}, [](In x) { return rms_norm(x[0], x[1]); },
       "x[0] * torch.rsqrt(x[0].pow(2).mean(-1, keepdim=True) + 1e-5) * x[1]", {{4096, 768}, {768}}},
      {"rms_norm/plain", {data({2, 3, 5})}, [](In x) { return rms_norm(x[0], {}, 1e-3); }, "x[0] * torch.rsqrt(x[0].pow(2).mean(-1, keepdim=True) + 1e-3)"},
      {"group_norm", {data({3, 2, 3, 6}), weight({6}), weight({6})}, [](In x) { return group_norm(x[0], 2, x[1], x[2]); },
       "nhwc(F.group_norm(nchw(x[0]), 2, x[1], x[2]))", {image, channels, channels}},
      {"group_norm/one", {data({2, 5, 4}), weight({4}), weight({4})}, [](In x) { return group_norm(x[0], 1, x[1], x[2], 1e-3); },
       "nhwc(F.group_norm(nchw(x[0]), 1, x[1], x[2], 1e-3))"},
      {"group_norm/rows", {data({4, 12}), weight({12}), weight({12})}, [](In x) { return group_norm(x[0], 3, x[1], x[2]); }, "F.group_norm(x[0], 3, x[1], x[2])"},
      {"group_norm/instance", {data({2, 3, 2, 2, 4})}, [](In x) { return group_norm(x[0], 4); }, "nhwc(F.instance_norm(nchw(x[0])))"},
      {"softmax", {data({3, 5})}, one<softmax>, "x[0].softmax(-1)", {{4096, 1000}}},
      {"log_softmax", {data({2, 3, 5})}, one<log_softmax>, "x[0].log_softmax(-1)", {{4096, 1000}}},
      {"dropout", {data({4, 3, 2})}, [](In x) { return dropout(x[0], 0.4, 5); }, "dropout(x[0], 0.4, 5)",
       {{128, 12, 12, 64}}},
      {"channel_dropout", {data({4, 3, 2, 6})}, [](In x) { return channel_dropout(x[0], 0.4, 5); },
       "x[0] * dropout(torch.ones(len(x[0]), 1, 1, 6).double(), 0.4, 5)"},
      {"row_dropout", {data({6, 3, 2})}, [](In x) { return row_dropout(x[0], 0.4, 5); }, "x[0] * dropout(torch.ones(len(x[0]), 1, 1).double(), 0.4, 5)"},
      {"dropout/eval", {data({4, 3})}, [](In x) { return evaluated([&] { return scale(dropout(x[0], 0.4, 5), 1); }); },
       "x[0]"},
  };
}

std::vector<Case> losses() {
  const auto smoothed = cross_entropy_with({.label_smoothing = 0.1});
  const auto ignoring = cross_entropy_with({.label_smoothing = 0.2, .ignore_index = 2});
  return {
      {"linear_cross_entropy", {data({7, 5}), weight({6, 5}), labels({7}, 6)}, [](In x) { return linear_cross_entropy(x[0], x[1], x[2]); },
       "F.cross_entropy(F.linear(x[0], x[1]), x[2])", {{256, 128}, {1000, 128}, {256}}},
      {"linear_cross_entropy/few", {data({3, 2, 16}), weight({6, 16}), labels({3, 2}, 6), weight({6})},
       [](In x) { return linear_cross_entropy(x[0], x[1], x[2], {.label_smoothing = 0.1, .z_loss = 0.3, .ignore_index = 2}, x[3]); },
       "(lambda y, l: F.cross_entropy(y, l, label_smoothing=0.1, ignore_index=2) + 0.3 * y[l != 2].logsumexp(-1).square().mean())(F.linear(x[0], x[1], x[3]).flatten(0, 1), x[2].flatten())"},
      {"linear_cross_entropy/chunks", {data({7, 5}), weight({6, 5}), labels({7}, 6), weight({6})},
       [](In x) { return ops::linear_cross_entropy_in_chunks(x[0], x[1], x[2], {.label_smoothing = 0.1, .ignore_index = 2}, x[3], 3); },
       "F.cross_entropy(F.linear(x[0], x[1], x[3]), x[2], label_smoothing=0.1, ignore_index=2)"},
      {"linear_cross_entropy/sum", {data({2, 3, 5}), weight({4, 5}), labels({2, 3}, 4), weight({4})},
       [](In x) { return ops::linear_cross_entropy_in_chunks(x[0], x[1], x[2], {.reduction = Reduction::sum}, x[3], 2); },
       "F.cross_entropy(F.linear(x[0], x[1], x[3]).flatten(0, 1), x[2].flatten(), reduction='sum')"},
      {"cross_entropy", {data({6, 5}), labels({6}, 5)}, two<cross_entropy>, "F.cross_entropy(*x)", {{128, 1000}, {128}}},
      {"cross_entropy/share", {data({6, 5}), labels({6}, 5)},
       [](In x) { return in_batch_of(20, [&] { return cross_entropy(x[0], x[1]); }); },
       "F.cross_entropy(*x, reduction='sum') / 20"},
      {"cross_entropy/positions", {data({3, 4, 5}), labels({3, 4}, 5)},
       [](In x) { return in_batch_of(6, [&] { return cross_entropy(x[0], x[1]); }); },
       "F.cross_entropy(x[0].flatten(0, 1), x[1].flatten(), reduction='sum') / 24"},
      {"cross_entropy/smoothed", {data({6, 5}), labels({6}, 5)}, [=](In x) { return smoothed(x[0], x[1]); },
       "F.cross_entropy(*x, label_smoothing=0.1)"},
      {"cross_entropy/ignored", {data({8, 4}), labels({8}, 4)}, [=](In x) { return ignoring(x[0], x[1]); },
       "F.cross_entropy(*x, label_smoothing=0.2, ignore_index=2)"},
      {"cross_entropy/z_loss", {data({8, 4}), labels({8}, 4)},
       [](In x) { return cross_entropy_with({.label_smoothing = 0.2, .z_loss = 0.3, .ignore_index = 2})(x[0], x[1]); },
       "F.cross_entropy(*x, label_smoothing=0.2, ignore_index=2) + 0.3 * x[0][x[1] != 2].logsumexp(-1).square().mean()"},
      {"cross_entropy/z_loss_of_weights", {data({8, 4}), labels({8}, 4)},
       [](In x) { return cross_entropy_with({.z_loss = 0.3, .weights = Tensor::from({0.5F, 2.F, 1.5F, 3.F})})(x[0], x[1]); },
       "(lambda w: F.cross_entropy(*x, weight=w) + 0.3 * (w[x[1]] * x[0].logsumexp(-1).square()).sum() / w[x[1]].sum())(torch.tensor([0.5, 2, 1.5, 3]).double())"},
      {"linear_cross_entropy/z_loss", {data({7, 5}), weight({6, 5}), labels({7}, 6), weight({6})},
       [](In x) { return ops::linear_cross_entropy_in_chunks(x[0], x[1], x[2], {.label_smoothing = 0.1, .z_loss = 0.3, .ignore_index = 2}, x[3], 3); },
       "(lambda y: F.cross_entropy(y, x[2], label_smoothing=0.1, ignore_index=2) + 0.3 * y[x[2] != 2].logsumexp(-1).square().mean())(F.linear(x[0], x[1], x[3]))"},
      {"cross_entropy/weights", {data({8, 4}), labels({8}, 4)},
       [](In x) { return cross_entropy_with({.label_smoothing = 0.2, .ignore_index = 1, .weights = Tensor::from({0.5F, 2.F, 1.5F, 3.F})})(x[0], x[1]); },
       "F.cross_entropy(*x, weight=torch.tensor([0.5, 2, 1.5, 3]).double(), label_smoothing=0.2, ignore_index=1)"},
      {"cross_entropy/none", {data({3, 2, 4}), labels({3, 2}, 4)}, [](In x) { return cross_entropy_with({.reduction = Reduction::none})(x[0], x[1]); },
       "F.cross_entropy(x[0].flatten(0, 1), x[1].flatten(), reduction='none').reshape(-1, 2)"},
      {"cross_entropy/sum", {data({6, 4}), labels({6}, 4)}, [](In x) { return cross_entropy_with({.label_smoothing = 0.1, .reduction = Reduction::sum})(x[0], x[1]); },
       "F.cross_entropy(*x, label_smoothing=0.1, reduction='sum')"},
      {"nll_loss", {data({6, 4}), labels({6}, 4)}, [](In x) { return nll_loss(log_softmax(x[0]), x[1]); }, "F.nll_loss(x[0].log_softmax(-1), x[1])"},
      {"nll_loss/weights", {data({8, 4}), labels({8}, 4)}, [](In x) { return nll_loss_with({.ignore_index = 0, .weights = Tensor::from({0.5F, 2.F, 1.5F, 3.F})})(x[0], x[1]); },
       "F.nll_loss(*x, weight=torch.tensor([0.5, 2, 1.5, 3]).double(), ignore_index=0)"},
      {"bce_with_logits_loss/pos_weight", {wide({4, 3}), data({4, 3}), {.shape = {3}, .low = 0.5, .high = 2, .grad = false, .rows = false}},
       [](In x) { return bce_with_logits_loss(x[0], x[1], x[2]); }, "F.binary_cross_entropy_with_logits(x[0], x[1], pos_weight=x[2])"},
      {"mse_loss", {data({4, 3}), data({4, 3})}, reduced<mse_loss>, "F.mse_loss(*x)"},
      {"mse_loss/none", {data({4, 3}), data({4, 3})}, [](In x) { return mse_loss(x[0], x[1], Reduction::none); }, "F.mse_loss(*x, reduction='none')"},
      {"mse_loss/sum", {data({4, 3}), data({4, 3})}, [](In x) { return mse_loss(x[0], x[1], Reduction::sum); }, "F.mse_loss(*x, reduction='sum')"},
      {"l1_loss", {distinct({4, 3}), wide({4, 3})}, reduced<l1_loss>, "F.l1_loss(*x)"},
      {"smooth_l1_loss", {data({4, 3}), wide({4, 3})}, reduced<smooth_l1_loss>, "F.smooth_l1_loss(*x)"},
      {"smooth_l1_loss/beta", {data({4, 3}), wide({4, 3})}, [](In x) { return smooth_l1_loss(x[0], x[1], 2.5, Reduction::none); }, "F.smooth_l1_loss(*x, beta=2.5, reduction='none')"},
      {"huber_loss", {data({4, 3}), wide({4, 3})}, [](In x) { return huber_loss(x[0], x[1], 2); }, "F.huber_loss(*x, delta=2.0)"},
      {"bce_with_logits_loss", {wide({4, 3}), data({4, 3})}, reduced<bce_with_logits_loss>, "F.binary_cross_entropy_with_logits(*x)"},
      {"bce_with_logits_loss/share", {wide({4, 3}), data({4, 3})},
       [](In x) { return in_batch_of(8, [&] { return bce_with_logits_loss(x[0], x[1]); }); }, "F.binary_cross_entropy_with_logits(*x, reduction='sum') / 24"},
      {"kl_div_loss", {data({4, 3}), positive({4, 3})}, reduced<kl_div_loss>, "F.kl_div(*x)"},
      {"mse_loss/share", {data({4, 3}), data({4, 3})},
       [](In x) { return in_batch_of(10, [&] { return mse_loss(x[0], x[1]); }); }, "F.mse_loss(*x, reduction='sum') / 30"},
  };
}

std::vector<Case> shapes() {
  const auto reduced = [](ReduceKind kind, const std::vector<int>& axes) {
    return [=](In x) { return reduce(x[0], kind, axes); };
  };
  const Shape mnist{128, 12, 12, 64};
  return {
      {"concat", {data({2, 3}), data({2, 1}), data({2, 2})}, [](In x) { return concat(x, 1); }, "torch.cat(x, 1)"},
      {"concat/rows", {weight({2, 3}), weight({1, 3})}, [](In x) { return concat(x, -2); }, "torch.cat(x, 0)"},
      {"split", {data({2, 6, 3})},
       [](In x) {
         const auto parts = split(x[0], {1, 3, 2}, 1);  // the middle one gets no gradient
         return concat({parts[2], scale(parts[0], 2), parts[2]}, 1);
       },
       "torch.cat([x[0][:, 4:], 2 * x[0][:, :1], x[0][:, 4:]], 1)"},
      {"pad", {data({2, 3, 2})}, [](In x) { return pad(x[0], {0, 1, 2}, {0, 2, 0}); }, "F.pad(x[0], (2, 0, 1, 2))"},
      {"pad/value", {data({2, 3, 2})}, [](In x) { return pad(x[0], {0, 1, 2}, {0, 2, 0}, 1.5); }, "F.pad(x[0], (2, 0, 1, 2), value=1.5)"},
      {"pad/reflect", {data({2, 4, 5, 3})}, [](In x) { return pad(x[0], {0, 3, 2, 0}, {0, 1, 4, 0}, PadMode::reflect); }, "nhwc(F.pad(nchw(x[0]), (2, 4, 3, 1), 'reflect'))"},
      {"pad/replicate", {data({2, 4, 5, 3})}, [](In x) { return pad(x[0], {0, 3, 6, 0}, {0, 1, 4, 0}, PadMode::replicate); }, "nhwc(F.pad(nchw(x[0]), (6, 4, 3, 1), 'replicate'))"},
      {"pad/circular", {data({2, 4, 5, 3})}, [](In x) { return pad(x[0], {0, 3, 5, 0}, {0, 1, 4, 0}, PadMode::circular); }, "nhwc(F.pad(nchw(x[0]), (5, 4, 3, 1), 'circular'))"},
      {"gather", {data({2, 5, 3}), labels({2, 4, 3}, 5)}, [](In x) { return gather(x[0], x[1], 1); }, "x[0].gather(1, x[1])"},
      {"gather/last", {data({4, 5}), labels({4, 2}, 5)}, [](In x) { return gather(x[0], x[1], -1) * 2; }, "x[0].gather(-1, x[1]) * 2"},
      {"scatter_add", {data({2, 5, 3}), data({2, 4, 3}), labels({2, 4, 3}, 5)}, [](In x) { return scatter_add(x[0], x[2], x[1], 1); },
       "x[0].scatter_add(1, x[2], x[1])"},
      {"sort", {distinct({2, 5, 3})}, [](In x) { const Sorted s = sort(x[0], 1); return s.values * s.index.to(x[0].dtype()); }, "(lambda s: s[0] * s[1])(x[0].sort(1))"},
      {"sort/descending", {distinct({3, 7})}, [](In x) { return sort(x[0], -1, true).values; }, "x[0].sort(-1, True)[0]"},
      {"topk", {distinct({3, 7, 2})}, [](In x) { return topk(x[0], 2, 1).values * 3 + topk(x[0], 2, 1, false).values; }, "x[0].topk(2, 1)[0] * 3 + x[0].topk(2, 1, False)[0]"},
      {"cumsum", {data({2, 5, 3})}, [](In x) { return cumsum(x[0], 1); }, "x[0].cumsum(1)"},
      {"prod", {away({2, 3, 4})}, [](In x) { return prod(x[0], {0, 2}); }, "x[0].prod(0).prod(1)"},
      {"prod/zeros", {away({3, 4})}, [](In x) { return prod(concat({x[0], x[0] * 0}, 1), {-1}, true); }, "torch.cat([x[0], x[0] * 0], 1).prod(-1, keepdim=True)"},
      {"prod/zero", {away({5, 4})}, [](In x) { return prod(relu(x[0]), {1}); }, "F.relu(x[0]).prod(1)"},
      {"expand/rows", {weight({3, 1, 2})}, [](In x) { return expand(x[0], {2, 3, 4, 2}); }, "x[0].expand(2, 3, 4, 2)"},
      {"permute", {data({2, 3, 4, 5})}, [](In x) { return permute(x[0], {3, 0, 2, 1}); }, "x[0].permute(3, 0, 2, 1)"},
      {"permute/transpose", {weight({3, 4})}, [](In x) { return permute(x[0], {1, 0}); }, "x[0].T", {{1024, 1024}}},
      {"flatten", {data({2, 3, 2, 4})}, one<flatten>, "nchw(x[0]).flatten(1)", {mnist}},
      {"flatten/3d", {data({2, 2, 2, 3, 4})}, one<flatten>, "nchw(x[0]).flatten(1)"},
      {"flatten/no_cells", {data({2, 1, 1, 4})}, one<flatten>, "nchw(x[0]).flatten(1)"},
      {"sum", {data({3, 4})}, one<sum>, "x[0].sum()", {mnist}},
      {"mean", {weight({3, 4})}, one<mean>, "x[0].mean()"},
      {"reduce/sum", {data({2, 3, 4})}, reduced(ReduceKind::sum, {0, 2}), "x[0].sum((0, 2), keepdim=True)"},
      {"reduce/mean", {data({2, 3, 4})}, reduced(ReduceKind::mean, {1}), "x[0].mean(1, keepdim=True)"},
      {"reduce/max", {distinct({2, 3, 4})}, reduced(ReduceKind::max, {-1}), "x[0].amax(-1, keepdim=True)"},
      {"reduce/max_ties", {data({3, 2})},
       [](In x) { return reduce(concat({x[0], x[0]}, 1), ReduceKind::max, {1}); },
       "torch.cat([x[0], x[0]], 1).amax(1, keepdim=True)"},
      {"sum/axes", {data({2, 3, 4})}, [](In x) { return sum(x[0], {0, -1}); }, "x[0].sum((0, 2))"},
      {"mean/keep", {data({2, 3, 4})}, [](In x) { return mean(x[0], {1}, true); }, "x[0].mean(1, keepdim=True)"},
      {"amax", {distinct({2, 3, 4})}, [](In x) { return amax(x[0], {1, 2}); }, "x[0].amax((1, 2))"},
      {"amin", {distinct({2, 3, 4})}, [](In x) { return amin(x[0], {1}); }, "x[0].amin(1)"},
      {"max", {{.shape = {2, 3, 4}, .draw = InputValues::distinct, .rows = false}}, one<max>, "x[0].max()"},
      {"min", {{.shape = {2, 3, 4}, .draw = InputValues::distinct, .rows = false}}, one<min>, "x[0].min()"},
      {"var", {data({3, 4, 2})}, [](In x) { return var(x[0], {1, 2}); }, "x[0].var((1, 2))"},
      {"var/biased", {data({3, 4})}, [](In x) { return var(x[0], {1}, true, 0); }, "x[0].var(1, correction=0, keepdim=True)"},
      {"standard_deviation", {data({3, 4})}, [](In x) { return standard_deviation(x[0], {1}); }, "x[0].std(1)"},
      {"norm", {away({3, 4})}, [](In x) { return norm(x[0], {1}); }, "x[0].norm(dim=1)"},
      {"logsumexp", {wide({3, 4, 2})}, [](In x) { return logsumexp(x[0], {1}); }, "x[0].logsumexp(1)"},
      {"softmax/axis", {data({2, 3, 4})}, [](In x) { return softmax(x[0], 1); }, "x[0].softmax(1)"},
      {"log_softmax/axis", {data({3, 4})}, [](In x) { return log_softmax(x[0].reshape({-1, 2, 2}), -2); }, "x[0].reshape(-1, 2, 2).log_softmax(-2)"},
      {"stack", {data({2, 3}), data({2, 3})}, [](In x) { return stack(x, -1); }, "torch.stack(x, -1)"},
      {"squeeze", {data({2, 1, 3})}, [](In x) { return unsqueeze(squeeze(x[0], 1), -1); }, "x[0].squeeze(1).unsqueeze(-1)"},
      {"expand", {weight({3, 1})}, [](In x) { return expand(x[0], {2, 3, 4}); }, "x[0].expand(2, 3, 4)"},
      {"transpose", {data({2, 3, 4})}, [](In x) { return transpose(x[0], 1, -1); }, "x[0].transpose(1, 2)"},
      {"take", {weight({7, 3}), {.shape = {2, 5}, .draw = InputValues::label, .high = 7, .grad = false}}, [](In x) { return take(x[0], x[1]); }, "x[0][x[1].long()]"},
      {"take/axis", {data({2, 5, 3}), {.shape = {4}, .draw = InputValues::label, .high = 5, .grad = false, .rows = false}}, [](In x) { return take(x[0], x[1], -2); },
       "x[0][:, x[1].long()]"},
      {"slice", {data({2, 7, 3})}, [](In x) { return slice(x[0], 1, -5, 6); }, "x[0][:, -5:6]"},
      {"slice/step", {data({2, 7, 3})}, [](In x) { return slice(x[0], 1, 1, 100, 3); }, "x[0][:, 1:100:3]"},
      {"slice/rows", {weight({5, 2})}, [](In x) { return slice(x[0], 0, 1, -1); }, "x[0][1:-1]"},
      {"flip", {data({2, 3, 4})}, [](In x) { return flip(x[0], {1, -1}); }, "x[0].flip((1, 2))"},
      {"roll", {data({2, 5})}, [](In x) { return roll(x[0], -7, 1); }, "x[0].roll(-7, 1)"},
      {"repeat", {weight({2, 3})}, [](In x) { return repeat(x[0], {2, 3}); }, "x[0].repeat(2, 3)"},
      {"argmax", {{.shape = {4, 7}, .draw = InputValues::distinct, .grad = false}}, one<argmax>, "x[0].argmax(-1)"},
  };
}

Tensor drawn(const Input& input, const Shape& shape, DType dtype, std::uint64_t key) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  const Philox random{key};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = random(0, i);
    const double u = uniform_float(bits[0]), v = input.low + u * (input.high - input.low);
    switch (input.draw) {
      case InputValues::between:
      case InputValues::statistic: values[i] = v; break;
      case InputValues::away: values[i] = bits[1] & 1 ? v : -v; break;
      case InputValues::distinct: values[i] = static_cast<double>((i * 97 + 31) % 255) / 128 - 253. / 256; break;
      case InputValues::label: values[i] = static_cast<double>(bits[0] % static_cast<std::uint32_t>(input.high)); break;
    }
    if (input.draw != InputValues::label) values[i] = static_cast<float>(bf16(static_cast<float>(values[i])));
  }
  if (input.draw == InputValues::label) return Tensor::of(values, shape, DType::i64);
  const bool narrow = input.draw == InputValues::statistic && is_half(dtype);
  return Tensor::of(values, shape, narrow ? DType::f32 : dtype);
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> rows;
    for (auto part : {elementwise, products, convolutions, pools, norms, losses, shapes, attention_cases})
      for (Case& c : part()) rows.push_back(std::move(c));
    return rows;
  }();
  return all;
}

Inputs draw(const Case& c, DType dtype, Index rows) {
  Inputs all;
  for (const Input& input : c.inputs) {
    Shape shape = input.shape;
    if (rows >= 0 && input.rows && shape.rank() > 0) shape[0] = rows;
    all.push_back(drawn(input, shape, dtype, mix(std::hash<std::string>{}(c.name), all.size())));
  }
  return all;
}
Inputs draw_bench(const Case& c, DType dtype) {
  Inputs all;
  for (const Shape& shape : c.bench) all.push_back(drawn(c.inputs[all.size()], shape, dtype, all.size()));
  return all;
}

}  // namespace trireme::test
