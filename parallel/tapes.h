// Tapes: runs a role's parts forward and backward, one tape per micro-batch and stretch of neighbouring parts. What
// crosses a cut between stretches leaves one tape and enters the next as a leaf, whose gradient goes back the same way.
#pragma once
#include <vector>

#include "framework/moments.h"
#include "framework/ops.h"
#include "framework/pass.h"
#include "framework/tape.h"
#include "parallel/chain.h"
#include "parallel/plan.h"

namespace trireme {

/// Parts [first, end).
struct Stretch {
  int first = 0, end = 0;
};
/// The longest stretches whose forward actions, and whose backward actions of each kind, stand together in the role's
/// list for every micro-batch. Reductions do not part neighbours; messages and everything else do.
std::vector<Stretch> find_stretches(const Role&, int parts);

/// What crosses a cut for one micro-batch: the activation, and what is stashed there, by name; or their gradients.
struct Crossing {
  std::vector<Tensor> forward, gradient;
};

class Tapes {
 public:
  /// All must outlive it.
  Tapes(const Plan&, const Role&, const Chain&, Loss);

  /// Starts a step: cuts rows into micro-batches (Pass::micros, else evenly; some may be empty) and forgets what an
  /// earlier one left.
  void begin(const Tensor& x, const Tensor& y);
  /// Whether the action is the first of its stretch, which runs all of it; the others have nothing left to do.
  bool leads(const Action&) const;
  void forward(const Action&);
  Tensor loss(int micro);
  /// Backward starts from so many times the loss, from now on.
  void scale_loss(double scale) { scale_ = scale; }
  /// backward, backward_input or backward_weight.
  void backward(const Action&);
  void free(const Action&);
  /// Moves running statistics by those of all micro-batches.
  void commit() { moments_.commit(); }

  bool runs(int part) const { return stretch_of(part) >= 0; }
  Crossing& crossing(int part, int micro) { return crossings_[index(part, micro)]; }
  /// The outputs of the stretch that ends with part; empty before it ran.
  const std::vector<Tensor>& outputs(int part, int micro) const;
  std::size_t tensors_behind(int part) const { return 1 + stashed_[static_cast<std::size_t>(part)].size(); }
  const Tensor& input(int micro) const { return x_[static_cast<std::size_t>(micro)]; }
  int most_alive() const { return most_alive_; }  ///< since begin()

 private:
  /// A micro-batch in a stretch, from forward until it is freed.
  struct Flight {
    bool alive = false;
    std::vector<Tensor> in, out;  // leaves and roots of its tape
    Deferred weights;
  };
  std::size_t index(int row, int micro) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(micros_) + static_cast<std::size_t>(micro);
  }
  int stretch_of(int part) const { return stretch_of_[static_cast<std::size_t>(part)]; }
  Flight& flight(int part, int micro) { return flights_[index(stretch_of(part), micro)]; }
  void land(Flight&);
  void walk(Flight&, const Stretch&, int micro, Deferred*);

  const Role& role_;
  const Chain& chain_;
  Loss loss_;
  int micros_;
  std::vector<Stretch> stretches_;
  std::vector<int> stretch_of_;                    // by part; -1: another role's
  std::vector<std::vector<std::string>> stashed_;  // by part: across a cut behind it
  bool frees_ = false;                             // the role says when a flight ends
  std::vector<Flight> flights_;                    // by stretch, micro
  std::vector<Crossing> crossings_;                // by part, micro
  std::vector<Tensor> x_, y_;                      // by micro
  std::vector<BatchPtr> batches_;                  // by micro
  std::vector<Pass> passes_;                       // by micro; empty: one micro-batch, under the caller's
  Moments moments_;
  int alive_ = 0, most_alive_ = 0;
  double scale_ = 1;
};

}  // namespace trireme
