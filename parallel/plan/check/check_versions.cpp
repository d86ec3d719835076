// The part of check(plan) for versions of weights, which asynchronous pipelines keep: a pass must read a version that
// is still kept, all passes of a micro-batch must read the same version, and gradients must be no older than the plan
// promises.
#include <map>

#include "parallel/plan/check/diagnostics.h"

namespace trireme {
namespace {

class Versions {
 public:
  Versions(const Plan& plan, const Program& program, Diagnostics& faults)
      : plan_(plan), program_(program), faults_(faults) {
    for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
      const Action& a = at(id);
      if (a.kind == ActionKind::forward) forwards_[{a.part, a.microbatch.index}].push_back(id);
      if (a.kind == ActionKind::update) updates_.push_back(id);
    }
  }

  void run() {
    int oldest = 0;
    for (ActionId id = 0; id < std::ssize(program_.actions); ++id) {
      const Action& a = at(id);
      if (!is_pass(a) || a.part < 0 || plan_.parts[static_cast<std::size_t>(a.part)].slice.size() == 0) continue;
      oldest = std::max(oldest, a.version);
      if (a.version < 0 || a.version >= program_.versions)
        faults_.add("{}: the program keeps {} version{} of its weights, but the action reads one that was overwritten",
                    place(program_, id), program_.versions, program_.versions == 1 ? "" : "s");
      if (is_backward(a)) compare(id);
    }
    if (oldest + 1 < program_.versions)
      faults_.add("program {} keeps {} versions of its weights, but its passes read only {}", program_.name,
                  program_.versions, oldest + 1);
  }

 private:
  const Action& at(ActionId id) const { return program_.actions[static_cast<std::size_t>(id)]; }
  /// Number of updates of a part's weights before an action, counted from the begin of the step in which the
  /// micro-batch entered.
  int updates(ActionId id, const Slice& weights) const {
    int before = 0, all = 0;
    for (const ActionId u : updates_) {
      if (!at(u).slice.overlaps(weights)) continue;
      before += u < id;
      ++all;
    }
    return before + all * at(id).microbatch.steps_ago;
  }
  /// Compares a backward with the forward of its micro-batch and with the updates that use its gradients.
  void compare(ActionId backward) {
    const Action& b = at(backward);
    const Slice& weights = plan_.parts[static_cast<std::size_t>(b.part)].slice;
    const int read = updates(backward, weights) - b.version;
    std::vector<ActionId> others = forwards_[{b.part, b.microbatch.index}];
    others.insert(others.end(), updates_.begin(), updates_.end());
    std::ranges::sort(others);
    for (const ActionId id : others) {
      const Action& a = at(id);
      if (a.kind == ActionKind::forward && updates(id, weights) - a.version != read)
        faults_.add("{} reads another version of the weights than {}", place(program_, backward), place(program_, id));
      if (a.kind == ActionKind::forward || !a.slice.overlaps(weights)) continue;
      const int delay = updates(id, weights) - read;
      if (delay > bound())
        faults_.add("{} uses gradients of weights {} update{} old, but the plan promises {}", place(program_, id),
                    delay, delay == 1 ? "" : "s", to_string(plan_.consistency_along(plan_.stage_axis)));
    }
  }
  std::int64_t bound() const { return plan_.has_stages() ? plan_.consistency_along(plan_.stage_axis).bound : 0; }

  const Plan& plan_;
  const Program& program_;
  Diagnostics& faults_;
  std::map<std::pair<int, int>, std::vector<ActionId>> forwards_;  // by part and micro-batch
  std::vector<ActionId> updates_;
};

}  // namespace

void check_versions(const Plan& plan, Diagnostics& faults) {
  for (const Program& program : plan.programs)
    if (program.versions != 1 || is_asynchronous(plan) ||
        std::ranges::any_of(program.actions, [](const Action& a) { return a.version != 0; }))
      Versions(plan, program, faults).run();
}

}  // namespace trireme
