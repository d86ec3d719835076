#include "tests/cuda_emulator/cudnn_graph.h"

#include <algorithm>

namespace emulator::dnn {
namespace {

struct Names {
  cudnnBackendAttributeName_t x, w, y, settings, alpha, beta;
};
Names names(cudnnBackendDescriptorType_t direction) {
  switch (direction) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

/// Values of the last axes; the axes before keep what they have.
void take(Triple& to, const Node& settings, cudnnBackendAttributeName_t name) {
  const std::vector<Index> values = settings.list<Index>(name);
  std::copy(values.begin(), values.end(), to.end() - std::ssize(values));
}

}  // namespace

DType dtype(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return DType::f32;
    case CUDNN_DATA_DOUBLE: return DType::f64;
    case CUDNN_DATA_HALF: return DType::f16;
    case CUDNN_DATA_BFLOAT16: return DType::bf16;
    default: throw Refusal(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "a floating type is expected");
  }
}

Tensor::Tensor(const Node& n)
    : id(n.value<Index>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
      alignment(n.value<Index>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
      type(n.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
      dims(n.list<Index>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
      strides(n.list<Index>(CUDNN_ATTR_TENSOR_STRIDES)),
      passing(n.flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {}

Index Tensor::count() const {
  Index n = 1;
  for (Index d : dims) n *= d;
  return n;
}
std::size_t Tensor::span() const {
  Index last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return static_cast<std::size_t>((last + 1) * trireme::size_of(dtype(type)));
}

bool is_convolution(const Node& n) {
  return n.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         n.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         n.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

Convolution::Convolution(const Node& n)
    : x(n.node(names(n.type).x)), w(n.node(names(n.type).w)), y(n.node(names(n.type).y)), direction(n.type) {
  const Names m = names(n.type);
  const Node& settings = n.node(m.settings);
  compute = settings.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  turned = settings.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  alpha = n.real(m.alpha, 1);
  beta = n.real(m.beta, 0);
  take(begin, settings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  take(end, settings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  take(stride, settings, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  take(dilation, settings, CUDNN_ATTR_CONVOLUTION_DILATIONS);
}
const Tensor& Convolution::written() const {
  if (direction == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) return x;
  return direction == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ? w : y;
}

Operands operands(const Node& n) {
  Operands o;
  auto add = [&](std::vector<Tensor>& to, std::initializer_list<cudnnBackendAttributeName_t> all) {
    for (auto name : all)
      if (n.has(name)) to.emplace_back(n.node(name));
  };
  if (is_convolution(n)) {
    const Names m = names(n.type);
    const Convolution c(n);
    for (auto name : {m.x, m.w, m.y}) {
      Tensor t(n.node(name));
      (t.id == c.written().id ? o.written : o.read).push_back(t);
    }
    if (c.beta != 0) o.read.push_back(c.written());
  } else if (n.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    add(o.read, {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                 CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC});
    add(o.written, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC});
  } else if (n.type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR) {
    add(o.read, {CUDNN_ATTR_OPERATION_GENSTATS_XDESC});
    add(o.written, {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC});
  } else if (n.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    add(o.read, {CUDNN_ATTR_OPERATION_REDUCTION_XDESC});
    add(o.written, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC});
  } else {
    add(o.read, {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC,
                 CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
                 CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC});
    add(o.written,
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
         CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
         CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS});
  }
  return o;
}

}  // namespace emulator::dnn
