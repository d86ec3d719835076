#include "parallel/plan/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parallel/plan/action_kind.h"

namespace trireme {
namespace {

constexpr std::array kinds = {"weights", "gradients", "state", "statistics", "activation", "gradient of the activation",
                              "number"};

bool is_slice(const Operand& o) { return o.kind <= OperandKind::statistics; }

}  // namespace

bool Operand::overlaps(const Operand& o) const {
  if (kind != o.kind) return false;
  return is_slice(*this) ? slice.overlaps(o.slice) : part == o.part && microbatch == o.microbatch && name == o.name;
}

std::string to_string(const Operand& o) {
  const char* kind = kinds[static_cast<std::size_t>(o.kind)];
  if (is_slice(o)) return fmt::format("{} [{}, {})", kind, o.slice.begin, o.slice.end);
  if (o.kind == OperandKind::number) return fmt::format("{} {}", kind, o.name);
  return fmt::format("{} of part {} micro {}", kind, o.part, o.microbatch);
}

Access accesses(const Plan& plan, const Role& role, const Liveness& live, const Action& a) {
  using K = OperandKind;
  const bool has_part = a.part >= 0 && a.part < std::ssize(plan.parts);
  const Slice weights = has_part ? plan.parts[static_cast<std::size_t>(a.part)].slice : Slice{};
  const auto slice = [](K kind, const Slice& s) { return Operand{kind, s}; };
  const auto activation = [&](int part) { return Operand{K::activation, {}, part, a.microbatch}; };
  const auto cotangent = [&](int part) { return Operand{K::cotangent, {}, part, a.microbatch}; };
  const auto number = [](std::string name) { return Operand{.kind = K::number, .name = std::move(name)}; };
  const int last = static_cast<int>(plan.parts.size()) - 1;
  switch (a.kind) {
    case ActionKind::forward:
      return {{slice(K::weights, weights), activation(a.part - 1)},
              {activation(a.part), slice(K::statistics, plan.parts[static_cast<std::size_t>(a.part)].buffers)}};
    case ActionKind::loss: return {{activation(last)}, {cotangent(last), number("loss")}};
    case ActionKind::backward:
      return {{slice(K::weights, weights), activation(a.part - 1), cotangent(a.part)},
              {cotangent(a.part - 1), slice(K::gradients, weights)}};
    case ActionKind::backward_input:
      return {{slice(K::weights, weights), activation(a.part - 1), cotangent(a.part)}, {cotangent(a.part - 1)}};
    case ActionKind::backward_weight:
      return {{activation(a.part - 1), cotangent(a.part)}, {slice(K::gradients, weights)}};
    case ActionKind::send: return {{live.segment_of(a.part) >= 0 ? activation(a.part) : cotangent(a.part)}, {}};
    case ActionKind::recv: return {{}, {live.segment_of(a.part) >= 0 ? cotangent(a.part) : activation(a.part)}};
    case ActionKind::all_reduce:
    case ActionKind::reduce_scatter:
    case ActionKind::drop_gradients: return {{}, {slice(K::gradients, a.slice)}};
    case ActionKind::all_gather:
    case ActionKind::broadcast:
    case ActionKind::drop_values: return {{}, {slice(K::weights, a.slice)}};
    case ActionKind::average: return {{}, {slice(K::statistics, a.slice)}};
    case ActionKind::update: {
      Access all{{slice(K::gradients, a.slice)}, {slice(K::weights, a.slice), slice(K::state, a.slice)}};
      for (const char* name : {"loss", "finite", "norm"}) all.reads.push_back(number(name));
      return all;
    }
    case ActionKind::free: {
      Access all;
      const Segment s = live.segments.at(static_cast<std::size_t>(std::max(live.segment_of(a.part), 0)));
      for (int p = s.first; p < s.end; ++p) all.writes.push_back(activation(p));
      return all;
    }
    case ActionKind::agree: {
      Access all{{}, {number(a.field)}};
      for (const Action& u : role.actions)
        if (u.kind == ActionKind::update && a.field != "loss") all.reads.push_back(slice(K::gradients, u.slice));
      return all;
    }
  }
  return {};
}

}  // namespace trireme
