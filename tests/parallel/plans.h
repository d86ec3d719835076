// Small plans, and what check() says of them.
#pragma once
#include <algorithm>

#include "parallel/plan/action_kind.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"

namespace trireme::test {

/// Four parts of 100, 0, 300 and 50 parameters.
inline Plan chain(Index buffers = 0) {
  return serial({{"0-1", {0, 100}}, {"2", {100, 100}}, {"3", {100, 400}}, {"4", {400, 450}}}, 450, buffers);
}
inline Plan parallel_chain(bool overlap = true) {
  return data_parallel({.first_bucket = 10, .bucket = 200, .overlap = overlap})(chain());
}

inline ActionId find(const Program& program, ActionKind kind, int nth = 0) {
  for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id)
    if (program.actions[id].kind == kind && nth-- == 0) return id;
  return -1;
}

/// The faults of a plan, in one text.
inline std::string faults(const Plan& plan, int ranks = 2) {
  std::string text;
  for (auto& line : check(plan, ranks)) text += line + "\n";
  return text;
}
inline void check_finds(const Plan& plan, const std::string& words, int ranks = 2) {
  std::string text = faults(plan, ranks);
  INFO(text << plan.to_string());
  CHECK(text.find(words) != std::string::npos);
}

/// Activations go to later stages, their gradients to earlier ones.
inline Action message(ActionKind kind, int part, int microbatch, int offset, Stream stream = Stream::comm) {
  Action a{kind, stream, part, microbatch};
  a.peer.axis = "pipe";
  a.peer.offset = offset;
  if (is_message(a))
    a.payload = (kind == ActionKind::send) == (offset > 0) ? OperandKind::activation : OperandKind::cotangent;
  return a;
}
/// After the action before it.
inline void append(Program& program, Action a) {
  a.after.push_back(static_cast<int>(program.actions.size()) - 1);
  program.actions.push_back(std::move(a));
}

/// Two stages, one part each; activations and their gradients cross once per micro-batch.
inline Plan two_stages(int microbatches = 2) {
  Plan plan = serial({{"0", {0, 16}}, {"1", {16, 32}}}, 32);
  plan.strategies.push_back("pipeline");
  plan.microbatches = microbatches;
  plan.programs.assign(2, Program());
  Program &a = plan.programs[0], &b = plan.programs[1];
  a.name = "stage 0";
  b.name = "stage 1";
  for (int m = 0; m < microbatches; ++m) {
    a.actions.push_back({.kind = ActionKind::forward, .part = 0, .microbatch = m});
    append(a, message(ActionKind::send, 0, m, 1));
    b.actions.push_back(message(ActionKind::recv, 0, m, -1));
    append(b, {.kind = ActionKind::forward, .part = 1, .microbatch = m});
    b.actions.push_back({.kind = ActionKind::loss, .microbatch = m});
    b.actions.push_back({.kind = ActionKind::backward, .part = 1, .microbatch = m});
    append(b, message(ActionKind::send, 0, m, -1));
  }
  for (int m = 0; m < microbatches; ++m) {
    a.actions.push_back(message(ActionKind::recv, 0, m, 1));
    append(a, {.kind = ActionKind::backward, .part = 0, .microbatch = m});
  }
  a.actions.push_back({.kind = ActionKind::update, .slice = {0, 16}});
  b.actions.push_back({.kind = ActionKind::update, .slice = {16, 32}});
  return plan;
}

}  // namespace trireme::test
