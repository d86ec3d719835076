#include "kernels/cpu/conv/conv_dnnl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/conv/conv_faults.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/pointwise.h"

namespace trireme::onednn {

Geometry::Geometry(const ConvShape& s) {
  x_dims = {s.n, s.c_in};
  y_dims = {s.n, s.c_out};
  bias_dims = {s.c_out};
  w_dims = {s.group_out(), s.group_in()};
  activation_order = {0, s.dims + 1};
  filter_order = {0, s.dims + 1};
  for (int d = 0; d < s.dims; ++d) {
    x_dims.push_back(s.in[d]);
    y_dims.push_back(s.out[d]);
    w_dims.push_back(s.filter[d]);
    activation_order.push_back(d + 1);
    filter_order.push_back(d + 1);
    stride.push_back(s.options.stride[d]);
    dilation.push_back(s.options.dilation[d] - 1);
    pad_begin.push_back(s.options.pad_begin[d]);
    pad_end.push_back(s.options.pad_end[d]);
  }
  if (s.options.groups == 1) return;
  w_dims.insert(w_dims.begin(), s.options.groups);
  for (int& axis : filter_order) ++axis;
  filter_order.insert(filter_order.begin(), 0);
}

dnnl::convolution_forward::primitive_desc describe_forward(const Geometry& g, DType tx, DType ty, const View& bias,
                                                           bool relu, bool sum) {
  dnnl::primitive_attr attr = attributes();
  dnnl::post_ops ops;
  if (sum) ops.append_sum(1.f);
  if (relu) append_relu(ops);
  attr.set_post_ops(ops);
  auto kind = dnnl::prop_kind::forward_training;
  auto algorithm = dnnl::algorithm::convolution_direct;
  Desc w = any(g.w_dims, tx);
  if (bias)
    return describe<dnnl::convolution_forward>(attr, kind, algorithm, g.x(tx), w, g.bias(bias.dtype), g.y(ty), g.stride,
                                               g.dilation, g.pad_begin, g.pad_end);
  return describe<dnnl::convolution_forward>(attr, kind, algorithm, g.x(tx), w, g.y(ty), g.stride, g.dilation,
                                             g.pad_begin, g.pad_end);
}

void avoid_faults(const dnnl::primitive_desc& pd, const ConvShape& s) {
  if (may_use_amx(s) || std::strstr(pd.impl_info_str(), "amx") == nullptr) return;
  throw dnnl::error(dnnl_unimplemented, "an implementation that is wrong for this shape");
}

namespace {
struct ForwardPlan {
  Prepared pack, run;  // pack is empty when our filter layout is the primitive's
  std::size_t packed = 0;
  int form = 0;  // of what pack makes, for FilterCache
};

/// One number per layout, the same for plans of other batches. 0 is a layout of our own.
int form_of(const Desc& packed) {
  static std::mutex mutex;
  static std::vector<Desc>& known = *new std::vector<Desc>;
  const std::lock_guard lock(mutex);
  const auto at = std::find(known.begin(), known.end(), packed);
  const auto form = static_cast<int>(at - known.begin()) + 1;
  if (at == known.end()) known.push_back(packed);
  return form;
}

ForwardPlan plan_forward(const View& y, const View& x, const View& w, const View& bias, bool relu, bool sum,
                         const ConvShape& s) {
  const Geometry g(s);
  const auto pd = describe_forward(g, x.dtype, y.dtype, bias, relu, sum);
  avoid_faults(pd, s);
  std::vector<Prepared::Arg> args{
      {DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, pd.dst_desc()}};
  if (bias) args.push_back({DNNL_ARG_BIAS, pd.bias_desc()});
  return {reorder(g.w(w.dtype), pd.weights_desc()), Prepared(dnnl::convolution_forward(pd), args, pd.scratchpad_desc()),
          pd.weights_desc().get_size(), form_of(pd.weights_desc())};
}

// oneDNN's ReLU is max(x, 0) by an instruction that turns NaN into 0. A convolution's NaN comes from an operand that is
// not finite. If there is one, ReLU is a separate pass of ours.

/// Whether all numbers are finite; true without a tensor.
bool is_finite(const View& v) {
  std::atomic<bool> finite = true;
  if (!v) return finite;
  dispatch_float(v.dtype, kernel::Conv::name, [&](auto t) {
    using T = decltype(t);
    constexpr Index piece = 4096;
    parallel_for((v.numel() + piece - 1) / piece, piece, [&, all = v.numel()](Index begin, Index end) {
      for (Index k = begin; k < end && finite.load(std::memory_order_relaxed); ++k) {
        Accumulator<T> rest{};  // of x - x, which is 0 for finite x
        vectorised([&rest, from = v.as<const T>() + k * piece, n = std::min(piece, all - k * piece)] {
          Accumulator<T> lane[64] = {};
          Index i = 0;
          for (; i + 64 <= n; i += 64)
#pragma omp simd
            for (Index j = 0; j < 64; ++j) {
              const auto x = static_cast<Accumulator<T>>(from[i + j]);
              lane[j] += x - x;
            }
          for (; i < n; ++i) lane[0] += static_cast<Accumulator<T>>(from[i]) - static_cast<Accumulator<T>>(from[i]);
          for (const Accumulator<T> one : lane) rest += one;
        });
        if (rest != 0) finite = false;
      }
    });
  });
  return finite;
}

/// Whether some cell of y has only 0, infinity and NaN in the channels of a group. With ReLU this happens if an input
/// or a weight of the cell is not finite. The loop leaves most cells after a few channels.
bool has_blank_cell(const View& y, Index channels) {
  std::atomic<bool> blank = false;
  dispatch_float(y.dtype, kernel::Conv::name, [&](auto t) {
    using T = decltype(t);
    parallel_for(y.numel() / channels, 16, [&, from = y.as<const T>()](Index begin, Index end) {
      for (Index cell = begin; cell < end && !blank.load(std::memory_order_relaxed); ++cell) {
        const auto says_nothing = [](T number) {
          const auto v = static_cast<float>(number);
          return v == 0 || v - v != 0;
        };
        const T* const row = from + cell * channels;
        if (std::all_of(row, row + channels, says_nothing)) blank = true;
      }
    });
  });
  return blank;
}

/// s with the padding of its last axis as real cells of the input, and without cells that no output reads.
ConvShape with_last_padding(const ConvShape& s) {
  ConvShape wide = s;
  const int axis = s.dims - 1;
  const auto last = static_cast<std::size_t>(axis);
  wide.options.pad_begin[last] = wide.options.pad_end[last] = 0;
  wide.in[last] = wide.at(axis, s.out[last] - 1, s.filter[last] - 1) + 1;
  return wide;
}

}  // namespace

Padded::Padded(const View& x, const ConvShape& s, const ConvShape& wide)
    : view(x),
      block_(static_cast<std::size_t>(s.n * wide.in[0] * wide.in[1] * wide.in[2] * s.c_in * size_of(x.dtype))) {
  for (int d = 0; d < s.dims; ++d) view.shape[d + 1] = wide.in[static_cast<std::size_t>(d)];
  view.data = block_.data();
  Extents before = s.options.pad_begin;
  for (std::size_t d = 0; d < before.size(); ++d) before[d] -= wide.options.pad_begin[d];
  const Index cell = s.c_in * size_of(x.dtype), row = s.in[2] * cell, padded = wide.in[2] * cell;
  const Index left = std::min(before[2] * cell, padded), taken = std::min(padded - left, row);
  const auto fill = [=, &s, &wide, to = block_.as<std::byte>(), from = x.as<std::byte>()](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      const Index n = r / (wide.in[0] * wide.in[1]);
      const Index i0 = r / wide.in[1] % wide.in[0] - before[0], i1 = r % wide.in[1] - before[1];
      std::byte* const at = to + r * padded;
      std::memset(at, 0, static_cast<std::size_t>(padded));
      if (i0 >= 0 && i0 < s.in[0] && i1 >= 0 && i1 < s.in[1])
        std::memcpy(at + left, from + ((n * s.in[0] + i0) * s.in[1] + i1) * row, static_cast<std::size_t>(taken));
    }
  };
  parallel_for(s.n * wide.in[0] * wide.in[1], wide.in[2] * s.c_in, fill);
}

bool conv_forward(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                  const ConvShape& s) {
  if (forward_needs_padding(s)) {
    const ConvShape wide = with_last_padding(s);
    return conv_forward(y, Padded(x, s, wide).view, w, bias, residual, wide);
  }
  // A residual in y's own block is added by oneDNN. Any other one is added by a pass of ours, which is faster than
  // oneDNN's binary post-op. The ReLU of a strided depthwise convolution is a pass of ours, too: its y is smaller than
  // the x that would have to be checked.
  const bool own = residual && residual.data == y.data, sum = own && may_sum(s), apart = residual && !sum,
             relu = s.options.relu && !apart, depthwise = s.group_out() == 1,
             fuses = relu && (!depthwise || 2 * y.numel() > x.numel());
  const auto plan_of = [&](bool fused) -> ForwardPlan& {
    return planned<ForwardPlan>(0, {&x, &y, &w, &bias}, s.options, fused + 2 * sum,
                                [&] { return plan_forward(y, x, w, bias, fused, sum, s); });
  };
  FilterCache* const filters = s.options.filters;
  std::optional<Scratch> now;
  /// The packed filter, and whether all its weights are finite.
  const auto filter_of = [&](ForwardPlan& plan) -> std::pair<const void*, bool> {
    if (!plan.pack) return {w.data, !fuses || is_finite(w)};
    const auto pack = [&](void* to) {
      plan.pack({w.data, to});
      static_cast<std::byte*>(to)[plan.packed] = std::byte((!fuses && filters == nullptr) || is_finite(w));
    };
    const void* packed = nullptr;
    if (filters != nullptr) {
      packed = filters->get(w.data, plan.form, plan.packed + 1, pack);
    } else {
      now.emplace(plan.packed + 1);
      pack(now->data());
      packed = now->data();
    }
    return {packed, static_cast<const std::byte*>(packed)[plan.packed] != std::byte{}};
  };
  const auto run = [&](ForwardPlan& plan, const void* filter) {
    if (bias)
      plan.run({x.data, filter, y.data, bias.data});
    else
      plan.run({x.data, filter, y.data});
  };
  auto& plan = plan_of(fuses);
  if (!plan.run) return false;
  Scratch copy(own && apart ? static_cast<std::size_t>(y.bytes()) : 0);
  View added = residual;
  if (copy.data() != nullptr) added.data = std::memcpy(copy.data(), residual.data, static_cast<std::size_t>(y.bytes()));
  const auto [filter, finite] = filter_of(plan);
  // With sum, y is overwritten, so x is checked before. So it is for a depthwise convolution: half of the cells of its
  // result are 0, and the check brings x into the caches.
  bool fused =
      fuses && finite && is_finite(bias) && (!sum || is_finite(residual)) && (!(sum || depthwise) || is_finite(x));
  if (fused || !fuses) run(plan, filter);
  if (fused && !sum && !depthwise && has_blank_cell(y, s.group_out())) fused = is_finite(x);
  if (fuses && !fused) {
    auto& plain = plan_of(false);
    run(plain, filter_of(plain).first);
  }
  if (relu && !fused) Kernel<kernel::Map<pointwise::Relu>>::on(DeviceKind::cpu)(y, y, {});
  if (apart) add_residual(y, added, s.options.relu);
  return true;
}

}  // namespace trireme::onednn
