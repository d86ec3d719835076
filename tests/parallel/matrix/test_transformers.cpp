// Transformers over ranks: every axis alone, every pair, accumulation, schedules and recomputation equal the serial run
// in f64: the loss of each token, gradients, norms, weights after 20 steps of AdamW, and dropout masks.
//   build/tests/test_transformers "[.full]"   all cells; prints the table of tools/docs/guides/promises.md
// MATRIX_MODEL and MATRIX_STRATEGY select the models and strategies whose names begin so.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <iostream>

#include "framework/layers/hooked.h"
#include "framework/layers/lm_head.h"
#include "framework/layers/recompute.h"
#include "framework/layers/rotary.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "tests/parallel/matrix/runs.h"
#include "tests/support/ranks.h"

namespace test_transformers {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr Index heads = 6, width = 24, hidden = 36, vocabulary = 17, tokens = 10;
constexpr double dropped = 0.2;

/// Residual branches of a block with normalized queries and keys (arXiv 2302.05442), and dropout.
struct AttentionBranch {
  AttentionBranch(Index groups, const RotaryEmbedding& rope)
      : norm(width),
        heads_of(width, heads, {.kv_heads = groups, .causal = true, .dropout = dropped}),
        rotary(rope),
        q(width, width, {.bias = false, .shares = {heads_of.query_shares()}}),
        k(width, groups * heads_of.head_size(), {.bias = false, .shares = {heads_of.kv_shares()}}),
        v(width, groups * heads_of.head_size(), {.shares = {heads_of.kv_shares()}}),
        o(width, width, {.shares = {{}, heads_of.query_shares()}}),
        q_norm(heads_of.head_size()),
        k_norm(heads_of.head_size()) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor y = norm(x), queries = rotary(q_norm(heads_of.split(q(y)))), keys = rotary(k_norm(heads_of.split(k(y))));
    return o(heads_of(queries, keys, heads_of.split(v(y))));
  }
  void visit(const StateVisitor& to) {
    heads_of.visit(to);
    to("norm", norm, "q", q, "k", k, "v", v, "o", o, "q_norm", q_norm, "k_norm", k_norm);
  }
  RMSNorm norm;
  AttentionHeads heads_of;
  RotaryEmbedding rotary;
  Linear q, k, v, o;
  RMSNorm q_norm, k_norm;
};
/// Gate and values are one weight.
struct GatedBranch {
  GatedBranch()
      : norm(width), in(width, 2 * hidden, {.bias = false, .shares = {{.ranges = {{hidden}, {hidden}}}}}),
        out(hidden, width) {}
  Tensor operator()(const Tensor& x) const { return out(swiglu(in(norm(x)))); }
  void visit(const StateVisitor& to) { to("norm", norm, "in", in, "out", out); }
  RMSNorm norm;
  Linear in, out;
};
/// x + dropout(branch(x)), whose masks are recorded.
struct Residual {
  Residual(Module branch, Module drop) : branch(std::move(branch)), drop(std::move(drop)) {}
  Tensor operator()(const Tensor& x) const { return x + drop(branch(x)); }
  void visit(const StateVisitor& to) { to("branch", branch, "drop", drop); }
  Module branch, drop;
};

struct Options {
  Index groups = 2;
  bool tied = true, recompute = false;
};
Sequential transformer(const Options& o, const std::shared_ptr<Records>& records) {
  const auto drop = [&](const std::string& name) -> Module {
    return Hooked(Dropout(dropped), {.forward = [records, name](const Tensor&, const Tensor& y) {
                    records->add_mask(name, y.detach());
                    return Tensor();
                  }});
  };
  const RotaryEmbedding rope(tokens, width / heads);
  const Embedding table(vocabulary, width);
  Sequential model;
  model.add("embed", table).add("positions", PositionEmbedding(tokens, width)).add("drop", drop("embeddings"));
  for (const std::string block : {"0", "1"})
    for (const std::string part : {"attention", "mlp"}) {
      const Module branch = part == "mlp" ? Module(GatedBranch()) : Module(AttentionBranch(o.groups, rope));
      const Module layer = Residual(branch, drop(part + " " + block));
      model.add(part + block, o.recompute ? Module(Recompute(layer)) : layer);
    }
  return model.add("norm", RMSNorm(width)).add("head", LmHead(o.tied ? table.weight : Tensor::zeros({vocabulary, width})));
}

/// Samples of 10, 0, 7, 10 and 4 labels, and so on.
SmallModel text_model(const std::string& name, const std::function<Module()>& make, Index samples,
                      DType dtype = DType::f64) {
  SmallModel m;
  m.name = name;
  m.make = [make, dtype] {
    Module model = convert(make(), dtype);
    set_start(model);
    return model;
  };
  m.data = {.x = Tensor::empty({samples, tokens}, DType::i64), .y = Tensor::empty({samples, tokens}, DType::i64)};
  constexpr std::array<Index, 5> lengths{10, 0, 7, 10, 4};
  for (Index i = 0; i < samples * tokens; ++i) {
    m.data.x.data<std::int64_t>()[i] = (i * 7 + i / 3) % vocabulary;
    m.data.y.data<std::int64_t>()[i] = i % tokens >= lengths[static_cast<std::size_t>(i / tokens % 5)] ? -100 : (i * 5 + 3) % vocabulary;
  }
  m.loss = cross_entropy_with({.label_smoothing = 0.1});
  m.each = cross_entropy_with({.label_smoothing = 0.1, .reduction = Reduction::none});
  m.records = std::make_shared<Records>();
  return m;
}
SmallModel transformer_model(const std::string& name, const Options& o, Index samples, DType dtype = DType::f64) {
  const auto records = std::make_shared<Records>();
  SmallModel m = text_model(name, [=]() -> Module { return transformer(o, records); }, samples, dtype);
  m.records = records;
  return m;
}
std::vector<SmallModel> models() {
  const auto bundled_llama = [](Index groups, bool tied) {
    return [=]() -> Module {
      return llama({.layers = 2,
                    .heads = heads,
                    .kv_heads = groups,
                    .width = width,
                    .hidden = hidden,
                    .positions = tokens,
                    .vocabulary = vocabulary,
                    .tied = tied});
    };
  };
  return {transformer_model("two groups", {}, 3),
          transformer_model("one group", {.groups = 1, .tied = false}, 8),
          transformer_model("recomputed", {.recompute = true}, 3),
          text_model("llama", bundled_llama(2, false), 8),
          text_model("gpt2", []() -> Module {
            return gpt2({.layers = 2,
                         .heads = heads,
                         .width = width,
                         .positions = tokens,
                         .vocabulary = vocabulary,
                         .hidden = hidden,
                         .dropout = dropped});
          }, 8)};
}

/// Strategies on meshes of one kind: a row of the table.
struct Row {
  std::string name;
  struct Cell {
    std::string strategy, mesh;
    int microbatches = 1;
  };
  std::vector<Cell> cells;
};
std::string pipeline_of(const std::string& schedule, int micro, int chunks = 1) {
  return fmt::format("pipeline(micro={}, partition=even, schedule={}{})", micro, schedule,
                     chunks > 1 ? fmt::format(", chunks={}", chunks) : "");
}
const std::vector<std::string> by_rows{"data_parallel", "zero(1)", "zero(2)", "zero(3)"},
    by_features{"tensor", "tensor(sequence=true)"}, schedules_of{"gpipe", "1f1b", "zb-h1"};

std::vector<Row> rows() {
  const std::vector<int> counts{1, 2, 3, 4, 7};
  const std::vector<std::pair<int, int>> pairs{{2, 2}, {2, 3}, {3, 2}};
  std::vector<Row> all;
  for (const std::string& s : by_rows) {
    Row row{s, {}};
    for (const int p : counts) row.cells.push_back({s, fmt::format("data={}", p)});
    all.push_back(row);
  }
  for (const std::string& s : by_features) {
    Row row{s, {}};
    for (const int p : counts) row.cells.push_back({s, fmt::format("tensor={}", p)});
    all.push_back(row);
  }
  for (const std::string& s : schedules_of) {
    Row row{"pipeline, " + s, {}};
    for (const int p : counts)
      for (const int micro : {1, 2, 3, 4})
        if (p == 2 || micro == std::min(p, 4)) row.cells.push_back({pipeline_of(s, micro), fmt::format("pipe={}", p), micro});
    all.push_back(row);
  }
  Row interleaved{"pipeline, interleaved", {}};
  for (const int p : counts)
    interleaved.cells.push_back({pipeline_of("interleaved", p, 2), fmt::format("pipe={}", p), p});
  all.push_back(interleaved);
  for (const std::string& f : by_features)
    for (const std::string& r : by_rows) {
      Row row{f + ", " + r, {}};
      for (const auto& [a, b] : pairs) row.cells.push_back({f + " | " + r, fmt::format("data={},tensor={}", a, b)});
      all.push_back(row);
    }
  for (const std::string& r : by_rows) {
    Row row{"pipeline, " + r, {}};
    for (const std::string& s : schedules_of)
      for (const auto& [a, b] : pairs)
        row.cells.push_back({pipeline_of(s, 2) + " | " + r, fmt::format("pipe={},data={}", a, b), 2});
    all.push_back(row);
  }
  for (const std::string& f : by_features) {
    Row row{"pipeline, " + f, {}};
    for (const std::string& s : schedules_of)
      for (const auto& [a, b] : pairs)
        row.cells.push_back({pipeline_of(s, 2) + " | " + f, fmt::format("pipe={},tensor={}", a, b), 2});
    all.push_back(row);
  }
  Row accumulated{"accumulate", {}};
  for (const int micro : {1, 2, 3, 4}) {
    const std::string a = fmt::format("accumulate(micro={})", micro);
    accumulated.cells.push_back({a, "data=1", micro});
    for (const std::string& s : by_rows) accumulated.cells.push_back({a + " | " + s, "data=2", micro});
    for (const std::string& s : by_features) accumulated.cells.push_back({a + " | " + s, "tensor=2", micro});
  }
  all.push_back(accumulated);
  Row options{"data_parallel, overlap and buckets", {}};
  for (const std::string o : {"overlap=false", "bucket=128, first_bucket=128", "bucket=128, first_bucket=128, overlap=false"}) {
    options.cells.push_back({"data_parallel(" + o + ")", "data=3"});
    for (const char* z : {"zero(1)", "zero(2)", "zero(3)"})
      options.cells.push_back({"data_parallel(" + o + ") | " + z, "data=3"});
    options.cells.push_back({"tensor(sequence=true) | data_parallel(" + o + ")", "data=2,tensor=2"});
  }
  all.push_back(options);
  return all;
}

bool chosen(const char* variable, const std::string& name) {
  const char* only = std::getenv(variable);
  return only == nullptr || name.starts_with(only);
}

const Recipe recipe{.clip = 0.5, .audit = true, .steps = 20, .eps = 1e-8, .tolerance = 1e-12};

}  // namespace

TEST_CASE("transformers under every layout equal the serial run", "[.full]") {
  if (threads_only()) return;
  Comparison comparison(recipe);
  int wrong = 0;
  for (const Row& row : rows()) {
    if (!chosen("MATRIX_STRATEGY", row.name)) continue;
    for (const SmallModel& m : models()) {
      if (!chosen("MATRIX_MODEL", m.name)) continue;
      for (const auto& c : row.cells) {
        const MatrixCell cell = comparison.run(m, c.strategy, c.mesh, c.microbatches);
        std::cout << fmt::format("{}; {}; {}; {}", m.name, c.strategy, c.mesh, cell.text());
        for (const auto& [what, by] : cell.deviations) std::cout << fmt::format(" {} {:.1e}", what, by);
        std::cout << std::endl;
        wrong += cell.text() != "exact";
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace test_transformers
