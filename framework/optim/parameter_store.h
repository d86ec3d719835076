// ParameterStore: all trained tensors of a model in one flat block of values and one of gradients (per device), in
// visit order, and its running statistics. An optimizer then is one kernel, a bucket is a slice, a ZeRO shard is a
// range. A store is independent of the model: a parameter server has a store without a model. Many stores (virtual
// workers, versions of weights) can alternate under one model and its activations.
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

/// A handle: copies are the same store; clone() makes another one.
class ParameterStore {
 public:
  /// A trained tensor.
  struct Entry {
    std::string name;   ///< full name, as PyTorch's: "layer1.0.conv1.weight"
    Tensor tensor;      ///< a slice of values(); if the store is bound, the layer's own handle
    StateKind kind;     ///< weight or no_decay
    FileLayout layout;  ///< order of its axes in files
    /// Position in values() and grads(), in elements, without padding. Entries start at multiples of 16 elements. For a
    /// divided weight there is room for the largest part of any rank. Padding stays 0.
    Slice slice;
  };
  /// A tensor that is not trained (running statistics, StateKind::buffer). It is not in the flat block.
  struct Buffer {
    std::string name;   ///< full name: "layer1.0.bn1.running_mean"
    Tensor tensor;      ///< if the store is bound, the layer's own handle
    FileLayout layout;  ///< order of its axes in files
  };

  /// Creates the store of a model, bound to it. It visits the model and gives random layers their keys. Every weight
  /// and bias moves into the flat block, with its values, and becomes a leaf with its gradient in the flat gradient
  /// block. A tensor that two layers share is entered once, under its first name. Throws Error for a model without
  /// parameters, repeated names, mixed types, types other than f32 and f64, and different tensors that share memory (by
  /// reshape, detach or rows). Throws Error if a tensor is in another ParameterStore (a Step's, for example): while
  /// that store or a copy of it exists, it alone owns the model's tensors.
  /// drawn_later: weights with an Init become 0, for a caller that draws or loads them. On GPUs neither values nor
  /// gradients have memory then, and the caller calls Runtime::restore() for the values that it needs.
  explicit ParameterStore(Module model, bool drawn_later = false);
  /// A store without a model; all numbers are 0. Throws Error as StoreSpec::validate().
  explicit ParameterStore(const StoreSpec&);
  /// A new store with the same numbers (values, buffers, states(), versions) in its own memory, for the same model but
  /// not bound to it. Its gradients are cleared. Throws Error if values are on other ranks.
  ParameterStore clone() const;
  /// The names, shapes and types of its tensors, from which an equal store can be created elsewhere.
  StoreSpec spec() const;

  /// Makes the model's layers compute with this store instead of the store that was bound before. Copies no numbers: it
  /// sets a few pointers per tensor, or nothing if it is bound already. A backward must run under the store of its
  /// forward, else it throws Error. Throws Error for a store without a model.
  void bind();
  /// As above, for a model with the same spec(), else throws Error. Other stores may be bound to the model in turn. A
  /// model in no ParameterStore loses its own numbers (its tensors must share no memory).
  void bind(Module model);
  bool is_bound() const;  ///< whether its model computes with it

  const std::vector<Entry>& entries() const { return state_->entries; }   ///< in visit order, the order of values()
  const std::vector<Buffer>& buffers() const { return state_->buffers; }  ///< in visit order
  const FlatBuffer& values() const { return state_->values; }  ///< size() elements; under zero, parts may be old
  const FlatBuffer& grads() const { return state_->grads; }    ///< parallel to values()
  Index size() const { return state_->values.numel(); }        ///< elements of values(), padding included
  /// Other names of tensors that several layers share: {other name, name of the entry}. Empty without a model.
  std::map<std::string, std::string> ties() const;
  /// Number of trained numbers, without padding; a tensor divided over ranks counts as a whole.
  Index count() const;
  DType dtype() const { return values().dtype(); }  ///< of values() and grads(): f32 or f64
  /// Clears gradients: the next backward overwrites them.
  void clear_grads();
  /// Sets to 0 the gradient of every entry that no backward has reached since clear_grads(), and returns their names.
  /// It does so once per entry: numbers added to the zeros later, as by a reduction over ranks, are kept.
  std::vector<std::string> zero_missing_grads() { return zero_missing_grads({0, size()}); }
  /// As above, for the entries in `within`.
  std::vector<std::string> zero_missing_grads(Slice within);
  /// Per entry: whether a backward has written its gradient since clear_grads().
  std::vector<bool> written_grads() const;
  /// Sets these marks for gradients that were written by other means (a CUDA graph). Throws Error unless there is one
  /// mark per entry.
  void set_written_grads(const std::vector<bool>& written);
  /// Marks the gradients of all entries that overlap a slice as written by other means (a message).
  void mark_written(const Slice&);
  /// Marks the weights that overlap a slice of values() as released (other ranks have them) or not. Reading a released
  /// weight throws Error.
  void mark_released(const Slice&, bool released);
  /// The first entry whose gradient is not finite; null if there is none. Costs a pass over all gradients.
  const Entry* first_non_finite_grad() const;
  /// As above, for the values that this rank updates.
  const Entry* first_non_finite_value(const std::vector<Slice>& updated) const;
  /// The entry of this name, or null.
  Entry* find(const std::string& name);

  /// Adds a buffer parallel to values(), filled with initial (a codec's residual, an outer momentum). clone() copies
  /// it. An Optimizer has its own state. dtype: by default the type of values(). Throws Error if the name exists. The
  /// result shares the store's memory.
  FlatBuffer add_state(const std::string& name, double initial = 0, std::optional<DType> dtype = {});
  /// The buffer of this name. Throws Error if there is none.
  const FlatBuffer& state(const std::string& name) const;
  /// All added buffers, in the order of addition.
  const std::vector<std::pair<std::string, FlatBuffer>>& states() const { return state_->states; }

  /// From now on, counts updates per element, from 0. Without this call counting costs nothing.
  void track_versions() { state_->versions.emplace(size()); }
  /// The number of updates that every element of a slice has had: the minimum over the slice. Throws Error unless
  /// versions are tracked, and for a slice outside of the block, as set_version() does.
  std::int64_t version(const Slice& slice) const { return tracked(slice).least(slice); }
  /// Sets the version of a slice whose values came from another store.
  void set_version(const Slice& slice, std::int64_t version) { tracked(slice).set(slice, version); }
  /// Call it after overwriting a slice of values() with its next version, as Optimizer::update() does.
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
    // The store's own handles of entries and then of buffers: entries and buffers show them while the store is not
    // bound. They are updated when it is unbound.
    std::vector<Tensor> own;
    FlatBuffer values, grads;
    std::vector<std::pair<std::string, FlatBuffer>> states;
    std::optional<SliceVersions> versions;
    std::shared_ptr<Binding> binding;  // null: no model
  };
  static NamedTensors named_tensors(Module& model);
  void allocate(const StoreSpec&, const NamedTensors* of_model, bool drawn_later);
  SliceVersions& tracked(const Slice&) const;
  const Entry* first_non_finite(const FlatBuffer&, const std::function<Slice(const Entry&)>& part_of) const;
  template <class F>
  static void each_handle(State&, F f);

  std::shared_ptr<State> state_;  // identifies the owner to its leaves
};

}  // namespace trireme
