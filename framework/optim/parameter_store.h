// ParameterStore: every trained tensor of a model in one flat block of values and one of gradients (per device that
// layers lie on), in visit order, the running statistics beside them. So an optimizer is one kernel, a bucket is a
// slice, a ZeRO shard is a range, a checkpoint is a walk. A store is apart from the model: a parameter server has one
// without a model, and many stores (virtual workers, versions of weights) can take turns under one model and its
// activations.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/slice_versions.h"
#include "framework/optim/store_spec.h"

namespace trireme {

/// A handle: copies of it are the same store, clone() makes another one.
class ParameterStore {
 public:
  /// A trained tensor.
  struct Entry {
    std::string name;   ///< full, as PyTorch's: "layer1.0.conv1.weight"
    Tensor tensor;      ///< a slice of values(); where the store is bound, the layer's own handle
    StateKind use;      ///< weight or no_decay
    FileLayout layout;  ///< how files order its axes
    /// Where it lies in values() and grads(), in elements, without padding (entries start at multiples of 16 elements;
    /// a part of a divided weight has room for the largest part that anybody holds; padding stays 0).
    Slice slice;
  };
  /// A tensor that is not trained (running statistics, StateKind::buffer); it lies outside of the flat block.
  struct Buffer {
    std::string name;   ///< full: "layer1.0.bn1.running_mean"
    Tensor tensor;      ///< where the store is bound, the layer's own handle
    FileLayout layout;  ///< how files order its axes
  };

  /// The store of a model, bound to it. Visits the model, gives random layers their keys, re-homes every weight and
  /// bias into the flat block (values kept) and makes it a leaf with its gradient in the flat gradient block. Throws
  /// Error for a model without parameters, for a name met twice, for mixed types, for types other than f32 and f64. A
  /// tensor shared by two layers is entered once, under its first name; two tensors that share memory (by reshape,
  /// detach or rows) are refused. Throws Error when a tensor lives in other Parameters (a Step's are such): while they
  /// or a copy of them exist, they alone own the model's tensors.
  explicit ParameterStore(Module model);
  /// A store without a model: all numbers are 0. Throws Error as StoreSpec::validate().
  explicit ParameterStore(const StoreSpec&);
  /// Another store with the same numbers (values, buffers, state(), versions) in memory of its own, of the same model,
  /// but not bound to it. Its gradients are cleared. Throws Error when values are on other ranks.
  ParameterStore clone() const;
  /// What it holds, to make such a store elsewhere.
  StoreSpec spec() const;

  /// From now on the model's layers compute with this store, and with the store that was bound before no longer; no
  /// numbers are copied. Costs some pointers per tensor, and nothing where the store is bound already. A backward runs
  /// under the store of its forward, else it throws Error. Throws Error for a store that has no model.
  void bind();
  /// The same with a model that has the spec() of this store, else it throws Error: one that other stores are bound to
  /// in turn, or one in no Parameters, whose own numbers are given up then (its tensors share no memory).
  void bind(Module model);
  bool is_bound() const;  ///< whether its model computes with it

  const std::vector<Entry>& entries() const { return state_->entries; }   ///< in visit order, and in that of values()
  const std::vector<Buffer>& buffers() const { return state_->buffers; }  ///< in visit order
  const FlatBuffer& values() const { return state_->values; }             ///< size() elements, padding included
  const FlatBuffer& grads() const { return state_->grads; }               ///< parallel to values()
  Index size() const { return state_->values.numel(); }                   ///< elements of values(), padding included
  /// Names that the model has for a tensor beside the one it is entered under, which several layers share: {other,
  /// entered}. None without a model.
  std::map<std::string, std::string> ties() const;
  /// Trained numbers, without padding; of a tensor that ranks share, the whole tensor's.
  Index count() const;
  DType dtype() const { return values().dtype(); }  ///< of values() and grads(): f32 or f64
  /// Forgets gradients: the next backward overwrites.
  void clear_grads();
  /// Zeroes the gradient of every entry that no backward reached since clear_grads, once (what somebody adds
  /// to the zeros afterwards, as a reduction over ranks does, is kept), and returns their names.
  std::vector<std::string> zero_missing_grads() { return zero_missing_grads({0, size()}); }
  /// Of the entries that lie in within.
  std::vector<std::string> zero_missing_grads(Slice within);
  /// Per entry: whether a backward has left its gradient since clear_grads.
  std::vector<bool> written_grads() const;
  /// Says the same of gradients that were written by other means (a CUDA graph). Throws Error unless there is one mark
  /// per entry.
  void set_written_grads(const std::vector<bool>& written);
  /// Says that the gradients of all entries that reach into a slice were written by other means (a message).
  void mark_written(const Slice&);
  /// Says of the weights that reach into a slice of values() whether they have been given back, other ranks having
  /// them: whoever reads one then gets an Error.
  void mark_released(const Slice&, bool released);
  /// The first entry whose gradient is not finite; null if there is none. A pass over all gradients.
  const Entry* first_non_finite_grad() const;
  /// The same of the values that this rank updates.
  const Entry* first_non_finite_value(const std::vector<Slice>& updated) const;
  /// The entry of this name; null when there is none.
  Entry* find(const std::string& name);

  /// A further buffer parallel to values(), filled with initial (a codec's residual, an outer momentum): it is cloned
  /// with the store. An Optimizer holds its own. dtype: values()'s, if none is given. Throws Error when there is one of
  /// this name. The result shares the store's memory.
  FlatBuffer add_state(const std::string& name, double initial = 0, std::optional<DType> dtype = {});
  /// The buffer of this name; throws Error when there is none.
  const FlatBuffer& state(const std::string& name) const;
  /// All that were added, in that order.
  const std::vector<std::pair<std::string, FlatBuffer>>& states() const { return state_->states; }

  /// Counts updates per element from now on, from 0; until then nobody pays for it.
  void track_versions() { state_->versions.emplace(size()); }
  /// The number of updates that all of a slice has seen: the least of its elements'. Throws Error unless versions are
  /// tracked, and for a slice outside of the block; so does set_version().
  std::int64_t version(const Slice& slice) const { return tracked(slice).least(slice); }
  /// The slice's values came from a store where they had seen so many updates.
  void set_version(const Slice& slice, std::int64_t version) { tracked(slice).set(slice, version); }
  /// For who overwrites a slice of values() with its next version: Optimizer::update() does.
  void count_update(const Slice& slice) {
    if (state_->versions) [[unlikely]]
      state_->versions->add(slice);
  }

 private:
  struct Binding;
  struct NamedTensors;
  struct State {
    std::vector<Entry> entries;
    std::vector<Buffer> buffers;
    // Handles that no layer has, of entries and then of buffers: what entries and buffers show while the store is not
    // bound. Brought up to date when it ceases to be.
    std::vector<Tensor> own;
    FlatBuffer values, grads;
    std::vector<std::pair<std::string, FlatBuffer>> states;
    std::optional<SliceVersions> versions;
    std::shared_ptr<Binding> binding;  // null: no model
  };
  static NamedTensors named_tensors(Module& model);
  void allocate(const StoreSpec&, const NamedTensors* of_model);
  SliceVersions& tracked(const Slice&) const;
  const Entry* first_non_finite(const FlatBuffer&, const std::function<Slice(const Entry&)>& part_of) const;
  template <class F>
  static void each_handle(State&, F f);

  std::shared_ptr<State> state_;  // what leaves know their owner by
};

}  // namespace trireme
