// Executor: interprets one role's list of actions. Compute runs on the caller's thread in list order; messages and
// collectives start in list order (collectives on_ready in the midst of backward) and are waited for by the actions
// that name them, or at the end of the run.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "framework/optim/optimizer.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/runtime/buckets.h"
#include "parallel/runtime/pipeline_p2p.h"
#include "parallel/runtime/recorder.h"
#include "parallel/runtime/tapes.h"

namespace trireme {

class Executor {
 public:
  /// Called with this rank's share of the loss, all micro-batches together, before the last of them is run backward. A
  /// role without a loss does not call it.
  using OnLoss = std::function<void(const Tensor& loss)>;
  /// Called before the first update: the place to refuse a step. False: this step updates nothing.
  using BeforeUpdate = std::function<bool()>;

  /// plan has been checked. stages: the ranks along its role axis, for sums; null: one role. All that is referred to
  /// must outlive the executor. Throws Error for a plan it cannot run.
  Executor(const Plan& plan, int role, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh,
           Communicator* stages);
  void run(const Tensor& x, const Tensor& y, const OnLoss& on_loss, const BeforeUpdate& before_update);
  /// The two halves of run() for a rank that shares its gradients with nobody: all but the updates, and those.
  void compute(const Tensor& x, const Tensor& y, const OnLoss& on_loss);
  void update(const BeforeUpdate& before_update);
  /// What this rank updates: slices of the flat block, in order.
  const std::vector<Slice>& updated() const { return updated_; }
  /// Which is told of every action from now on; null: nobody. It must outlive the executor. While there is one, the
  /// host waits for devices after each action, so that times are those of the work.
  void record(Recorder* recorder) { recorder_ = recorder; }
  /// The most micro-batches, counted once per segment of parts, that were alive at once in the last run.
  int most_in_flight() const { return tapes_.most_alive(); }

 private:
  struct Slot {                    // of one action, parallel to the list
    Communicator* comm = nullptr;  // null: nobody else on the axis
    Slice shard;                   // this rank's, of the action's slice
    int bucket = -1;               // of buckets_; -1: not on_ready
    bool completes = false;        // a backward of the last micro-batch: gradients that it reaches are whole
    bool last_loss = false, last_forward = false, last_backward = false, first_update = false, last_update = false;
    Tensor buffer;  // average: the packed buffers
    std::vector<Tensor> arriving;
    std::vector<Work> works;
    bool pending = false, posted = false;
  };
  void number_cuts();
  void prepare(Mesh&);
  void prepare_backward();
  void prepare_updates();
  void execute(ActionId id, const OnLoss&, const BeforeUpdate&);
  void compute(const Action&, const Slot&);
  void add_loss(const Action&, const Slot&, const OnLoss&);
  void clip();
  void update(const Action&, const Slot&, const BeforeUpdate&);
  void finish(ActionId id);
  PipelineP2P::Route route(const Action&, const Slot&) const;
  void send(const Action&, Slot&);
  void try_to_receive(const Action&, Slot&);
  void finish_receive(const Action&, Slot&);
  void finish_sends();
  Tensor gradients(const Slice& s) const { return optimizer_.parameters().grads().rows(s.begin, s.end); }
  Tensor values(const Slice& s) const { return optimizer_.parameters().values().rows(s.begin, s.end); }
  void start_average(const Action&, Slot&);
  void finish_average(const Action&, const Slot&);
  template <class F>
  void each_buffer(const Slice& packed, F&& f);

  const Plan& plan_;
  const Role& role_;
  std::map<int, int> cut_of_;  // by the part in front of it
  Optimizer& optimizer_;
  Tapes tapes_;
  PipelineP2P p2p_;
  std::vector<Slot> slots_;
  std::vector<ActionId> sending_;
  Communicator* stages_;
  bool updates_ = false;  // the role has an update
  bool keeps_ = false;    // this step updates nothing
  std::unique_ptr<Buckets> buckets_;
  std::vector<Slice> updated_;
  double grad_scale_ = 1;
  Tensor loss_;
  Recorder* recorder_ = nullptr;
};

}  // namespace trireme
