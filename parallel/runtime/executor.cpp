#include "parallel/runtime/executor.h"

#include <algorithm>

#include "kernels/core/runtime.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/plan/action_kind.h"
#include "parallel/split/split.h"

namespace trireme {
Executor::Executor(const Plan& plan, int program, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh,
                   const StepRanks& ranks, OwnPace& pace, const StepOptions& options)
    : plan_(plan),
      program_(plan.programs.at(static_cast<std::size_t>(program))),
      optimizer_(optimizer),
      ranks_(ranks),
      tapes_(plan, program_, chain, std::move(loss)),
      messages_(plan, tapes_, grid_of(optimizer.parameters()), mesh.meter()),
      pace_(pace),
      slots_(program_.actions.size()),
      in_flight_(plan, program_),
      versions_(optimizer.parameters(), plan.updated(static_cast<std::size_t>(program)), program_.versions),
      agreement_(optimizer, program_, own_.shards, options),
      time_(plan, program_, mesh.world()) {
  for (const State& state : plan.state) optimizer.parameters().add_state(state.name, state.initial, state.dtype);
  prepare(mesh);
  prepare_backward();
  prepare_updates();
}

void Executor::begin(const Tensor& x, const Tensor& y) {
  tapes_.begin(x, y);
  messages_.begin_step();
  begin_step();
}

void Executor::begin_step() {
  check_whole();
  interpreter_ = {};
  agreement_.begin();
  now_ = {.step = steps(), .in_midst = true};
  if (const Tensor known = pace_.begin_step(now_.step)) agreement_.set_loss(known, false);
  in_flight_.begin(now_.step);
  time_.begin_step(now_.step);
}

/// While the result lives, tensors that this thread creates count as memory of the step. The optimizer's state is
/// counted separately, so it is allocated before.
std::unique_ptr<MemoryScope> Executor::count_memory() {
  if (!recorder_) return nullptr;
  if (facts_.updates) {
    optimizer_.keep(own_.updated);
    (void)optimizer_.state();
  }
  return std::make_unique<MemoryScope>(recorder_->memory());
}

std::string Executor::run(const Tensor& x, const Tensor& y, CapturedPasses* captured) {
  if (recorder_) recorder_->clear(slots_.size());
  const auto counted = count_memory();
  for (ActionId id = 0; id < actions(); ++id) {  // finishes what a refused step has started, without effects
    Slot& s = slot(id);
    if (is_custom(action(id)) && std::exchange(s.pending, false)) s.works.clear();
    if (!is_sent_ahead(action(id))) finish(id);
  }
  begin(x, y);
  now_.captured = captured;
  if (buckets_) buckets_->arm(false);
  if (std::exchange(facts_.is_first_step, false)) prepare_reads();
  interpreter_.run(*this);
  reads_.reset();
  now_.in_midst = false;
  if ((!facts_.updates || in_flight_.most_back() > 0) && now_.fault.empty()) {  // no update of this step has exchanged
                                                                                // it
    const bool decided =
        std::ranges::any_of(slots_, [&](const Slot& s) { return s.first_send || (s.decides && !facts_.updates); });
    if (!decided && !(now_.fault = decide()).empty()) return now_.fault;
    if (!facts_.updates) optimizer_.finish();  // a stage without parameters counts the step, too
  }
  if (in_flight_.is_asynchronous() && !time_.simulated()) finish_sends();
  messages_.drop_kept();
  if (recorder_) recorder_->see(optimizer_.parameters(), versions_.bytes());
  return now_.fault;
}

/// Throws Error if an exception has interrupted a step, and other ranks wait for its messages or only some weights are
/// updated. No later step, gather or checkpoint may use such weights.
void Executor::check_whole() const {
  check(!now_.in_midst || !now_.updates, "step",
        "an exception has interrupted step {} between its updates, so some weights are updated and some are not: make "
        "another Step and load a checkpoint",
        now_.step + 1);
  check(
      !now_.in_midst || !(in_flight_.any() || facts_.leaves_messages), "step",
      "an exception has interrupted a step, and its messages to other ranks cannot be completed: make another Step on "
      "all ranks");
}

void Executor::flush_rows() {
  if (!facts_.leaves_messages) return;
  const NoGrad off;
  now_.in_midst = true;
  const std::int64_t last = std::exchange(now_.step, steps());
  for (ActionId id = 0; id < actions(); ++id)
    if (action(id).kind->flush) {
      ActionContext now = context(id);
      action(id).kind->flush(now);
    }
  now_.in_midst = false;
  now_.step = last;
}

void Executor::flush(bool refused) {
  check_whole();
  flush_rows();
  if (!in_flight_.any()) return;
  now_.in_midst = true;
  if (refused) in_flight_.refuse_last();
  Recorder* const recorder = std::exchange(recorder_, nullptr);  // records the step, not the flush after it
  for (int later = 0; later < in_flight_.most_back(); ++later) {
    time_.begin_step(++now_.step);
    tapes_.advance();
    interpreter_.run(*this);
  }
  for (ActionId id = 0; id < actions(); ++id) finish(id);
  in_flight_.clear();
  versions_.clear();
  recorder_ = recorder;
  now_.in_midst = false;
}

void Executor::serve() {
  const auto counted = count_memory();
  begin_step();
  if (recorder_ && serves()) recorder_->clear(slots_.size());
  interpreter_.run(*this);
  now_.in_midst = false;
  if (!facts_.updates && serves()) optimizer_.finish();  // a rank that forwards others' updates counts the step, too
  if (recorder_) recorder_->see(optimizer_.parameters());
}

Tensor Executor::compute_loss(const Tensor& x, const Tensor& y) {
  begin(x, y);
  run_passes(0, facts_.loss_end);
  return now_.loss;
}

void Executor::compute_gradients(const Buckets::Complete& complete) {
  if (buckets_) buckets_->arm(false, complete);
  run_passes(facts_.loss_end, actions());
}

/// Runs only the actions that a device captures. All of them compute, so list order is sufficient.
void Executor::run_passes(ActionId begin, ActionId end) {
  for (ActionId id = begin; id < end; ++id) {
    const Action& a = action(id);
    const bool counts = a.kind == ActionKind::agree && a.payload == OperandKind::count;
    if (!is_pass(a) && a.kind != ActionKind::free && !counts) continue;
    run_row(id);
    finish(id);
  }
}

bool Executor::runs(ActionId id) const {
  const Action& a = action(id);
  if (serves()) return a.phase == now_.phase;
  return pace_.runs(a) && program_.trigger(a).runs_at(now_.step) && in_flight_.has(a, now_.step);
}

/// For FlightRecorder; made once.
const std::string& Executor::text_of(ActionId id) {
  if (slot(id).text.empty()) slot(id).text = to_string(action(id));
  return slot(id).text;
}

bool Executor::start(ActionId id) {
  const Slot& s = slot(id);
  if ((s.first_send || s.decides) && !serves() && !(now_.fault = decide()).empty()) return false;
  if (recorder_) {
    if (action(id).kind == ActionKind::drop) recorder_->see(optimizer_.parameters());
    recorder_->begin(id);
  }
  {
    const FlightEntry entry(text_of(id));
    run_row(id);
  }
  if (id + 1 == facts_.loss_end) agreement_.set_loss(now_.loss.clone(), !facts_.sums_loss);
  if (!recorder_) return true;
  for (const PartInfo& part : plan_.parts)
    runtime(part.device.kind).synchronize(part.device);  // a device runs asynchronously
  recorder_->end(id);
  return true;
}

/// Decides whether the step may update, and the factor of the gradients. Returns a description of what is not finite.
std::string Executor::decide() {
  std::string fault = agreement_.fault();
  const bool overflow = fault.empty() && !agreement_.accepts_gradients();
  for (ActionId id = 0; !fault.empty() && id < std::ssize(slots_); ++id)  // later updates would have waited for these
    if (is_reduction(action(id)) || is_replica_sum(action(id))) finish(id);
  for (ActionId id = 0; (overflow || !fault.empty()) && id < std::ssize(slots_); ++id)  // codecs drop these gradients
    if (action(id).codec && slot(id).comm) {
      finish(id);
      slot(id).encoded.undo(now_.step);
    }
  if (!fault.empty())
    grad_scale_ = grad_scale_.value_or(1);  // for steps before this one
  else
    grad_scale_ = overflow ? std::nullopt : std::optional(agreement_.clip_scale());
  return fault;
}

void Executor::run_row(ActionId id) {
  const Action& a = action(id);
  Slot& s = slot(id);
  ActionContext now = context(id);
  if (is_pass(a)) {
    std::optional<WeightReads::Watch> watch;
    if (reads_) watch.emplace(*reads_);
    a.kind->start(now);
    return;
  }
  const NoGrad off;
  time_.run(id);
  if (Work work = a.kind->start(now); work.state()) s.works.push_back(std::move(work));
  s.pending = !s.works.empty() || a.kind->finish;
}

/// Runs a captured pass; the first one starts all.
void Executor::replay(ActionId id) {
  const Action& a = action(id);
  if (a.kind == ActionKind::forward && now_.replayed == Replayed::nothing) {
    now_.replayed = Replayed::forward;
    now_.captured->forward();
  }
  if (a.kind == ActionKind::loss) now_.loss = now_.captured->loss();
  if (!is_backward(a)) return;
  if (now_.replayed == Replayed::forward) {
    now_.replayed = Replayed::backward;
    now_.captured->backward([this](std::size_t n) { buckets_->start_through(n - 1); });
  }
  if (slot(id).last_backward && buckets_) buckets_->flush();
}

Work Executor::pass(ActionId id) {
  const Action& a = action(id);
  const Slot& s = slot(id);
  if (now_.captured) {
    replay(id);
    return {};
  }
  if (const Liveness& live = tapes_.live(); live.starts_segment(a)) {
    time_.begin_segment(id, live.segment_with(a.part));
    if (buckets_) buckets_->listen(s.completes);
    const NamedRange phase(a.kind == ActionKind::forward ? "forward" : "backward");
    const WeightVersions::Use weights(versions_, a.version);
    a.kind == ActionKind::forward ? tapes_.forward(a) : tapes_.backward(a);
  }
  if (s.last_forward) tapes_.commit();
  time_.end(id);
  if (s.last_backward && buckets_) buckets_->flush();
  return {};
}

Work Executor::loss(ActionId id) {
  if (now_.captured) {
    replay(id);
    return {};
  }
  time_.run(id);
  const Tensor loss = tapes_.loss(action(id).microbatch, optimizer_.loss_scale(), agreement_.ignored()).detach();
  if (now_.loss)
    add_into(now_.loss, loss);
  else
    now_.loss = plan_.microbatches > 1 ? loss.clone() : loss;
  return {};
}

Work Executor::free(ActionId id) {
  if (!now_.captured) tapes_.free(action(id));
  return {};
}

Work Executor::send(ActionId id) {
  Slot& s = slot(id);
  finish(id);  // of the previous step, if it was sent ahead
  messages_.send(id, action(id), *s.comm, recorder_ != nullptr, s.works);
  s.pending = true;
  finish_sends();
  return {};
}

/// Ends completed sends, so that their memory is released.
void Executor::finish_sends() {
  messages_.end_sends([&](ActionId id) {
    const bool all = std::ranges::all_of(slot(id).works, [](Work& w) { return w.done(); });
    if (all) finish(id);
    return all;
  });
}

Work Executor::receive(ActionId id) {
  Slot& s = slot(id);
  messages_.receive(action(id), *s.comm, s.message, s.works);
  return {};
}

Work Executor::reduce(ActionId id) {
  const Action& a = action(id);
  const Slot& s = slot(id);
  // A gradient that this rank does not produce completes no bucket. The bucket starts here, as on other ranks, before
  // later actions of the list.
  if (s.bucket >= 0) buckets_->start_through(static_cast<std::size_t>(s.bucket));
  if (s.bucket >= 0 || !s.comm) return {};
  optimizer_.parameters().zero_missing_grads(a.slice);
  return start_reduction(id, gradients(a.slice));
}

void Executor::end_reduce(ActionId id) {
  Slot& s = slot(id);
  if (s.bucket >= 0) buckets_->wait(static_cast<std::size_t>(s.bucket));
  if (is_encoded(action(id), now_.step) && s.comm) s.encoded.finish(*s.comm, gradients(action(id).slice));
}

Work Executor::start_reduction(ActionId id, const Tensor& gradients) {
  const Action& a = action(id);
  Slot& s = slot(id);
  if (is_encoded(a, now_.step)) return s.encoded.start(*s.comm, codec_context(a, *s.comm), gradients);
  if (a.kind == ActionKind::reduce_scatter) return reduce_shards(*s.comm, gradients);
  if (is_replica_sum(a)) return sum_shards(*s.comm, gradients, s.share, plan_.size(a.shard_axis));
  return s.comm->all_reduce(gradients);
}

CodecContext Executor::codec_context(const Action& a, const Communicator& comm) const {
  const Parameters& p = optimizer_.parameters();
  CodecContext now(plan_, a, size_of(p.dtype()), now_.step);
  now.rank = comm.rank();
  for (const std::string& name : codec_states(a))
    now.states.push_back(name.empty() ? Tensor() : p.state(name).rows(a.slice.begin, a.slice.end));
  return now;
}

Work Executor::agree(ActionId id) {
  if (action(id).payload == OperandKind::count) agreement_.set_ignored(tapes_.count_ignored());
  if (action(id).payload == OperandKind::ratios) {
    now_.updates = facts_.updates;
    if (facts_.updates) optimizer_.keep(own_.updated);
    return grad_scale_ ? agreement_.start_ratios(own_.updated, own_.copies, *grad_scale_, slot(id).comm) : Work{};
  }
  return agreement_.start(action(id), slot(id).comm);
}

Work Executor::update(ActionId id) {
  const Slot& s = slot(id);
  const NamedRange phase("update");
  now_.updates = true;
  if (in_flight_.refuses(action(id), now_.step)) return {};
  if (s.first_update) {
    optimizer_.keep(own_.updated);
    versions_.keep();
  }
  if (grad_scale_) {
    if (!s.comm) optimizer_.parameters().zero_missing_grads(action(id).slice);
    optimizer_.update(s.shard, *grad_scale_);
  }
  if (s.last_update) optimizer_.finish();
  return {};
}

ActionContext Executor::context(ActionId id) {
  Slot& s = slot(id);
  return {plan_, action(id),         optimizer_, s.comm, now_.step, ranks_.rows(), s.memory, pace_.arrivals(),
          id,    &agreement_.loss(), this,       &pace_};
}

void Executor::finish(ActionId id) {
  const Action& a = action(id);
  Slot& s = slot(id);
  if (!std::exchange(s.pending, false)) return;
  const FlightRecorder::WaitFor what(text_of(id));
  const bool communicated = s.comm || !s.works.empty();
  for (Work& work : s.works) work.wait();
  s.works.clear();
  if (a.kind->finish) {
    const NoGrad off;
    ActionContext now = context(id);
    a.kind->finish(now);
  }
  if (recorder_ && communicated) recorder_->end(id);
}

}  // namespace trireme
