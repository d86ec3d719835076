#include "parallel/strategies/agreements.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "parallel/async/channel_plan.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"
#include "parallel/strategies/on_call.h"

namespace trireme {
namespace {

/// The agreements of one program.
class ProgramAgreements {
 public:
  ProgramAgreements(const Plan& plan, Program& program, const AgreementOptions& options)
      : plan_(plan), program_(program), options_(options), actions_(program.actions) {}

  void add() {
    sum_loss();
    const auto update = find_update();
    at_ = update < 0 ? static_cast<ActionId>(actions_.size()) : update;
    if (loss_ >= 0) after_.push_back(loss_);
    for (Action& a : actions_)
      if (loss_ >= 0 && sends_to_channel(a)) a.after.push_back(loss_);  // nothing is sent for a loss that is not finite
    const int last = plan_.program_of(static_cast<int>(plan_.parts.size()) - 1);
    if (is_asynchronous(plan_))
      give_loss_at_once(last);
    else if (plan_.has_stages())
      before_update(OperandKind::loss, plan_.stage_axis).peer.root = last;
    for (const Action& a : actions_)  // flag and norm read the gradients of all updates
      if (a.kind == ActionKind::update && a.microbatch.steps_ago == 0)
        after_.insert(after_.end(), a.after.begin(), a.after.end());
    std::ranges::sort(after_);
    after_.erase(std::unique(after_.begin(), after_.end()), after_.end());
    agree_on_flags();
    std::vector<std::string> axes;  // of ranks that update other weights
    if (const std::string shards = shard_axis(program_); plan_.size(shards) > 1) axes.push_back(shards);
    if (plan_.has_stages()) axes.push_back(plan_.stage_axis);
    for (const std::string& axis : options_.norm ? axes : std::vector<std::string>{})
      before_update(OperandKind::norm, axis);
    if (axes.empty()) axes.emplace_back();
    for (const std::string& axis : options_.ratios > 0 ? axes : std::vector<std::string>{})
      before_update(OperandKind::ratios, axis).slice = {0, 2 * options_.ratios};
    if (update < 0) return;
    std::vector<ActionId>& before = actions_[static_cast<std::size_t>(at_)].after;
    if (loss_ >= 0) before.push_back(loss_);
    for (const ActionId id : options_.norm ? after_ : std::vector<ActionId>{})  // it reads all gradients
      if (std::ranges::find(before, id) == before.end()) before.push_back(id);
  }

  void count_ignored() {
    if (!options_.count || find(ActionKind::loss) < 0) return;
    Action count{.kind = ActionKind::agree, .stream = Stream::comm, .payload = OperandKind::count};
    if (plan_.size(program_, options_.batch_axis) > 1) count.peer.axis = options_.batch_axis;
    insert(program_, 0, std::move(count));
    actions_[static_cast<std::size_t>(find(ActionKind::loss))].after.push_back(0);
  }

 private:
  /// Steps between synchronisations of workers that synchronise periodically, which exchange flags then.
  std::int64_t period() const {
    std::int64_t most = 1;
    for (const auto& [axis, promised] : plan_.consistency)
      if (promised.kind == Consistency::Kind::periodic) most = std::max(most, promised.bound);
    return most;
  }
  ActionId find(ActionKind kind) const {
    const auto at = std::ranges::find(actions_, kind, &Action::kind);
    return at == actions_.end() ? -1 : static_cast<ActionId>(at - actions_.begin());
  }
  /// The first update that uses gradients of this step. Ranks have agreed on gradients of earlier steps already.
  ActionId find_update() const {
    const auto at = std::ranges::find_if(
        actions_, [](const Action& a) { return a.kind == ActionKind::update && a.microbatch.steps_ago == 0; });
    return at == actions_.end() ? -1 : static_cast<ActionId>(at - actions_.begin());
  }
  void agree_on_flags() {
    const int looks = options_.checks.every, tells = plan_.flags.empty() ? 0 : options_.flags.every;
    const bool together = looks > 0 && tells >= looks;
    const auto add = [&](const std::vector<std::string>& flags, const char* phase, int every, int offset) {
      const std::int64_t apart = period(), times = (every + apart - 1) / apart * apart;
      const int at = add_phase(program_, phase, {.every = times, .offset = apart > 1 ? times - 1 : offset});
      Action& agree = before_update(OperandKind::flags, all_axes(plan_));
      agree.names = flags;
      agree.phase = at;
    };
    std::vector<std::string> looked = {finite_gradients};
    if (together) looked.insert(looked.end(), plan_.flags.begin(), plan_.flags.end());
    if (looks > 0) add(looked, "check gradients", looks, options_.checks.offset);
    if (tells > 0 && !together) add(plan_.flags, "tell flags", tells, 0);
  }
  void sum_loss() {
    if (plan_.size(program_, options_.batch_axis) == 1) return;
    const auto last =
        std::find_if(actions_.rbegin(), actions_.rend(), [](const Action& a) { return a.kind == ActionKind::loss; });
    if (last == actions_.rend()) return;
    loss_ = static_cast<ActionId>(actions_.rend() - last);
    Action sum{.kind = ActionKind::agree, .stream = Stream::comm, .after = {loss_ - 1}, .payload = OperandKind::loss};
    sum.peer.axis = options_.batch_axis;
    insert(program_, loss_, std::move(sum));
  }
  /// Sends the loss while backward runs: forwards of the next step in an asynchronous pipeline must not wait for it.
  /// root: the last stage.
  void give_loss_at_once(int root) {
    ActionId at = 0, made = 0;
    for (ActionId id = 0; id < std::ssize(actions_); ++id) {
      const Action& a = actions_[static_cast<std::size_t>(id)];
      const bool sent =
          is_message(a) && a.kind == ActionKind::send && at == id;  // sends the result of the last forward
      if (!sent && a.kind != ActionKind::forward && a.kind != ActionKind::loss && id != loss_) continue;
      at = id + 1;
      if (!sent) made = id;
    }
    Action give{.kind = ActionKind::agree, .stream = Stream::comm, .after = {made}, .payload = OperandKind::loss};
    if (loss_ >= 0) give.stream = Stream::compute;  // a thread that waits for the sum computes nothing in the meantime
    give.peer.axis = plan_.stage_axis;
    give.peer.root = root;
    insert(program_, at, std::move(give));
    at_ += at <= at_;
    after_.push_back(at);
    if (const auto update = find_update(); update >= 0) actions_[static_cast<std::size_t>(update)].after.push_back(at);
  }
  /// Adds an agreement that the next update waits for.
  Action& before_update(OperandKind payload, const std::string& axis) {
    Action a{.kind = ActionKind::agree, .after = after_, .payload = payload};
    a.peer.axis = axis;
    insert(program_, at_, std::move(a));
    return actions_[static_cast<std::size_t>(at_++)];
  }

  const Plan& plan_;
  Program& program_;
  const AgreementOptions& options_;
  std::vector<Action>& actions_;
  ActionId at_ = 0, loss_ = -1;  // of the first update; of the loss summed over the batch
  std::vector<ActionId> after_;
};

/// Cuts updates at the borders of the reductions that they wait for, so that the weights of one bucket are updated
/// while later buckets are reduced.
void update_by_reduction(Program& program) {
  std::vector<Action>& actions = program.actions;
  for (ActionId id = 0; id < std::ssize(actions); ++id) {
    const Action whole = actions[static_cast<std::size_t>(id)];
    if (whole.kind != ActionKind::update || !whole.peer.axis.empty()) continue;
    const auto reduction = [&](ActionId from) -> const Action* {
      const Action& a = actions[static_cast<std::size_t>(from)];
      return is_reduction(a) ? &a : nullptr;
    };
    std::vector<Slice> borders;
    for (const ActionId from : whole.after)
      if (const Action* a = reduction(from)) borders.push_back(a->slice);
    std::ranges::sort(borders, {}, &Slice::begin);
    std::vector<Action> pieces;
    for (const Slice& slice : cut_at(whole.slice, borders)) {
      Action& piece = pieces.emplace_back(whole);
      piece.slice = slice;
      std::erase_if(piece.after, [&](ActionId from) {
        const Action* a = reduction(from);
        return a && !a->slice.overlaps(slice);
      });
      std::ranges::sort(piece.after);
    }
    if (pieces.size() < 2) continue;
    std::ranges::stable_sort(pieces, {}, [](const Action& a) { return a.after.empty() ? -1 : a.after.back(); });
    const auto more = static_cast<ActionId>(pieces.size()) - 1;
    actions[static_cast<std::size_t>(id)] = pieces[0];
    for (ActionId k = 1; k <= more; ++k) insert(program, id + k, pieces[static_cast<std::size_t>(k)]);
    for (Action& a : actions) std::ranges::replace(a.after, id, id + more);  // the last piece ends last
    id += more;
  }
}

}  // namespace

Plan with_agreements(Plan plan, const AgreementOptions& options) {
  const std::set<std::string> taken{"", "count", "loss", "finite", "norm", "ratios"};
  for (const std::string& flag : options.flags.names)
    check(!taken.contains(flag) && flag.find('+') == flag.npos, "plan",
          "a flag cannot be called '{}': use a name without +, not empty, and not count, loss, finite, norm or ratios",
          flag);
  check(
      options.checks.offset >= 0 && options.checks.offset < std::max(1, options.checks.every), "plan",
      "gradients are checked every {} steps, first after {} steps: the latter must be at least 0 and below the former",
      options.checks.every, options.checks.offset);
  check(options.norm || options.ratios == 0, "plan", "trust ratios are wanted without the norm, which they need");
  check(options.flags.every > 0, "plan", "flags are exchanged every {} steps: expected at least 1",
        options.flags.every);
  const bool served = std::ranges::any_of(plan.programs, &Program::serves);  // if so, no worker updates
  check(!served || !options.norm, "plan",
        "servers sum the gradients, so no rank can compute their norm yet: leave clip_norm, LARS and LAMB out");
  check(!is_asynchronous(plan) || !options.norm, "plan",
        "stages update at different times, so no rank can compute the norm of all gradients: leave clip_norm, LARS "
        "and LAMB out, or use schedule=1f1b");
  AgreementOptions of_program = options;
  if (is_asynchronous(plan)) of_program.checks.every = 0;  // also asynchronous: an infinite loss shows the fault
  of_program.batch_axis = plan.synchronous_axes(options.batch_axis);  // each worker has its own loss
  if (meets_by_messages(plan)) {
    of_program.checks.every = 0;
    of_program.flags.names.clear();
  }  // the rank's loss shows the fault
  plan.flags = of_program.flags.names;
  for (Program& program : plan.programs) {
    if (program.serves()) continue;
    if (!options.norm && !is_asynchronous(plan)) update_by_reduction(program);
    ProgramAgreements agreements(plan, program, of_program);
    agreements.count_ignored();
    agreements.add();
  }
  return plan;
}

}  // namespace trireme
