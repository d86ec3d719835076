#include "parallel/plan/codec.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"

namespace trireme {

Plan with_codec(Plan plan, const Codec& codec) {
  for (Role& role : plan.roles)
    for (Action& a : role.actions) {
      check(a.kind != ActionKind::reduce_scatter, "codec", "{} cannot encode {}: only all_reduce takes a codec yet",
            codec.name, [&] { return to_string(a); });
      if (a.kind == ActionKind::all_reduce) a.codec = &codec;
    }
  if (!codec.state.empty() && std::ranges::find(plan.state, codec.state, &State::name) == plan.state.end())
    plan.state.push_back({.name = std::string(codec.state)});
  return plan;
}

}  // namespace trireme
