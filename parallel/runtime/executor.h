// Executor: carries out the actions to which an Interpreter comes: on tensors, by a communicator, whose time is real or
// virtual. Computations run on the caller's thread; collectives on_ready start in the midst of backward.
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
#include "parallel/runtime/interpreter.h"
#include "parallel/runtime/pipeline_p2p.h"
#include "parallel/runtime/recorder.h"
#include "parallel/runtime/step_ranks.h"
#include "parallel/runtime/steps_in_flight.h"
#include "parallel/runtime/tapes.h"
#include "parallel/runtime/weight_versions.h"

namespace trireme {

/// Forward and backward of a step that a device has captured.
class CapturedPasses {
 public:
  virtual ~CapturedPasses() = default;
  virtual void forward() = 0;              ///< starts
  virtual const Tensor& loss() const = 0;  ///< that it computes: a scalar, until the next forward()
  /// Starts, and calls complete() between what it starts, as Executor::compute_gradients() did when it was captured.
  virtual void backward(const Buckets::Complete& complete) = 0;
};

class Executor {
 public:
  /// plan has been checked. All that is referred to must outlive the executor. Throws Error for a plan it cannot run.
  Executor(const Plan& plan, int program, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh,
           const StepRanks& ranks, const StepOptions& options);
  /// Runs a step. Returns what is not finite, in words: then nothing has been updated, on any rank; empty: the step is
  /// done. captured: does the passes instead of the model; null: nobody.
  std::string run(const Tensor& x, const Tensor& y, CapturedPasses* captured = nullptr);
  /// Runs a step of a program that messages start: phases as their messages come, until the one that ends it. The loss
  /// is the one that messages brought.
  void serve();
  /// In a plan with tickets: so many global batches are to be trained from now on.
  void open(std::int64_t batches);
  /// In a plan with tickets: the step of a worker for which none is left. steps: that all workers have done by then.
  void close(std::int64_t steps);
  /// Runs the micro-batches in flight to their updates: what the phase phases::flush says; and ends what kinds of
  /// actions have left under way (ActionRow::flush). A collective call; where nothing is under way it does nothing.
  /// refused: those of the last step update nothing.
  /// Throws Error where an exception has left a step in its midst.
  void flush(bool refused = false);
  /// Steps before the next one; Optimizer::steps() does not count those in flight.
  std::int64_t steps() const { return in_flight_.next(optimizer_.steps()); }
  /// The step that was refused has left other ranks waiting: nothing can go on.
  void break_off() { in_midst_ = in_midst_ || leaves_messages_; }
  /// Whether a flush can end what is in flight.
  bool in_midst() const { return in_midst_; }
  const StepsInFlight& in_flight() const { return in_flight_; }
  /// The passes of run() alone, to be captured: forward, which returns the loss; and backward, which tells how many
  /// of the gradients' buckets are complete each time that it completes some.
  Tensor compute_loss(const Tensor& x, const Tensor& y);
  void compute_gradients(const Buckets::Complete& complete);
  Channels& channels() { return channels_; }
  /// The numbers that the last step's ranks agreed on.
  Agreement& agreement() { return agreement_; }
  /// What this rank updates: slices of the flat block, in order.
  const std::vector<Slice>& updated() const { return updated_; }
  /// Which is told of every action from now on; null: nobody. It must outlive the executor. While there is one, the
  /// host waits for devices after each action, so that times are those of the work.
  void record(Recorder* recorder) { recorder_ = recorder; }
  /// The most micro-batches, counted once per segment of parts, that were alive at once in the last run.
  int most_in_flight() const { return tapes_.most_alive(); }

 private:
  friend class Interpreter<Executor>;
  struct Slot {                    // of one action, parallel to the list
    Communicator* comm = nullptr;  // null: nobody else on the axis
    Slice shard;                   // this rank's, of the action's slice
    int bucket = -1;               // of buckets_; -1: not on_ready
    bool completes = false;        // a backward of the last micro-batch: gradients that it reaches are whole
    bool last_forward = false, last_backward = false, first_update = false, last_update = false;
    bool decides = false;     // the first update of what this step brings in
    bool first_push = false;  // of gradients, to who updates
    EncodedReduction encoded;
    std::any memory;  // of a kind of the caller's own
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
  // For the interpreter; what waits for others sleeps here.
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
  /// A message that the other rank may want in its next step only: nobody waits for its end.
  bool is_sent_ahead(const Action& a) const {
    return a.kind == ActionKind::send && in_flight_.is_asynchronous() && !tapes_.runs(a.part) && !time_.simulated();
  }
  std::string decide();
  static auto find_run(const Action&) -> void (Executor::*)(ActionId);
  const Action& action(ActionId id) const { return program_.actions[static_cast<std::size_t>(id)]; }
  Slot& slot(ActionId id) { return slots_[static_cast<std::size_t>(id)]; }
  // What the library's kinds do when they start.
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
  void run_row(ActionId);  // a kind of the caller's own

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
  std::map<int, int> cut_of_;  // by the part in front of it
  Optimizer& optimizer_;
  Tapes tapes_;
  PipelineP2P p2p_;
  Channels channels_;
  std::vector<Slot> slots_;
  Interpreter<Executor> interpreter_;
  CapturedPasses* captured_ = nullptr;  // do the passes of this step
  enum class Replayed : std::uint8_t { nothing, forward, backward } replayed_ = Replayed::nothing;  // by them so far
  bool passes_only_ = false;  // what runs of the list
  int phase_ = 0;             // of a program that messages start: under way
  std::string fault_;         // of this step
  std::vector<ActionId> sending_;
  std::vector<Tensor> sent_;  // by the last message, while a Recorder counts memory
  const StepRanks& ranks_;
  ActionId loss_end_ = 0;         // behind the last loss; 0: the program has none
  bool updates_ = false;          // the program has an update
  bool sums_loss_ = false;        // other ranks have shares of the loss
  bool keeps_ = false;            // this step updates nothing
  bool skips_ = false;            // this step is over without this rank
  bool closing_ = false;          // no ticket is left for this rank
  bool refused_ = false;          // what came in last updates nothing
  bool in_midst_ = false;         // of a step, or of one that an exception has left
  bool leaves_messages_ = false;  // a kind of actions does, under way to other ranks (ActionRow::flush)
  StepsInFlight in_flight_;
  std::unique_ptr<Buckets> buckets_;
  std::vector<Slice> shards_, updated_;  // of each update, but of copies that other programs own; of all, joined
  WeightVersions versions_;
  Agreement agreement_;
  double grad_scale_ = 1;
  std::int64_t step_ = 0;  // steps before this one; updates count it in its midst
  Tensor loss_;
  Recorder* recorder_ = nullptr;
  ChargedTime time_;
};

}  // namespace trireme
