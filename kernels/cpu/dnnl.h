// The part of oneDNN that the CPU kernels use, and the cache of prepared primitives. The interface is the same for 2.6
// and 3.x: dnnl.cpp and the conditionals below contain every difference.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <initializer_list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/core/runtime.h"
#include "kernels/core/view.h"

namespace trireme::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

/// True for 2.x, whose known errors (right in 3.2) are avoided.
inline constexpr bool old_version = DNNL_VERSION_MAJOR < 3;

dnnl::engine& engine();

/// The primitive's descriptor for args (2.6's order, without the engine). Throws dnnl::error if oneDNN has no
/// implementation.
template <class P, class... A>
typename P::primitive_desc describe(const dnnl::primitive_attr& attr, A&&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), std::forward<A>(args)..., attr);
#else
  return typename P::primitive_desc(typename P::desc(std::forward<A>(args)...), attr, engine());
#endif
}
/// As above, for a backward primitive, which needs the forward descriptor as a hint.
template <class P, class Hint, class... A>
typename P::primitive_desc describe_backward(const dnnl::primitive_attr& attr, const Hint& hint, A&&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), std::forward<A>(args)..., hint, attr);
#else
  return typename P::primitive_desc(typename P::desc(std::forward<A>(args)...), attr, engine(), hint);
#endif
}
void append_relu(dnnl::post_ops& ops);

dnnl::memory::data_type type_of(DType t);
/// A dense row-major block with another order of axes than oneDNN's: axis i of dims is axis order[i] of the block.
Desc dense(const Dims& dims, const std::vector<int>& order, DType type);
/// A block whose layout the primitive may choose.
Desc any(const Dims& dims, DType type);
/// Attributes shared by all primitives: their scratch memory comes from our allocator.
dnnl::primitive_attr attributes();

/// Memory from our allocator for the length of a scope.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes = 0) : bytes_(bytes) {
    if (bytes_ > 0) data_ = allocate(bytes_);
  }
  ~Scratch() {
    if (bytes_ > 0) release(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  /// With TRIREME_FENCE=1 it is followed by 4 KiB of known bytes; if a primitive overwrites them, the process aborts.
  static void* allocate(std::size_t bytes);
  static void release(void* data, std::size_t bytes);

  std::size_t bytes_;
  void* data_ = nullptr;
};

/// A primitive and its memory objects, created once and run many times. Each thread has its own.
class Prepared {
 public:
  struct Arg {
    int name;  // DNNL_ARG_SRC ...
    Desc desc;
  };
  Prepared() = default;
  /// clear: zero the scratch memory before each run, since the primitive reads parts of it that it has not written.
  Prepared(const dnnl::primitive& primitive, const std::vector<Arg>& args, const Desc& scratchpad, bool clear = false);
  /// data: one pointer per element of args, in the same order.
  void operator()(std::initializer_list<const void*> data);
  explicit operator bool() const { return !memory_.empty(); }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memory_;
  std::vector<dnnl_exec_arg_t> args_;
  std::size_t scratchpad_ = 0;  // bytes; its memory object is the last
  bool clear_ = false, reorder_ = false;
};

/// to = from in another layout or type; empty if the two are equal. add: to += from.
Prepared reorder(const Desc& from, const Desc& to, bool add = false);

/// c [m, n] = op(a) [m, k] b [k, n] + beta c, row-major f32 without gaps.
void sgemm(float* c, bool transpose_a, const float* a, const float* b, Index m, Index n, Index k, float beta);

/// All that a prepared primitive depends on, as numbers.
class Key {
 public:
  Key() = default;
  void add(Index value) {
    check(size_ < max_size, ErrorKind::internal, "kernel cache", "more than {} numbers in a key", int(max_size));
    values_[size_++] = value;
  }
  void add(std::span<const Index> values) {
    for (Index v : values) add(v);
  }
  void add(const View& v) {
    add(v ? static_cast<Index>(v.dtype) : -1);
    add(v.shape.rank());
    add(std::span(v.shape.begin(), v.shape.end()));
  }
  bool operator==(const Key& o) const { return std::equal(values_, values_ + size_, o.values_, o.values_ + o.size_); }
  std::size_t hash() const {
    std::uint64_t h = 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < size_; ++i) {
      h = (h ^ static_cast<std::uint64_t>(values_[i])) * 0xff51afd7ed558ccdull;
      h ^= h >> 29;
    }
    return h;
  }

 private:
  static constexpr int max_size = 56;
  int size_ = 0;
  Index values_[max_size];
};

/// This thread's T for the key, created by make() at the first use. A dnnl::error of make() becomes an Error. Each type
/// T has its own cache: use one type per kind of kernel. The reference is valid until the thread's next call for the
/// same T.
template <class T, class Make>
T& cached(Key key, Make&& make) {
  struct Hash {
    std::size_t operator()(const Key& k) const { return k.hash(); }
  };
  constexpr std::size_t most = 1024;
  thread_local std::unordered_map<Key, T, Hash> cache;
  key.add(threads());  // oneDNN splits work for the team size at creation
  auto found = cache.find(key);
  if (found == cache.end()) {
    if (cache.size() >= most) cache.clear();
    try {
      found = cache.emplace(key, make()).first;
    } catch (const dnnl::error& e) {
      fail(e.status == dnnl_out_of_memory ? ErrorKind::out_of_memory : ErrorKind::device, "onednn", "{} (status {})",
           e.what(), static_cast<int>(e.status));
    }
  }
  return found->second;
}

}  // namespace trireme::onednn
