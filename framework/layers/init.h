// Init: how the initial values of a parameter or buffer are drawn (torch.nn.init). A layer states the Init of each of
// its tensors in visit(); initialize() (framework/layers/module.h) draws them again from a seed.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>

#include "framework/tensor/tensor.h"

namespace trireme {

/// Overwrites t, of a floating type and on any device, with numbers of Philox4x32-10 keyed by `key`. They are computed
/// in f32 and then converted, so f64 holds the f32 numbers. Not recorded. Throws Error unless low <= high, and for an
/// infinite range.
void uniform(const Tensor& t, double low, double high, std::uint64_t key);  ///< [low, high); bf16 and f16 round
/// The same from a normal distribution, by Box and Muller (1958). Throws Error for std < 0 or infinite.
void normal(const Tensor& t, double mean, double std, std::uint64_t key);

/// A new tensor on the CPU of such numbers: the same for the same seed and shape.
Tensor uniform(const Shape&, double low, double high, std::uint64_t seed, DType = DType::f32);
/// The same from a normal distribution.
Tensor normal(const Shape&, double mean, double std, std::uint64_t seed, DType = DType::f32);

/// While it lives, tensors that Init::make() makes on this thread are zeros, not drawn (torch.nn.utils.skip_init): for
/// models whose weights are initialized or loaded behind it anyway.
class SkipInit {
 public:
  SkipInit();
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;

 private:
  bool before_;
};

/// A value, like a shape: copied freely, given to a layer by its options. A layer's own is any function of the tensor
/// and a key: Init([](const Tensor& t, std::uint64_t key) { uniform(t, 0, 1, key); }).
class Init {
 public:
  /// Overwrites t with numbers that are a function of key and of t's shape.
  using Fn = std::function<void(const Tensor& t, std::uint64_t key)>;
  Init() = default;  ///< leaves the tensor as it is
  /// Any callable of an Fn's signature.
  template <std::invocable<const Tensor&, std::uint64_t> F>
  Init(F draw) : draw_(std::move(draw)) {}  // NOLINT: implicit
  /// Overwrites t with numbers that are a function of key and of t's shape.
  void operator()(const Tensor& t, std::uint64_t key) const {
    if (draw_) draw_(t, key);
  }

  /// A new f32 tensor on the CPU with values of its own: the n-th that a thread makes has the n-th draw. stream:
  /// another number for each tensor of a layer.
  Tensor make(const Shape&, std::uint64_t stream = 0) const;

  /// Which fan scales the variance: fan_in keeps it in the forward, fan_out in the backward. Fans follow from the
  /// tensor's shape, [out, spatial..., in]; an Init that takes a fan throws Error for a tensor with fewer than two
  /// axes.
  enum class Fan : std::uint8_t { in, out };
  /// Inputs that one output is computed from, or outputs that one input goes to, of a weight [out, spatial..., in].
  /// Throws Error for fewer than two axes.
  static Index fan_of(const Shape& weight, Fan);

  static Init constant(double value);               ///< every element is value, rounded to the tensor's dtype
  static Init zeros() { return constant(0); }       ///< biases, running means
  static Init ones() { return constant(1); }        ///< scales of norms, running variances
  static Init uniform(double low, double high);     ///< [low, high); throws Error as uniform() above, when it draws
  static Init normal(double std, double mean = 0);  ///< std >= 0; throws Error as normal() above, when it draws
  /// normal(std), drawn again while the value lies outside of [low, high] (torch.nn.init.trunc_normal_, mean 0). Throws
  /// Error for std < 0 and for bounds between which less than 1 % of the distribution lies.
  static Init trunc_normal(double std, double low = -2, double high = 2);
  /// Glorot and Bengio (AISTATS 2010): uniform around 0 with variance gain^2 * 2 / (fan_in + fan_out).
  static Init xavier_uniform(double gain = 1);
  /// Glorot and Bengio (AISTATS 2010): normal distribution of that variance.
  static Init xavier_normal(double gain = 1);
  /// He et al. (arXiv 1502.01852): uniform around 0 with variance 2 / (1 + negative_slope^2) / fan, for layers before a
  /// leaky ReLU.
  static Init kaiming_uniform(double negative_slope = 0, Fan = Fan::in);
  /// He et al. (arXiv 1502.01852): normal distribution of variance 2 / fan, for layers before a ReLU.
  static Init kaiming_normal(Fan = Fan::out);
  /// PyTorch's of Linear and Conv: kaiming_uniform(sqrt(5)), and for a bias beside it uniform(+-1 / sqrt(fan_in)).
  static Init pytorch_default();

  /// The Init of the bias that belongs to a weight of this Init: PyTorch's for pytorch_default(), else zeros().
  Init of_bias(const Shape& weight) const;

 private:
  Fn draw_;
  bool pytorch_ = false;
};

}  // namespace trireme
