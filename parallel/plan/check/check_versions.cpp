// The part of check(plan) for versions of weights, which asynchronous pipelines keep: a pass reads one that is still
// there, a micro-batch's passes read the same one, and gradients are no older than the plan promises.
#include "parallel/plan/check/diagnostics.h"

namespace trireme {
namespace {

class Versions {
 public:
  Versions(const Plan& plan, const Program& program, Diagnostics& faults)
      : plan_(plan), program_(program), faults_(faults) {}

  void run() {
    int oldest = 0;
    for (ActionId id = 0; id < std::ssize(program_.actions); ++id) {
      const Action& a = at(id);
      if (!is_pass(a) || a.part < 0 || plan_.parts[static_cast<std::size_t>(a.part)].slice.size() == 0) continue;
      oldest = std::max(oldest, a.version);
      if (a.version < 0 || a.version >= program_.versions)
        faults_.add("{}: of {} version{} that are kept, it reads one that was overwritten", place(program_, id),
                    program_.versions, program_.versions == 1 ? "" : "s");
      if (is_backward(a)) compare(id);
    }
    if (oldest + 1 < program_.versions)
      faults_.add("program {} keeps {} versions of its weights, of which passes read {}", program_.name,
                  program_.versions, oldest + 1);
  }

 private:
  const Action& at(ActionId id) const { return program_.actions[static_cast<std::size_t>(id)]; }
  /// The updates of a part's weights in front of an action, in the step that brought the micro-batch.
  int updates(ActionId id, const Slice& weights) const {
    int before = 0, all = 0;
    for (ActionId u = 0; u < std::ssize(program_.actions); ++u) {
      if (at(u).kind != ActionKind::update || !at(u).slice.overlaps(weights)) continue;
      before += u < id;
      ++all;
    }
    return before + all * at(id).microbatch.steps_ago;
  }
  /// A backward with its micro-batch's forward and its update.
  void compare(ActionId backward) {
    const Action& b = at(backward);
    const Slice& weights = plan_.parts[static_cast<std::size_t>(b.part)].slice;
    for (ActionId id = 0; id < std::ssize(program_.actions); ++id) {
      const Action& a = at(id);
      const bool forward = a.kind == ActionKind::forward && a.part == b.part && a.microbatch == b.microbatch.index;
      const int read = updates(backward, weights) - b.version;
      if (forward && updates(id, weights) - a.version != read)
        faults_.add("{} reads other weights than {} did", place(program_, backward), place(program_, id));
      if (a.kind != ActionKind::update || !a.slice.overlaps(weights)) continue;
      const int delay = updates(id, weights) - read;
      if (delay > bound())
        faults_.add("{} is by gradients of weights {} update{} old, where stages are to be {}", place(program_, id),
                    delay, delay == 1 ? "" : "s", to_string(plan_.consistency_along(plan_.stage_axis)));
    }
  }
  std::int64_t bound() const { return plan_.has_stages() ? plan_.consistency_along(plan_.stage_axis).bound : 0; }

  const Plan& plan_;
  const Program& program_;
  Diagnostics& faults_;
};

}  // namespace

void check_versions(const Plan& plan, Diagnostics& faults) {
  for (const Program& program : plan.programs)
    if (program.versions != 1 || is_asynchronous(plan) ||
        std::ranges::any_of(program.actions, [](const Action& a) { return a.version != 0; }))
      Versions(plan, program, faults).run();
}

}  // namespace trireme
