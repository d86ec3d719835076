#include "kernels/cpu/conv/conv_dnnl.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "kernels/cpu/conv/conv_faults.h"

namespace trireme::onednn {

Geometry::Geometry(const ConvShape& s) {
  x_dims = {s.n, s.c_in}, y_dims = {s.n, s.c_out}, bias_dims = {s.c_out};
  w_dims = {s.group_out(), s.group_in()};
  activation_order = {0, s.dims + 1}, filter_order = {0, s.dims + 1};
  for (int d = 0; d < s.dims; ++d) {
    x_dims.push_back(s.in[d]), y_dims.push_back(s.out[d]), w_dims.push_back(s.filter[d]);
    activation_order.push_back(d + 1), filter_order.push_back(d + 1);
    stride.push_back(s.options.stride[d]), dilation.push_back(s.options.dilation[d] - 1);
    pad_begin.push_back(s.options.pad_begin[d]), pad_end.push_back(s.options.pad_end[d]);
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

/// One number per layout, the same for plans of other batches. 0 is Winograd's.
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

}  // namespace

bool conv_forward(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                  const ConvShape& s) {
  // A residual in y's own block is added on the way; another one in a pass of ours, faster than oneDNN's binary
  // post-op.
  const bool own = residual && residual.data == y.data, sum = own && may_sum(s), apart = residual && !sum,
             relu = s.options.relu && !apart;
  auto& plan = planned<ForwardPlan>(0, {&x, &y, &w, &bias}, s.options, relu + 2 * sum,
                                    [&] { return plan_forward(y, x, w, bias, relu, sum, s); });
  if (!plan.run) return false;
  Scratch copy(own && apart ? static_cast<std::size_t>(y.bytes()) : 0);
  View added = residual;
  if (copy.data() != nullptr) added.data = std::memcpy(copy.data(), residual.data, static_cast<std::size_t>(y.bytes()));
  FilterCache* const filters = s.options.filters;
  Scratch now(plan.pack && filters == nullptr ? plan.packed : 0);
  const auto pack = [&](void* to) { plan.pack({w.data, to}); };
  const void* filter = plan.pack ? now.data() : w.data;
  if (plan.pack && filters != nullptr) filter = filters->get(w.data, plan.form, plan.packed, pack);
  if (plan.pack && filters == nullptr) pack(now.data());
  if (bias)
    plan.run({x.data, filter, y.data, bias.data});
  else
    plan.run({x.data, filter, y.data});
  if (apart) add_residual(y, added, s.options.relu);
  return true;
}

}  // namespace trireme::onednn
