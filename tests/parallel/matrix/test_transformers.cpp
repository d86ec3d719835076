// Transformers on every mesh axis alone, on every pair of axes, and under accumulation, schedules and recomputation
// equal the serial run: loss of each token, gradients, norms, weights after 20 steps of AdamW, and dropout masks.
//   build/tests/test_transformers "[.full]"   all layouts; prints the tables of tools/docs/guides/promises.md
// MATRIX_MODEL and MATRIX_STRATEGY select the models and rows whose names begin so.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "framework/layers/experts.h"
#include "framework/layers/hooked.h"
#include "framework/layers/lm_head.h"
#include "framework/layers/recompute.h"
#include "framework/layers/rotary.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "parallel/model/chain.h"
#include "tests/parallel/matrix/runs.h"
#include "tests/support/oracle.h"
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
    const Tensor y = norm(x), queries = rotary(q_norm(heads_of.split(q(y)))),
                 keys = rotary(k_norm(heads_of.split(k(y))));
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
      : norm(width),
        in(width, 2 * hidden, {.bias = false, .shares = {{.ranges = {{hidden}, {hidden}}}}}),
        out(hidden, width) {}
  Tensor operator()(const Tensor& x) const { return out(swiglu(in(norm(x)))); }
  void visit(const StateVisitor& to) { to("norm", norm, "in", in, "out", out); }
  RMSNorm norm;
  Linear in, out;
};
/// Each token uses two of five experts, where there is room, and a shared one; with a balance loss and loss-free
/// biases.
struct ExpertsBranch {
  ExpertsBranch()
      : norm(width),
        experts(width, hidden, {.experts = 5, .shared = 12, .capacity = 1.2, .balance = 0.01, .bias_rate = 0.01}) {}
  Tensor operator()(const Tensor& x) const { return experts(norm(x)); }
  void visit(const StateVisitor& to) { to("norm", norm, "experts", experts); }
  RMSNorm norm;
  MixtureOfExperts experts;
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
  bool tied = true, recompute = false, experts = false;
  std::optional<DType> activations = {};
};
Sequential transformer(const Options& o, const std::shared_ptr<Records>& records) {
  const auto drop = [&](const std::string& name) -> Module {
    if (o.activations == DType::bf16) return Dropout(dropped);  // where rounding brings more zeros
    return Hooked(Dropout(dropped), {.forward = [records, name](const Tensor&, const Tensor& y) {
                    records->add_mask(name, y.detach());
                    return Tensor();
                  }});
  };
  const RotaryEmbedding rope(tokens, width / heads);
  Embedding table(vocabulary, width);
  table.dtype = o.activations;
  Sequential model;
  model.add("embed", table).add("positions", PositionEmbedding(tokens, width)).add("drop", drop("embeddings"));
  for (const std::string block : {"0", "1"})
    for (const std::string part : {"attention", "mlp"}) {
      const Module branch = part == "attention" ? Module(AttentionBranch(o.groups, rope))
                            : o.experts         ? Module(ExpertsBranch())
                                                : Module(GatedBranch());
      const Module layer = Residual(branch, drop(part + " " + block));
      model.add(part + block, o.recompute ? Module(Recompute(layer)) : layer);
    }
  return model.add("norm", RMSNorm(width))
      .add("head", LmHead(o.tied ? table.weight : Tensor::zeros({vocabulary, width})));
}

/// Samples of 10, 0, 7, 10 and 4 labels, and so on.
SmallModel text_model(const std::string& name, Index samples, const std::function<Module()>& make,
                      DType dtype = DType::f64) {
  SmallModel m;
  m.name = name;
  m.make = [make, dtype] {
    Module model = convert(make(), dtype);
    set_start(model);
    return model;
  };
  constexpr std::array<Index, 5> lengths{10, 0, 7, 10, 4};
  m.data = {.x = Tensor::empty({samples, tokens}, DType::i64), .y = Tensor::empty({samples, tokens}, DType::i64)};
  for (Index i = 0; i < samples * tokens; ++i) {
    const bool labelled = i % tokens < lengths[static_cast<std::size_t>(i / tokens % 5)];
    m.data.x.data<std::int64_t>()[i] = (i * 7 + i / 3) % vocabulary;
    m.data.y.data<std::int64_t>()[i] = labelled ? (i * 5 + 3) % vocabulary : -100;
  }
  m.loss = cross_entropy_with({.label_smoothing = 0.1, .z_loss = 1e-4});
  m.each = cross_entropy_with({.label_smoothing = 0.1, .z_loss = 1e-4, .reduction = Reduction::none});
  m.records = std::make_shared<Records>();
  return m;
}
SmallModel transformer_model(const std::string& name, Index samples, const Options& o, DType dtype = DType::f64) {
  const auto records = std::make_shared<Records>();
  const auto make = [=]() -> Module { return transformer(o, records); };
  SmallModel m = text_model(name, samples, make, dtype);
  m.records = records;
  return m;
}
std::vector<SmallModel> models() {
  const auto bundled_llama = []() -> Module {
    return llama({.layers = 2,
                  .heads = heads,
                  .kv_heads = 2,
                  .width = width,
                  .hidden = hidden,
                  .positions = tokens,
                  .window = 4,
                  .vocabulary = vocabulary});
  };
  const auto bundled_gpt2 = []() -> Module {
    return gpt2({.layers = 2,
                 .heads = heads,
                 .width = width,
                 .positions = tokens,
                 .vocabulary = vocabulary,
                 .hidden = hidden,
                 .dropout = dropped});
  };
  return {transformer_model("two_groups", 3, {}),
          transformer_model("one_group", 8, {.groups = 1, .tied = false}),
          transformer_model("recompute", 8, {.recompute = true}),
          text_model("llama", 8, bundled_llama),
          text_model("gpt2", 8, bundled_gpt2),
          transformer_model("experts", 8, {.experts = true})};
}

struct Layout {
  std::string strategy, mesh;
  int microbatches = 1, chunks = 1;
  int along(const std::string& axis) const {
    for (const Axis& a : parse_mesh(mesh))
      if (a.name == axis) return a.size;
    return 1;
  }
  /// Whether there are fewer samples than micro-batches or ranks that share them, or fewer layers than stages. Layers
  /// that ranks divide are a layer more at both ends.
  bool refused(const SmallModel& m) const {
    const bool divided = strategy.find("tensor") != std::string::npos ||
                         strategy.find("context") != std::string::npos || strategy.find("experts") != std::string::npos;
    const int layers = Chain(m.make()).size() + (divided ? 2 : 0);
    int owners = 1;  // ranks that divide experts
    for (const char* axis : {"data", "context", "tensor"})
      if (strategy.starts_with("experts(") && strategy.substr(0, strategy.find(')')).find(axis) != std::string::npos)
        owners *= along(axis);
    return owners > 5 || std::max(along("data") * along("shard"), microbatches) > m.data.x.dim(0) ||
           along("pipe") * chunks > layers ||
           (strategy.find("ulysses") != std::string::npos && along("tensor") * along("context") > heads);
  }
};
/// A row of the table.
struct Row {
  std::string name, ranks;
  std::vector<Layout> layouts;
  /// Only a model with experts has rows of strategy experts.
  bool fits(const SmallModel& m) const { return m.name == "experts" || !name.starts_with("experts"); }
};

Layout pipeline_of(const std::string& schedule, int stages, int micro) {
  const int chunks = schedule == "interleaved" || schedule.ends_with("-v") ? 2 : 1;
  return {fmt::format("pipeline(micro={}, partition=even, schedule={}, chunks={})", micro, schedule, chunks),
          fmt::format("pipe={}", stages), micro, chunks};
}
Layout with(Layout a, const Layout& b) {
  return {a.strategy + " | " + b.strategy, a.mesh + "," + b.mesh, a.microbatches, a.chunks};
}
Layout accumulated(int micro, Layout l) {
  if (micro > 1) l.strategy = fmt::format("accumulate(micro={}) | {}", micro, l.strategy);
  l.microbatches = micro;
  return l;
}

std::vector<Row> rows() {
  struct Kind {
    std::string name, axis;
  };
  const std::vector<Kind> data{
      {"data_parallel", "data"}, {"zero(1)", "data"}, {"zero(2)", "data"}, {"zero(3)", "data"}},
      weights{{"tensor", "tensor"}, {"tensor(sequence=true)", "tensor"}},
      contexts{{"context", "context"}, {"context(mode=ulysses)", "context"}, {"context(mode=ring)", "context"}};
  std::vector<Kind> features = weights;
  features.insert(features.end(), contexts.begin(), contexts.end());
  std::vector<Kind> kinds = data;
  kinds.insert(kinds.end(), features.begin(), features.end());
  const auto on = [](const Kind& k, int ranks) { return Layout{k.name, fmt::format("{}={}", k.axis, ranks)}; };
  const std::vector<std::string> schedules{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"};
  const std::vector<std::pair<int, int>> pairs{{2, 2}, {2, 3}, {3, 2}};
  const std::string alone = "1, 2, 3, 4, 7", paired = "2 x 2, 2 x 3, 3 x 2";

  std::vector<Row> all;
  for (const Kind& k : kinds) {
    Row& row = all.emplace_back(Row{k.name, alone, {}});
    for (const int p : {1, 2, 3, 4, 7}) row.layouts.push_back(on(k, p));
  }
  for (const std::string& s : schedules) {
    Row& row = all.emplace_back(Row{fmt::format("pipeline(schedule={})", s), alone, {}});
    for (const int p : {1, 2, 3, 4, 7})
      row.layouts.push_back(pipeline_of(s, p, s == "interleaved" ? p : std::min(p, 3)));
    for (const int micro : {1, 3, 4})
      if (s != "interleaved" || micro == 4) row.layouts.push_back(pipeline_of(s, 2, micro));
  }
  for (const Kind& f : features)
    for (const Kind& d : data) {
      Row& row = all.emplace_back(Row{f.name + ", " + d.name, paired, {}});
      for (const auto& [a, b] : pairs) row.layouts.push_back(with(on(f, a), on(d, b)));
    }
  for (const Kind& w : weights)
    for (const Kind& c : contexts) {
      Row& row = all.emplace_back(Row{w.name + ", " + c.name, paired, {}});
      for (const auto& [a, b] : pairs) row.layouts.push_back(with(on(w, a), on(c, b)));
      Row& three = all.emplace_back(Row{w.name + ", " + c.name + ", pipeline", "2 x 2 x 2", {}});
      for (const std::string& s : schedules)
        three.layouts.push_back(with(on(w, 2), with(on(c, 2), pipeline_of(s, 2, 2))));
    }
  for (const std::string mode : {"gather", "ulysses", "ring"})
    for (const std::string cut : {"zigzag", "striped"}) {
      const Kind c{fmt::format("context(mode={}, cut={})", mode, cut), "context"};
      Row& row = all.emplace_back(Row{c.name, alone, {}});
      for (const int p : {1, 2, 3, 4, 7}) row.layouts.push_back(on(c, p));
      Row& others = all.emplace_back(Row{c.name + " with others", "2 x 2, 2 x 3, 3 x 2, 2 x 2 x 2", {}});
      for (const auto& [a, b] : pairs) {
        others.layouts.push_back(with(on(weights[0], a), on(c, b)));
        others.layouts.push_back(with(on(c, a), on(data[3], b)));
      }
      others.layouts.push_back(with(on(weights[1], 2), with(on(c, 2), pipeline_of("zb-v", 2, 2))));
      others.layouts.push_back(accumulated(3, with(on(c, 3), on(data[0], 2))));
    }
  for (const Kind& k : kinds) {
    Row& row = all.emplace_back(Row{"pipeline, " + k.name, paired, {}});
    for (const std::string& s : schedules)
      for (const auto& [a, b] : pairs)
        row.layouts.push_back(with(pipeline_of(s, a, s == "interleaved" ? a : 2), on(k, b)));
  }
  for (const Kind& k : kinds) {
    Row& row = all.emplace_back(Row{"accumulate, " + k.name, "1, 2, 3", {}});
    for (const int micro : {2, 3, 4})
      for (const int p : {1, 2, 3}) row.layouts.push_back(accumulated(micro, on(k, p)));
  }
  for (const std::string z : {"zero(1, axis=shard)", "zero(2, axis=shard)", "zero(3, axis=shard)"}) {
    Row& row = all.emplace_back(Row{"data_parallel, " + z, paired, {}});
    for (const auto& [a, b] : pairs)
      row.layouts.push_back({"data_parallel | " + z, fmt::format("data={},shard={}", a, b)});
  }
  const auto expert = [](const std::string& axes, Layout l) {
    l.strategy = fmt::format("experts(axes={}) | {}", axes, l.strategy);
    return l;
  };
  for (const Kind& d : data) {
    Row& row = all.emplace_back(Row{"experts, " + d.name, alone, {}});
    for (const int p : {1, 2, 3, 4, 7}) row.layouts.push_back(expert("data", on(d, p)));
    Row& micro = all.emplace_back(Row{"experts, accumulate, " + d.name, "2, 3", {}});
    for (const int m : {2, 4})
      for (const int p : {2, 3}) micro.layouts.push_back(expert("data", accumulated(m, on(d, p))));
    Row& piped = all.emplace_back(Row{"experts, pipeline, " + d.name, paired, {}});
    for (const std::string& s : schedules)
      for (const auto& [a, b] : pairs)
        piped.layouts.push_back(expert("data", with(pipeline_of(s, a, s == "interleaved" ? a : 2), on(d, b))));
  }
  for (const Kind& f : features) {
    Row& row = all.emplace_back(Row{fmt::format("experts(axes={}), {}", f.axis, f.name), alone, {}});
    for (const int p : {1, 2, 3, 4, 7}) row.layouts.push_back(expert(f.axis, on(f, p)));
    for (const Kind& d : data) {
      Row& both = all.emplace_back(Row{fmt::format("experts, {}, {}", f.name, d.name), paired, {}});
      for (const auto& [a, b] : pairs) {
        both.layouts.push_back(expert("data", with(on(f, a), on(d, b))));
        if (a * b < 6) both.layouts.push_back(expert("data+" + f.axis, with(on(f, a), on(d, b))));
      }
    }
  }
  for (const Kind& w : weights)
    for (const Kind& c : contexts) {
      Row& four =
          all.emplace_back(Row{fmt::format("experts, {}, {}, pipeline, zero(1)", w.name, c.name), "2 x 2 x 2 x 2", {}});
      for (const char* axes : {"data", "context", "data+context"})
        four.layouts.push_back(
            expert(axes, with(on(w, 2), with(on(c, 2), with(pipeline_of("1f1b", 2, 2), on(data[1], 2))))));
    }
  for (const std::string cut : {"zigzag", "striped"}) {
    Row& row =
        all.emplace_back(Row{fmt::format("experts(axes=data+context), context(mode=ring, cut={}), data_parallel", cut),
                             "2, 3, 4, 2 x 2",
                             {}});
    const Kind c{fmt::format("context(mode=ring, cut={})", cut), "context"};
    for (const int p : {2, 3, 4}) row.layouts.push_back(expert("context", on(c, p)));
    row.layouts.push_back(expert("data+context", with(on(c, 2), on(data[0], 2))));
  }
  Row& gathering = all.emplace_back(Row{"zero(3), prefetch 0 and 3, and reshard=false", "3, 2 x 3", {}});
  for (const char* z : {"zero(3, prefetch=0)", "zero(3, prefetch=3)", "zero(3, reshard=false)"}) {
    gathering.layouts.push_back({z, "data=3"});
    for (const Kind& f : features) gathering.layouts.push_back(with(on(f, 2), {z, "data=3"}));
    gathering.layouts.push_back(with(pipeline_of("1f1b", 2, 2), {z, "data=3"}));
  }
  for (const std::string o : {"overlap=false", "bucket=128, first_bucket=128"}) {
    Row& row = all.emplace_back(Row{fmt::format("data_parallel({}), and zero of it", o), "3, 2 x 3", {}});
    for (const char* z : {"", " | zero(1)", " | zero(2)", " | zero(3)"}) {
      const Layout d{fmt::format("data_parallel({}){}", o, z), "data=3"};
      row.layouts.push_back(d);
      for (const Kind& f : features) row.layouts.push_back(with(on(f, 2), d));
    }
  }
  return all;
}

bool chosen(const char* variable, const std::string& name) {
  const char* only = std::getenv(variable);
  return only == nullptr || name.starts_with(only);
}

/// Layouts for f32 and bf16.
std::vector<Layout> typed_layouts() {
  return {{"data_parallel", "data=3"},
          {"zero(1)", "data=3"},
          {"zero(3)", "data=7"},
          {"tensor", "tensor=3"},
          {"tensor(sequence=true)", "tensor=4"},
          pipeline_of("1f1b", 3, 3),
          pipeline_of("zb-h1", 2, 4),
          {"context", "context=3"},
          with({"tensor(sequence=true)", "tensor=2"}, {"context(mode=ring)", "context=3"}),
          with({"tensor", "tensor=2"}, {"context(mode=ulysses)", "context=3"}),
          with({"tensor", "tensor=2"}, {"zero(3)", "data=2"}),
          with({"tensor(sequence=true)", "tensor=2"}, {"data_parallel", "data=3"}),
          with(pipeline_of("1f1b", 2, 2), {"zero(1)", "data=2"}),
          with(pipeline_of("interleaved", 2, 2), {"tensor(sequence=true)", "tensor=3"}),
          accumulated(2, {"zero(2)", "data=2"})};
}
/// For models with experts. Experts over tensor are not among them: AdamW divides small gradients by their size, so
/// rounding of sums moves weights by up to 2e-5 in 20 steps.
std::vector<Layout> typed_expert_layouts() {
  return {{"experts | data_parallel", "data=3"},
          {"experts | zero(3)", "data=2"},
          with({"experts(axes=context) | context(cut=zigzag)", "context=2"}, {"data_parallel", "data=2"}),
          with(pipeline_of("1f1b", 2, 2), {"experts | data_parallel", "data=2"})};
}

const Recipe recipe{.clip = 0.5, .audit = true, .steps = 20, .eps = 1e-8, .tolerance = 1e-12};
const std::vector<std::string> compared{"loss", "loss of tokens", "gradient", "norm", "weights"};
using Deviations = std::map<std::string, double>;

/// Runs layouts of a model, joins their deviations, and returns the lines of those that are wrong, or refused without a
/// reason.
std::vector<std::string> judge(Comparison& comparison, const SmallModel& m, const std::vector<Layout>& layouts,
                               Deviations& most) {
  std::vector<std::string> wrong;
  for (const Layout& l : layouts) {
    const MatrixCell cell = comparison.run(m, l.strategy, l.mesh, l.microbatches);
    const std::string line = fmt::format("{}; {}; {}; {}", m.name, l.strategy, l.mesh, cell.text());
    if (!cell.wrong.empty() || cell.refused.empty() == l.refused(m)) wrong.push_back(line);
    if (std::getenv("MATRIX_SHOW") != nullptr) std::cout << line << std::endl;
    for (const auto& [what, by] : cell.deviations) most[what] = std::max(most[what], by);
  }
  return wrong;
}

/// "| zero(3) | 1, 2 | 23 | 2 |": name, ranks, and the numbers of layouts of all models that run and that are refused.
std::string line_of(const Row& row, const std::vector<SmallModel>& all) {
  int runs = 0, refused = 0;
  for (const SmallModel& m : all)
    for (const Layout& l : row.layouts)
      if (row.fits(m)) ++(l.refused(m) ? refused : runs);
  return fmt::format("| {} | {} | {} | {} |", row.name, row.ranks, runs, refused);
}
std::string numbers_of(const Deviations& most) {
  std::string text;
  for (const std::string& what : compared) {
    const auto at = most.find(what);
    const double by = at == most.end() ? 0 : at->second;
    text += by > 0 ? fmt::format(" {:.0e} |", by) : " 0 |";
  }
  return text;
}
/// Whether the document has the row. Its numbers are of another machine, so those here may be ten times as large, or
/// 1e-13.
std::string missing(const Row& row, const std::vector<SmallModel>& all, const Deviations& most) {
  const std::string begin = line_of(row, all);
  std::ifstream file(root() / "tools/docs/guides/promises.md");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(begin)) continue;
    std::istringstream numbers(line.substr(begin.size()));
    for (const std::string& what : compared) {
      double there = 0;
      std::string bar;
      numbers >> there >> bar;
      if (const auto at = most.find(what); at != most.end() && at->second > std::max(10 * there, 1e-13))
        return fmt::format("{} is {:.0e} here: {}", what, at->second, line);
    }
    return "";
  }
  return "promises.md lacks this row: " + begin + numbers_of(most);
}

void none(const std::vector<std::string>& wrong) {
  for (const std::string& line : wrong) std::cout << line << "\n";
  CHECK(wrong.empty());
}
void add(std::vector<std::string>& to, std::vector<std::string> lines) {
  to.insert(to.end(), lines.begin(), lines.end());
}

}  // namespace

TEST_CASE("transformers on all layouts equal the serial run", "[.full]") {
  if (threads_only()) return;
  Comparison comparison(recipe);
  const std::vector<SmallModel> all = models();
  std::vector<std::string> wrong;
  for (const Row& row : rows()) {
    if (!chosen("MATRIX_STRATEGY", row.name)) continue;
    Deviations most;
    for (const SmallModel& m : all)
      if (chosen("MATRIX_MODEL", m.name) && row.fits(m)) add(wrong, judge(comparison, m, row.layouts, most));
    std::cout << line_of(row, all) << numbers_of(most) << std::endl;
    if (const std::string lacking = missing(row, all, most); !lacking.empty()) wrong.push_back(lacking);
  }
  none(wrong);
}

TEST_CASE("a transformer on three ranks, and on two times three, equals the serial run") {
  if (threads_only()) return;
  Comparison comparison(recipe);
  const std::vector<SmallModel> all = models();
  std::vector<std::string> wrong;
  for (const Row& row : rows()) {
    if (brief() && row.name.find("zero(3)") == std::string::npos) continue;
    std::vector<Layout> slice;
    for (const Layout& l : row.layouts)
      if (l.mesh.ends_with("=3")) slice.push_back(l);
    Deviations most;
    add(wrong, judge(comparison, row.fits(all[0]) ? all[0] : all.back(), slice, most));
    if (const std::string lacking = missing(row, all, most); !lacking.empty()) wrong.push_back(lacking);
  }
  none(wrong);
}

TEST_CASE("a transformer on ranks equals the serial run of its dtype") {
  if (threads_only()) return;
  struct Type {
    DType activations;
    double tolerance;
  };
  for (const Type& type : {Type{DType::f32, 1e-5}, Type{DType::bf16, 0.1}}) {
    Recipe loose = recipe;
    loose.tolerance = type.tolerance;
    Comparison comparison(loose);
    std::vector<std::string> wrong;
    for (const bool experts : {false, true}) {
      // In bf16, layouts round scores by more than some scores of a token differ, so they choose other experts.
      if (experts && type.activations == DType::bf16) continue;
      const SmallModel m = transformer_model(experts ? "typed experts" : "typed", 8,
                                             {.experts = experts, .activations = type.activations}, DType::f32);
      for (const Layout& l : experts ? typed_expert_layouts() : typed_layouts()) {
        if (brief() && l.mesh.find("tensor") == std::string::npos) continue;
        Deviations most;
        add(wrong, judge(comparison, m, {l}, most));
        if (std::getenv("MATRIX_SHOW") != nullptr) std::cout << numbers_of(most) << "\n";
      }
    }
    none(wrong);
  }
}

TEST_CASE("layouts of the same sums have the same bits") {
  if (threads_only()) return;
  struct Run {
    SmallModel m;
    Layout l;
  };
  const SmallModel plain = transformer_model("plain", 8, {}),
                   again = transformer_model("again", 8, {.recompute = true}),
                   untied = transformer_model("untied", 8, {.tied = false});
  std::vector<std::vector<Run>> groups;
  const auto group = [&](const SmallModel& m, const std::vector<Layout>& layouts) {
    groups.emplace_back();
    for (const Layout& l : layouts) groups.back().push_back({m, l});
  };
  const std::string buckets = "data_parallel(bucket=128, first_bucket=128)", late = "data_parallel(overlap=false)";
  for (const std::string features : {"", "tensor | ", "tensor(sequence=true) | "}) {
    std::vector<Layout> layouts;
    for (const std::string& s :
         {std::string("data_parallel"), late, buckets, std::string("zero(1)"), std::string("zero(2)"),
          std::string("zero(3)"), std::string("zero(3, prefetch=0)"), std::string("zero(3, prefetch=3)"),
          std::string("zero(3, reshard=false)"), buckets + " | zero(2)", buckets + " | zero(3)", late + " | zero(3)"})
      layouts.push_back({features + s, features.empty() ? "data=3" : "data=3,tensor=2"});
    group(plain, layouts);
  }
  // The two gradients of a tied weight are summed in another order if they are of different ranks.
  std::vector<Layout> pipelines;
  for (const int stages : {2, 4})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"})
      pipelines.push_back(pipeline_of(schedule, stages, 4));
  group(plain, pipelines);
  for (const int stages : {2, 4})
    for (const char* schedule : {"zb-v", "dualpipe-v"}) pipelines.push_back(pipeline_of(schedule, stages, 4));
  pipelines.push_back({"accumulate(micro=4)", "data=1", 4});
  group(untied, pipelines);
  group(plain, {{"serial", "data=1"},
                {"tensor", "tensor=1"},
                {"tensor(sequence=true)", "tensor=1"},
                {"zero(3)", "data=1"},
                {"pipeline(micro=1)", "pipe=1"}});
  for (const Layout& l :
       {Layout{"serial", "data=1"}, Layout{"tensor", "tensor=3"}, Layout{"tensor(sequence=true)", "tensor=3"},
        Layout{"zero(3)", "data=3"}, pipeline_of("zb-h1", 2, 2), accumulated(2, {"data_parallel", "data=2"})})
    groups.push_back({{plain, l}, {again, l}});

  // The norm of gradients is summed in the order of ranks, so clipping may change last bits.
  const Recipe bits{.steps = brief() ? 2 : 5, .eps = 1e-8};
  std::vector<std::string> wrong;
  for (const auto& runs : groups) {
    const MatrixRun first = train(runs[0].m, bits, runs[0].l.strategy, runs[0].l.mesh, runs[0].l.microbatches);
    for (std::size_t i = 1; i < runs.size(); ++i) {
      const auto& [m, l] = runs[i];
      const MatrixRun other = train(m, bits, l.strategy, l.mesh, l.microbatches);
      for (const auto& [what, same] : {std::pair{"gradients", other.gradients.all == first.gradients.all},
                                       {"weights", other.weights.all == first.weights.all},
                                       {"losses", other.losses == first.losses}})
        if (!same)
          wrong.push_back(fmt::format("{} {} {}: {} differ from {} {}", m.name, l.strategy, l.mesh, what,
                                      runs[0].l.strategy, runs[0].l.mesh));
    }
  }
  none(wrong);
}

}  // namespace test_transformers
