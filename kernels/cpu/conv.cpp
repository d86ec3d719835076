// Convolutions: oneDNN for f32 and bf16 (in f32 where the machine has no bf16), Eigen for f64. Activations
// are channels last; oneDNN chooses the filter's layout and a reorder on every call keeps it true to the
// weights.
#include "kernels/conv.h"

#include <cstring>

#include "kernels/cpu/conv_shape.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/kernel.h"

namespace trireme {

ConvShape conv_shape(const View& x, const View& w, const View& y, const ConvOptions& o, std::string_view op) {
  int rank = x.shape.rank();
  check(rank >= 3 && rank <= 5, op, "input is {}: expected N, 1 to 3 spatial axes, C", x.shape);
  check(w.shape.rank() == rank, op, "filter is {}, expected {} axes like the input {}", w.shape, rank, x.shape);
  ConvShape s;
  s.dims = rank - 2, s.n = x.shape[0], s.c_in = x.shape[-1], s.c_out = w.shape[0], s.options = o;
  check(o.groups >= 1 && s.c_out % o.groups == 0 && s.c_in % o.groups == 0, op,
        "{} groups do not divide {} input and {} output channels", o.groups, s.c_in, s.c_out);
  check(s.group_in() == w.shape[-1], op, "input has {} channels, the filter expects {}", s.c_in,
        w.shape[-1] * o.groups);
  // Options may say something about axes that are not there.
  for (std::size_t d = s.dims; d < 3; ++d)
    s.options.stride[d] = s.options.dilation[d] = 1, s.options.pad_begin[d] = s.options.pad_end[d] = 0;
  Shape expected{s.n};
  for (int d = 0; d < s.dims; ++d) {
    check(o.stride[d] >= 1 && o.dilation[d] >= 1, op, "stride {} and dilation {} must be at least 1", o.stride[d],
          o.dilation[d]);
    s.in[d] = x.shape[d + 1], s.filter[d] = w.shape[d + 1];
    Index room = s.in[d] + o.pad_begin[d] + o.pad_end[d] - (s.filter[d] - 1) * o.dilation[d] - 1;
    check(room >= 0 && s.filter[d] >= 1, op, "input {} with its padding is smaller than the dilated filter {}", x.shape,
          w.shape);
    s.out[d] = room / o.stride[d] + 1;
    expected.push_back(s.out[d]);
  }
  expected.push_back(s.c_out);
  check(y.shape == expected, op, "output is {}, expected {}", y.shape, expected);
  return s;
}

namespace {
using onednn::Desc;
using onednn::Dims;
using onednn::Prepared;

/// oneDNN's descriptors and options of one convolution.
struct Geometry {
  Dims x_dims, w_dims, y_dims, bias_dims;
  std::vector<int> activation_order, filter_order;  // where our layouts keep oneDNN's axes
  Dims stride, dilation, pad_begin, pad_end;

  explicit Geometry(const ConvShape& s) {
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
  Desc x(DType t) const { return onednn::dense(x_dims, activation_order, t); }
  Desc y(DType t) const { return onednn::dense(y_dims, activation_order, t); }
  Desc w(DType t) const { return onednn::dense(w_dims, filter_order, t); }
  Desc bias(DType t) const { return onednn::dense(bias_dims, {0}, t); }
};

dnnl::convolution_forward::primitive_desc describe_forward(const Geometry& g, DType tx, DType ty, const View& bias,
                                                           bool relu) {
  dnnl::primitive_attr attr = onednn::attributes();
  if (relu) {
    dnnl::post_ops ops;
    onednn::append_relu(ops);
    attr.set_post_ops(ops);
  }
  auto kind = dnnl::prop_kind::forward_training;
  auto algorithm = dnnl::algorithm::convolution_direct;
  Desc w = onednn::any(g.w_dims, tx);
  if (bias)
    return onednn::describe<dnnl::convolution_forward>(attr, kind, algorithm, g.x(tx), w, g.bias(bias.dtype), g.y(ty),
                                                       g.stride, g.dilation, g.pad_begin, g.pad_end);
  return onednn::describe<dnnl::convolution_forward>(attr, kind, algorithm, g.x(tx), w, g.y(ty), g.stride, g.dilation,
                                                     g.pad_begin, g.pad_end);
}

/// make() or, where the machine lacks the type, an empty plan: the caller then goes through f32.
template <class Plan, class Make>
Plan& planned(int op, std::initializer_list<const View*> views, const ConvOptions& o, int flags, Make&& make) {
  onednn::Key key;
  key.add(op * 16 + flags);
  for (const View* v : views) key.add(*v);
  for (const Extents* e : {&o.stride, &o.pad_begin, &o.pad_end, &o.dilation}) key.add(std::span<const Index>(*e));
  key.add(o.groups);
  return onednn::cached<Plan>(key, [&] {
    try {
      return make();
    } catch (const dnnl::error&) {
      if ((*views.begin())->dtype == DType::f32 && (*(views.begin() + 1))->dtype == DType::f32) throw;
      return Plan{};
    }
  });
}

struct ForwardPlan {
  Prepared pack, run;  // pack is empty when our filter layout is the primitive's
  std::size_t packed = 0;
};

bool forward(const View& y, const View& x, const View& w, const View& bias, const ConvShape& s) {
  auto& plan = planned<ForwardPlan>(0, {&x, &y, &w, &bias}, s.options, s.options.relu, [&] {
    Geometry g(s);
    auto pd = describe_forward(g, x.dtype, y.dtype, bias, s.options.relu);
    std::vector<Prepared::Arg> args{
        {DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, pd.dst_desc()}};
    if (bias) args.push_back({DNNL_ARG_BIAS, pd.bias_desc()});
    return ForwardPlan{onednn::reorder(g.w(w.dtype), pd.weights_desc()),
                       Prepared(dnnl::convolution_forward(pd), args, pd.scratchpad_desc()),
                       pd.weights_desc().get_size()};
  });
  if (!plan.run) return false;
  onednn::Scratch packed(plan.pack ? plan.packed : 0);
  if (plan.pack) plan.pack({w.data, packed.data()});
  const void* filter = plan.pack ? packed.data() : w.data;
  if (bias)
    plan.run({x.data, filter, y.data, bias.data});
  else
    plan.run({x.data, filter, y.data});
  return true;
}

struct BackwardInputPlan {
  Prepared pack, run;
  std::size_t packed = 0;
};

bool backward_input(const View& dx, const View& dy, const View& w, const ConvShape& s) {
  auto& plan = planned<BackwardInputPlan>(1, {&dy, &dx, &w}, s.options, 0, [&] {
    Geometry g(s);
    auto hint = describe_forward(g, dx.dtype, dy.dtype, View{}, false);
    auto pd = onednn::describe_backward<dnnl::convolution_backward_data>(
        onednn::attributes(), hint, dnnl::algorithm::convolution_direct, g.x(dx.dtype), onednn::any(g.w_dims, dy.dtype),
        g.y(dy.dtype), g.stride, g.dilation, g.pad_begin, g.pad_end);
    std::vector<Prepared::Arg> args{{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                    {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                    {DNNL_ARG_DIFF_SRC, pd.diff_src_desc()}};
    return BackwardInputPlan{onednn::reorder(g.w(w.dtype), pd.weights_desc()),
                             Prepared(dnnl::convolution_backward_data(pd), args, pd.scratchpad_desc()),
                             pd.weights_desc().get_size()};
  });
  if (!plan.run) return false;
  onednn::Scratch packed(plan.pack ? plan.packed : 0);
  if (plan.pack) plan.pack({w.data, packed.data()});
  plan.run({dy.data, plan.pack ? packed.data() : w.data, dx.data});
  return true;
}

struct BackwardWeightPlan {
  Prepared run, unpack;
  std::size_t packed = 0, bias = 0;
};

/// dw [f32] (+)=; dbias likewise, or none.
bool backward_weight(const View& dw, const View& dbias, const View& x, const View& dy, const ConvShape& s,
                     bool accumulate) {
  int flags = accumulate + 2 * bool(dbias);
  auto& plan = planned<BackwardWeightPlan>(2, {&x, &dy, &dw}, s.options, flags, [&] {
    Geometry g(s);
    auto hint = describe_forward(g, x.dtype, dy.dtype, View{}, false);
    auto algorithm = dnnl::algorithm::convolution_direct;
    Desc any = onednn::any(g.w_dims, DType::f32);
    auto pd = dbias ? onednn::describe_backward<dnnl::convolution_backward_weights>(
                          onednn::attributes(), hint, algorithm, g.x(x.dtype), any, g.bias(DType::f32), g.y(dy.dtype),
                          g.stride, g.dilation, g.pad_begin, g.pad_end)
                    : onednn::describe_backward<dnnl::convolution_backward_weights>(
                          onednn::attributes(), hint, algorithm, g.x(x.dtype), any, g.y(dy.dtype), g.stride, g.dilation,
                          g.pad_begin, g.pad_end);
    std::vector<Prepared::Arg> args{{DNNL_ARG_SRC, pd.src_desc()},
                                    {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                    {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}};
    if (dbias) args.push_back({DNNL_ARG_DIFF_BIAS, pd.diff_bias_desc()});
    // oneDNN 2.6 in bf16 takes scratch memory for zeros when a filter cell meets only padding.
    bool clear = x.dtype == DType::bf16;
    return BackwardWeightPlan{Prepared(dnnl::convolution_backward_weights(pd), args, pd.scratchpad_desc(), clear),
                              onednn::reorder(pd.diff_weights_desc(), g.w(DType::f32), accumulate),
                              pd.diff_weights_desc().get_size(), static_cast<std::size_t>(s.c_out) * sizeof(float)};
  });
  if (!plan.run) return false;
  onednn::Scratch packed(plan.unpack ? plan.packed : 0), bias(dbias && accumulate ? plan.bias : 0);
  const void* filter = plan.unpack ? packed.data() : dw.data;
  const void* bias_to = dbias && accumulate ? bias.data() : dbias.data;
  if (dbias)
    plan.run({x.data, dy.data, filter, bias_to});
  else
    plan.run({x.data, dy.data, filter});
  if (plan.unpack) plan.unpack({packed.data(), dw.data});
  for (Index c = 0; dbias && accumulate && c < s.c_out; ++c) dbias.as<float>()[c] += bias.as<float>()[c];
  return true;
}

void check_types(std::string_view op, const View& a, const View& b, const View& c) {
  bool same = is_float(a.dtype) && a.dtype == b.dtype && a.dtype == c.dtype;
  check(same, op, "operands of one floating type are expected, got {}, {}, {}", a.dtype, b.dtype, c.dtype);
}

void conv(View y, View x, View w, View bias, const ConvOptions& o) {
  constexpr auto op = kernel::Conv::name;
  ConvShape s = conv_shape(x, w, y, o, op);
  check_types(op, y, x, w);
  check(!bias || bias.shape == Shape{s.c_out}, op, "bias is {}, expected [{}]", bias.shape, s.c_out);
  check(!bias || bias.dtype == y.dtype || (y.dtype == DType::bf16 && bias.dtype == DType::f32), op,
        "bias is {}, the output {}", bias.dtype, y.dtype);
  if (y.numel() == 0) return;
  if (y.dtype == DType::f64) return conv_f64(y, x, w, bias, s);
  if (conv_direct_few(x, s)) return conv_direct(y, x, w, bias, s);
  if (forward(y, x, w, bias, s)) return;
  InF32 xf(x), wf(w), bf(bias);
  OutF32 yf(y, false);
  forward(yf.view(), xf.view(), wf.view(), bf.view(), s);
  yf.store();
}

void conv_backward_input(View dx, View dy, View w, const ConvOptions& o) {
  constexpr auto op = kernel::ConvBackwardInput::name;
  ConvShape s = conv_shape(dx, w, dy, o, op);
  check_types(op, dx, dy, w);
  if (dx.numel() == 0) return;
  if (dx.dtype == DType::f64) return conv_backward_input_f64(dx, dy, w, s);
  if (backward_input(dx, dy, w, s)) return;
  InF32 dyf(dy), wf(w);
  OutF32 dxf(dx, false);
  backward_input(dxf.view(), dyf.view(), wf.view(), s);
  dxf.store();
}

void conv_backward_weight(View dw, View dbias, View x, View dy, const ConvOptions& o, bool accumulate) {
  constexpr auto op = kernel::ConvBackwardWeight::name;
  ConvShape s = conv_shape(x, dw, dy, o, op);
  check(x.dtype == dy.dtype && (dw.dtype == x.dtype || (x.dtype == DType::bf16 && dw.dtype == DType::f32)), op,
        "operands of one floating type are expected, got {}, {}, {}", dw.dtype, x.dtype, dy.dtype);
  check(!dbias || (dbias.dtype == dw.dtype && dbias.shape == Shape{s.c_out}), op,
        "bias gradient is {} {}, expected {} [{}]", dbias.dtype, dbias.shape, dw.dtype, s.c_out);
  if (x.numel() == 0) {
    if (accumulate) return;
    std::memset(dw.data, 0, static_cast<std::size_t>(dw.bytes()));
    if (dbias) std::memset(dbias.data, 0, static_cast<std::size_t>(dbias.bytes()));
    return;
  }
  if (conv_direct_few(x, s)) return conv_backward_weight_few(dw, dbias, x, dy, s, accumulate);
  if (dw.dtype == DType::f64 || conv_direct_many(x, s)) {
    (dw.dtype == DType::f64 ? conv_backward_weight_f64 : conv_backward_weight_many)(dw, x, dy, s, accumulate);
    if (dbias) sum_rows(dbias, dy, accumulate, op);
    return;
  }
  OutF32 dwf(dw, accumulate), dbf(dbias, accumulate);
  if (!backward_weight(dwf.view(), dbf.view(), x, dy, s, accumulate)) {
    InF32 xf(x), dyf(dy);
    backward_weight(dwf.view(), dbf.view(), xf.view(), dyf.view(), s, accumulate);
  }
  dwf.store();
  if (dbias) dbf.store();
}

const Kernel<kernel::Conv> conv_cpu{DeviceKind::cpu, conv};
const Kernel<kernel::ConvBackwardInput> conv_backward_input_cpu{DeviceKind::cpu, conv_backward_input};
const Kernel<kernel::ConvBackwardWeight> conv_backward_weight_cpu{DeviceKind::cpu, conv_backward_weight};

}  // namespace
}  // namespace trireme
