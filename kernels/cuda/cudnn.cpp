#include "kernels/cuda/cudnn.h"

#include "kernels/cuda/plugin.h"

namespace trireme::gpu {
namespace {

cudnnDataType_t data_type(DType t) {
  switch (t) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::i32: return CUDNN_DATA_INT32;
    case DType::i64: return CUDNN_DATA_INT64;
    case DType::u8: return CUDNN_DATA_UINT8;
    case DType::i8: return CUDNN_DATA_INT8;
    case DType::boolean: return CUDNN_DATA_BOOLEAN;
    case DType::i16: break;
  }
  return CUDNN_DATA_FLOAT;
}

std::string last_words() {
  char text[512] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return text;
}
std::string reason(cudnnStatus_t status) {
  const std::string more = last_words();
  return std::string(cudnnGetErrorString(status)) + (more.empty() ? "" : ": " + more);
}

}  // namespace

std::string cudnn_version() {
  const std::size_t v = cudnnGetVersion();  // 91900
  return fmt::format("cuDNN {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

void ok(cudnnStatus_t status, std::string_view op) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  fail(ErrorKind::device, op, "cuDNN says: {}", reason(status));
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, std::string_view op) : op_(op) {
  ok(cudnnBackendCreateDescriptor(type, &raw_), op);
}
Descriptor::~Descriptor() {
  if (raw_ != nullptr) (void)cudnnBackendDestroyDescriptor(raw_);
}
void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Index count,
                     const void* values) {
  ok(cudnnBackendSetAttribute(raw_, name, type, count, values), op_);
}
void Descriptor::finish() { ok(try_finish(), op_); }
cudnnStatus_t Descriptor::try_finish() { return cudnnBackendFinalize(raw_); }

Index Descriptor::get_index(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  Index count = 0, value = 0;  // enumerators are shorter, and little-endian
  ok(cudnnBackendGetAttribute(raw_, name, type, 1, &count, &value), op_);
  return value;
}
std::size_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t most,
                            void* values) const {
  Index count = 0;
  ok(cudnnBackendGetAttribute(raw_, name, type, static_cast<Index>(most), &count, values), op_);
  return std::min(most, static_cast<std::size_t>(count));
}
std::string Descriptor::get_text(cudnnBackendAttributeName_t name) const {
  Index count = 0;
  ok(cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_CHAR, 0, &count, nullptr), op_);
  std::string text(static_cast<std::size_t>(count), '\0');
  ok(cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_CHAR, count, &count, text.data()), op_);
  text.resize(std::min(text.size(), static_cast<std::size_t>(count)));
  return text;
}
std::vector<Descriptor> Descriptor::get_descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                                    std::size_t most) const {
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::size_t i = 0; i < most; ++i) raw.push_back(all.emplace_back(type, op_).raw());
  const std::size_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raw.data());
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
  return all;
}

Target::Target(const std::string& json, std::string_view op) {
  Descriptor& d = described_.emplace_back(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, op);
  d.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(json) + 1, json.c_str());
  d.finish();
}

Graph::Tensor Graph::add(const Layout& l, bool passing) {
  const auto number = static_cast<Index>(tensors_.size()) + 1;
  Descriptor& d = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR, op_);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(l.type));
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, l.dims);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, l.strides);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<Index>(l.alignment));
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &passing);
  d.finish();
  if (!passing) stored_.push_back(number);
  return static_cast<Tensor>(number - 1);
}
Graph::Tensor Graph::tensor(const Layout& l) { return add(l, false); }
Graph::Tensor Graph::passing(const Layout& l) { return add(l, true); }

void Graph::keep(Descriptor&& operation) {
  operation.finish();
  operations_.push_back(std::move(operation));
}

void Graph::convolve(Pass pass, Tensor x, Tensor w, Tensor y, const Window& window, double beta) {
  Descriptor& c = settings_.emplace_back(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, op_);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::ssize(window.stride));
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, data_type(compute_));
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, window.pad_begin);
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, window.pad_end);
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, window.dilation);
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, window.stride);
  c.finish();

  struct Names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
  };
  static constexpr Names names[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  const Names& n = names[static_cast<int>(pass)];
  Descriptor d(n.operation, op_);
  d.set(n.x, at(x));
  d.set(n.w, at(w));
  d.set(n.y, at(y));
  d.set(n.convolution, c);
  const double one = 1;
  const auto one32 = static_cast<float>(one), beta32 = static_cast<float>(beta);
  const bool wide = compute_ == DType::f64;
  const auto type = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  d.set(n.alpha, type, 1, wide ? static_cast<const void*>(&one) : &one32);
  d.set(n.beta, type, 1, wide ? static_cast<const void*>(&beta) : &beta32);
  keep(std::move(d));
}

Descriptor& Graph::pointwise_setting(cudnnPointwiseMode_t mode) {
  Descriptor& p = settings_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, op_);
  p.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  p.set(CUDNN_ATTR_POINTWISE_MATH_PREC, data_type(compute_));
  p.finish();
  return p;
}

void Graph::pointwise(cudnnPointwiseMode_t mode, Tensor y, Tensor x, Tensor b) {
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, op_);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_setting(mode));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  if (b >= 0) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  keep(std::move(d));
}

void Graph::relu_backward(Tensor dx, Tensor dy, Tensor x) {
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, op_);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_setting(CUDNN_POINTWISE_RELU_BWD));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, at(dy));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, at(dx));
  keep(std::move(d));
}

void Graph::sums(Tensor x, Tensor sum, Tensor sum_of_squares) {
  Descriptor d(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, op_);
  const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, data_type(compute_));
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, at(x));
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, at(sum));
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, at(sum_of_squares));
  keep(std::move(d));
}

void Graph::reduce(cudnnReduceTensorOp_t mode, Tensor y, Tensor x) {
  Descriptor& r = settings_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, op_);
  r.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  r.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, data_type(compute_));
  r.finish();
  Descriptor d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, op_);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  keep(std::move(d));
}

void Graph::batch_norm_backward(const BatchNormGradient& g) {
  Descriptor d(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, op_);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, data_type(compute_));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, at(g.x));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, at(g.dy));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, at(g.mean));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, at(g.inverse_deviation));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, at(g.scale));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, at(g.dscale));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, at(g.dbias));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, at(g.of_dy));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, at(g.of_x));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, at(g.of_nothing));
  keep(std::move(d));
}

void Graph::finish(const Target& target) {
  Descriptor& g = graph_.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, op_);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& d : operations_) raw.push_back(d.raw());
  g.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(raw), raw.data());
  target.put_handle(g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  g.finish();
}

}  // namespace trireme::gpu
