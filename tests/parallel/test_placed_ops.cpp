// Every op of the op table, with each operand divided over ranks along each of its dimensions: values and gradients are
// those of the whole tensors, or the op refuses.
#include "tests/framework/case_outcome.h"
#include "tests/parallel/split_layers.h"

namespace test_placed_ops {
using namespace trireme;
using namespace trireme::test;

/// How the operands of a case lie: of each mesh axis the operand that it divides, and the dimension.
struct Division {
  std::vector<std::pair<std::size_t, int>> over;
  bool as_weights = false;  ///< operands without rows are weights
};

std::string text(const Case& c, const Division& d) {
  std::string all = c.name;
  for (const auto& [operand, dim] : d.over) all += fmt::format(", operand {} along {}", operand, dim);
  return all + (d.as_weights ? ", weights" : "");
}

/// Runs a case with divided operands. Each rank compares the whole result and the gradients of the whole operands.
void compare_divided(const std::shared_ptr<const Grid>& grid, const Case& c, const Division& d) {
  const CaseOutcome serial = outcome(c, DType::f64);
  const StepScope scope(a_pass(rows_of(c)));
  Inputs leaves = draw(c, DType::f64), x = leaves;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!x[i]) continue;
    if (c.inputs[i].grad) leaves[i].require_grad();
    Placements placements;
    for (std::size_t axis = 0; axis < d.over.size(); ++axis)
      if (d.over[axis].first == i) placements.dims[axis] = static_cast<std::int8_t>(d.over[axis].second);
    const bool weight = d.as_weights && !c.inputs[i].rows;
    x[i] = leaves[i];
    if (placements.axes() != 0)
      x[i] = relayout(leaves[i], weight ? *ShardSpec::of_weight(grid, leaves[i].shape(), placements)
                                        : *ShardSpec::make(grid, leaves[i].shape(), placements));
  }
  const Tensor y = gathered(c.op(x));
  const auto close = [&](const Values& a, const Values& b, const std::string& what) {
    check(a.size() == b.size(), "placed", "{}: {} has {} elements instead of {}", text(c, d), what, a.size(), b.size());
    double most = 0;
    for (const double v : b)
      if (std::isfinite(v)) most = std::max(most, std::abs(v));
    for (std::size_t i = 0; i < a.size(); ++i)
      check(std::abs(a[i] - b[i]) <= 1e-11 * (most + 1e-3) || (std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i],
            "placed", "{}: element {} of {} is {} instead of {}", text(c, d), i, what, a[i], b[i]);
  };
  check(y.shape() == serial.shape, "placed", "{}: the result is {} instead of {}", text(c, d), y.shape(), serial.shape);
  close(y.to_vector(), serial.y, "the result");
  check(y.requires_grad() == serial.differentiable, "placed", "{}: the result is {}recorded", text(c, d),
        serial.differentiable ? "not " : "");
  if (!serial.differentiable) return;
  y.backward(seed_for(y));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool reached = leaves[i] && leaves[i].requires_grad() && has_grad(leaves[i]);
    close(reached ? leaves[i].grad().to_vector() : Values{}, serial.dx[i], "gradient " + std::to_string(i));
  }
}

/// Runs a case on a mesh, one operand and dimension divided by each axis.
void run_divisions(const std::vector<Axis>& axes, const std::vector<std::pair<const Case*, Division>>& all) {
  for (const auto& [c, d] : all) {
    try {
      on_mesh(axes, [&](Mesh& mesh) {
        compare_divided(grid_of(mesh), *c, d);
        return 1;
      });
    } catch (const Error& e) {
      INFO(text(*c, d) << ": " << e.what());
      // An extent of -1 that may be a part's or the whole's; running statistics that lie otherwise than the weights.
      const bool refuses = c->name == "reshape" || c->name.starts_with("batch_norm");
      CHECK(
          (refuses && e.kind() == ErrorKind::usage && std::string_view(e.what()).find("placed") == std::string::npos));
    }
  }
}

/// All divisions of the floating operands of the cases into shares for `ranks`.
std::vector<std::pair<const Case*, Division>> divisions(int ranks) {
  std::vector<std::pair<const Case*, Division>> all;
  for (const Case& c : cases())
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      for (int d = 0; d < c.inputs[i].shape.rank(); ++d) {
        const bool rows = c.inputs[i].rows && d == 0;
        if (c.inputs[i].shape[d] < ranks || rows) continue;
        for (const bool as_weights : {false, true})
          if (!as_weights || !c.inputs[i].rows) all.push_back({&c, {{{i, d}}, as_weights}});
      }
  return all;
}

TEST_CASE("ops on operands that ranks divide equal the ops on whole ones") {
  if (threads_only()) return;
  for (const int ranks : brief() ? std::vector<int>{3} : std::vector<int>{2, 3})
    run_divisions({{"tensor", ranks}}, divisions(ranks));
}

TEST_CASE("a divided table refuses rows that no rank has") {
  for (const double id : {-1, 6})
    CHECK_ERROR(on_mesh({{"tensor", 2}},
                        [&](Mesh& mesh) {
                          const Tensor table = integers({6, 3}, 1);
                          const auto spec = ShardSpec::of_weight(grid_of(mesh), table.shape(), over({{0, 0}}));
                          (void)take(relayout(table, *spec), Tensor::of({{2, id}}, {2}, DType::i64));
                          return 1;
                        }),
                data, id);
}

}  // namespace test_placed_ops
