// Every bundled model under every strategy equals the serial run in f64, or is refused: gradients of all tensors in the
// first step, and weights after three steps of AdamW.
//   build/tests/test_matrix "[.full]"   all cells, printed
// MATRIX_MODEL and MATRIX_STRATEGY select the models and strategies whose names begin so.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "framework/layers/on.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/matrix/small_models.h"
#include "tests/parallel/pairs.h"
#include "tests/support/oracle.h"
#include "tests/support/ranks.h"

namespace test_matrix {

using namespace trireme;
using namespace trireme::test;

namespace {

constexpr double tolerance = 1e-11;

/// Values of all tensors, one after another.
struct Values {
  std::vector<double> all;
  std::vector<std::size_t> ends;   ///< of each tensor
  std::vector<std::string> names;  ///< of each tensor
};
struct Run {
  std::vector<double> losses;
  Values gradients, weights, buffers;
  bool agreed = true;  ///< all ranks have the same
};

Values values_of(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  Values v;
  for (const auto& [name, tensor] : tensors) {
    for (const double x : whole(tensor).to_vector()) v.all.push_back(x);
    v.ends.push_back(v.all.size());
    v.names.push_back(name);
  }
  return v;
}
Values weights_of(Step& step) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& e : step.parameters().entries()) tensors.emplace_back(e.name, e.tensor);
  return values_of(tensors);
}
Values buffers_of(Step& step) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& b : step.parameters().buffers()) tensors.emplace_back(b.name, b.tensor);
  return values_of(tensors);
}

/// One step, whose change of weights is the gradient, then three of AdamW from the same start.
Run train(const SmallModel& m, const Arrangement& how, World& world) {
  constexpr double factor = 1 << 20;  // so that a small gradient is not lost in a weight
  Run run;
  for (const bool first : {true, false}) {
    Mesh mesh(world, how.mesh);
    const OptimizerConfig optimizer =
        first ? OptimizerConfig(Sgd{.lr = factor}) : AdamW{.lr = 1e-3, .eps = 1e-3, .weight_decay = 0.1};
    Step step(m.make(), m.loss, optimizer, mesh, parse_strategy(how.strategy), {.seed = 5});
    Loader loader(TensorDataset(m.data.x, m.data.y),
                  {.batch = m.data.x.dim(0), .shuffle = true, .seed = 3, .shard = step.shard(), .workers = 0});
    const Values before = weights_of(step);
    for (int steps = first ? 1 : 3; steps > 0; --steps)
      for (const auto& [x, y] : loader) run.losses.push_back(step(x, y).item());
    StepProbe(step).consolidate();
    Values after = weights_of(step);
    const Tensor together = Tensor::of(after.all, {std::ssize(after.all)}, DType::f64);
    run.agreed = agree(world, together) && run.agreed;
    if (first) {
      run.gradients = after;
      for (std::size_t i = 0; i < after.all.size(); ++i) run.gradients.all[i] = (before.all[i] - after.all[i]) / factor;
    } else {
      run.weights = std::move(after);
      run.buffers = buffers_of(step);
    }
  }
  return run;
}

double largest(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double most = 0;
  for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::abs(values[i]));
  return most;
}

/// The first tensor that differs by more than the tolerance, relative to its largest element, or to that of its layer
/// if it is zero in truth; "": none does.
std::string difference(const Values& got, const Values& expected) {
  if (got.names != expected.names || got.ends != expected.ends) return "other tensors";
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::map<std::string, double> of_layer;
  std::size_t begin = 0;
  for (std::size_t t = 0; t < expected.ends.size(); begin = expected.ends[t++]) {
    double& most = of_layer[layer(expected.names[t])];
    most = std::max(most, largest(expected.all, begin, expected.ends[t]));
  }
  begin = 0;
  std::string worst;
  double worst_by = tolerance;
  for (std::size_t t = 0; t < expected.ends.size(); begin = expected.ends[t++]) {
    const double within = of_layer[layer(expected.names[t])];
    const double own = largest(expected.all, begin, expected.ends[t]), scale = own > 1e-12 * within ? own : within;
    double off = 0;
    for (std::size_t i = begin; i < expected.ends[t]; ++i) {
      const double d = std::abs(got.all[i] - expected.all[i]);
      off = d <= off ? off : d;  // NaN stays
    }
    const double by = scale > 0 ? off / scale : off;
    if (by <= worst_by) continue;
    worst_by = by;
    worst = fmt::format("{} by {:.2g}", expected.names[t], by);
  }
  return worst;
}
std::string difference(const Run& got, const Run& expected) {
  if (!got.agreed) return "ranks end with different weights";
  for (const auto& [what, a, b] : {std::tuple{"gradient of ", &got.gradients, &expected.gradients},
                                   {"weights of ", &got.weights, &expected.weights},
                                   {"buffer ", &got.buffers, &expected.buffers}})
    if (const std::string found = difference(*a, *b); !found.empty()) return what + found;
  return distance(got.losses, expected.losses) <= tolerance ? "" : "losses";
}

/// A strategy and the meshes on which it is tried.
struct Column {
  std::string strategy;
  std::vector<std::string> meshes;
  int microbatches = 1;
};
std::vector<Column> columns() {
  const auto on = [](const std::string& axis) { return std::vector{axis + "=2", axis + "=3", axis + "=4"}; };
  const std::string pipeline = "pipeline(micro=2, partition=even)", accumulate = "accumulate(micro=2)";
  std::vector<std::string> images = on("h");
  images.emplace_back("h=2,w=2");
  return {{"data_parallel", on("data")},
          {"spatial", images},
          {"tensor", on("tensor")},
          {"one_weird_trick", on("data")},
          {pipeline, on("pipe"), 2},
          {"zero(3)", on("data")},
          {accumulate, {"data=1"}, 2},
          {"spatial | data_parallel", {"data=2,h=2"}},
          {"tensor | data_parallel", {"data=2,tensor=2"}},
          {"tensor | spatial", {"tensor=2,h=2"}},
          {"data_parallel(axis=replica) | one_weird_trick", {"replica=2,data=2"}},
          {pipeline + " | data_parallel", {"data=2,pipe=2"}, 2},
          {pipeline + " | spatial", {"pipe=2,h=2"}, 2},
          {pipeline + " | tensor", {"pipe=2,tensor=2"}, 2},
          {pipeline + " | one_weird_trick", {"pipe=2,data=2"}, 2},
          {pipeline + " | zero(3)", {"pipe=2,data=2"}, 2},
          {"spatial | zero(3)", {"h=3"}},
          {"spatial | data_parallel | zero(1)", {"data=2,h=2"}},
          {"tensor | zero(3)", {"data=2,tensor=2"}},
          {accumulate + " | data_parallel", {"data=3"}, 2},
          {accumulate + " | spatial", {"h=2"}, 2},
          {accumulate + " | tensor", {"tensor=2"}, 2},
          {accumulate + " | one_weird_trick", {"data=3"}, 2},
          {accumulate + " | zero(3)", {"data=3"}, 2}};
}

/// How a cell ended: equal (both empty), refused, or wrong.
struct Cell {
  std::string refused, wrong;
};

class Table {
 public:
  Cell run(const SmallModel& m, const Column& column, const std::string& mesh) {
    const Arrangement how{parse_mesh(mesh), column.strategy, column.microbatches};
    const int micro = m.batch_norm ? column.microbatches : 1;
    try {
      const Run got = on_ranks(how.ranks(), [&](World& world) { return train(m, how, world); });
      return {.refused = "", .wrong = difference(got, reference(m, micro))};
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::usage) return {.refused = e.what(), .wrong = ""};
      return {.refused = "", .wrong = fmt::format("{}: {}", name_of(e.kind()), e.what())};
    } catch (const std::exception& e) { return {.refused = "", .wrong = e.what()}; }
  }

 private:
  const Run& reference(const SmallModel& m, int micro) {
    auto [at, added] = references_.try_emplace({m.name, micro});
    if (added) {
      World world;
      const Arrangement serial{{{"data", 1}}, micro > 1 ? fmt::format("accumulate(micro={})", micro) : "serial", micro};
      at->second = train(m, serial, world);
    }
    return at->second;
  }
  std::map<std::pair<std::string, int>, Run> references_;
};

/// "gpt2 | tensor | tensor=2"
std::string line_of(const SmallModel& m, const Column& column, const std::string& mesh) {
  return fmt::format("{}; {}; {}", m.name, column.strategy, mesh);
}
/// The cells that must be equal: tests/parallel/matrix/cells.txt. Lines may be added, none may be removed.
std::set<std::string> required() {
  std::ifstream file(root() / "tests/parallel/matrix/cells.txt");
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') lines.insert(line);
  return lines;
}

bool chosen(const char* variable, const std::string& name) {
  const char* only = std::getenv(variable);
  return only == nullptr || name.starts_with(only);
}

/// Runs cells and prints them; the lines of those that are wrong, or refused although they must not be.
std::vector<std::string> judge(const std::vector<SmallModel>& models, bool all, bool print) {
  Table table;
  const std::set<std::string> must = required();
  std::vector<std::string> wrong;
  std::map<std::string, int> ends;
  for (const SmallModel& m : models)
    for (const Column& column : columns()) {
      if (!chosen("MATRIX_MODEL", m.name) || !chosen("MATRIX_STRATEGY", column.strategy)) continue;
      for (const std::string& mesh : column.meshes) {
        // One number of ranks where there are several: three, at which the order of ranks shows.
        if (!all && column.meshes.size() > 1 && !mesh.ends_with("=3")) continue;
        const std::string line = line_of(m, column, mesh);
        const Cell cell = table.run(m, column, mesh);
        const std::string end = !cell.wrong.empty()     ? "WRONG: " + cell.wrong
                                : !cell.refused.empty() ? "refused: " + cell.refused
                                                        : "exact";
        if (print) std::cout << line << "; " << end << "\n" << std::flush;
        ++ends[end.substr(0, end.find(':'))];
        if (!cell.wrong.empty() || (!cell.refused.empty() && must.contains(line))) wrong.push_back(line + ": " + end);
        if (print && end == "exact" && !must.contains(line)) std::cout << "  (not in cells.txt)\n";
      }
    }
  for (const auto& [end, count] : ends)
    if (print) std::cout << count << " " << end << "\n";
  return wrong;
}
/// Catch takes minutes to wrap a long text.
void none(const std::vector<std::string>& wrong) {
  for (const std::string& line : wrong) std::cout << line << "\n";
  CHECK(wrong.empty());
}

}  // namespace

TEST_CASE("small bundled models under every strategy are exact or refused") {
  if (threads_only()) return;
  std::vector<SmallModel> quick;
  for (SmallModel& m : small_models())
    if (!m.large && (!brief() || m.name == "unet" || m.name == "gpt2")) quick.push_back(std::move(m));
  none(judge(quick, false, false));
}

TEST_CASE("all bundled models under every strategy on 2 to 4 ranks are exact or refused", "[.full]") {
  if (threads_only()) return;
  none(judge(small_models(), true, true));
}

}  // namespace test_matrix
