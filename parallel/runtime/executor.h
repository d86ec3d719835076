// Executor: carries out the actions of a rank's program in the order of an Interpreter, on tensors and communicators,
// in real or virtual time. Computations run on the caller's thread; collectives marked on_ready overlap with backward.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/async/own_pace.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/model/weight_reads.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/interpreter.h"
#include "parallel/runtime/agreement.h"
#include "parallel/runtime/buckets.h"
#include "parallel/runtime/charged_time.h"
#include "parallel/runtime/encoded_reduction.h"
#include "parallel/runtime/recorder.h"
#include "parallel/runtime/stage_messages.h"
#include "parallel/runtime/step_ranks.h"
#include "parallel/runtime/steps_in_flight.h"
#include "parallel/runtime/tapes.h"
#include "parallel/runtime/weight_versions.h"

namespace trireme {

/// The forward and backward passes of a step that a device has captured, to be run again in later steps.
class CapturedPasses {
 public:
  virtual ~CapturedPasses() = default;
  virtual void forward() = 0;              ///< starts the forward pass
  virtual const Tensor& loss() const = 0;  ///< the loss of forward(): a scalar, valid until the next forward()
  /// Starts the backward pass in parts. Between them calls complete() as Executor::compute_gradients() did during
  /// capture.
  virtual void backward(const Buckets::Complete& complete) = 0;
};

/// Runs the steps of one rank.
class Executor {
 public:
  /// plan: a checked plan. program: index of this rank's program. ranks: the communicators of its actions. pace: which
  /// actions run in a step, for asynchronous strategies. All references must outlive the executor. Throws Error for a
  /// plan that it cannot run.
  Executor(const Plan& plan, int program, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh,
           const StepRanks& ranks, OwnPace& pace, const StepOptions& options);
  /// Runs a step on this rank's rows: inputs x, targets y. Returns a description of the number that is not finite; no
  /// rank has updated anything then. Empty: the step is done. captured: runs the passes instead of the model; null: the
  /// model runs them.
  std::string run(const Tensor& x, const Tensor& y, CapturedPasses* captured = nullptr);
  /// Runs a step in which this rank trains no rows. A server (Program::serves) runs each phase when the messages that
  /// start it have arrived, until the phase that ends the step. The loss comes from messages of other ranks.
  void serve();
  /// Runs the micro-batches in flight to their updates (phase phases::flush), and completes the exchanges that actions
  /// have left in progress (ActionRow::flush). A collective call; does nothing if nothing is in progress. refused: the
  /// micro-batches of the last step update nothing. Throws Error if an exception has interrupted a step.
  void flush(bool refused = false);
  /// Number of steps before the next one, including steps in flight, which Optimizer::steps() does not count yet.
  std::int64_t steps() const { return in_flight_.next(optimizer_.steps()); }
  /// Call after a step that was refused on this rank only. Later steps then throw Error if other ranks may wait for
  /// messages of this one.
  void break_off() { now_.in_midst = now_.in_midst || facts_.leaves_messages; }
  /// Whether a step is running or was interrupted; flush() then throws if anything is in flight.
  bool in_midst() const { return now_.in_midst; }
  /// The steps that have not been updated yet.
  const StepsInFlight& in_flight() const { return in_flight_; }
  /// The passes of run() alone, for capture: forward, which returns the loss; and backward, which calls complete() with
  /// the number of complete gradient buckets whenever it grows.
  Tensor compute_loss(const Tensor& x, const Tensor& y);
  void compute_gradients(const Buckets::Complete& complete);
  /// The numbers that ranks agreed on in the last step.
  Agreement& agreement() { return agreement_; }
  /// The slices of the flat block of weights that this rank updates, in order.
  const std::vector<Slice>& updated() const { return own_.updated; }
  /// From now on records every action in recorder, which must outlive the executor; null: stop. While recording, the
  /// host waits for devices after each action, so that times include the devices' work.
  void record(Recorder* recorder) { recorder_ = recorder; }
  /// The largest number of micro-batches, counted once per segment of parts, that were alive at once in the last run.
  int most_in_flight() const { return tapes_.most_alive(); }

  // What the library's kinds of actions do (parallel/plan/rank_actions.h).
  Work pass(ActionId);
  Work loss(ActionId);
  Work free(ActionId);
  Work send(ActionId);
  Work receive(ActionId);
  void end_receive(ActionId id) {
    messages_.finish_receive(action(id), *slot(id).comm, slot(id).message, slot(id).works);
  }
  Work reduce(ActionId);
  void end_reduce(ActionId);
  Work agree(ActionId);
  void end_agree(ActionId id) { agreement_.finish(action(id)); }
  Work update(ActionId);

 private:
  friend class Interpreter<Executor>;
  struct Slot {                    // the executor's data of one action
    Communicator* comm = nullptr;  // null: no other rank on the axis
    Slice shard;                   // this rank's part of the action's slice
    int share = 0;                 // of a sum over replicas: index of the shard that it sums
    int bucket = -1;               // index in buckets_; -1: the action is not on_ready
    bool completes = false;        // a backward of the last micro-batch, which completes gradients
    bool last_forward = false, last_backward = false, first_update = false, last_update = false;
    // The first action that uses gradients of this step for an update, or for its trust ratios: decide() runs before
    // it.
    bool decides = false;
    bool first_send = false;  // the first send of gradients to a server: decide() runs before it
    EncodedReduction encoded;
    std::any memory;  // what a custom kind of action keeps between its functions
    StageMessages::Message message;
    std::vector<Work> works;
    bool pending = false;  // started, not finished
    std::string text;      // of text_of()
  };
  enum class Replayed : std::uint8_t { nothing, forward, backward };
  /// The state of one step.
  struct Now {
    std::int64_t step = 0;                  // steps before this one; updates within it count it
    bool in_midst = false;                  // the step runs, or an exception has interrupted it
    bool updates = false;                   // an update has begun
    int phase = 0;                          // current phase of a server
    std::string fault = {};                 // describes what is not finite
    Tensor loss = {};                       // this rank's share of the loss, without loss scale
    CapturedPasses* captured = nullptr;     // runs the passes of this step; null: the model does
    Replayed replayed = Replayed::nothing;  // passes that captured has run
  };
  /// Properties of the program, found before the first step.
  struct Facts {
    ActionId loss_end = 0;         // the action after the last loss; 0: the program computes no loss
    bool updates = false;          // the program has an update
    bool sums_loss = false;        // other ranks have shares of the loss
    bool leaves_messages = false;  // some action leaves messages in flight between steps (ActionRow::flush)
    bool is_first_step = true;     // no step has begun
  };
  struct OwnSlices {
    std::vector<Slice> shards = {};  // this rank's shard of each update, without tied weights that another program owns
    std::vector<Slice> copies = {};  // tied weights that another program owns
    std::vector<Slice> updated = {};  // all slices that this rank updates, neighbours joined
  };
  void prepare(Mesh&);
  std::vector<int> backwards_by_entry() const;
  void prepare_backward();
  void prepare_updates();
  void prepare_reads();
  // The interface of Interpreter<Executor>. The thread sleeps only in wait() and next_phase().
  int actions() const { return static_cast<int>(std::ssize(slots_)); }
  std::span<const ActionId> after(ActionId id) const { return action(id).after; }
  bool is_inline(ActionId id) const { return action(id).stream == Stream::compute; }
  bool runs(ActionId) const;
  bool start(ActionId);
  const std::string& text_of(ActionId);
  bool wait(ActionId id) {
    if (!is_sent_ahead(action(id))) finish(id);
    return true;
  }
  bool serves() const { return program_.serves(); }
  int next_phase() { return now_.phase = pace_.next(); }
  bool ends(int phase) const { return program_.phases[static_cast<std::size_t>(phase)].last; }

  std::unique_ptr<MemoryScope> count_memory();
  void begin(const Tensor& x, const Tensor& y);
  void begin_step();
  void flush_rows();
  void check_whole() const;
  /// A message that the receiver may need only in its next step: this rank does not wait for it.
  bool is_sent_ahead(const Action& a) const {
    return a.kind == ActionKind::send && a.payload == OperandKind::cotangent && in_flight_.is_asynchronous() &&
           !time_.simulated();
  }
  std::string decide();
  const Action& action(ActionId id) const { return program_.actions[static_cast<std::size_t>(id)]; }
  Slot& slot(ActionId id) { return slots_[static_cast<std::size_t>(id)]; }
  void run_row(ActionId);
  void run_passes(ActionId begin, ActionId end);
  void replay(ActionId);
  Work start_reduction(ActionId, const Tensor& gradients);
  CodecContext codec_context(const Action&, const Communicator&) const;
  ActionContext context(ActionId);
  void finish(ActionId id);
  void finish_sends();
  Tensor gradients(const Slice& s) const { return optimizer_.parameters().grads().rows(s.begin, s.end); }

  const Plan& plan_;
  const Program& program_;
  Optimizer& optimizer_;
  const StepRanks& ranks_;
  Tapes tapes_;
  StageMessages messages_;
  OwnPace& pace_;
  std::vector<Slot> slots_;
  Interpreter<Executor> interpreter_;
  Facts facts_;
  Now now_;
  std::optional<double> grad_scale_ = 1;  // factor of gradients; none: updates change nothing
  StepsInFlight in_flight_;
  std::unique_ptr<Buckets> buckets_;
  OwnSlices own_;
  WeightVersions versions_;
  std::optional<WeightReads> reads_;  // in the first step: refuses a read of a weight that is gathered in another type
  Agreement agreement_;
  Recorder* recorder_ = nullptr;
  ChargedTime time_;
};

}  // namespace trireme
