// Tapes: runs a program's parts forward and backward, with one autograd tape per micro-batch and segment of
// neighbouring parts. A tensor that crosses a cut between segments becomes a leaf of the next tape, and its gradient
// returns to the first tape.
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

/// The tensors at a cut for one micro-batch: the activation and the tensors stashed there by name, and their gradients.
struct BoundaryTensors {
  std::vector<Tensor> forward,  ///< the activation, then the tensors of Stash layers, by name
      gradient;                 ///< their gradients, in the same order
};

/// The tapes of one rank.
class Tapes {
 public:
  /// All references must outlive it.
  Tapes(const Plan&, const Program&, const Chain&, Loss);

  /// Starts a step: cuts the rows of inputs x and targets y into micro-batches, by StepContext::microbatches if the
  /// loader has set it, else evenly; some may be empty. Drops the tensors of earlier steps, except micro-batches in
  /// flight.
  void begin(const Tensor& x, const Tensor& y);
  /// Starts a step without new rows, in which earlier micro-batches continue.
  void advance() { now_ = (now_ + 1) % batches_.size(); }
  /// The segments of the program.
  const Liveness& live() const { return live_; }
  /// Runs a segment forward, for the micro-batch of its first forward action (Liveness::starts_segment).
  void forward(const Action&);
  /// Number of this rank's labels that the loss ignores, in all micro-batches of the step. The loss must have
  /// Loss::ignored().
  double count_ignored() const;
  /// The loss of a micro-batch, a scalar: this rank's share of the mean over the global batch. scale: the loss scale,
  /// from which backward starts; the result does not contain it. ignored: number of ignored labels of all ranks; none:
  /// the loss does not need it.
  Tensor loss(const MicroBatch& microbatch, double scale, std::optional<double> ignored);
  /// Runs a segment backward, or a half of it, for its first action of that kind.
  void backward(const Action&);
  /// Frees the tensors of the action's micro-batch and segment.
  void free(const Action&);
  /// Updates batch norms' running statistics with all micro-batches of the step.
  void commit() { batch_norm_stats_.commit(); }

  /// Whether this program runs the part.
  bool runs(int part) const { return live_.segment_of(part) >= 0; }
  /// The tensors at the cut after part.
  BoundaryTensors& boundary(int part, const MicroBatch& microbatch) {
    return batch(microbatch).boundaries[index(part, microbatch)];
  }
  /// The outputs of the segment that ends with part; empty before it ran.
  const std::vector<Tensor>& outputs(int part, const MicroBatch& microbatch) const;
  /// Number of tensors at the cut after part: the activation and stashed tensors.
  std::size_t tensors_behind(int part) const { return 1 + stashed_[static_cast<std::size_t>(part)].size(); }
  /// The rows of a micro-batch.
  const Tensor& input(const MicroBatch& microbatch) const { return batch(microbatch).x[index(0, microbatch)]; }
  /// The largest number of micro-batches alive at once since begin(), counted once per segment. A micro-batch is alive
  /// from its forward until it is freed.
  int most_alive() const { return most_alive_; }

 private:
  /// The end of each micro-batch in a batch of `rows` rows. cut: the loader's number of rows of each micro-batch;
  /// empty: even numbers.
  std::vector<Index> ends_of(const std::vector<Index>& cut, Index rows) const;
  /// A micro-batch in a segment, from forward until it is freed.
  struct MicrobatchState {
    bool alive = false;
    std::vector<Tensor> in, out;  // leaves and roots of its tape
    Deferred weights;
  };
  /// The micro-batches of one step.
  struct StepBatch {
    std::vector<MicrobatchState> states;      // by segment, micro
    std::vector<BoundaryTensors> boundaries;  // by part, micro
    std::vector<Tensor> x, y;                 // by micro
    std::vector<BatchPtr> rows;               // by micro
    std::vector<StepContext> contexts;        // by micro; empty: one micro-batch, under the caller's
  };
  std::size_t turn(const MicroBatch& m) const {
    return (now_ + batches_.size() - static_cast<std::size_t>(m.steps_ago)) % batches_.size();
  }
  StepBatch& batch(const MicroBatch& microbatch) { return batches_[turn(microbatch)]; }
  const StepBatch& batch(const MicroBatch& microbatch) const { return batches_[turn(microbatch)]; }
  std::size_t index(int row, const MicroBatch& microbatch) const {
    return static_cast<std::size_t>(row * micros_ + microbatch.index);
  }
  /// The context of a micro-batch; null: the caller's.
  const StepContext* context(const MicroBatch& microbatch) const {
    const StepBatch& b = batch(microbatch);
    return b.contexts.empty() ? nullptr : &b.contexts[index(0, microbatch)];
  }
  MicrobatchState& state(int part, const MicroBatch& microbatch) {
    return batch(microbatch).states[index(live_.segment_of(part), microbatch)];
  }
  static void check_fields(const Tensor& output, const Fields& fields, int part);
  void clear();
  void release(MicrobatchState&);
  void walk(MicrobatchState&, const Segment&, const MicroBatch& microbatch, Deferred*);

  /// The head that is fused with the loss (linear_cross_entropy()), so that logits are not stored. Null: none.
  const LmHead* fused_head() const { return loss_.cross_entropy() ? chain_.head() : nullptr; }
  /// The last part and the loss of a micro-batch, summed over rows. It runs in the forward action, since ZeRO may have
  /// dropped the weights at the action `loss`.
  Tensor head_loss(const LmHead&, const Tensor& x, const MicroBatch& microbatch) const;
  /// The loss of a micro-batch from the output of the last part.
  Tensor loss_of(const Tensor& output, const MicroBatch& microbatch) const;

  const Program& program_;
  const Chain& chain_;
  Loss loss_;
  int micros_;
  Liveness live_;
  std::vector<std::vector<std::string>> stashed_;  // by part: names stashed at the cut after it
  std::vector<StepBatch> batches_;                 // ring buffer with one element per step that may be in flight
  std::size_t now_ = 0;                            // index of this step's element
  BatchNormStats batch_norm_stats_;
  int alive_ = 0, most_alive_ = 0;
};

}  // namespace trireme
