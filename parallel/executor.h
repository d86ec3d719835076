// Executor: interprets one role's list of actions. Compute runs on the caller's thread in list order;
// collectives start in list order (those on_ready in the midst of backward) and are waited for by the actions
// that name them, or at the end of the run.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "framework/ops.h"
#include "framework/optimizer.h"
#include "parallel/buckets.h"
#include "parallel/mesh.h"
#include "parallel/plan.h"

namespace trireme {

/// A model as a chain of parts: the groups of its Sequential (fused neighbours are one), or the model as the
/// only part.
class Chain {
 public:
  explicit Chain(Module model) : model_(std::move(model)), row_(model_.as<Sequential>()) {}
  int size() const { return row_ ? static_cast<int>(row_->groups()) : 1; }
  Tensor run(int part, Tensor x) const {
    return row_ ? row_->run_group(static_cast<std::size_t>(part), std::move(x)) : model_(x);
  }
  /// Names are those of the layers ("0-2"); slices follow one another and cover the block.
  std::vector<PartInfo> parts(const Parameters&) const;

 private:
  Module model_;
  Sequential* row_;  // inside model_, or null
};

class Executor {
 public:
  /// Called with this rank's share of the loss, before its backward.
  using OnLoss = std::function<void(const Tensor& loss)>;
  /// Called before the first update: the place to refuse a step.
  using BeforeUpdate = std::function<void()>;

  /// plan has been checked. All that is referred to must outlive the executor. Throws Error for a plan it
  /// cannot run.
  Executor(const Plan& plan, int role, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh);
  void run(const Tensor& x, const Tensor& y, const OnLoss& on_loss, const BeforeUpdate& before_update);

 private:
  struct Slot {                    // of one action, parallel to the list
    Communicator* comm = nullptr;  // null: nobody else on the axis
    int bucket = -1;               // of buckets_; -1: not on_ready
    bool first_backward = false, last_backward = false, first_update = false, last_update = false;
    Tensor buffer;  // average: the packed buffers
    Work work;
    bool pending = false;
  };
  void prepare_backward();
  void prepare_updates();
  void execute(ActionId id, Tensor& activation, const Tensor& y, const OnLoss&, const BeforeUpdate&);
  void update(const Action&, const Slot&, const BeforeUpdate&);
  void finish(ActionId id);
  void start_average(Slot&);
  void finish_average(Slot&);

  std::vector<Action> actions_;
  const Chain& chain_;
  Loss loss_fn_;
  Optimizer& optimizer_;
  std::vector<Slot> slots_;
  std::unique_ptr<Buckets> buckets_;
  Tensor loss_;
};

}  // namespace trireme
