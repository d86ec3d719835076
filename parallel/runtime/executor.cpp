#include "parallel/runtime/executor.h"

#include <algorithm>

#include "kernels/core/runtime.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/shards.h"
#include "parallel/runtime/packed_statistics.h"
#include "parallel/split/split.h"

namespace trireme {
Executor::Executor(const Plan& plan, int program, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh,
                   const StepRanks& ranks, const StepOptions& options)
    : plan_(plan),
      program_(plan.programs.at(static_cast<std::size_t>(program))),
      optimizer_(optimizer),
      tapes_(plan, program_, chain, std::move(loss)),
      p2p_(grid_of(optimizer.parameters()), mesh.meter()),
      channels_(plan, program_, optimizer.parameters(), mesh),
      slots_(program_.actions.size()),
      ranks_(ranks),
      in_flight_(plan, program_),
      versions_(optimizer.parameters(), plan.updated(static_cast<std::size_t>(program)), program_.versions),
      agreement_(optimizer, shards_, options),
      time_(plan, program_, mesh.world()) {
  for (const State& state : plan.state) optimizer.parameters().add_state(state.name, state.initial, state.dtype);
  number_cuts();
  prepare(mesh);
  prepare_backward();
  prepare_updates();
}

void Executor::begin(const Tensor& x, const Tensor& y) {
  tapes_.begin(x, y);
  agreement_.begin();
  loss_ = {};
  sending_.clear();
  begin_step();
}

void Executor::begin_step() {
  check_whole();
  in_midst_ = true;
  interpreter_ = {};
  fault_.clear();
  captured_ = nullptr;
  passes_only_ = false;
  step_ = steps();
  skips_ = plan_.tickets.shares == 0 && step_ < channels_.resumes_at();
  in_flight_.begin(step_);
  time_.begin_step(step_);
}

/// Tensors that this thread makes while the result lives are the step's. The optimizer's state is counted by itself.
std::unique_ptr<MemoryScope> Executor::count_memory() {
  if (!recorder_) return nullptr;
  if (updates_) {
    optimizer_.keep(updated_);
    (void)optimizer_.state();
  }
  return std::make_unique<MemoryScope>(recorder_->memory());
}

std::string Executor::run(const Tensor& x, const Tensor& y, CapturedPasses* captured) {
  if (recorder_) recorder_->clear(slots_.size());
  const auto counted = count_memory();
  for (ActionId id = 0; id < actions(); ++id) {  // what a refused step left; what it would have changed stays
    Slot& s = slot(id);
    if (s.run == &Executor::run_row && std::exchange(s.pending, false)) s.works.clear();
    if (!is_sent_ahead(action(id))) finish(id);
  }
  begin(x, y);
  captured_ = captured;
  replayed_ = Replayed::nothing;
  if (skips_) agreement_.set_loss(channels_.last_loss(), false);
  if (buckets_) buckets_->arm(false);
  interpreter_.run(*this);
  in_midst_ = false;
  if ((!updates_ || in_flight_.most_back() > 0) && fault_.empty()) {  // no update of this step's has asked
    const bool pushed = std::ranges::any_of(slots_, &Slot::first_push);
    if (!pushed && !(fault_ = decide()).empty()) return fault_;
    if (!updates_) optimizer_.finish();  // a stage without parameters counts the step, too
  }
  if (in_flight_.is_asynchronous() && !time_.simulated()) finish_sends();
  sent_.clear();
  if (recorder_) recorder_->see(optimizer_.parameters(), versions_.bytes());
  return fault_;
}

/// Of what goes on from step to step.
void Executor::check_whole() const {
  check(!in_midst_ || !(in_flight_.any() || leaves_messages_), "step",
        "an exception has left a step in its midst: what is in flight to other ranks cannot be ended; make another "
        "Step");
}

void Executor::flush_rows() {
  if (!leaves_messages_) return;
  const NoGrad off;
  in_midst_ = true;
  const std::int64_t last = std::exchange(step_, steps());
  for (ActionId id = 0; id < actions(); ++id)
    if (Slot& s = slot(id); s.run == &Executor::run_row && action(id).kind->flush) {
      ActionContext now = context(action(id), s);
      action(id).kind->flush(now);
    }
  in_midst_ = false;
  step_ = last;
}

void Executor::flush(bool refused) {
  check_whole();
  flush_rows();
  if (!in_flight_.any()) return;
  in_midst_ = true;
  refused_ = refused;
  Recorder* const recorder = std::exchange(recorder_, nullptr);  // which is told of the step, not of what comes behind
  for (int later = 0; later < in_flight_.most_back(); ++later) {
    time_.begin_step(++step_);
    tapes_.advance();
    interpreter_.run(*this);
  }
  for (ActionId id = 0; id < actions(); ++id) finish(id);
  in_flight_.clear();
  versions_.clear();
  recorder_ = recorder;
  refused_ = in_midst_ = false;
}

void Executor::serve() {
  const auto counted = count_memory();
  begin_step();
  agreement_.begin();
  if (recorder_) recorder_->clear(slots_.size());
  interpreter_.run(*this);
  in_midst_ = false;
  if (!updates_) optimizer_.finish();  // who passes on what others update with counts the step, too
  if (recorder_) recorder_->see(optimizer_.parameters());
}

void Executor::open(std::int64_t batches) {
  channels_.open(batches, serves() ? steps() / updates_in_step(plan_, program_) : steps());
}

void Executor::close(std::int64_t steps) {
  begin_step();
  agreement_.begin();
  agreement_.set_loss(Tensor::zeros({}, DType::f64), false);
  closing_ = true;
  interpreter_.run(*this);
  closing_ = in_midst_ = false;
  (void)agreement_.take_loss();
  optimizer_.set_steps(steps);
}

Tensor Executor::compute_loss(const Tensor& x, const Tensor& y) {
  begin(x, y);
  passes_only_ = true;
  interpreter_.run_list(*this, loss_end_);
  return loss_;
}

void Executor::compute_gradients(const Buckets::Complete& complete) {
  if (buckets_) buckets_->arm(false, complete);
  interpreter_.run_list(*this, actions());
}

bool Executor::runs(ActionId id) const {
  const Action& a = action(id);
  if (serves()) return a.phase == phase_;
  if (plan_.tickets.shares > 0 && !runs_with_ticket(a, closing_)) return false;
  const bool passes = is_pass(a) || a.kind == ActionKind::free || (a.kind == ActionKind::agree && a.field == "count");
  if (passes_only_ && !passes) return false;
  return program_.trigger(a).runs_at(step_) && (!skips_ || reports_loss(a)) && in_flight_.has(a, step_);
}

/// For FlightRecorder; made once.
const std::string& Executor::text_of(ActionId id) {
  if (slot(id).text.empty()) slot(id).text = to_string(action(id));
  return slot(id).text;
}

bool Executor::start(ActionId id) {
  const Slot& s = slot(id);
  if ((s.first_push || s.decides) && !serves() && !(fault_ = decide()).empty()) return false;
  if (recorder_) recorder_->begin(id);
  {
    const FlightEntry entry(text_of(id));
    (this->*s.run)(id);
  }
  if (id + 1 == loss_end_ && !passes_only_) agreement_.set_loss(loss_.clone(), !sums_loss_);
  if (!recorder_) return true;
  for (const PartInfo& part : plan_.parts)
    runtime(part.device.kind).synchronize(part.device);  // a device goes on by itself
  recorder_->end(id);
  return true;
}

/// Whether the step may update, and by which factor of the gradients. Returns what is not finite.
std::string Executor::decide() {
  std::string fault = agreement_.fault();
  keeps_ = fault.empty() && !agreement_.accepts_gradients();
  for (ActionId id = 0; !fault.empty() && id < std::ssize(slots_); ++id)  // for which later updates would have waited
    if (is_reduction(action(id))) finish(id);
  for (ActionId id = 0; (keeps_ || !fault.empty()) && id < std::ssize(slots_); ++id)  // codecs forget these gradients
    if (action(id).codec && slot(id).comm) {
      finish(id);
      slot(id).encoded.undo(step_);
    }
  if (!fault.empty()) return fault;
  grad_scale_ = keeps_ ? 1 : agreement_.clip_scale();
  return "";
}

auto Executor::find_run(const Action& a) -> void (Executor::*)(ActionId) {
  using K = ActionKind;
  const auto is = [&](auto... kinds) { return ((a.kind == kinds) || ...); };
  if (is(K::loss)) return &Executor::add_loss;
  if (is_pass(a)) return &Executor::compute;
  if (is_reduction(a)) return &Executor::reduce;
  if (is(K::sum_tied)) return &Executor::sum_tied;
  if (is(K::all_gather, K::broadcast)) return &Executor::give;
  if (is(K::drop_gradients, K::drop_values)) return &Executor::drop;
  if (is(K::send)) return &Executor::send;
  if (is(K::recv)) return &Executor::receive;
  if (is(K::update)) return &Executor::update;
  if (is(K::push)) return &Executor::push;
  if (is(K::pull)) return &Executor::pull;
  if (is(K::take)) return &Executor::take;
  if (is(K::average)) return &Executor::average;
  if (is(K::free)) return &Executor::free;
  if (is(K::agree)) return &Executor::agree;
  check(a.kind->start != nullptr, "executor", "{}: the row of its kind does not say how it starts",
        [&] { return to_string(a); });
  return &Executor::run_row;
}

/// A pass that is a part of what was captured: the first one starts all.
void Executor::replay(ActionId id) {
  const Action& a = action(id);
  if (a.kind == ActionKind::forward && replayed_ == Replayed::nothing) {
    replayed_ = Replayed::forward;
    captured_->forward();
  }
  if (a.kind == ActionKind::loss) loss_ = captured_->loss();
  if (!is_backward(a)) return;
  if (replayed_ == Replayed::forward) {
    replayed_ = Replayed::backward;
    captured_->backward([this](std::size_t n) { buckets_->start_through(n - 1); });
  }
  if (slot(id).last_backward && buckets_) buckets_->flush();
}

void Executor::compute(ActionId id) {
  const Action& a = action(id);
  const Slot& s = slot(id);
  if (captured_) return replay(id);
  if (tapes_.is_segment_head(a)) {
    time_.begin_segment(id, tapes_);
    if (buckets_) buckets_->listen(s.completes);
    const NamedRange phase(a.kind == ActionKind::forward ? "forward" : "backward");
    const WeightVersions::Use weights(versions_, a.version);
    a.kind == ActionKind::forward ? tapes_.forward(a) : tapes_.backward(a);
  }
  if (s.last_forward) tapes_.commit();
  time_.end(id);
  if (s.last_backward && buckets_) buckets_->flush();
}

void Executor::add_loss(ActionId id) {
  if (captured_) return replay(id);
  time_.run(id);
  const Tensor loss = tapes_.loss(action(id).microbatch, optimizer_.loss_scale(), agreement_.ignored()).detach();
  if (loss_)
    add_into(loss_, loss);
  else
    loss_ = plan_.microbatches > 1 ? loss.clone() : loss;
}

void Executor::free(ActionId id) {
  if (!captured_) tapes_.free(action(id));
}

void Executor::reduce(ActionId id) {
  const Action& a = action(id);
  Slot& s = slot(id);
  s.pending = s.comm != nullptr;
  // A gradient that this rank does not produce has completed no bucket. Its turn is now, as on the other ranks, before
  // what the list has behind it.
  if (s.bucket >= 0) buckets_->start_through(static_cast<std::size_t>(s.bucket));
  if (s.bucket >= 0 || !s.comm) return;
  optimizer_.parameters().zero_missing_grads(a.slice);
  s.works.push_back(start_reduction(id, gradients(a.slice)));
}

void Executor::sum_tied(ActionId id) {
  const Slice& slice = action(id).slice;
  optimizer_.parameters().zero_missing_grads(slice);
  slot(id).works.push_back(slot(id).comm->all_reduce(gradients(slice)));
  slot(id).pending = true;
}

Work Executor::start_reduction(ActionId id, const Tensor& gradients) {
  const Action& a = action(id);
  Slot& s = slot(id);
  if (a.kind == ActionKind::reduce_scatter) return reduce_shards(*s.comm, gradients);
  if (!is_encoded(a, step_)) return s.comm->all_reduce(gradients);
  return s.encoded.start(*s.comm, codec_context(a, *s.comm), gradients);
}

CodecContext Executor::codec_context(const Action& a, const Communicator& comm) const {
  const Parameters& p = optimizer_.parameters();
  CodecContext now(plan_, a, size_of(p.dtype()), step_);
  now.rank = comm.rank();
  for (const std::string& name : codec_states(a))
    now.states.push_back(name.empty() ? Tensor() : p.state(name).rows(a.slice.begin, a.slice.end));
  return now;
}

void Executor::average(ActionId id) {
  Slot& s = slot(id);
  if (!s.comm) return;
  s.works.push_back(average_statistics(*s.comm, optimizer_.parameters(), action(id).slice));
  s.pending = true;
}

void Executor::give(ActionId id) {
  Slot& s = slot(id);
  s.pending = s.comm != nullptr;
  if (!s.comm) return;
  restore_pages(optimizer_.parameters().values(), action(id).slice);
  s.works.push_back(all_gather_updated(action(id), *s.comm, values(action(id).slice)));
}

void Executor::drop(ActionId id) {
  const Action& a = action(id);
  Parameters& p = optimizer_.parameters();
  if (recorder_) recorder_->see(p);
  if (a.kind == ActionKind::drop_values) return release_values(p, a.slice, slot(id).shard);
  release_gradients(p, a.slice, slot(id).shard);
}

void Executor::agree(ActionId id) {
  Slot& s = slot(id);
  if (action(id).field == "count") agreement_.set_ignored(tapes_.count_ignored());
  s.works.push_back(agreement_.start(action(id), s.comm));
  s.pending = true;
}

void Executor::update(ActionId id) {
  const Slot& s = slot(id);
  const NamedRange phase("update");
  if (refused_ && in_flight_.is_last(action(id), step_)) return;
  if (s.first_update) {
    optimizer_.keep(updated_);
    versions_.keep();
  }
  if (keeps_) {
    if (s.last_update) optimizer_.finish();
    return;
  }
  if (!s.comm) optimizer_.parameters().zero_missing_grads(action(id).slice);
  optimizer_.update(s.shard, grad_scale_);
  if (s.last_update) optimizer_.finish();
}

void Executor::push(ActionId id) {
  const bool is_clock = action(id).field == "clock";
  Tensor number = is_clock ? Tensor::scalar(static_cast<double>(optimizer_.steps()), DType::f64) : agreement_.loss();
  if (!number) number = Tensor::zeros({}, DType::f64);  // of who passes on what others have computed
  slot(id).works.push_back(channels_.push(action(id), step_, number));
  slot(id).pending = true;
}

void Executor::pull(ActionId id) {
  slot(id).works.push_back(channels_.pull(action(id)));
  slot(id).pending = true;
}

void Executor::take(ActionId id) {
  if (const Tensor loss = channels_.take(action(id))) agreement_.set_loss(loss, false);
}

ActionContext Executor::context(const Action& a, Slot& s) {
  return {plan_, a, optimizer_, s.comm, step_, ranks_.rows(), s.memory, channels_.arrivals()};
}

void Executor::run_row(ActionId id) {
  const NoGrad off;
  Slot& s = slot(id);
  time_.run(id);
  ActionContext now = context(action(id), s);
  s.works.push_back(action(id).kind->start(now));
  s.pending = true;
}

void Executor::finish(ActionId id) {
  const Action& a = action(id);
  Slot& s = slot(id);
  if (!std::exchange(s.pending, false)) return;
  const FlightRecorder::WaitFor what(text_of(id));
  if (a.kind == ActionKind::recv) finish_receive(a, s);
  if (s.bucket >= 0) buckets_->wait(static_cast<std::size_t>(s.bucket));
  for (Work& work : s.works) work.wait();
  s.works.clear();
  if (a.kind == ActionKind::all_gather || a.kind == ActionKind::broadcast)
    optimizer_.parameters().mark_released(a.slice, false);
  if (is_encoded(a, step_)) s.encoded.finish(*s.comm, gradients(a.slice));
  if (s.run == &Executor::run_row && a.kind->finish) {
    const NoGrad off;
    ActionContext now = context(a, s);
    a.kind->finish(now);
  }
  if (a.kind == ActionKind::agree) agreement_.finish(a);
  if (recorder_) recorder_->end(id);
}

}  // namespace trireme
