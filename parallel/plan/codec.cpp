#include "parallel/plan/codec.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"

namespace trireme {

Plan with_codec(Plan plan, const Codec& codec) {
  bool any = false;
  for (Program& program : plan.programs)
    for (Action& a : program.actions) {
      check(a.kind != ActionKind::reduce_scatter, "codec", "{} cannot encode {}: only all_reduce takes a codec yet",
            codec.name, [&] { return to_string(a); });
      if (a.kind != ActionKind::all_reduce) continue;
      check(a.codec == nullptr, "codec", "gradients are encoded by {} already, {} cannot encode them again",
            a.codec ? a.codec->name : "", codec.name);
      a.codec = &codec, any = true;
    }
  check(any, "codec", "there is no all_reduce that {} could encode: write it behind data_parallel", codec.name);
  if (!codec.state.empty() && std::ranges::find(plan.state, codec.state, &State::name) == plan.state.end())
    plan.state.push_back({.name = std::string(codec.state)});
  return plan;
}

}  // namespace trireme
