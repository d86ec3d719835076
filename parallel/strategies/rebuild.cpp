#include "parallel/strategies/rebuild.h"

#include <algorithm>

#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"
#include "parallel/plan/shards.h"
#include "parallel/plan/ties.h"

namespace trireme {

std::string axes_without(const std::string& all, const std::string& some) {
  const auto out = names_in(some);
  std::string left;
  for (const std::string& name : names_in(all))
    if (std::ranges::find(out, name) == out.end()) left += (left.empty() ? "" : "+") + name;
  return left;
}

Action on_slice(ActionKind kind, Stream stream, const Slice& slice, const std::string& axis,
                std::vector<ActionId> after, OperandKind payload) {
  Action a{kind, stream};
  a.payload = payload;
  a.slice = slice;
  a.peer.axis = axis;
  a.after = std::move(after);
  return a;
}

std::vector<ActionId> reductions_of(const Program& program) {
  std::vector<ActionId> ids;
  for (ActionId id = 0; id < static_cast<int>(program.actions.size()); ++id)
    if (is_reduction(program.actions[id])) ids.push_back(id);
  return ids;
}

ActionId Rebuild::keep(ActionId old, const std::vector<ActionId>& also) {
  Action a = program_.actions[old];
  for (ActionId& id : a.after) id = moved_[id];
  a.after.insert(a.after.end(), also.begin(), also.end());
  return moved_[old] = add(std::move(a));
}

ActionId Rebuild::add(Action a) {
  std::erase(a.after, -1);
  out_.actions.push_back(std::move(a));
  return static_cast<ActionId>(out_.actions.size()) - 1;
}

void refuse_asynchronous(const Plan& plan, const std::string& strategy) {
  check(!is_asynchronous(plan), strategy,
        "schedules pipedream and 2bw keep versions of whole weights and update them within a step, so they can be "
        "combined with data_parallel only: use schedule=1f1b with {}",
        strategy);
}

Plan with_tied_sums(Plan plan) {
  const std::vector<Tie> ties = ties_of(plan);
  check(
      ties.empty() || !is_asynchronous(plan), "pipeline",
      "several stages use the weights [{}, {}), but under schedules pipedream and 2bw they update at different times: "
      "use schedule=1f1b, or a partition in which one stage has all parts that use these weights",
      ties.empty() ? 0 : ties[0].slice.begin, ties.empty() ? 0 : ties[0].slice.end);
  std::vector<Slice> tied;
  for (const Tie& tie : ties) tied.push_back(tie.slice);
  for (int r = 0; r < std::ssize(plan.programs) && !ties.empty(); ++r) {
    Program& program = plan.programs[static_cast<std::size_t>(r)];
    std::vector<Slice> updates = copies_in(plan, static_cast<std::size_t>(r));
    std::vector<ActionId> made(ties.size(), -1), summed = made;  // the last backward that adds to a gradient; its sum
    program = rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
      if (a.kind == ActionKind::update) {
        for (const Slice& piece : cut_at(a.slice, tied)) updates.push_back(piece);
        return;
      }
      const ActionId now = rebuild.keep(id);
      for (std::size_t i = 0; i < ties.size(); ++i)
        if (completes(a) && uses(plan.parts[static_cast<std::size_t>(a.part)], tied[i])) made[i] = now;
    });
    const auto add = [&](Action a) {
      program.actions.push_back(std::move(a));
      return static_cast<ActionId>(program.actions.size()) - 1;
    };
    for (std::size_t i = 0; i < ties.size(); ++i) {
      if (made[i] < 0) continue;
      Action sum =
          on_slice(ActionKind::all_reduce, Stream::comm, tied[i], plan.stage_axis, {made[i]}, OperandKind::gradients);
      sum.peer.members = ties[i].programs;
      summed[i] = add(std::move(sum));
    }
    std::ranges::sort(updates, {}, &Slice::begin);
    for (const Slice& s : updates) {
      Action update{.kind = ActionKind::update, .slice = s};
      if (const auto at = std::ranges::find(tied, s); at != tied.end()) update.after = {summed[at - tied.begin()]};
      add(std::move(update));
    }
  }
  return plan;
}

void check_whole_along(const Plan& plan, const std::string& axes, const std::string& strategy) {
  const auto along = names_in(axes);
  for (const PartInfo& part : plan.parts)
    for (const auto& [divides, slices] : part.divided)
      for (const std::string& name : names_in(divides))
        check(
            std::ranges::find(along, name) == along.end(), strategy,
            "mesh axis '{}' of {} ranks divides the weights of '{}', but {} needs whole weights along it: name another "
            "axis of the mesh for one of the two, or use data_parallel instead of one_weird_trick",
            name, plan.size(name), part.name, strategy);
}

Plan with_reductions(Plan plan, const std::string& strategy) {
  bool reduces = false;
  refuse_asynchronous(plan, strategy);
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      reduces = reduces || is_reduction(a);
      check(a.kind != ActionKind::update || a.peer.axis.empty(), "strategy",
            "ranks along '{}' divide the updates already, so these cannot be divided again: use one of zero and "
            "central_storage, once",
            a.peer.axis);
    }
  // Sums of split layers (spatial, tensor by sequence) leave the rows to data_parallel.
  const bool rows = std::ranges::any_of(
      plan.strategies, [](const std::string& name) { return name == "data_parallel" || name == "one_weird_trick"; });
  if (!reduces || (!rows && plan.size("data") > 1)) plan = data_parallel()(std::move(plan));
  return plan;
}

Program reduce_slices(const Plan& plan, const Program& program, const std::vector<Bucket>& buckets, bool overlap) {
  // For each bucket: the backward that completes its gradients, the sum over its copies, and its reduction.
  std::vector<ActionId> done(buckets.size(), -1), sum = done, reduced = done;
  ActionId last = -1;
  MicroBatch microbatch;  // in an asynchronous pipeline, gradients are complete before the update by an earlier step
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    const Action& a = program.actions[id];
    if (a.kind == ActionKind::update && (microbatch = a.microbatch).steps_ago > 0) break;
    if (!completes(a)) continue;
    last = id;
    for (std::size_t i = 0; i < buckets.size(); ++i)
      if (uses(plan.parts[static_cast<std::size_t>(a.part)], buckets[i].slice)) done[i] = id;
  }
  for (std::size_t i = 0; i < buckets.size(); ++i)
    if (const auto sums = tied_sums(program, buckets[i].slice); !sums.empty()) sum[i] = sums[0];
  std::vector<ActionId> moved(program.actions.size(), -1);
  Program out = rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (sums_rows(plan, a)) return;
    const auto reduce = [&](std::size_t i, ActionId after, bool on_ready) {
      Action all = on_slice(ActionKind::all_reduce, Stream::comm, buckets[i].slice, buckets[i].axis, {after},
                            OperandKind::gradients);
      all.on_ready = on_ready;
      all.microbatch = microbatch;
      return reduced[i] = rebuild.add(std::move(all));
    };
    // Copies of tied weights are summed last: their programs then add the same numbers, so copies keep the same bits.
    std::vector<ActionId> before;
    for (std::size_t i = 0; i < buckets.size(); ++i)
      if (sum[i] == id && done[i] >= 0) before.push_back(reduce(i, moved[static_cast<std::size_t>(done[i])], false));
    const ActionId now = moved[static_cast<std::size_t>(id)] = rebuild.keep(id, before);
    for (std::size_t i = 0; i < buckets.size(); ++i)
      if (sum[i] < 0 && done[i] >= 0 && id == (overlap ? done[i] : last)) reduce(i, now, overlap);
  });
  for (Action& a : out.actions)
    for (std::size_t i = 0; i < buckets.size() && a.kind == ActionKind::update; ++i)
      if (reduced[i] >= 0 && a.slice.overlaps(buckets[i].slice)) a.after.push_back(reduced[i]);
  return out;
}

Program cut_reductions(const Plan& plan, const Program& program, const std::vector<Slice>& at) {
  Program out = program;
  out.actions.clear();
  std::vector<std::vector<ActionId>> moved(program.actions.size());
  for (ActionId id = 0; id < std::ssize(program.actions); ++id) {
    Action a = program.actions[id];
    std::vector<ActionId> after;
    for (const ActionId before : a.after)
      after.insert(after.end(), moved[static_cast<std::size_t>(before)].begin(),
                   moved[static_cast<std::size_t>(before)].end());
    a.after = std::move(after);
    const bool is_of_bucket = (a.kind == ActionKind::update || a.kind == ActionKind::broadcast) && a.peer.root >= 0;
    for (const Slice& piece : sums_rows(plan, a) || is_of_bucket ? cut_at(a.slice, at) : std::vector<Slice>{a.slice}) {
      a.slice = piece;
      moved[static_cast<std::size_t>(id)].push_back(static_cast<ActionId>(out.actions.size()));
      out.actions.push_back(a);
    }
  }
  return out;
}

Program update_by_bucket(const Program& program, ActionKind reduction, int root) {
  std::vector<Slice> shared, rest;
  for (const ActionId id : reductions_of(program)) shared.push_back(program.actions[id].slice);
  std::ranges::sort(shared, {}, &Slice::begin);
  std::vector<ActionId> reduced;
  Program out = rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
    if (a.kind == ActionKind::update) {
      for (const Slice& piece : cut_at(a.slice, shared))
        if (!overlaps(shared, piece)) rest.push_back(piece);
      return;
    }
    const ActionId now = rebuild.keep(id);
    if (is_reduction(a)) reduced.push_back(now);
  });
  for (const Slice& s : rest)
    out.actions.push_back(on_slice(ActionKind::update, Stream::compute, s, "", tied_sums(out, s)));
  for (ActionId id : reduced) {
    Action& reduce = out.actions[id];
    reduce.kind = reduction;
    Action update = on_slice(ActionKind::update, Stream::compute, reduce.slice, reduce.peer.axis, {id});
    update.peer.root = root;
    for (const ActionId sum : tied_sums(out, reduce.slice)) update.after.push_back(sum);
    out.actions.push_back(update);
    if (root < 0) continue;
    update.kind = ActionKind::broadcast;
    update.stream = Stream::comm;
    update.payload = OperandKind::weights;
    update.after = {static_cast<ActionId>(out.actions.size()) - 1};
    out.actions.push_back(update);
  }
  return out;
}

Plan gather_after_updates(Plan plan) {
  for (Program& program : plan.programs) {
    const auto is_dropped = [](const Action& a) { return drops(a, OperandKind::weights); };
    if (!keeps_shards(program) || std::ranges::any_of(program.actions, is_dropped)) continue;
    std::vector<Action> gathers;
    program = rebuilt(program, [&](Rebuild& rebuild, ActionId id, const Action& a) {
      if (a.kind == ActionKind::all_gather && a.payload == OperandKind::weights) {
        gathers.push_back(a);
        return;
      }
      const ActionId now = rebuild.keep(id);
      const auto of_update = std::ranges::find(gathers, a.slice, &Action::slice);
      if (a.kind != ActionKind::update || of_update == gathers.end()) return;
      rebuild.add(on_slice(ActionKind::all_gather, Stream::comm, a.slice, a.peer.axis, {now}, OperandKind::weights));
    });
  }
  return plan;
}

}  // namespace trireme
