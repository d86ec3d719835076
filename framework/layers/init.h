// Init: the distribution of a parameter's or buffer's initial values (torch.nn.init). A layer gives the Init of each of
// its tensors in visit(). initialize() (framework/layers/module.h) draws them again from a seed.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Overwrites t, of a floating type on any device, with uniform random numbers in [low, high); bf16 and f16 may round
/// to high. The generator is Philox4x32-10, keyed by `key`. Numbers are computed in f32 and then converted, so f64
/// tensors have f32 values. Not recorded. Throws Error unless low <= high, and for an infinite range.
void uniform(const Tensor& t, double low, double high, std::uint64_t key);
/// As above, from a normal distribution (Box and Muller, 1958). Throws Error for std < 0 or infinite.
void normal(const Tensor& t, double mean, double std, std::uint64_t key);

/// A new tensor on the CPU with random numbers from this range; equal seeds and shapes give equal numbers.
Tensor uniform(const Shape&, double low, double high, std::uint64_t seed, DType = DType::f32);
/// As above, from a normal distribution.
Tensor normal(const Shape&, double mean, double std, std::uint64_t seed, DType = DType::f32);

/// While it lives, Init::make() on this thread creates zeros instead of random numbers (torch.nn.utils.skip_init): for
/// models whose weights are initialized or loaded later. Such zeros take no memory on the host until they are written.
/// If place() or on() moves them to a device while it lives, they take none there until they are first used; one thread
/// at a time may use them first.
class SkipInit {
 public:
  SkipInit();
  ~SkipInit();
  static bool is_active();  ///< whether this thread has one
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;

 private:
  bool before_;
};

/// A copyable value that is passed to a layer in its options. Your own is any function of the tensor and a key:
/// Init([](const Tensor& t, std::uint64_t key) { uniform(t, 0, 1, key); }).
class Init {
 public:
  /// Overwrites t with numbers that depend only on key and t's shape.
  using Fn = std::function<void(const Tensor& t, std::uint64_t key)>;
  Init() = default;  ///< leaves the tensor as it is
  /// Any callable with Fn's signature.
  template <std::invocable<const Tensor&, std::uint64_t> F>
  Init(F draw) : draw_(of_whole(std::move(draw))) {}  // NOLINT: implicit
  /// Whether it overwrites anything.
  explicit operator bool() const { return bool(draw_); }
  /// Overwrites t with numbers that depend only on key and t's shape.
  void operator()(const Tensor& t, std::uint64_t key) const { (*this)(t, key, t.shape(), from(t.shape(), t.shape())); }
  /// Overwrites t, a box that begins at `at` in a tensor of shape `whole`, with the numbers of the whole tensor there.
  /// The distributions below draw only the box. Your own function draws the whole tensor, of which the box is copied.
  void operator()(const Tensor& t, std::uint64_t key, const Shape& whole, const Shape& at) const {
    if (draw_) draw_(t, key, whole, at);
  }

  /// A new f32 tensor on the CPU. The n-th tensor that a thread makes has the n-th draw. stream: a different number for
  /// each tensor of a layer.
  Tensor make(const Shape&, std::uint64_t stream = 0) const;

  /// The fan that scales the variance: fan_in keeps the variance in forward, fan_out in backward. Fans follow from the
  /// tensor's shape [out, spatial..., in]. An Init with a fan throws Error for a tensor with fewer than two axes.
  enum class Fan : std::uint8_t { in, out };
  /// For a weight [out, spatial..., in]: the number of inputs of one output (Fan::in), or of outputs of one input
  /// (Fan::out). Throws Error for fewer than two axes.
  static Index fan_of(const Shape& weight, Fan);

  static Init constant(double value);               ///< every element is value, rounded to the tensor's dtype
  static Init zeros() { return constant(0); }       ///< for biases, running means
  static Init ones() { return constant(1); }        ///< for scales of norms, running variances
  static Init uniform(double low, double high);     ///< [low, high); throws Error as uniform() above, when it draws
  static Init normal(double std, double mean = 0);  ///< std >= 0; throws Error as normal() above, when it draws
  /// normal(std), drawn again while a value is outside of [low, high] (torch.nn.init.trunc_normal_ with mean 0). Throws
  /// Error for std < 0 and if less than 1 % of the distribution is between the bounds.
  static Init trunc_normal(double std, double low = -2, double high = 2);
  /// Glorot and Bengio (AISTATS 2010): uniform with mean 0 and variance gain^2 * 2 / (fan_in + fan_out).
  static Init xavier_uniform(double gain = 1);
  /// Glorot and Bengio (AISTATS 2010): normal with mean 0 and variance gain^2 * 2 / (fan_in + fan_out).
  static Init xavier_normal(double gain = 1);
  /// He et al. (arXiv 1502.01852): uniform with mean 0 and variance 2 / (1 + negative_slope^2) / fan, for layers
  /// followed by a leaky ReLU.
  static Init kaiming_uniform(double negative_slope = 0, Fan = Fan::in);
  /// He et al. (arXiv 1502.01852): normal with mean 0 and variance 2 / fan, for layers followed by a ReLU.
  static Init kaiming_normal(Fan = Fan::out);
  /// PyTorch's default for Linear and Conv: kaiming_uniform(sqrt(5)), and uniform(+-1 / sqrt(fan_in)) for the bias.
  static Init pytorch_default();

  /// The Init for the bias of a layer with this Init for its weight: PyTorch's if this is pytorch_default(), else
  /// zeros().
  Init of_bias(const Shape& weight) const;

 private:
  using BoxFn = std::function<void(const Tensor& t, std::uint64_t key, const Shape& whole, const Shape& at)>;
  explicit Init(BoxFn draw) : draw_(std::move(draw)) {}
  static BoxFn of_whole(Fn draw);
  BoxFn draw_;
  bool pytorch_ = false;
};

}  // namespace trireme
