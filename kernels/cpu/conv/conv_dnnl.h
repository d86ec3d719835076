// Convolutions through oneDNN: its description of a convolution, and the cache of prepared primitives. The functions
// return false if the CPU does not support the type: the caller then computes in f32.
#pragma once
#include <vector>

#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/dnnl.h"

namespace trireme::onednn {

/// oneDNN's descriptors and options of one convolution.
struct Geometry {
  Dims x_dims, w_dims, y_dims, bias_dims;
  std::vector<int> activation_order, filter_order;  // axes of our layouts for oneDNN's axes
  Dims stride, dilation, pad_begin, pad_end;

  explicit Geometry(const ConvShape& s);
  Desc x(DType t) const { return dense(x_dims, activation_order, t); }
  Desc y(DType t) const { return dense(y_dims, activation_order, t); }
  Desc w(DType t) const { return dense(w_dims, filter_order, t); }
  Desc bias(DType t) const { return dense(bias_dims, {0}, t); }
};

/// y = conv(x, w), with bias, ReLU and (sum) y's old contents added on request; the primitive chooses the filter's
/// layout. Throws dnnl::error if oneDNN has no implementation.
dnnl::convolution_forward::primitive_desc describe_forward(const Geometry& g, DType tx, DType ty, const View& bias,
                                                           bool relu, bool sum = false);

/// Throws dnnl::error if pd's implementation is wrong for s (only bf16 ones are). planned() then makes an empty plan,
/// and the caller computes in f32.
void avoid_faults(const dnnl::primitive_desc& pd, const ConvShape& s);

/// A copy of the input x of s amid zeros: the input of `wide`, which has less padding and more cells, or no cells
/// behind the last that an output reads.
struct Padded {
  Padded(const View& x, const ConvShape& s, const ConvShape& wide);
  View view;

 private:
  Scratch block_;
};

/// The cached plan, or make(). An empty plan if the CPU does not support the type: the caller then computes in f32.
template <class Plan, class Make>
Plan& planned(int op, std::initializer_list<const View*> views, const ConvOptions& o, int flags, Make&& make) {
  Key key;
  key.add(op * 16 + flags);
  for (const View* v : views) key.add(*v);
  for (const Extents* e : {&o.stride, &o.pad_begin, &o.pad_end, &o.dilation}) key.add(std::span<const Index>(*e));
  key.add(o.groups);
  return cached<Plan>(key, [&] {
    try {
      return make();
    } catch (const dnnl::error& e) {
      check((*views.begin())->dtype != DType::f32 || (*(views.begin() + 1))->dtype != DType::f32, ErrorKind::device,
            "conv", "oneDNN: {}", e.what());
      return Plan{};
    }
  });
}

/// Copies the cells of x that each output reads to [outputs, filter cells, channels]; zeros for padding.
void make_columns(std::byte* to, const View& x, const ConvShape& s);

bool conv_forward(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                  const ConvShape&);
/// dx (+)=.
bool conv_backward_input(const View& dx, const View& dy, const View& w, const ConvShape&, bool accumulate);
/// dw [f32] (+)=; dbias [f32] (+)=, or none.
bool conv_backward_weight(const View& dw, const View& dbias, const View& x, const View& dy, const ConvShape&,
                          bool accumulate);

}  // namespace trireme::onednn
