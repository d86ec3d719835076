// Matrix products by cuBLASLt. Its matrices are column-major: a row-major matrix is a transposed one to it. So it
// computes c^T = op(b)^T op(a)^T, without moving any data.
#include <cublasLt.h>

#include <map>
#include <mutex>

#include "kernels/core/backend.h"
#include "kernels/core/kernel.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/rows.h"
#include "kernels/plans/matmul_job.h"

namespace trireme::gpu {
namespace {

void lt_ok(cublasStatus_t status, std::string_view op) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorKind::device, op, "cuBLASLt says: {} ({})", cublasLtGetStatusString(status),
         cublasLtGetStatusName(status));
}

cudaDataType_t lt_type(DType t) {
  switch (t) {
    case DType::f64: return CUDA_R_64F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}
cublasComputeType_t compute_type(DType operands) {
  if (operands == DType::f64) return CUBLAS_COMPUTE_64F;
  const bool coarse = operands == DType::f32 && f32_product() == MatmulPrecision::tf32;
  return coarse ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// The largest power of two that divides the address, at most 256: cuBLASLt uses no larger alignment.
std::uint32_t alignment(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & (~address + 1), 256));
}

/// A product as described to cuBLASLt: first is our b, second our a.
struct Operation {
  cublasLtMatmulDescOpaque_t description{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, result{};
};

template <class T>
void set(Operation& o, cublasLtMatmulDescAttributes_t name, const T& value, std::string_view op) {
  lt_ok(cublasLtMatmulDescSetAttribute(&o.description, name, &value, sizeof value), op);
}

/// A row-major matrix [rows, cols], or `batch` of them with `step` elements from one to the next.
cublasLtMatrixLayoutOpaque_t layout(DType type, Index rows, Index cols, Index batch, Index step, std::string_view op) {
  cublasLtMatrixLayoutOpaque_t made{};
  lt_ok(cublasLtMatrixLayoutInit(&made, lt_type(type), static_cast<std::uint64_t>(cols),
                                 static_cast<std::uint64_t>(rows), cols),
        op);
  const auto count = static_cast<std::int32_t>(batch);
  lt_ok(cublasLtMatrixLayoutSetAttribute(&made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), op);
  lt_ok(cublasLtMatrixLayoutSetAttribute(&made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), op);
  return made;
}

struct Operands {
  const View &c, &a, &b, &bias;
};

Operation operation(const Operands& v, const MatMulJob& j, cublasLtEpilogue_t epilogue, std::string_view op) {
  Operation o;
  lt_ok(cublasLtMatmulDescInit(&o.description, compute_type(v.a.dtype),
                               v.a.dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
        op);
  set(o, CUBLASLT_MATMUL_DESC_TRANSA, j.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, op);
  set(o, CUBLASLT_MATMUL_DESC_TRANSB, j.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, op);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) set(o, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, op);
  if (epilogue & CUBLASLT_EPILOGUE_BIAS) set(o, CUBLASLT_MATMUL_DESC_BIAS_POINTER, v.bias.data, op);
  const Index step_a = j.batched_a ? j.m * j.k : 0, step_b = j.batched_b ? j.k * j.n : 0;
  o.first = layout(v.b.dtype, j.transpose_b ? j.n : j.k, j.transpose_b ? j.k : j.n, j.batch, step_b, op);
  o.second = layout(v.a.dtype, j.transpose_a ? j.k : j.m, j.transpose_a ? j.m : j.k, j.batch, step_a, op);
  o.result = layout(v.c.dtype, j.m, j.n, j.batch, j.m * j.n, op);
  return o;
}

/// cuBLASLt's advice for one kind of product.
struct Advice {
  bool found = false;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
};

cublasLtMatmulPreferenceOpaque_t preference(const Operands& v, std::string_view op) {
  cublasLtMatmulPreferenceOpaque_t made{};
  lt_ok(cublasLtMatmulPreferenceInit(&made), op);
  auto want = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    lt_ok(cublasLtMatmulPreferenceSetAttribute(&made, name, &value, sizeof value), op);
  };
  want(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{32} << 20);
  // A k that is divided among blocks is summed in f32, never in the type of the result.
  want(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(v.b.data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(v.a.data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(v.c.data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(v.c.data));
  return made;
}

/// The handles of all devices, and the advice that was given so far.
class Library {
 public:
  // Never destroyed, like the streams: the process's exit releases the memory.
  static Library& get() {
    static Library& one = *new Library;
    return one;
  }
  cublasLtHandle_t handle(const On& on) {
    const std::scoped_lock lock(mutex_);
    cublasLtHandle_t& h = handles_[on.device().index];
    if (!h) lt_ok(cublasLtCreate(&h), on.op());
    return h;
  }
  /// Queries cuBLASLt once per shapes, types, alignments and epilogue.
  Advice advice(const On& on, const Operands& v, const MatMulJob& j, cublasLtEpilogue_t epilogue, Operation& o) {
    const cublasLtHandle_t h = handle(on);
    const Key key{on.device().index,
                  j.batch,
                  j.m,
                  j.n,
                  j.k,
                  j.batched_a + 2 * j.batched_b + 4 * j.transpose_a + 8 * j.transpose_b,
                  static_cast<Index>(v.a.dtype) + 16 * static_cast<Index>(v.c.dtype),
                  compute_type(v.a.dtype),
                  epilogue,
                  alignment(v.a.data) + 1024 * Index{alignment(v.b.data)},
                  alignment(v.c.data) + 1024 * Index{v.bias ? alignment(v.bias.data) : 0}};
    const std::scoped_lock lock(mutex_);
    if (const auto known = advice_.find(key); known != advice_.end()) return known->second;
    cublasLtMatmulPreferenceOpaque_t wanted = preference(v, on.op());
    cublasLtMatmulHeuristicResult_t answer{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(h, &o.description, &o.first, &o.second, &o.result,
                                                                 &o.result, &wanted, 1, &answer, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) lt_ok(status, on.op());
    const bool found = status == CUBLAS_STATUS_SUCCESS && count > 0 && answer.state == CUBLAS_STATUS_SUCCESS;
    return advice_[key] = {found, answer.algo, answer.workspaceSize};
  }

 private:
  using Key = std::array<Index, 11>;
  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;
  std::map<Key, Advice> advice_;
};

/// False: cuBLASLt has no such product.
bool try_multiply(const On& on, const Operands& v, const MatMulJob& j, cublasLtEpilogue_t epilogue) {
  Operation o = operation(v, j, epilogue, on.op());
  const Advice advice = Library::get().advice(on, v, j, epilogue, o);
  if (!advice.found) return false;
  const Scratch workspace(on, advice.workspace);
  const bool whole = v.a.dtype == DType::f64;
  const double one = 1, beta = j.accumulate ? 1 : 0;
  const float one_f = 1, beta_f = j.accumulate ? 1 : 0;
  lt_ok(cublasLtMatmul(Library::get().handle(on), &o.description, whole ? static_cast<const void*>(&one) : &one_f,
                       v.b.data, &o.first, v.a.data, &o.second, whole ? static_cast<const void*>(&beta) : &beta_f,
                       v.c.data, &o.result, v.c.data, &o.result, &advice.algorithm, workspace.data(), advice.workspace,
                       on.stream()),
        on.op());
  return true;
}

/// The parts of bias and ReLU that cuBLASLt can fuse: the bias must have the result's type, and f64 has neither. A bias
/// at an odd address is added separately: cuBLASLt does not document its alignment, and some kernels read 16 bytes at a
/// time.
cublasLtEpilogue_t epilogue_of(const Operands& v, const MatMulJob& j) {
  const bool joins = !v.bias || (v.bias.dtype == v.c.dtype && alignment(v.bias.data) >= 16);
  if (v.c.dtype == DType::f64 || !joins) return CUBLASLT_EPILOGUE_DEFAULT;
  if (v.bias) return j.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return j.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

struct Products {
  static void multiply(const View& c, const View& a, const View& b, const View& bias, MatMulJob j,
                       std::string_view op) {
    check_matmul_types(c, a, b, bias, op);
    if (c.numel() == 0) return;
    const On on(c.device, op);
    if (j.k == 0) {
      if (!j.accumulate) ok(cudaMemsetAsync(c.data, 0, static_cast<std::size_t>(c.bytes()), on.stream()), op);
      return;
    }
    if (j.batched_a && !j.batched_b && !j.transpose_a) {  // the rows of all of a's matrices make one matrix
      j.m *= j.batch;
      j.batch = 1;
      j.batched_a = false;
    }
    const Operands v{c, a, b, bias};
    const cublasLtEpilogue_t epilogue = epilogue_of(v, j);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && try_multiply(on, v, j, epilogue)) return;
    check(try_multiply(on, v, j, CUBLASLT_EPILOGUE_DEFAULT), ErrorKind::device, op,
          "cuBLASLt has no product {} {} = {} {} x {} {}", c.dtype, c.shape, a.dtype, a.shape, b.dtype, b.shape);
    add_bias(on, c, bias, j.relu);
  }
  static void sum_rows(const View& sum, const View& x, bool accumulate, std::string_view op) {
    gpu::sum_rows(On(sum.device, op), sum, x, accumulate);
  }
};

const MatMulKernels<DeviceKind::cuda, Products> products_cuda;

}  // namespace

std::string cublas_version() {
  const std::size_t v = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace trireme::gpu
