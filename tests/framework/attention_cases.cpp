#include "tests/framework/attention_cases.h"

#include "framework/ops/ops.h"
#include "kernels/core/random.h"

namespace trireme::test {
namespace {

using In = const Inputs&;

Input counts(Index samples, Index most) {
  return {.shape = {samples}, .draw = InputValues::label, .high = static_cast<double>(most + 1), .grad = false};
}
/// Ids of packed documents, below `ids`.
Input texts(Index samples, Index tokens, Index ids) {
  return {.shape = {samples, tokens}, .draw = InputValues::label, .high = static_cast<double>(ids), .grad = false};
}

/// rope_table() where x lies.
Tensor table_for(const Tensor& x, Index positions, Index width, const RopeOptions& o = {}) {
  return rope_table(positions, width, o).to(x.device());
}

/// attention() with options drawn by a number, and the same in Python (torch_ops.py).
Case drawn(std::uint64_t number) {
  std::uint64_t draws = 0;
  const auto pick = [&](Index from, Index to) {
    return from + static_cast<Index>(Philox{number}(0, draws++)[0] % static_cast<std::uint64_t>(to - from + 1));
  };
  const Index n = pick(1, 3), keys = pick(1, 7), queries = pick(1, 6), kv_heads = pick(1, 2),
              heads = kv_heads * pick(1, 3), width = pick(1, 5);
  AttentionOptions o{.causal = pick(0, 2) > 0};
  const bool lengths = pick(0, 1) == 1, starts = o.causal && pick(0, 1) == 1;
  std::string python = fmt::format("attention(x[0], x[1], x[2], causal={}", o.causal ? "True" : "False");
  if (pick(0, 2) == 0) {
    o.scale = 0.75;
    python += ", scale=0.75";
  }
  if (pick(0, 2) == 0) {
    o.alibi = true;
    python += ", alibi=True";
  }
  if (pick(0, 2) == 0) {
    o.q_at = pick(-2, 3);
    python += fmt::format(", q_at={}", o.q_at);
  }
  if (o.causal && pick(0, 1) == 0) {
    o.window = pick(1, 4);
    python += fmt::format(", window={}", o.window);
  }
  Case c{
      .name = fmt::format("attention/drawn_{}", number),
      .inputs = {data({n, queries, heads, width}), data({n, keys, kv_heads, width}), data({n, keys, kv_heads, width})},
      .op = {},
      .torch = {}};
  if (lengths) {
    c.inputs.push_back(counts(n, keys));
    python += ", lengths=x[3]";
  }
  if (starts) {
    c.inputs.push_back(counts(n, 4));
    python += lengths ? ", starts=x[4]" : ", starts=x[3]";
  }
  c.op = [=](In x) {
    return attention(x[0], x[1], x[2], o, lengths ? x[3] : Tensor{}, starts ? x[lengths ? 4 : 3] : Tensor{});
  };
  c.torch = python + ")";
  return c;
}

}  // namespace

// A table: its lines stay lines.
// clang-format off
std::vector<Case> attention_cases() {
  const Shape q{2, 5, 4, 3}, k{2, 6, 2, 3}, timed{1, 1024, 12, 64};
  std::vector<Case> all{
      {"attention", {data(q), data(q), data(q)}, [](In x) { return attention(x[0], x[1], x[2]); }, "sdpa(*x)"},
      {"attention/causal", {data(q), data(q), data(q)}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true}); }, "sdpa(*x, causal=True)",
       {timed, timed, timed}},
      {"attention/grouped", {data(q), data(k), data(k)}, [](In x) { return attention(x[0], x[1], x[2]); }, "sdpa(*x)"},
      {"attention/lengths", {data({4, 3, 2, 4}), data({4, 5, 2, 4}), data({4, 5, 2, 4}), counts(4, 5)}, [](In x) { return attention(x[0], x[1], x[2], {}, x[3]); },
       "attention(x[0], x[1], x[2], lengths=x[3])"},
      {"attention/blind", {data(q), data(k), data(k)}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true, .q_at = -2}); },
       "attention(x[0], x[1], x[2], causal=True, q_at=-2)"},
      {"attention/alibi_of_6", {data({2, 4, 6, 2}), data({2, 4, 3, 2}), data({2, 4, 3, 2})}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true, .alibi = true}); },
       "attention(x[0], x[1], x[2], causal=True, alibi=True)"},
      {"attention/window", {data({2, 9, 4, 3}), data({2, 9, 2, 3}), data({2, 9, 2, 3})}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true, .window = 4}); },
       "attention(x[0], x[1], x[2], causal=True, window=4)"},
      {"attention/documents", {data({3, 9, 4, 3}), data({3, 9, 2, 3}), data({3, 9, 2, 3}), texts(3, 9, 2)}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true}, {}, {}, document_starts(x[3], 1)); },
       "documents(*x, separator=1)"},
      {"attention/first_keys", {data({2, 9, 4, 3}), data({2, 9, 2, 3}), data({2, 9, 2, 3}), texts(2, 9, 3), counts(2, 9)}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true, .window = 4, .alibi = true, .q_at = 1}, x[4], {}, document_starts(x[3], 1)); },
       "attention(x[0], x[1], x[2], causal=True, window=4, alibi=True, q_at=1, lengths=x[4], first=document_starts(x[3], 1))"},
      {"attention/dropout", {data(q), data(k), data(k)}, [](In x) { return attention(x[0], x[1], x[2], {.causal = true, .dropout = 0.3, .layer = 5, .q_at = 1}); },
       "attention(x[0], x[1], x[2], causal=True, q_at=1, p=0.3, layer=5)"},
      {"attention/self", {data(q)}, [](In x) { return attention(x[0], x[0], x[0], {.causal = true}); },
       "sdpa(x[0], x[0], x[0], causal=True)"},
      {"attention_packed", {data({2, 5, 6, 3})}, [](In x) { return attention_packed(x[0], 2, 0, {.causal = true}); },
       "attention(*x[0].split(2, 2), causal=True)", {{1, 1024, 36, 64}}},
      {"attention_packed/grouped", {data({3, 5, 8, 2}), counts(3, 5)}, [](In x) { return attention_packed(x[0], 4, 2, {}, x[1]); },
       "attention(*x[0].split((4, 2, 2), 2), lengths=x[1])"},
      {"attention_packed/documents", {data({3, 8, 8, 2}), texts(3, 8, 2)}, [](In x) { return attention_packed(x[0], 4, 2, {.causal = true}, {}, document_starts(x[1], 1)); },
       "documents(*x[0].split((4, 2, 2), 2), x[1], separator=1)"},
      {"attention_packed/dropout", {data({2, 4, 4, 3})}, [](In x) { return attention_packed(x[0], 2, 1, {.dropout = 0.4, .layer = 9}); },
       "attention(*x[0].split((2, 1, 1), 2), p=0.4, layer=9)"},
      {"rope", {data({2, 5, 3, 4})}, [](In x) { return rope(x[0], table_for(x[0], 5, 4)); }, "rope(x[0])", {timed}},
      {"rope/part", {data({2, 5, 3, 7})}, [](In x) { return rope(x[0], table_for(x[0], 5, 4, {.base = 100})); }, "rope(x[0], width=4, base=100)"},
      {"rope/interleaved", {data({2, 5, 3, 4})}, [](In x) { return rope(x[0], table_for(x[0], 5, 4), true); }, "rope(x[0], interleaved=True)"},
      {"rope/interleaved_part", {data({2, 5, 3, 7})}, [](In x) { return rope(x[0], table_for(x[0], 5, 6), true); }, "rope(x[0], width=6, interleaved=True)"},
      {"rope/positions", {data({3, 5, 2, 4}), {.shape = {3, 5}, .draw = InputValues::label, .high = 40, .grad = false}},
       [](In x) { return rope(x[0], take(table_for(x[0], 40, 4), x[1])); }, "rope(x[0], positions=x[1])"},
      {"rope/linear", {data({2, 5, 3, 4})}, [](In x) { return rope(x[0], table_for(x[0], 5, 4, {.scaling = {.kind = RopeScaling::Kind::linear, .factor = 4}})); },
       "rope(x[0], factor=4)"},
      {"rope/llama3", {data({2, 50, 1, 16})},
       [](In x) { return rope(x[0], table_for(x[0], 50, 16, {.base = 500, .scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8, .original_context = 64}})); },
       "rope(x[0], base=500, llama3=(8, 1, 4, 64))"},
  };
  for (std::uint64_t number = 0; number < 16; ++number) all.push_back(drawn(number));
  return all;
}
// clang-format on

}  // namespace trireme::test
