// Which attributes each descriptor takes, of which types and how many values, and which it must have.
#include <algorithm>

#include "tests/cuda_emulator/cudnn_node.h"

namespace emulator::dnn {
namespace {

struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  Index most = 1;  ///< values
  bool required = true;
  cudnnBackendDescriptorType_t inner = CUDNN_BACKEND_TENSOR_DESCRIPTOR;  ///< where type is a descriptor
};

constexpr Index many = 1 << 16;
constexpr bool optional = false;

/// f32 or f64: asked for as CUDNN_TYPE_FLOAT, given as either.
constexpr auto real = CUDNN_TYPE_FLOAT;
constexpr auto a_node = CUDNN_TYPE_BACKEND_DESCRIPTOR;

constexpr Rule values_rules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 8},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, optional},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 6},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 6},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 6},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 6},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, real, 1, optional},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, real, 1, optional},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, real, 1, optional},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1, optional},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, many},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, many},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, optional},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, optional},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, optional},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, many, optional},
};

constexpr auto forward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto back_data = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto back_filter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
constexpr auto pointwise = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
constexpr auto stats = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
constexpr auto reduction = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
constexpr auto bn_bwd = CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR;
constexpr auto convolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;

constexpr Rule operation_rules[] = {
    {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, real},
    {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, real},
    {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, a_node, 1, true, convolution},
    {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, a_node},
    {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, a_node},
    {forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, a_node},
    {back_data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, real},
    {back_data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, real},
    {back_data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, a_node, 1, true, convolution},
    {back_data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, a_node},
    {back_data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, a_node},
    {back_data, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, a_node},
    {back_filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, real},
    {back_filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, real},
    {back_filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, a_node, 1, true, convolution},
    {back_filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, a_node},
    {back_filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, a_node},
    {back_filter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, a_node},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, a_node, 1, true, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a_node},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, a_node, 1, optional},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, a_node, 1, optional},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, a_node, 1, optional},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, a_node, 1, optional},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, a_node, 1, optional},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, real, 1, optional},
    {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, real, 1, optional},
    {stats, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE},
    {stats, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
    {stats, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, a_node},
    {stats, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, a_node},
    {stats, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, a_node},
    {reduction, CUDNN_ATTR_OPERATION_REDUCTION_DESC, a_node, 1, true, CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
    {reduction, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, a_node},
    {reduction, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, a_node},
    {bn_bwd, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, a_node},
};

constexpr auto graph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr auto heuristic = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
constexpr auto engine = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
constexpr auto config = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
constexpr auto plan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
constexpr auto device = CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;

constexpr Rule plan_rules[] = {
    {graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, optional},
    {graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, a_node, many, true, forward},  // any operation
    {heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
    {heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, a_node, 1, true, graph},
    {heuristic, CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32, 1, optional},
    {heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, a_node, 1, optional, device},
    {engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, a_node, 1, true, graph},
    {engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64},
    {engine, CUDNN_ATTR_ENGINE_DEVICEPROP, a_node, 1, optional, device},
    {config, CUDNN_ATTR_ENGINECFG_ENGINE, a_node, 1, true, engine},
    {config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, a_node, CUDNN_KNOB_TYPE_COUNTS, optional,
     CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR},
    {plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, optional},
    {plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, a_node, 1, optional, config},
    {plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, many << 8, optional},  // instead of that
    {plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, a_node, 1, optional, device},
};

template <class F>
void each_rule(const F& f) {
  for (const Rule& r : values_rules) f(r);
  for (const Rule& r : operation_rules) f(r);
  for (const Rule& r : plan_rules) f(r);
}

const Rule* rule(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name) {
  const Rule* found = nullptr;
  each_rule([&](const Rule& r) {
    if (r.of == of && r.name == name) found = &r;
  });
  return found;
}

}  // namespace

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR: return 8;
    default: return 4;
  }
}

void check_set(const Node& n, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Index count) {
  const Rule* r = rule(n.type, name);
  const std::string where = "attribute " + std::to_string(name) + " of descriptor type " + std::to_string(n.type);
  demand(r != nullptr, CUDNN_STATUS_BAD_PARAM, where + " cannot be set");
  const bool fits = type == r->type || (r->type == real && type == CUDNN_TYPE_DOUBLE);
  demand(fits, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, where + " has another type");
  demand(count >= 1 && count <= r->most, CUDNN_STATUS_BAD_PARAM, where + " takes another number of values");
}

void check_complete(const Node& n) {
  each_rule([&](const Rule& r) {
    if (r.of != n.type) return;
    const std::string where = "attribute " + std::to_string(r.name) + " of descriptor type " + std::to_string(n.type);
    demand(n.has(r.name) || !r.required, CUDNN_STATUS_BAD_PARAM, where + " is missing");
    if (r.type != a_node || r.of == graph || !n.has(r.name)) return;
    for (const NodePtr& inner : n.nodes(r.name))
      demand(inner->type == r.inner, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, where + " is of another descriptor type");
  });
}

}  // namespace emulator::dnn
