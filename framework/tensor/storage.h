// Storage: a block of memory that tensors share (PyTorch's Storage), and Tensor::Impl (PyTorch's TensorImpl). For the
// framework's own code; programs need only framework/tensor/tensor.h.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "framework/tensor/memory_tracker.h"
#include "framework/tensor/tensor.h"
#include "framework/tensor/writes.h"

namespace trireme {

namespace detail {
struct Node;  // framework/autograd/node.h

/// Physical memory of a new block. discardable: parts may be returned to the system (Runtime::discard). on_demand: as
/// discardable, but zeros, which have no memory yet (Runtime::allocate_zeros).
enum class Pages : std::uint8_t { kept, discardable, on_demand };

/// A block of memory on one device. The tensors that are views of it own it together.
struct Storage {
  /// Allocates `bytes` bytes.
  Storage(std::size_t bytes, Device device, Pages pages = Pages::kept);
  /// Uses memory of another owner; release() is called when no tensor uses it any more.
  Storage(void* data, std::size_t bytes, Device device, std::function<void()> release)
      : data(data), bytes(bytes), device(device), release(std::move(release)) {}
  /// Gets the bytes of a block of the host, from byte `offset` on, when a view of it is first used. Until then it has
  /// no memory on its device.
  Storage(std::shared_ptr<Storage> host, std::size_t offset, std::size_t bytes, Device device)
      : data(static_cast<std::byte*>(host->data) + offset),
        bytes(bytes),
        device(device),
        on_host(true),
        origin(std::move(host)) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void offload();  // copies the bytes to host memory and frees the device's; for memory of a device's runtime
  void fetch();    // after offload(): copies the bytes back, to new memory of the device; on one thread at a time
  void* data;
  std::size_t bytes;
  Device device;                             // device of data
  MemoryKind use = MemoryKind::activations;  // under which a MemoryTracker counts the bytes
  std::shared_ptr<MemoryCounts> counts;      // of the tracker that counts the bytes; null: none
  Writes writes;                             // version counters, by which backward detects writes in place
  std::function<void()> release;             // for memory of another owner; empty: the runtime's memory
  bool on_host = false;                      // until fetch(): data is not valid after offload(), or of the host
  std::function<void(void* to)> copy_back;   // while on_host; empty in a dry run, which makes no copies
  std::shared_ptr<Storage> origin;           // the block of the host that has the bytes until they are first used
};
}  // namespace detail

/// The state of a Tensor handle (PyTorch's TensorImpl).
struct Tensor::Impl {
  Impl() {}  // NOLINT: not `= default`, with which std::make_shared would first fill it all with zeros
  std::shared_ptr<detail::Storage> block;  ///< memory, shared by views; never null, even without elements
  std::size_t offset = 0;                  ///< offset into block, in bytes
  Shape shape;                             ///< dense, row-major
  DType dtype = DType::f32;                ///< element type
  bool frozen = false;                     ///< a weight that is not trained (freeze())
  bool released = false;  ///< the values are on other ranks (Parameters::mark_released); reading throws Error
  std::shared_ptr<detail::Node> node;                           ///< grad_fn; null: not on the tape
  std::shared_ptr<const ShardSpec> shard_spec;                  ///< division over ranks; null: none
  std::shared_ptr<const std::map<std::string, Tensor>> fields;  ///< see Tensor::with(); null: none
  std::shared_ptr<const BatchContext> batch;  ///< context of the batch that it was computed from; null: none
};

/// Call after code other than copy_from() has overwritten elements of t in place. A backward that needs the old
/// elements then throws Error.
void note_write(const Tensor& t);
/// Copies elements as copy_from(), but a backward that needs the old elements of `to` does not notice. For example to
/// restore the values of a weight. Any dtypes and devices.
void copy_unnoted(const Tensor& to, const Tensor& from);
/// Sets a new tensor to 0. On the host its pages get physical memory only when they are written.
void zero_untouched(const Tensor& t);
/// Copies elements to a tensor of zeros, of the same shape and any dtype. On the host, pages of zeros are not written.
void copy_to_zeros(const Tensor& to, const Tensor& from);

namespace detail {
/// Moves the block of a device's tensor to host memory until a view of it is used. Does nothing for a tensor on the
/// host, for a part of a block, and for memory of another owner. Until then, one thread at a time may use the block.
void offload(const Tensor& t);

/// A tensor with the elements of a tensor on the host, which go to the device when they are first used.
Tensor moved_later(const Tensor& host, Device);
/// The tensor on the host that has the elements of a moved_later() tensor; undefined if t has them.
Tensor host_of(const Tensor& t);

// Inline: they are most of the work of Tensor's methods.

/// The state; throws Error naming `what` if the tensor is undefined.
inline const Tensor::Impl& deref(const std::shared_ptr<Tensor::Impl>& impl, const char* what) {
  check(impl != nullptr, what, "the tensor is undefined");
  return *impl;
}
/// As above, for a tensor whose values are needed: also throws Error if they are on other ranks.
inline const Tensor::Impl& stored(const std::shared_ptr<Tensor::Impl>& impl, const char* what) {
  const Tensor::Impl& from = deref(impl, what);
  check(!from.released, what,
        "this weight's values ({}) are on other ranks since a step, in their shard or pipeline stage: call "
        "Step::gather_weights() on all ranks first",
        from.shape);
  return from;
}
/// A tensor of elements that are in the block already. offset: of the first element, in bytes.
inline Tensor wrap(std::shared_ptr<Storage> block, std::size_t offset, const Shape& shape, DType dtype) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->block = std::move(block);
  impl->offset = offset;
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}
/// The results f(field) for all fields of a tensor (Tensor::with()), by name.
template <class F>
std::shared_ptr<const std::map<std::string, Tensor>> each_field(const Tensor::Impl& from, F&& f) {
  auto made = std::make_shared<std::map<std::string, Tensor>>();
  for (const auto& [name, t] : *from.fields) made->emplace(name, f(t));
  return made;
}
/// A view of the same elements with another shape, of the same batch.
inline Tensor shape_as(const Tensor::Impl& from, const Shape& shape) {
  Tensor y = wrap(from.block, from.offset, shape, from.dtype);
  y.impl()->batch = from.batch;
  return y;
}
}  // namespace detail
}  // namespace trireme
