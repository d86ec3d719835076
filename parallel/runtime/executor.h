// Executor: carries out the actions of a rank's program in the order of an Interpreter, on tensors and communicators,
// in real or virtual time. Computations run on the caller's thread; collectives marked on_ready overlap with backward.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/runtime/agreement.h"
#include "parallel/runtime/buckets.h"
#include "parallel/runtime/channels.h"
#include "parallel/runtime/charged_time.h"
#include "parallel/runtime/encoded_reduction.h"
#include "parallel/plan/interpreter.h"
#include "parallel/runtime/pipeline_p2p.h"
#include "parallel/runtime/recorder.h"
#include "parallel/runtime/step_ranks.h"
#include "parallel/runtime/steps_in_flight.h"
#include "parallel/runtime/tapes.h"
#include "parallel/runtime/weight_versions.h"

namespace trireme {

/// The forward and backward passes of a step that a device has captured.
class CapturedPasses {
 public:
  virtual ~CapturedPasses() = default;
  virtual void forward() = 0;              ///< starts the forward pass
  virtual const Tensor& loss() const = 0;  ///< the loss of forward(): a scalar, valid until the next forward()
  /// Starts the backward pass in parts and calls complete() between them, as Executor::compute_gradients() did during
  /// capture.
  virtual void backward(const Buckets::Complete& complete) = 0;
};

/// Runs the steps of one rank.
class Executor {
 public:
  /// plan: a checked plan. All references must outlive the executor. Throws Error for a plan that it cannot run.
  Executor(const Plan& plan, int program, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh,
           const StepRanks& ranks, const StepOptions& options);
  /// Runs a step. Returns a description of what is not finite; then no rank has updated anything. Empty: the step is
  /// done. captured: runs the passes instead of the model; null: the model runs them.
  std::string run(const Tensor& x, const Tensor& y, CapturedPasses* captured = nullptr);
  /// Runs a step of a program whose phases messages start (a server): runs phases as their messages arrive, until the
  /// last one. The loss comes from the messages.
  void serve();
  /// In a plan with tickets: starts the training of that many more global batches.
  void open(std::int64_t batches);
  /// In a plan with tickets: the final step of a worker that has no ticket left. steps: number of steps that all
  /// workers have done.
  void close(std::int64_t steps);
  /// Runs the micro-batches in flight to their updates (phase phases::flush), and finishes operations that kinds of
  /// actions have left in progress (ActionRow::flush). A collective call; does nothing if nothing is in progress.
  /// refused: the micro-batches of the last step update nothing. Throws Error if an exception has interrupted a step.
  void flush(bool refused = false);
  /// Number of steps before the next one; Optimizer::steps() does not count steps in flight.
  std::int64_t steps() const { return in_flight_.next(optimizer_.steps()); }
  /// Call for a refused step that leaves other ranks waiting: no later step can run.
  void break_off() { in_midst_ = in_midst_ || leaves_messages_; }
  /// Whether a step is running or was interrupted; flush() then throws if anything is in flight.
  bool in_midst() const { return in_midst_; }
  /// The steps that have not been updated yet.
  const StepsInFlight& in_flight() const { return in_flight_; }
  /// The passes of run() alone, for capture: forward, which returns the loss; and backward, which calls complete() with
  /// the number of complete gradient buckets whenever it grows.
  Tensor compute_loss(const Tensor& x, const Tensor& y);
  void compute_gradients(const Buckets::Complete& complete);
  /// The messages of this rank.
  Channels& channels() { return channels_; }
  /// The numbers that ranks agreed on in the last step.
  Agreement& agreement() { return agreement_; }
  /// The slices of the flat block that this rank updates, in order.
  const std::vector<Slice>& updated() const { return updated_; }
  /// From now on records every action in recorder, which must outlive the executor; null: stop. While recording, the
  /// host waits for devices after each action, so that times are of the actual work.
  void record(Recorder* recorder) { recorder_ = recorder; }
  /// The largest number of micro-batches, counted once per segment of parts, that were alive at once in the last run.
  int most_in_flight() const { return tapes_.most_alive(); }

 private:
  friend class Interpreter<Executor>;
  struct Slot {                    // of one action, parallel to the list
    Communicator* comm = nullptr;  // null: no other rank on the axis
    Slice shard;                   // this rank's part of the action's slice
    int bucket = -1;               // of buckets_; -1: not on_ready
    bool completes = false;        // a backward of the last micro-batch, which completes gradients
    bool last_forward = false, last_backward = false, first_update = false, last_update = false;
    bool decides = false;     // the first update of this step's micro-batches
    bool first_push = false;  // the first push of gradients to the rank that updates
    EncodedReduction encoded;
    std::any memory;  // of a custom kind of action
    void (Executor::*run)(ActionId) = nullptr;
    std::vector<Tensor> arriving;
    std::vector<Work> works;
    bool pending = false, posted = false;
    std::string text;  // text_of()
  };
  void number_cuts();
  void prepare(Mesh&);
  std::vector<int> backwards_by_entry() const;
  void prepare_backward();
  void prepare_updates();
  // For the interpreter; waits for other ranks sleep here.
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
  int next_phase() { return phase_ = channels_.next(); }
  bool ends(int phase) const { return program_.phases[static_cast<std::size_t>(phase)].last; }

  std::unique_ptr<MemoryScope> count_memory();
  void begin(const Tensor& x, const Tensor& y);
  void begin_step();
  void flush_rows();
  void check_whole() const;
  /// A message that the receiver may need only in its next step: this rank does not wait for it.
  bool is_sent_ahead(const Action& a) const {
    return a.kind == ActionKind::send && in_flight_.is_asynchronous() && !tapes_.runs(a.part) && !time_.simulated();
  }
  std::string decide();
  static auto find_run(const Action&) -> void (Executor::*)(ActionId);
  const Action& action(ActionId id) const { return program_.actions[static_cast<std::size_t>(id)]; }
  Slot& slot(ActionId id) { return slots_[static_cast<std::size_t>(id)]; }
  // The starts of the library's kinds of actions.
  void compute(ActionId);
  void replay(ActionId);
  void add_loss(ActionId);
  void free(ActionId);
  void send(ActionId);
  void receive(ActionId);
  void reduce(ActionId);
  void sum_tied(ActionId);
  void give(ActionId);
  void drop(ActionId);
  void average(ActionId);
  void agree(ActionId);
  void update(ActionId);
  void push(ActionId);
  void pull(ActionId);
  void take(ActionId);
  void run_row(ActionId);  // a custom kind of action

  Work start_reduction(ActionId, const Tensor& gradients);
  CodecContext codec_context(const Action&, const Communicator&) const;
  ActionContext context(const Action&, Slot&);
  void finish(ActionId id);
  PipelineP2P::Route route(const Action&, const Slot&) const;
  void try_to_receive(const Action&, Slot&);
  void finish_receive(const Action&, Slot&);
  void finish_sends();
  Tensor gradients(const Slice& s) const { return optimizer_.parameters().grads().rows(s.begin, s.end); }
  Tensor values(const Slice& s) const { return optimizer_.parameters().values().rows(s.begin, s.end); }

  const Plan& plan_;
  const Program& program_;
  std::map<int, int> cut_of_;  // by the part before the cut
  Optimizer& optimizer_;
  Tapes tapes_;
  PipelineP2P p2p_;
  Channels channels_;
  std::vector<Slot> slots_;
  Interpreter<Executor> interpreter_;
  CapturedPasses* captured_ = nullptr;  // runs the passes of this step; null: the model does
  enum class Replayed : std::uint8_t {
    nothing,
    forward,
    backward
  } replayed_ = Replayed::nothing;  // passes that captured_ has run
  bool passes_only_ = false;        // run only the passes of the list
  int phase_ = 0;                   // current phase of a server
  std::string fault_;               // of this step
  std::vector<ActionId> sending_;
  std::vector<Tensor> sent_;  // by the last message, while a Recorder counts memory
  const StepRanks& ranks_;
  ActionId loss_end_ = 0;         // after the last loss; 0: the program has none
  bool updates_ = false;          // the program has an update
  bool sums_loss_ = false;        // other ranks have shares of the loss
  bool keeps_ = false;            // this step updates nothing
  bool skips_ = false;            // this step ends without this rank's update
  bool closing_ = false;          // no ticket is left for this rank
  bool refused_ = false;          // the last step's micro-batches update nothing
  bool in_midst_ = false;         // a step runs, or an exception has interrupted one
  bool leaves_messages_ = false;  // some kind of action leaves messages in flight between steps (ActionRow::flush)
  StepsInFlight in_flight_;
  std::unique_ptr<Buckets> buckets_;
  std::vector<Slice> shards_,
      updated_;  // this rank's shard of each update, without copies that other programs own; their union
  WeightVersions versions_;
  Agreement agreement_;
  double grad_scale_ = 1;
  std::int64_t step_ = 0;  // steps before this one; updates within it count it
  Tensor loss_;
  Recorder* recorder_ = nullptr;
  ChargedTime time_;
};

}  // namespace trireme
