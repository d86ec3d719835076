#include "parallel/plan/codec.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"

namespace trireme {

CodecContext::CodecContext(const Plan& plan, const Action& a, Index element_bytes, std::int64_t at_step)
    : action(a), size(a.slice.size()), element(element_bytes), step(at_step) {
  const auto add = [&](Index begin, const Shape& shape) {
    const Slice tensor{begin, begin + shape.numel()};
    if (tensor.size() > 0 && tensor.overlaps(a.slice))
      tensors.emplace_hint(tensors.end(), begin - a.slice.begin, shape);
  };
  for (const PartInfo& part : plan.parts) {
    for (const auto& [begin, shape] : part.tensors) add(begin, shape);
    if (part.tensors.empty())
      add(part.slice.begin, {part.slice.size()});  // a plan without the shapes of its parts' tensors
  }
}

double CodecContext::argument(std::string_view name) const {
  const auto value = find_argument(action, name);
  check(
      value.has_value(), "codec", "{} has no argument '{}'", [&] { return to_string(action); }, name);
  return *value;
}

std::optional<double> find_argument(const Action& a, std::string_view name) {
  const auto at = std::ranges::find(a.arguments, name, &std::pair<std::string, double>::first);
  return at == a.arguments.end() ? std::nullopt : std::optional(at->second);
}

bool is_encoded(const Action& a, std::int64_t step) {
  return a.codec && static_cast<double>(step) >= find_argument(a, "from").value_or(0);
}

bool sums_in_f16(const Plan& plan) {
  return std::ranges::any_of(plan.programs, [](const Program& program) {
    return std::ranges::any_of(program.actions, [](const Action& a) {
      return a.codec && a.codec->is_summable && a.codec->wire == DType::f16;
    });
  });
}

std::vector<std::string> codec_states(const Action& a) {
  std::vector<std::string> names;
  if (!a.codec) return names;
  for (const auto& [name, argument] : a.codec->states) {
    const bool kept = argument.empty() || find_argument(a, argument).value_or(1) != 0;
    names.emplace_back(kept ? name : "");
  }
  return names;
}

Plan with_codec(Plan plan, const Codec& codec, const std::vector<std::pair<std::string, double>>& arguments) {
  bool any = false;
  check(!codec.is_elementwise || codec.rounds == 1, "codec", "{} is elementwise and has {} rounds: expected 1",
        codec.name, codec.rounds);
  for (Program& program : plan.programs)
    for (Action& a : program.actions) {
      check(a.kind != ActionKind::reduce_scatter || codec.is_elementwise, "codec",
            "{} encodes all_reduce only, but the plan has {}: use a codec that rounds each number (bf16, f16), or "
            "compress with data_parallel or central_storage instead of zero",
            codec.name, [&] { return to_string(a); });
      if (!is_reduction(a)) continue;
      check(a.codec == nullptr, "codec",
            "{} encodes the gradients already, so {} cannot encode them again: use compress once",
            a.codec ? a.codec->name : "", codec.name);
      a.codec = &codec;
      any = true;
      a.arguments.insert(a.arguments.end(), arguments.begin(), arguments.end());
      for (const std::string& name : codec_states(a))
        if (!name.empty() && std::ranges::find(plan.state, name, &State::name) == plan.state.end())
          plan.state.push_back({.name = name});
    }
  check(any, "codec", "the plan has no all_reduce that {} could encode: use compress with data_parallel", codec.name);
  return plan;
}

}  // namespace trireme
