// Parameters: every trained tensor of a model in one flat block of values and one of gradients (per device that layers
// lie on), in visit order. So an optimizer is one kernel, a bucket is a slice, a ZeRO shard is a range, a checkpoint is
// a walk.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "framework/layers/module.h"
#include "framework/tensor/flat_buffer.h"

namespace trireme {

class Parameters {
 public:
  /// A trained tensor.
  struct Entry {
    std::string name;   ///< full, as PyTorch's: "layer1.0.conv1.weight"
    Tensor tensor;      ///< the layer's own handle: its block is now a slice of values()
    StateKind use;      ///< weight or no_decay
    FileLayout layout;  ///< how files order its axes
    /// Where it lies in values() and grads(), in elements, without padding (entries start at multiples of 16 elements;
    /// a part of a divided weight has room for the largest part that anybody holds; padding stays 0).
    Slice slice;
  };
  /// A tensor that is not trained (running statistics, StateKind::buffer); it lies outside of the flat block.
  struct Buffer {
    std::string name;   ///< full: "layer1.0.bn1.running_mean"
    Tensor tensor;      ///< the layer's own handle
    FileLayout layout;  ///< how files order its axes
  };

  /// Visits the model, gives random layers their keys, re-homes every weight and bias into the flat block
  /// (values kept) and makes it a leaf with its gradient in the flat gradient block. Throws Error for a model
  /// without parameters, for a name met twice, for mixed types, for types other than f32 and f64.
  /// A tensor shared by two layers is entered once, under its first name; two tensors that share memory (by reshape,
  /// detach or rows) are refused. Throws Error when a tensor lives in other Parameters (a Step's are such): while they
  /// or a copy of them exist, they alone own the model's tensors.
  explicit Parameters(Module model);

  const std::vector<Entry>& entries() const { return entries_; }   ///< in visit order, and in that of values()
  const std::vector<Buffer>& buffers() const { return buffers_; }  ///< in visit order
  const FlatBuffer& values() const { return values_; }             ///< size() elements, padding included
  const FlatBuffer& grads() const { return grads_; }               ///< parallel to values()
  Index size() const { return values_.numel(); }                   ///< elements of values(), padding included
  /// Trained numbers, without padding; of a tensor that ranks share, the whole tensor's.
  Index count() const;
  DType dtype() const { return values_.dtype(); }  ///< of values() and grads(): f32 or f64
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
  /// Says of the weights that reach into a slice of values() whether they have been given back, other ranks having
  /// them: whoever reads one then gets an Error.
  void mark_released(const Slice&, bool released);
  /// The first entry whose gradient is not finite; null if there is none. A pass over all gradients.
  const Entry* first_non_finite_grad() const;
  /// The entry of this name; null when there is none.
  Entry* find(const std::string& name);

 private:
  Module model_;
  std::vector<Entry> entries_;
  std::vector<Buffer> buffers_;
  std::shared_ptr<const void> owner_;  // what the leaves know their Parameters by; copies share it
  FlatBuffer values_, grads_;
};

/// Converts every floating weight, bias and buffer of a model to dtype (buffers to f32 when it is bf16 or f16) in
/// place, as torch.nn.Module.to. Throws Error for a dtype that is not floating, and for a tensor that lives in
/// Parameters already.
void convert(Module& model, DType);

}  // namespace trireme
