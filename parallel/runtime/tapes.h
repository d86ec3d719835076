// Tapes: runs a program's parts forward and backward, one tape per micro-batch and segment of neighbouring parts. What
// crosses a cut between segments leaves one tape and enters the next as a leaf, whose gradient goes back the same way.
#pragma once
#include <vector>

#include "framework/autograd/batch_norm_stats.h"
#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "framework/tensor/fields.h"
#include "parallel/model/chain.h"
#include "parallel/plan/liveness.h"
#include "parallel/plan/plan.h"

namespace trireme {

/// What crosses a cut for one micro-batch: the activation, and what is stashed there, by name; or their gradients.
struct BoundaryTensors {
  std::vector<Tensor> forward, gradient;
};

class Tapes {
 public:
  /// All must outlive it.
  Tapes(const Plan&, const Program&, const Chain&, Loss);

  /// Starts a step: cuts rows into micro-batches (StepContext::microbatches, else evenly; some may be empty) and
  /// forgets what an earlier one left, but for micro-batches in flight.
  void begin(const Tensor& x, const Tensor& y);
  /// Starts a step that no rows come in with.
  void advance() { now_ = (now_ + 1) % batches_.size(); }
  /// Whether the action is the first of its segment, which runs all of it; the others have nothing left to do.
  bool is_segment_head(const Action&) const;
  void forward(const Action&);
  /// This rank's labels that count for nothing, of all micro-batches; the loss has Loss::ignored().
  double count_ignored() const;
  /// Backward starts from `scale` times the loss. ignored: labels of all ranks; none: the loss does not ask.
  Tensor loss(int microbatch, double scale, std::optional<double> ignored);
  /// backward, backward_input or backward_weight.
  void backward(const Action&);
  void free(const Action&);
  /// Moves running statistics by those of all micro-batches.
  void commit() { batch_norm_stats_.commit(); }

  bool runs(int part) const { return live_.segment_of(part) >= 0; }
  BoundaryTensors& boundary(int part, int microbatch) { return batch(microbatch).boundaries[index(part, microbatch)]; }
  /// The outputs of the segment that ends with part; empty before it ran.
  const std::vector<Tensor>& outputs(int part, int microbatch) const;
  std::size_t tensors_behind(int part) const { return 1 + stashed_[static_cast<std::size_t>(part)].size(); }
  const Tensor& input(int microbatch) const { return batch(microbatch).x[index(0, microbatch)]; }
  int most_alive() const { return most_alive_; }  ///< since begin()

 private:
  /// Of a batch of so many rows: where each micro-batch ends; cut: the rows of each, as the loader has it, or none.
  std::vector<Index> ends_of(const std::vector<Index>& cut, Index rows) const;
  /// A micro-batch in a segment, from forward until it is freed.
  struct MicrobatchState {
    bool alive = false;
    std::vector<Tensor> in, out;  // leaves and roots of its tape
    Deferred weights;
  };
  /// What came in with one step.
  struct StepBatch {
    std::vector<MicrobatchState> states;      // by segment, micro
    std::vector<BoundaryTensors> boundaries;  // by part, micro
    std::vector<Tensor> x, y;                 // by micro
    std::vector<BatchPtr> rows;               // by micro
    std::vector<StepContext> contexts;        // by micro; empty: one micro-batch, under the caller's
  };
  int steps_back(int microbatch) const { return microbatch < 0 ? (micros_ - 1 - microbatch) / micros_ : 0; }
  std::size_t turn(int microbatch) const {
    return (now_ + batches_.size() - static_cast<std::size_t>(steps_back(microbatch))) % batches_.size();
  }
  StepBatch& batch(int microbatch) { return batches_[turn(microbatch)]; }
  const StepBatch& batch(int microbatch) const { return batches_[turn(microbatch)]; }
  std::size_t index(int row, int microbatch) const {
    return static_cast<std::size_t>(row * micros_ + microbatch + steps_back(microbatch) * micros_);
  }
  /// That a micro-batch runs under; null: the caller's.
  const StepContext* context(int microbatch) const {
    const StepBatch& b = batch(microbatch);
    return b.contexts.empty() ? nullptr : &b.contexts[index(0, microbatch)];
  }
  const Segment& segment(const Action& a) const {
    return live_.segments[static_cast<std::size_t>(live_.segment_of(a.part))];
  }
  MicrobatchState& state(int part, int microbatch) {
    return batch(microbatch).states[index(live_.segment_of(part), microbatch)];
  }
  void check_fields(const Tensor& output, const Fields& fields, int part) const;
  void clear();
  void release(MicrobatchState&);
  void walk(MicrobatchState&, const Segment&, int microbatch, Deferred*);

  /// The head whose product and the loss are one op: the logits are not kept (linear_cross_entropy()). Null: none.
  const LmHead* fused_head() const { return loss_.cross_entropy() ? chain_.head() : nullptr; }
  /// The last part and the loss of a micro-batch, its sum over rows: here the weights are there, at the action `loss`
  /// ZeRO may have given them back.
  Tensor head_loss(const LmHead&, const Tensor& x, int microbatch) const;
  /// The loss of a micro-batch by its last part's output.
  Tensor loss_of(const Tensor& output, int microbatch) const;

  const Program& program_;
  const Chain& chain_;
  Loss loss_;
  int micros_;
  Liveness live_;
  std::vector<std::vector<std::string>> stashed_;  // by part: across a cut behind it
  std::vector<StepBatch> batches_;                 // in turn, of as many steps as may be in flight
  std::size_t now_ = 0;                            // of them: this step's
  BatchNormStats batch_norm_stats_;
  int alive_ = 0, most_alive_ = 0;
};

}  // namespace trireme
