#include "framework/layers/init.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/random.h"

namespace trireme {
namespace {

/// Writes f(i, bits) for each element, four at a time from one Philox counter; always through f32.
template <class F>
void draw(const Tensor& t, std::uint64_t key, F&& four) {
  const bool direct = t.dtype() == DType::f32 && t.device().kind == DeviceKind::cpu;
  Tensor host = direct ? t : Tensor::empty(t.shape());
  auto out = host.view().span<float>();
  Philox philox{key};
  for (std::size_t i = 0; i < out.size(); i += 4) {
    std::array<float, 4> value = four(philox(0, i / 4));
    std::copy_n(value.begin(), std::min<std::size_t>(4, out.size() - i), out.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!direct) copy_unnoted(t, host);
  note_write(t);
}

void fill(const Tensor& t, double value) {
  launch<kernel::Fill>(t, value);
  note_write(t);
}

}  // namespace

void uniform(const Tensor& t, double low, double high, std::uint64_t key) {
  check(low <= high && std::isfinite(high - low), "uniform", "low {} and high {} bound no range", low, high);
  const auto from = static_cast<float>(low), range = static_cast<float>(high - low);
  // from + range * u may round up to high, which is not in the range.
  auto top = static_cast<float>(high);
  if (high > low && static_cast<double>(top) >= high) top = std::max(std::nextafter(top, -INFINITY), from);
  draw(t, key, [=](const std::array<std::uint32_t, 4>& bits) {
    std::array<float, 4> v;
    for (std::size_t i = 0; i < 4; ++i) v[i] = std::min(from + range * uniform_float(bits[i]), top);
    return v;
  });
}

void normal(const Tensor& t, double mean, double std, std::uint64_t key) {
  check(std >= 0 && std::isfinite(std), "normal", "std is {}, expected at least 0", std);
  draw(t, key, [=](const std::array<std::uint32_t, 4>& bits) {
    std::array<float, 4> v;
    for (std::size_t i = 0; i < 4; i += 2) {
      const double radius = std::sqrt(-2 * std::log(1.0 - uniform_float(bits[i])));  // 1 - u lies in (0, 1]
      const double angle = 2 * std::numbers::pi * uniform_float(bits[i + 1]);
      v[i] = static_cast<float>(mean + std * radius * std::cos(angle));
      v[i + 1] = static_cast<float>(mean + std * radius * std::sin(angle));
    }
    return v;
  });
}

Index fan_of(const Shape& weight, Fan fan) {
  check(weight.rank() >= 2, "fan", "shape {} has {} axes, a fan needs at least 2 ([O, spatial..., I])", weight,
        weight.rank());
  return fan == Fan::in ? weight.product(1, weight.rank()) : weight.product(0, weight.rank() - 1);
}

void kaiming_uniform(const Tensor& t, double negative_slope, Fan fan, std::uint64_t key) {
  const double gain = std::sqrt(2 / (1 + negative_slope * negative_slope));
  const double bound = gain * std::sqrt(3.0 / static_cast<double>(fan_of(t.shape(), fan)));
  uniform(t, -bound, bound, key);
}

void kaiming_normal(const Tensor& t, Fan fan, std::uint64_t key) {
  normal(t, 0, std::sqrt(2.0 / static_cast<double>(fan_of(t.shape(), fan))), key);
}

void xavier_uniform(const Tensor& t, std::uint64_t key) {
  const auto fans = static_cast<double>(fan_of(t.shape(), Fan::in) + fan_of(t.shape(), Fan::out));
  const double bound = std::sqrt(6 / fans);
  uniform(t, -bound, bound, key);
}

void default_weight(const Tensor& weight, std::uint64_t key) { kaiming_uniform(weight, std::sqrt(5.0), Fan::in, key); }

void default_bias(const Tensor& bias, const Tensor& weight, std::uint64_t key) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_of(weight.shape(), Fan::in)));
  uniform(bias, -bound, bound, key);
}

void start_weight(const Tensor& weight, Init start, std::uint64_t key) {
  switch (start) {
    case Init::pytorch_default: return default_weight(weight, key);
    case Init::kaiming_normal: return kaiming_normal(weight, Fan::out, key);
    case Init::small_normal: return normal(weight, 0, 0.01, key);
    case Init::zeros: return fill(weight, 0);
  }
}

void start_bias(const Tensor& bias, const Tensor& weight, Init start, std::uint64_t key) {
  if (start == Init::pytorch_default)
    default_bias(bias, weight, key);
  else
    fill(bias, 0);
}

std::uint64_t key_of_name(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

void initialize(Module& model, std::uint64_t seed) {
  std::map<std::string, NamedState> by_name;
  std::vector<NamedState> leaves;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    by_name.emplace(leaf.name, leaf);
    leaves.push_back(leaf);
  }));
  std::set<const void*> done;
  for (const NamedState& leaf : leaves) {
    const Tensor& t = *leaf.tensor;
    if (!done.insert(t.id()).second) continue;         // shared: drawn under its first name
    const std::size_t dot = leaf.name.rfind('.') + 1;  // npos + 1 is 0
    const std::string own = leaf.name.substr(dot);
    const auto beside = by_name.find(leaf.name.substr(0, dot) + "weight");
    const Tensor weight = beside == by_name.end() ? Tensor() : *beside->second.tensor;
    const std::uint64_t key = mix(seed, key_of_name(leaf.name));
    if (leaf.use == StateKind::buffer) {
      if (own == "running_mean") fill(t, 0);
      if (own == "running_var") fill(t, 1);
    } else if (t.rank() >= 2) {
      start_weight(t, leaf.start, key);
    } else if (own == "bias" && weight && weight.rank() >= 2) {
      start_bias(t, weight, beside->second.start, key);
    } else if (weight && (own == "weight" || own == "bias")) {
      fill(t, own == "weight" && leaf.start != Init::zeros ? 1 : 0);
    }
  }
}

}  // namespace trireme
