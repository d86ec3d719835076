// Attention as an op: packed operands, queries and samples cut apart, memory, refusals; tables of rotary positions. Its
// gradients and PyTorch's numbers: the op table (attention_cases.cpp).
#include "framework/autograd/step_context.h"
#include "framework/ops/ops.h"
#include "kernels/core/runtime.h"
#include "tests/framework/case_outcome.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"

namespace test_attention {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16};

Tensor drawn(const Shape& shape, DType type, std::uint64_t seed) { return normal(shape, 0, 1, seed).to(type); }
Tensor counts(const std::vector<double>& values) {
  return Tensor::of(values, {static_cast<Index>(values.size())}, DType::i64);
}

}  // namespace

TEST_CASE("packed attention is that of its parts, bit for bit, and so are the gradients") {
  const Index n = 2, tokens = 130, size = 24;
  for (const DType type : types)
    for (const Index kv_heads : {0, 2, 1})
      for (const double dropout : {0.0, 0.2}) {
        INFO(name_of(type) << ", " << kv_heads << " kv_heads, dropout " << dropout);
        const Index groups = kv_heads == 0 ? 4 : kv_heads;
        const AttentionOptions options{.causal = true, .dropout = dropout, .layer = 3};
        const Tensor lengths = counts({100, 130});
        const auto run = [&](bool packed) {
          const StepScope scope(a_pass(n));
          Tensor qkv = drawn({n, tokens, 4 + 2 * groups, size}, type, 1).require_grad();
          const auto parts = split(qkv, {4, groups, groups}, 2);
          const Tensor y = packed ? attention_packed(qkv, 4, kv_heads, options, lengths)
                                  : attention(parts[0], parts[1], parts[2], options, lengths);
          y.backward(seed_for(y));
          return std::pair(y.to_vector(), qkv.grad().to_vector());
        };
        CHECK(run(true) == run(false));
      }
}

TEST_CASE("a query's attention does not depend on which others stand beside it, bit for bit") {
  const NoGrad off;
  for (const DType type : types) {
    INFO(name_of(type));
    const Index n = 2, tokens = 131;
    const Tensor q = drawn({n, tokens, 3, 20}, type, 1), k = drawn({n, tokens, 1, 20}, type, 2),
                 v = drawn({n, tokens, 1, 20}, type, 3);
    for (const AttentionOptions& o :
         {AttentionOptions{.causal = true}, AttentionOptions{.causal = true, .alibi = true},
          AttentionOptions{.causal = true, .window = 20}, AttentionOptions{.causal = true, .window = 100}}) {
      const Tensor all = attention(q, k, v, o);
      for (const Index step : {1, 17, 64}) {
        std::vector<Tensor> cut, cached;
        for (Index from = 0; from < tokens; from += step) {
          const Index to = std::min(from + step, tokens);
          const Tensor some = slice(q, 1, from, to);
          AttentionOptions later = o;
          later.q_at = from;
          cut.push_back(attention(some, k, v, later));
          // As with a cache of the keys so far: later ones are not there yet.
          const std::vector<double> starts(n, static_cast<double>(from));
          cached.push_back(attention(some, slice(k, 1, 0, to), slice(v, 1, 0, to), o, {}, counts(starts)));
        }
        CHECK(concat(cut, 1).to_vector() == all.to_vector());
        CHECK(concat(cached, 1).to_vector() == all.to_vector());
      }
    }
  }
}

TEST_CASE("documents begin after separators") {
  const auto starts = [](const std::vector<double>& ids, Index separator) {
    return document_starts(Tensor::of(ids, {1, static_cast<Index>(ids.size())}, DType::i64), separator).to_vector();
  };
  CHECK(starts({5, 6, 9, 7, 9, 9, 8}, 9) == std::vector<double>{0, 0, 0, 3, 3, 5, 6});
  CHECK(starts({9, 6, 5, 9}, 9) == std::vector<double>{0, 1, 1, 1});  // first and last
  CHECK(starts({5, 6, 7}, 9) == std::vector<double>{0, 0, 0});
  CHECK(starts({9, 9, 9}, 9) == std::vector<double>{0, 1, 2});
  CHECK(starts({3}, 3) == std::vector<double>{0});
  CHECK(document_starts(Tensor::of({{1, 2, 3, 2, 2, 1}}, {2, 3}, DType::i64), 2).to_vector() ==
        std::vector<double>{0, 0, 2, 0, 1, 2});
  CHECK(document_starts(Tensor::zeros({0, 3}, DType::i64), 2).shape() == Shape{0, 3});
}

TEST_CASE("samples draw their own masks of dropout, wherever they are computed") {
  const Index n = 4;
  const auto run = [&](Index from, Index to) {
    StepContext context = a_pass(n);
    context.batch.samples = context.batch.samples.rows(from, to);
    const StepScope scope(context);
    const auto some = [&](std::uint64_t seed) {
      return drawn({n, 60, 2, 8}, DType::f64, seed).rows(from, to).clone().require_grad();
    };
    const Tensor q = some(1), k = some(2), v = some(3), y = attention(q, k, v, {.dropout = 0.4, .layer = 8});
    y.backward(drawn({n, 60, 2, 8}, DType::f64, 4).rows(from, to).clone());
    return std::vector{y, q.grad(), k.grad(), v.grad()};
  };
  const auto whole = run(0, n), first = run(0, 1), rest = run(1, n);
  for (std::size_t i = 0; i < whole.size(); ++i)
    CHECK(concat({first[i].detach(), rest[i].detach()}, 0).to_vector() == whole[i].to_vector());
  const StepScope scope(a_pass(1));
  const Tensor ones = Tensor::full({1, 300, 1, 1}, 1, DType::f64), zeros = Tensor::zeros({1, 300, 1, 1}, DType::f64);
  const Tensor share = attention(zeros, zeros, ones, {.dropout = 0.25, .layer = 1});
  CHECK(mean(share).item() == Approx(1).margin(0.01));
  CHECK(share.to_vector() != attention(zeros, zeros, ones, {.dropout = 0.25, .layer = 2}).to_vector());
  StepContext evaluated = a_pass(1);
  evaluated.batch.training = false;
  const StepScope inner(evaluated);
  CHECK(trireme::test::distance(attention(zeros, zeros, ones, {.dropout = 0.25}).to_vector(), ones.to_vector()) <
        1e-14);
}

TEST_CASE("attention keeps and makes no matrix of queries by keys") {
  const Index tokens = 3000, size = 8;
  for (const DType type : {DType::f32, DType::bf16}) {
    Tensor in[3];
    for (std::uint64_t i = 0; i < 3; ++i) in[i] = drawn({1, tokens, 1, size}, type, i).require_grad();
    Runtime& r = runtime(DeviceKind::cpu);
    const std::size_t before = r.in_use();
    r.reset_peak();
    const Tensor y = attention(in[0], in[1], in[2], {.causal = true});
    CHECK(r.in_use() - before < 4 * static_cast<std::size_t>(tokens * size) * 4);
    y.backward(y.detach());
    CHECK(r.peak() - before < static_cast<std::size_t>(tokens * tokens));  // bytes: a quarter of f32's
  }
}

TEST_CASE("attention and rope refuse what does not fit, by name") {
  const Tensor q = Tensor::zeros({2, 5, 4, 3}), k = Tensor::zeros({2, 6, 2, 3});
  CHECK_ERROR(attention(q, k, q), usage, "[2, 5, 4, 3]", "[2, 6, 2, 3]");
  CHECK_ERROR(attention(q, k.to(DType::f64), k), usage, "f32", "f64");
  const Tensor three = Tensor::zeros({2, 6, 3, 3});
  CHECK_ERROR(attention(q, three, three), usage, 4, 3);
  CHECK_ERROR(attention(q, k, k, {}, counts({1, 2, 3})), usage, "i64", "[3]", 2, "[2]");
  CHECK_ERROR(attention(q, k, k, {.dropout = 1}), usage, 1, 0);
  CHECK_ERROR(attention(q, k, k, {.window = 3}), usage, 3, "causal");
  CHECK_ERROR(attention(q, k, k, {.causal = true, .window = -3}), usage, -3);
  const Tensor first = Tensor::zeros({2, 5}, DType::i64);
  CHECK_ERROR(attention(q, k, k, {}, {}, {}, first), usage, "first_keys", "causal");
  CHECK_ERROR(attention(q, k, k, {.causal = true}, {}, {}, counts({1, 2})), usage, "first_keys", "[2]", "[2, 5]");
  CHECK_ERROR(document_starts(q, 0), usage, "[2, 5, 4, 3]", "[N, T]");
  CHECK_ERROR(attention_packed(q, 3), usage, "[2, 5, 4, 3]", 9, "[N, T, 9, D]");
  CHECK_ERROR(attention_packed(q, 3, 2), usage, 3, 2);
  CHECK_ERROR(rope(q, rope_table(5, 4)), usage, "[5, 4]", "[2, 5, 4, 3]");
  CHECK_ERROR(rope(q, rope_table(4, 2)), usage, "[T, R]", "[N, T, R]");
  CHECK_ERROR(rope_table(4, 3), usage, 4, 3);
  CHECK_ERROR(rope_table(4, 2, {.scaling = {.kind = RopeScaling::Kind::linear, .factor = 0.5}}), usage, "rope_table",
              "0.5");
  CHECK_ERROR(rope_table(4, 2, {.scaling = {.kind = RopeScaling::Kind::llama3, .low_frequency = 4}}), usage, 0,
              "low_frequency", "high_frequency");
}

TEST_CASE("products of rotated queries and keys depend on their distance alone") {
  const Index tokens = 40, size = 16;
  const Tensor one = drawn({1, 1, 1, size}, DType::f64, 1), other = drawn({1, 1, 1, size}, DType::f64, 2);
  const Tensor table = rope_table(tokens, size);
  CHECK(table.dtype() == DType::f64);
  CHECK(slice(table, 0, 0, 1).to_vector() ==
        concat({Tensor::full({8}, 1, DType::f64), Tensor::zeros({8}, DType::f64)}, 0).to_vector());
  for (const bool interleaved : {false, true}) {
    const Tensor q = rope(expand(one, {1, tokens, 1, size}), table, interleaved).reshape({tokens, size}),
                 k = rope(expand(other, {1, tokens, 1, size}), table, interleaved).reshape({tokens, size});
    const Values products = matmul(q, k, {.transpose_b = true}).to_vector();
    double apart = 0;
    for (Index i = 1; i < tokens; ++i)
      for (Index j = 1; j < tokens; ++j)
        apart = std::max(apart, std::abs(products[static_cast<std::size_t>(i * tokens + j)] -
                                         products[static_cast<std::size_t>((i - 1) * tokens + j - 1)]));
    CHECK(apart < 1e-13);
  }
}

}  // namespace test_attention
