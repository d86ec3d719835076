#include "parallel/strategies/mixing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "parallel/plan/action_kind.h"
#include "parallel/strategies/rebuild.h"

namespace trireme {
namespace {

/// The weighted sum and the sum of weights, while they are being reduced.
struct Sums {
  Tensor numbers, rows;
};

const ActionRow remember{
    .name = "remember",
    .letter = 'r',
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return std::vector<Operand>{
              {.kind = OperandKind::weights, .slice = a.slice},
              {.kind = OperandKind::state, .slice = a.slice, .name = payload_of(a), .written = true}};
        },
    .vector_ops = vector_ops<1>,
    .start =
        [](ActionContext& now) {
          now.state(payload_of(now.action)).copy_from(now.values());
          return Work();
        }};

}  // namespace

CustomAction mean_by_rows(OperandKind of, const std::string& axis) {
  const auto numbers = [of](const ActionContext& now) {
    return of == OperandKind::gradients ? now.gradients() : now.values();
  };
  CustomAction c{.name = of == OperandKind::gradients ? "mean_of_gradients" : "mean", .axis = axis};
  c.row = {.letter = 'V',
           .calls =
               [](const Action& a, int, Index element) {
                 return std::vector<PlannedCall>{{CallKind::all_reduce, a.slice.size() * element},
                                                 {CallKind::all_reduce, Index{sizeof(double)}}};
               },
           .memory = memory_of_slices<2>,
           .vector_ops = vector_ops<3>,
           .start =
               [numbers](ActionContext& now) {
                 if (!now.comm) return Work();
                 const auto rows = static_cast<double>(now.rows);
                 Sums sums{scale(numbers(now), rows), Tensor::full({1}, rows, DType::f64)};
                 now.memory = sums;
                 return when_all({now.comm->all_reduce(sums.numbers), now.comm->all_reduce(sums.rows)});
               },
           .finish =
               [numbers](ActionContext& now) {
                 if (!now.comm) return;
                 const auto [sum, rows] = std::any_cast<Sums>(std::exchange(now.memory, {}));
                 if (const double all = rows.item(); all > 0) numbers(now).copy_from(scale(sum, 1 / all));
               }};
  return c;
}

void check_apart(const Plan& plan, const std::string& axis, const std::string& strategy) {
  refuse_asynchronous(plan, strategy);
  check_whole_along(plan, axis, strategy);
  check(axis.find('+') == axis.npos, strategy, "axis={}, but its workers lie along one axis of the mesh: name one",
        axis);
  check(plan.axes.empty() || std::ranges::find(plan.axes, axis, &Axis::name) != plan.axes.end(), strategy,
        "the mesh has no axis '{}', only '{}': name one of these by the option axis, or add the axis to the mesh", axis,
        fmt::join(plan.axes | std::views::transform(&Axis::name), "', '"));
  check(
      plan.consistency_along(axis) == Consistency{}, strategy,
      "weights are averaged over mesh axis '{}' already, so {} cannot average them over it: leave one of the two out, "
      "or name another axis of the mesh by the option axis",
      axis, strategy);
  for (const Program& program : plan.programs) {
    check(!program.serves(), strategy,
          "servers hold the weights, so workers have none to average: use either parameter_server or {}", strategy);
    for (const Action& a : program.actions) {
      const auto names = names_in(a.peer.axis);
      const bool here = std::ranges::find(names, axis) != names.end();
      check(!here || (a.kind != ActionKind::update && !is_reduction(a)), strategy,
            "gradients are summed over mesh axis '{}' already, so its ranks cannot train separately: name another axis "
            "by the option axis, or leave out data_parallel (zero, central_storage and compress include it)",
            axis);
    }
    for (const Action& a : program.actions)  // over other axes
      check(!drops(a, OperandKind::weights), strategy,
            "zero(3) keeps no whole weights that {} could average: use zero(2)", strategy);
  }
}

void mix_weights(Plan& plan, const Action& like, const std::string& axis, const std::string& phase,
                 const Trigger& when) {
  plan = gather_after_updates(std::move(plan));
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    Program& program = plan.programs[r];
    std::vector<ActionId> written;
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = program.actions[static_cast<std::size_t>(id)];
      const bool gives = a.kind == ActionKind::all_gather || a.kind == ActionKind::broadcast;
      if (a.kind == ActionKind::update || gives || is_custom(a)) written.push_back(id);
    }
    for (const Slice& slice : plan.updated(r)) {
      Action a = like;
      a.stream = a.kind->is_collective ? Stream::comm : Stream::compute;
      a.slice = slice;
      a.peer.axis = axis;
      a.after = written;
      a.phase = add_phase(program, phase, when);
      program.actions.push_back(std::move(a));
    }
  }
}

void remember_weights(Plan& plan, const std::string& state, std::int64_t from) {
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (const Slice& slice : plan.updated(r)) {
      Action a{.kind = remember, .slice = slice, .payload = OperandKind::state, .names = {state}};
      a.phase = add_phase(plan.programs[r], "remember", {.from = from, .until = from + 1});
      insert(plan.programs[r], 0, std::move(a));
    }
}

int sends_of(const std::vector<RankPair>& pairs, int rank) {
  return static_cast<int>(std::ranges::count_if(pairs, [&](const RankPair& pair) { return pair.to != rank; }));
}

std::string mixing_fault(const Plan& plan, const Program& program, const Action& a, double keeps,
                         const std::function<double(int)>& gives, bool rows) {
  const int ranks = plan.size(program, a.peer.axis);
  const bool few = ranks <= 1024;  // random_target takes time proportional to the ranks
  const char* wanted = rows ? "doubly stochastic" : "column-stochastic";
  for (std::int64_t step = 0; ranks > 1 && step < (few ? 8 : 2); ++step)
    for (int rank = 0; rank < std::min(ranks, few ? 64 : 4); ++rank) {
      const auto pairs = peers_at(a.peer, rank, ranks, step);
      const int receivers = sends_of(pairs, rank);
      const double column = receivers > 0 ? keeps + receivers * gives(receivers) : 1;  // a single rank keeps everything
      if (std::abs(column - 1) > 1e-9)
        return fmt::format(
            "the shares that rank {} keeps and gives add up to {} over {} ranks, expected 1: mixing must be {}", rank,
            column, ranks, wanted);
      double row = pairs.empty() ? 1 : keeps;
      for (const RankPair& pair : pairs) {
        if (pair.from == rank) continue;
        const auto theirs = peers_at(a.peer, pair.from, ranks, step);
        row += gives(sends_of(theirs, pair.from));
        if (std::ranges::find(theirs, rank, &RankPair::to) == theirs.end())
          return fmt::format("rank {} waits in step {} for rank {}, which sends it nothing", rank, step, pair.from);
      }
      if (rows && std::abs(row - 1) > 1e-9)
        return fmt::format("the shares that rank {} of {} keeps and gets add up to {}, expected 1: mixing must be {}",
                           rank, ranks, row, wanted);
    }
  return "";
}

Strategy apart(Strategy s) {
  s.norm_scope = NormScope::local;
  return s;
}

}  // namespace trireme
