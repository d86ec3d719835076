// Strategies, a codec and kinds of actions from outside of the tree, for the trireme binary: parallel.plugin.
#include <trireme/parallel/runtime/plugin.h>
#include <trireme/trireme.h>

using namespace trireme;

namespace {

// A codec: bf16 on the wire, what rounding loses is added to the next step's gradients (error feedback).
const Codec rounded{.name = "rounded",
                    .wire = DType::bf16,
                    .length = [](const CodecContext& now) { return now.size; },
                    .encode =
                        [](const CodecContext& now, const Tensor& numbers, const Tensor& wire) {
                          const Tensor& residual = now.states[0];
                          add_into(residual, numbers);
                          wire.copy_from(residual.to(DType::bf16));
                          add_into(residual, scale(wire.to(residual.dtype()), -1));
                        },
                    .decode = [](const CodecContext&, const Tensor& wire,
                                 const Tensor& numbers) { add_into(numbers, wire.to(numbers.dtype())); },
                    .states = {{"rounding_residual"}}};

// Local SGD (Stich, arXiv 1805.09767): each rank trains on its own rows, and weights are averaged every few steps.
Operand of(OperandKind kind, const Action& a) { return {.kind = kind, .slice = a.slice}; }
const ActionRow own_mean{.name = "own_mean",  // gradients of the global mean become those of this rank's rows
                         .letter = 'm',
                         .access =
                             [](const Plan&, const Program&, const Liveness&, const Action& a) {
                               return Access{{}, {of(OperandKind::gradients, a)}};
                             },
                         .start =
                             [](ActionContext& now) {
                               now.gradients().copy_from(scale(now.gradients(), now.argument("ranks")));
                               return Work();
                             }};
const ActionRow average_weights{
    .name = "average_weights",
    .letter = 'V',
    .is_collective = true,
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return Access{{}, {of(OperandKind::weights, a)}};
        },
    .calls =
        [](const Action& a, int, Index element) {
          return std::vector{PlannedCall{CallKind::all_reduce, a.slice.size() * element}};
        },
    .start =
        [](ActionContext& now) { return now.comm ? now.comm->all_reduce(now.values(), ReduceOp::average) : Work(); }};

Strategy local_sgd(int every) {
  Strategy s(
      "local_sgd", Claim::statistical,
      [every](Plan plan) {
        for (Program& program : plan.programs) {
          ActionId update = 0;
          while (program.actions.at(update).kind != ActionKind::update) ++update;
          Action mean{.kind = own_mean, .slice = program.actions[update].slice};
          mean.arguments = {{"ranks", plan.size("data")}};
          Action average = on_slice(average_weights, Stream::comm, program.actions[update].slice, "data", {update + 1});
          average.phase = add_phase(program, "average", {.every = every, .offset = every - 1});
          insert(program, update, mean);
          program.actions.push_back(average);
        }
        plan.consistency["data"] = {Consistency::Kind::periodic, every};
        return plan;
      },
      "every=" + std::to_string(every));
  s.norm_scope = NormScope::local;
  return s;
}

}  // namespace

extern "C" void trireme_plugin(std::vector<StrategyRow>& rows) {
  rows.push_back({"local_sgd",
                  [](StrategyOptions& given) {
                    int every = 4;
                    given.read({{.name = "every", .value = &every, .least = 1}});
                    return local_sgd(every);
                  },
                  "data"});
  rows.push_back({"rounded",
                  [](StrategyOptions&) {
                    return Strategy("rounded", Claim::statistical,
                                    [](Plan plan) { return with_codec(std::move(plan), rounded); });
                  },
                  "data"});
}
