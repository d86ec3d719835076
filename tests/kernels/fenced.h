// What tests of random kernel calls share: operands amid memory full of NaN, scratch memory likewise, comparison of
// whole numbers.
#pragma once
#include <cstring>

#include "kernels/core/runtime.h"
#include "tests/kernels/arrays.h"

namespace trireme::test {

/// A tensor amid memory full of NaN.
class Fenced {
 public:
  Fenced(Shape shape, DType type)
      : shape_(shape),
        type_(type),
        bytes_(static_cast<std::size_t>(shape.numel() * size_of(type))),
        block_((bytes_ + sizeof(Line) - 1) / sizeof(Line) + 2 * fence) {
    std::memset(block_.data(), 0xff, block_.size() * sizeof(Line));
    for (Index i = 0; i < shape.numel(); ++i) set(i, static_cast<double>(pick(-2, 2)));
  }
  View view() { return {block_.data() + fence, shape_, type_, cpu()}; }
  double get(Index i) {
    return dispatch_any(type_, [&](auto t) { return static_cast<double>(view().as<decltype(t)>()[i]); });
  }
  void set(Index i, double v) {
    dispatch_any(type_, [&](auto t) {
      using T = decltype(t);
      if constexpr (std::is_arithmetic_v<T>)
        view().as<T>()[i] = static_cast<T>(v);
      else
        view().as<T>()[i] = T(static_cast<float>(v));
    });
  }
  void forget() { std::memset(view().data, 0xff, bytes_); }
  bool fences_stand() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(block_.data());
    const std::size_t begin = fence * sizeof(Line), end = begin + bytes_;
    bool same = true;
    for (std::size_t i = 0; i < block_.size() * sizeof(Line); ++i)
      same = same && ((i >= begin && i < end) || bytes[i] == 0xff);
    return same;
  }
  std::vector<double> numbers() {
    std::vector<double> v;
    for (Index i = 0; i < shape_.numel(); ++i) v.push_back(get(i));
    return v;
  }

 private:
  struct alignas(64) Line {
    unsigned char bytes[64];
  };
  static constexpr std::size_t fence = 32;  // lines
  Shape shape_;
  DType type_;
  std::size_t bytes_;
  std::vector<Line> block_;
};

/// Bounds for same(): what sums of these numbers may be rounded by.
inline std::vector<double> sizes_of(const std::vector<double>& sums) {
  std::vector<double> sizes;
  for (double v : sums) sizes.push_back(std::abs(v) + 2);
  return sizes;
}

/// The same numbers; in bf16 each may have been rounded twice, when it had the size of `sizes` at most.
inline bool same(Fenced& got, const std::vector<double>& expected, const std::vector<double>& sizes, DType type) {
  bool all = got.fences_stand();
  for (std::size_t i = 0; i < expected.size(); ++i)
    all = all && std::abs(got.get(static_cast<Index>(i)) - expected[i]) <= (type == DType::bf16 ? sizes[i] / 128 : 0);
  return all;
}

inline void spoil_scratch() {
  Runtime& r = runtime(DeviceKind::cpu);
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (std::size_t bytes = 64; bytes <= std::size_t{1} << 18; bytes += bytes / 8 / 64 * 64 + 64) {
    blocks.emplace_back(r.allocate(bytes, cpu()), bytes);
    std::memset(blocks.back().first, 0xff, bytes);
  }
  for (auto [block, bytes] : blocks) r.release(block, bytes, cpu());
}

}  // namespace trireme::test
