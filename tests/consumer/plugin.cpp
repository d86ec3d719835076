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
const ActionRow average_weights{
    .name = "average_weights",
    .letter = 'V',
    .is_collective = true,
    .access =
        [](const Plan&, const Program&, const Liveness&, const Action& a) {
          return Access{{}, {Operand{.kind = OperandKind::weights, .slice = a.slice}}};
        },
    .calls =
        [](const Action& a, int, Index element) {
          return std::vector{PlannedCall{CallKind::all_reduce, a.slice.size() * element}};
        },
    .start =
        [](ActionContext& now) { return now.comm ? now.comm->all_reduce(now.values(), ReduceOp::average) : Work(); }};

Strategy local_means(int every) {
  Strategy s(
      "local_means", Claim::statistical,
      [every](Plan plan) {
        for (Program& program : plan.programs) {
          ActionId update = 0;
          while (program.actions.at(update).kind != ActionKind::update) ++update;
          Action average = on_slice(average_weights, Stream::comm, program.actions[update].slice, "data", {update});
          average.phase = add_phase(program, "average", {.every = every, .offset = every - 1});
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
  rows.push_back({"local_means",
                  [](StrategyOptions& given) {
                    int every = 4;
                    given.read({{.name = "every", .value = &every, .least = 1}});
                    return local_means(every);
                  },
                  "data"});
  rows.push_back({"rounded",
                  [](StrategyOptions&) {
                    return Strategy("rounded", Claim::statistical,
                                    [](Plan plan) { return with_codec(std::move(plan), rounded); });
                  },
                  "data"});
}
