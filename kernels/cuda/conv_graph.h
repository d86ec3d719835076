// Convolutions as cuDNN's graphs: what conv.cpp runs, and what the test of supported patterns plans for.
#pragma once
#include "kernels/conv_shape.h"
#include "kernels/cuda/plan_cache.h"

namespace trireme::gpu {

enum class ConvForm : std::uint8_t {
  forward,          ///< y = conv(x, w), with whatever of bias, residual and ReLU the job has
  backward_input,   ///< x (+)=
  backward_weight,  ///< w (+)=, of x's type
  /// w (+)= in f32 beside narrow x and y. No engine writes one itself: a step behind it does.
  backward_weight_wide,
};

struct ConvJob {
  ConvForm form;
  ConvShape shape{};        ///< whose options.relu counts for form forward alone
  DType type = DType::f32;  ///< of x, y, and w unless wide
  bool with_bias = false;   ///< for form forward, as the next two
  DType bias = DType::f32;
  bool with_residual = false;
  bool accumulate = false;  ///< for the others
  bool aligned = true;      ///< all operands at multiples of 16 bytes
  bool tf32 = false;        ///< f32 operands may be rounded to TF32
};

/// Where the operands of a job lie.
struct ConvOperands {
  void *x, *w, *y;
  void* bias = nullptr;
  void* residual = nullptr;
};

/// Describes the job.
void build(Graph&, const ConvJob&);
/// Runs it, by the plan chosen for it; false when there is none, and nothing has been written.
bool run_planned(const On&, const ConvJob&, const ConvOperands&);
EngineRules rules_for(const ConvJob&);
inline DType compute_type(const ConvJob& j) { return j.type == DType::f64 ? DType::f64 : DType::f32; }

/// How cuDNN sees a tensor that lies channels last: n, c, and `dims` extents (1-D: 2-D of height 1).
Layout channels_last(Index n, Index c, const Extents&, int dims, DType, bool aligned = true);
Graph::Window window(const ConvShape&);

}  // namespace trireme::gpu
