// Convolutions as cuDNN's graphs: what conv.cpp runs, and what the test of supported patterns plans for.
#pragma once
#include "kernels/cuda/plan_cache.h"
#include "kernels/plans/conv_shape.h"

namespace trireme::gpu {

enum class ConvForm : std::uint8_t {
  forward,          ///< y = conv(x, w), with whatever of bias, residual and ReLU the job has
  backward_input,   ///< x (+)=
  backward_weight,  ///< w (+)=, of x's type
  /// w = in f32 beside narrow x and y. No engine writes one itself: a step behind it does, which cuDNN compiles.
  backward_weight_wide,
};

struct ConvJob {
  ConvForm form;
  ConvShape shape{};        ///< whose options.relu counts for form forward alone
  DType type = DType::f32;  ///< of x, y, and w unless wide
  bool with_bias = false;   ///< for form forward, as the next two
  DType bias = DType::f32;
  bool with_residual = false;
  bool with_sums = false;     ///< for form forward: per channel the sums of y and of y^2 as well, in f32
  bool accumulate = false;    ///< for backward_input and backward_weight: by beta, which is documented to read first
  bool aligned = true;        ///< all operands at multiples of 16 bytes
  bool tf32 = false;          ///< f32 operands may be rounded to TF32
  bool deterministic = true;  ///< the same bits every time
};

/// Where operands lie. What a job writes must not be anything that it reads: cuDNN promises nothing for that.
struct ConvOperands {
  void *x, *w, *y;
  void* bias = nullptr;
  void* residual = nullptr;
  void *sums = nullptr, *squares = nullptr;  ///< in one block, squares behind sums
};

/// A job that gives the result, or one whose product a step of our own makes the result of.
struct ConvWay {
  ConvJob job;
  std::function<void(void* out, void* product)> then = {};
  bool apart = false;  ///< the product must not lie in the result's block, which the step still reads
};

/// Describes the job.
void build(Graph&, const ConvJob&);
/// Runs the best way (plan_cache.h) to `result`, one of the operands, which the first of the ways is the key to; false
/// when there is none, and nothing has been written.
bool run_planned(const On&, const ConvOperands&, const View& result, std::span<const ConvWay>);
EngineRules rules_for(const ConvJob&);
inline DType compute_type(const ConvJob& j) { return j.type == DType::f64 ? DType::f64 : DType::f32; }

/// How cuDNN sees a tensor that lies channels last: n, c, and `dims` extents (1-D: 2-D of height 1).
Layout channels_last(Index n, Index c, const Extents&, int dims, DType, bool aligned = true);
Graph::Window window(const ConvShape&);

}  // namespace trireme::gpu
