// Convolutions as cuDNN graphs: conv.cpp runs them, and the test of supported patterns plans them.
#pragma once
#include "kernels/cuda/plan_cache.h"
#include "kernels/plans/conv_shape.h"

namespace trireme::gpu {

/// What a convolution's graph computes.
enum class ConvForm : std::uint8_t {
  forward,          ///< y = conv(x, w), with the job's bias, residual and ReLU
  backward_input,   ///< x (+)= gradient
  backward_weight,  ///< w (+)= gradient, of x's type
  /// w = gradient, in f32 with bf16 or f16 x and y. No cuDNN engine writes f32 directly, so a second step of the graph
  /// converts the result.
  backward_weight_wide,
};

/// A convolution without its operands: part of the key of the plan cache.
struct ConvJob {
  ConvForm form;               ///< what the graph computes
  ConvShape shape{};           ///< options.relu counts only for form forward
  DType type = DType::f32;     ///< of x, y, and (unless wide) w
  bool with_bias = false;      ///< form forward: adds the bias
  DType bias = DType::f32;     ///< type of the bias
  bool with_residual = false;  ///< form forward: adds the residual before ReLU
  bool with_sums = false;      ///< for form forward: also the sums of y and y^2 per channel, in f32
  bool accumulate = false;    ///< for backward_input and backward_weight; by cuDNN's beta, which reads the output first
  bool aligned = true;        ///< all operands are aligned to 16 bytes
  bool tf32 = false;          ///< f32 operands may be rounded to TF32
  bool deterministic = true;  ///< equal calls give equal bits
};

/// Memory of the operands. An output must not overlap an input: cuDNN does not support that.
struct ConvOperands {
  void *x, *w, *y;
  void* bias = nullptr;
  void* residual = nullptr;
  void *sums = nullptr, *squares = nullptr;  ///< in one block, squares after sums
};

/// One way to compute a result: a job that writes it, or a job and then a separate step.
struct ConvWay {
  ConvJob job;
  /// Runs after the job. product: the output of the job; out: the block of the result. Empty: no further step.
  std::function<void(void* out, void* product)> then = {};
  bool apart = false;  ///< the job's output must not be the result's block, which the step still reads
};

/// Adds the job's operations to the graph.
void build(Graph&, const ConvJob&);
/// Runs the fastest way (plan_cache.h) and writes `result`, which is one of the operands. The first way is the cache
/// key. False if there is no way; nothing has been written then.
bool run_planned(const On&, const ConvOperands&, const View& result, std::span<const ConvWay>);
/// Which of cuDNN's engines may run the job (plan_cache.h).
EngineRules rules_for(const ConvJob&);
/// The type in which cuDNN adds: f64 for f64, else f32.
inline DType compute_type(const ConvJob& j) { return j.type == DType::f64 ? DType::f64 : DType::f32; }

/// cuDNN's layout of a channels-last tensor: n, c, and `dims` extents (1-D becomes 2-D with height 1).
Layout channels_last(Index n, Index c, const Extents&, int dims, DType, bool aligned = true);
/// Stride, padding and dilation in cuDNN's form.
Graph::Window window(const ConvShape&);

}  // namespace trireme::gpu
