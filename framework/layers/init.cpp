#include "framework/layers/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "framework/tensor/flat_buffer.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/storage.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"
#include "kernels/core/random.h"

namespace trireme {
namespace {

using Key = std::uint64_t;

/// Writes element i % 4 of four(philox(round, i / 4)) for each element of a box, where i is its position in a tensor of
/// shape `whole`; always through f32.
template <class F>
void draw(const Tensor& t, Key key, const Shape& whole, const Shape& at, F&& four) {
  const bool direct = t.dtype() == DType::f32 && t.device().kind == DeviceKind::cpu;
  Tensor host = direct ? t : Tensor::empty(t.shape());
  float* const out = host.data<float>();
  const Philox philox{key};
  each_run({at, t.shape()}, whole, [&](Index begin, Index to, Index count) {
    const auto end = static_cast<std::uint64_t>(begin + count);
    float* next = out + to;
    for (auto i = static_cast<std::uint64_t>(begin); i < end;) {
      const std::array<float, 4> value = four([&](std::uint64_t round) { return philox(round, i / 4); });
      const std::uint64_t lane = i % 4, n = std::min(4 - lane, end - i);
      next = std::copy_n(value.begin() + lane, n, next);
      i += n;
    }
  });
  if (!direct) copy_unnoted(t, host);
  note_write(t);
}

/// Four of the standard normal distribution times std, plus mean.
std::array<float, 4> normals(const std::array<std::uint32_t, 4>& bits, double mean, double std) {
  std::array<float, 4> v;
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1.0 - uniform_float(bits[i])));  // 1 - u lies in (0, 1]
    const double angle = 2 * std::numbers::pi * uniform_float(bits[i + 1]);
    v[i] = static_cast<float>(mean + std * radius * std::cos(angle));
    v[i + 1] = static_cast<float>(mean + std * radius * std::sin(angle));
  }
  return v;
}

void check_std(const char* op, double std) {
  check(std >= 0 && std::isfinite(std), op, "std is {}, expected at least 0, and finite", std);
}
thread_local bool skips_init = false;

double fans_of(const Shape& whole) {
  return static_cast<double>(Init::fan_of(whole, Init::Fan::in) + Init::fan_of(whole, Init::Fan::out));
}

void draw_uniform(const Tensor& t, Key key, const Shape& whole, const Shape& at, double low, double high) {
  check(low <= high && std::isfinite(high - low), "uniform",
        "low is {} and high {}, expected low <= high and a finite range", low, high);
  const auto from = static_cast<float>(low), range = static_cast<float>(high - low);
  // from + range * u may round up to high, which is not in the range.
  auto top = static_cast<float>(high);
  if (high > low && static_cast<double>(top) >= high) top = std::max(std::nextafter(top, -INFINITY), from);
  draw(t, key, whole, at, [=](auto&& philox) {
    const auto bits = philox(0);
    std::array<float, 4> v;
    for (std::size_t i = 0; i < 4; ++i) v[i] = std::min(from + range * uniform_float(bits[i]), top);
    return v;
  });
}

void draw_normal(const Tensor& t, Key key, const Shape& whole, const Shape& at, double mean, double std) {
  check_std("normal", std);
  draw(t, key, whole, at, [=](auto&& philox) { return normals(philox(0), mean, std); });
}

Shape origin(const Tensor& t) { return from(t.shape(), t.shape()); }

}  // namespace

void uniform(const Tensor& t, double low, double high, std::uint64_t key) {
  draw_uniform(t, key, t.shape(), origin(t), low, high);
}

void normal(const Tensor& t, double mean, double std, std::uint64_t key) {
  draw_normal(t, key, t.shape(), origin(t), mean, std);
}

Tensor uniform(const Shape& shape, double low, double high, std::uint64_t seed, DType dtype) {
  Tensor t = Tensor::empty(shape, dtype);
  uniform(t, low, high, seed);
  return t;
}
Tensor normal(const Shape& shape, double mean, double std, std::uint64_t seed, DType dtype) {
  Tensor t = Tensor::empty(shape, dtype);
  normal(t, mean, std, seed);
  return t;
}

SkipInit::SkipInit() : before_(std::exchange(skips_init, true)) {}
SkipInit::~SkipInit() { skips_init = before_; }
bool SkipInit::is_active() { return skips_init; }

Tensor Init::make(const Shape& shape, std::uint64_t stream) const {
  thread_local std::uint64_t made = 0;
  checked_bytes("init", shape, DType::f32);
  if (skips_init) return FlatBuffer({{shape.numel()}}, 0, DType::f32).blocks()[0].reshape(shape);
  Tensor t = Tensor::empty(shape);
  (*this)(t, mix(made++, stream));
  return t;
}

Index Init::fan_of(const Shape& weight, Fan fan) {
  check(weight.rank() >= 2, "init",
        "the tensor is {}, expected at least 2 axes, [out, spatial..., in], from which its fan follows", weight);
  return fan == Fan::in ? weight.product(1, weight.rank()) : weight.product(0, weight.rank() - 1);
}

Init::BoxFn Init::of_whole(Fn draw) {
  return [draw = std::move(draw)](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    if (t.shape() == whole) return draw(t, key);
    const Tensor all = Tensor::empty(whole, t.dtype(), t.device());
    draw(all, key);
    launch<kernel::CopyBox>(t, origin(t), all, at, t.shape());
    note_write(t);
  };
}

Init Init::constant(double value) {
  return Init([=](const Tensor& t, Key, const Shape&, const Shape&) {
    launch<kernel::Fill>(t, value);
    note_write(t);
  });
}
Init Init::uniform(double low, double high) {
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    draw_uniform(t, key, whole, at, low, high);
  });
}
Init Init::normal(double std, double mean) {
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    draw_normal(t, key, whole, at, mean, std);
  });
}
Init Init::trunc_normal(double std, double low, double high) {
  check_std("trunc_normal", std);
  // At least 1 % of the draws must be inside, so that the loop below ends soon.
  check(low < high && std::erf(high / std / std::numbers::sqrt2) - std::erf(low / std / std::numbers::sqrt2) > 0.02,
        "trunc_normal", "less than 1 % of a normal distribution with std {} is in [{}, {}]: choose wider bounds", std,
        low, high);
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    draw(t, key, whole, at, [=](auto&& philox) {
      std::array<float, 4> kept = normals(philox(0), 0, std);
      const auto outside = [&](float v) { return v < low || v > high; };
      for (std::uint64_t round = 1; std::ranges::any_of(kept, outside); ++round) {
        const std::array<float, 4> again = normals(philox(round), 0, std);
        for (std::size_t i = 0; i < 4; ++i)
          if (outside(kept[i])) kept[i] = again[i];
      }
      return kept;
    });
  });
}
Init Init::xavier_uniform(double gain) {
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    const double bound = gain * std::sqrt(6 / fans_of(whole));
    draw_uniform(t, key, whole, at, -bound, bound);
  });
}
Init Init::xavier_normal(double gain) {
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    draw_normal(t, key, whole, at, 0, gain * std::sqrt(2 / fans_of(whole)));
  });
}
Init Init::kaiming_uniform(double negative_slope, Fan fan) {
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    const double gain = std::sqrt(2 / (1 + negative_slope * negative_slope));
    const double bound = gain * std::sqrt(3.0 / static_cast<double>(fan_of(whole, fan)));
    draw_uniform(t, key, whole, at, -bound, bound);
  });
}
Init Init::kaiming_normal(Fan fan) {
  return Init([=](const Tensor& t, Key key, const Shape& whole, const Shape& at) {
    draw_normal(t, key, whole, at, 0, std::sqrt(2.0 / static_cast<double>(fan_of(whole, fan))));
  });
}
Init Init::pytorch_default() {
  Init init = kaiming_uniform(std::sqrt(5.0));
  init.pytorch_ = true;
  return init;
}

Init Init::of_bias(const Shape& weight) const {
  if (!pytorch_) return zeros();
  const double bound = 1 / std::sqrt(static_cast<double>(fan_of(weight, Fan::in)));
  return uniform(-bound, bound);
}

}  // namespace trireme
