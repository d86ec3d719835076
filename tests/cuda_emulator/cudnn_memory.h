// The tensors of a running graph: numbers of type A, places in order and the channels of a place side by side, however
// they lie in memory.
#pragma once
#include <map>

#include "tests/cuda_emulator/cudnn_graph.h"

namespace emulator::dnn {

/// f(index in our order, offset in memory) for each element.
template <class F>
void each_element(const Tensor& t, const F& f) {
  const std::size_t rank = t.dims.size();
  std::vector<std::size_t> order{0};
  for (std::size_t i = 2; i < rank; ++i) order.push_back(i);
  const Index channels = t.dims[1], places = t.count() / channels;
  std::vector<Index> at(rank, 0);
  Index offset = 0;
  for (Index place = 0; place < places; ++place) {
    for (Index c = 0; c < channels; ++c) f(place * channels + c, offset + c * t.strides[1]);
    for (std::size_t j = order.size(); j-- > 0;) {
      const std::size_t i = order[j];
      offset += t.strides[i];
      if (++at[i] < t.dims[i]) break;
      offset -= at[i] * t.strides[i];
      at[i] = 0;
    }
  }
}

template <class A>
class Memory {
 public:
  using Numbers = std::vector<A>;
  explicit Memory(std::map<Index, void*> pointers) : pointers_(std::move(pointers)) {}

  Numbers read(const Tensor& t) const {
    if (t.passing) return passing_.at(t.id);
    Numbers numbers(static_cast<std::size_t>(t.count()));
    trireme::dispatch_device_float(dtype(t.type), "cudnn", [&]<class T>(T) {
      const T* from = static_cast<const T*>(pointers_.at(t.id));
      each_element(t,
                   [&](Index i, Index offset) { numbers[static_cast<std::size_t>(i)] = static_cast<A>(from[offset]); });
    });
    return numbers;
  }
  /// Rounded to the tensor's type, a passing one's too.
  void write(const Tensor& t, Numbers numbers) {
    trireme::dispatch_device_float(dtype(t.type), "cudnn", [&]<class T>(T) {
      if (t.passing) {
        for (A& v : numbers) v = static_cast<A>(static_cast<T>(v));
        passing_[t.id] = std::move(numbers);
        return;
      }
      T* to = static_cast<T*>(pointers_.at(t.id));
      each_element(t,
                   [&](Index i, Index offset) { to[offset] = static_cast<T>(numbers[static_cast<std::size_t>(i)]); });
    });
  }

 private:
  std::map<Index, void*> pointers_;
  std::map<Index, Numbers> passing_;
};

/// numbers of a tensor with dims `from`, repeated along its axes of extent 1 to `to`.
template <class A>
std::vector<A> repeated(const std::vector<A>& numbers, const Tensor& from, const Tensor& to) {
  if (from.dims == to.dims) return numbers;
  Tensor view = to;  // lies in `numbers` with stride 0 along what is repeated
  Index step = 1;
  for (std::size_t j = 0; j < from.dims.size(); ++j) {  // our order from the end: channels, then the last axis
    const std::size_t i = j == 0 ? 1 : j + 1 == from.dims.size() ? 0 : from.dims.size() - j;
    view.strides[i] = from.dims[i] == 1 ? 0 : step;
    step *= from.dims[i];
  }
  std::vector<A> all(static_cast<std::size_t>(to.count()));
  each_element(view, [&](Index i, Index offset) {
    all[static_cast<std::size_t>(i)] = numbers[static_cast<std::size_t>(offset)];
  });
  return all;
}

}  // namespace emulator::dnn
