#include "bench/vendor_calls.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/cpu/dnnl.h"

namespace trireme {
namespace {
using Clock = std::chrono::steady_clock;
using dnnl::memory;
using tag = memory::format_tag;

struct Call {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> args;
  bool norm = false;
};

}  // namespace

struct VendorCalls::Impl {
  dnnl::stream stream{onednn::engine()};
  std::vector<Call> forward;
  std::vector<std::vector<Call>> backward_groups;
  std::vector<void*> blocks;
  ~Impl() {
    for (void* block : blocks) std::free(block);
  }

  memory make(const memory::desc& desc) {
    void* block = std::aligned_alloc(std::size_t{2} << 20, ((desc.get_size() >> 21) + 1) << 21);
    std::memset(block, 0, desc.get_size());
    blocks.push_back(block);
    return memory(desc, onednn::engine(), block);
  }
  static memory::desc image(Index n, Index c, Index hw) { return {{n, c, hw, hw}, memory::data_type::f32, tag::nhwc}; }

  /// y = relu(bn(conv(x)) + residual?). Gradients likewise. Returns y; gradients travel in blocks made per layer.
  struct Value {
    memory y;
    Index n, channels, size;
  };
  Value layer(const Value& x, Index out, Index kernel, Index stride, bool relu, bool input_gradient) {
    const Index pad = kernel / 2, n = x.n, size = (x.size + 2 * pad - kernel) / stride + 1;
    const memory::desc xd = image(n, x.channels, x.size), yd = image(n, out, size),
                       any({out, x.channels, kernel, kernel}, memory::data_type::f32, tag::any);
    const memory::dims strides{stride, stride}, pads{pad, pad}, dense{0, 0};
    auto attr = dnnl::primitive_attr();
    const auto algorithm = dnnl::algorithm::convolution_direct;
    auto f = onednn::describe<dnnl::convolution_forward>(attr, dnnl::prop_kind::forward_training, algorithm, xd, any,
                                                         yd, strides, dense, pads, pads);
    auto bd = onednn::describe_backward<dnnl::convolution_backward_data>(attr, f, algorithm, xd, any, yd, strides,
                                                                         dense, pads, pads);
    auto bw = onednn::describe_backward<dnnl::convolution_backward_weights>(attr, f, algorithm, xd, any, yd, strides,
                                                                            dense, pads, pads);
    memory y = make(yd), dy = make(yd), z = make(yd), dz = make(yd);
    forward.push_back({dnnl::convolution_forward(f),
                       {{DNNL_ARG_SRC, x.y}, {DNNL_ARG_WEIGHTS, make(f.weights_desc())}, {DNNL_ARG_DST, y}}});
    const auto training = dnnl::prop_kind::forward_training;
    const auto backward = dnnl::prop_kind::backward;
#if DNNL_VERSION_MAJOR >= 3
    auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    if (relu) flags |= dnnl::normalization_flags::fuse_norm_relu;
    auto nf = onednn::describe<dnnl::batch_normalization_forward>(attr, training, yd, yd, 1e-5f, flags);
    auto nb =
        onednn::describe_backward<dnnl::batch_normalization_backward>(attr, nf, backward, yd, yd, yd, 1e-5f, flags);
    const int affine[] = {DNNL_ARG_SCALE, DNNL_ARG_SHIFT}, gradients[] = {DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
#else
    auto flags = dnnl::normalization_flags::use_scale_shift;
    if (relu) flags |= dnnl::normalization_flags::fuse_norm_relu;
    auto nf = onednn::describe<dnnl::batch_normalization_forward>(attr, training, yd, 1e-5f, flags);
    auto nb = onednn::describe_backward<dnnl::batch_normalization_backward>(attr, nf, backward, yd, yd, 1e-5f, flags);
    const int affine[] = {DNNL_ARG_SCALE_SHIFT}, gradients[] = {DNNL_ARG_DIFF_SCALE_SHIFT};
#endif
    memory mean = make(nf.mean_desc()), variance = make(nf.variance_desc());
    std::unordered_map<int, memory> fa{
        {DNNL_ARG_SRC, y}, {DNNL_ARG_DST, z}, {DNNL_ARG_MEAN, mean}, {DNNL_ARG_VARIANCE, variance}};
    std::unordered_map<int, memory> ba{{DNNL_ARG_SRC, y},
                                       {DNNL_ARG_DIFF_DST, dz},
                                       {DNNL_ARG_DIFF_SRC, dy},
                                       {DNNL_ARG_MEAN, mean},
                                       {DNNL_ARG_VARIANCE, variance}};
    for (int name : affine) {
      memory numbers = make(nf.weights_desc());
      fa.insert({name, numbers});
      if (name == affine[0]) ba.insert({name, numbers});  // the shift's gradient needs no shift
    }
    for (int name : gradients) ba.insert({name, make(nf.weights_desc())});
    if (relu) {
      memory mask = make(nf.workspace_desc());
      fa.insert({DNNL_ARG_WORKSPACE, mask});
      ba.insert({DNNL_ARG_WORKSPACE, mask});
    }
    forward.push_back({dnnl::batch_normalization_forward(nf), fa, true});
    std::vector<Call> group;
    group.push_back({dnnl::batch_normalization_backward(nb), ba, true});
    if (input_gradient)
      group.push_back(
          {dnnl::convolution_backward_data(bd),
           {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, make(bd.weights_desc())}, {DNNL_ARG_DIFF_SRC, make(xd)}}});
    group.push_back(
        {dnnl::convolution_backward_weights(bw),
         {{DNNL_ARG_SRC, x.y}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, make(bw.diff_weights_desc())}}});
    backward_groups.push_back(std::move(group));
    return {z, n, out, size};
  }
  void execute(std::vector<Call>& calls, double (&spent)[2]) {
    for (Call& call : calls) {
      auto start = Clock::now();
      call.primitive.execute(stream, call.args);
      stream.wait();
      spent[call.norm] += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    }
  }
};

VendorCalls::VendorCalls() = default;
VendorCalls::~VendorCalls() = default;
VendorCalls::VendorCalls(VendorCalls&&) noexcept = default;
VendorCalls& VendorCalls::operator=(VendorCalls&&) noexcept = default;

std::pair<double, double> VendorCalls::run() {
  double spent[2] = {0, 0};
  impl_->execute(impl_->forward, spent);
  for (auto group = impl_->backward_groups.rbegin(); group != impl_->backward_groups.rend(); ++group)
    impl_->execute(*group, spent);
  return {spent[0], spent[1]};
}

VendorCalls resnet50_calls(Index batch, Index size) {
  VendorCalls calls;
  calls.impl_ = std::make_unique<VendorCalls::Impl>();
  VendorCalls::Impl& net = *calls.impl_;
  VendorCalls::Impl::Value x{net.make(VendorCalls::Impl::image(batch, 3, size)), batch, 3, size};
  x = net.layer(x, 64, 7, 2, true, false);
  const Index pooled = (x.size + 2 - 3) / 2 + 1;
  x = {net.make(VendorCalls::Impl::image(batch, 64, pooled)), batch, 64, pooled};
  const Index blocks[4] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage)
    for (Index b = 0; b < blocks[stage]; ++b) {
      const Index width = Index{64} << stage, stride = b == 0 && stage > 0 ? 2 : 1;
      if (b == 0) net.layer(x, 4 * width, 1, stride, false, true);
      auto inner = net.layer(net.layer(x, width, 1, 1, true, true), width, 3, stride, true, true);
      x = net.layer(inner, 4 * width, 1, 1, true, true);
    }
  return calls;
}

}  // namespace trireme
