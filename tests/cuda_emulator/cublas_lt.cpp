// The emulated cuBLASLt: what is asked of it is held against the rules of the real one's documentation, and refused
// where that would refuse it; the product itself is in cublas_product.h.
#include <cublasLt.h>
#include <emulator/device_access.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tests/cuda_emulator/cublas_product.h"

struct cublasLtContext {
  int device;
};

namespace emulator {
namespace {

// What lies in the opaque blocks. A block that was never initialised has no mark.
constexpr std::uint32_t layout_mark = 0x4c41594f, description_mark = 0x44455343, preference_mark = 0x50524546,
                        algorithm_mark = 0x414c474f;

struct Layout {
  std::uint32_t mark = layout_mark;
  std::int32_t type = 0, order = 0, batch = 1;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0, step = 0;
};
struct Description {
  std::uint32_t mark = description_mark;
  std::int32_t compute = 0, scale = 0, pointers = 0, transpose_a = 0, transpose_b = 0;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  const void* bias = nullptr;
  std::int64_t bias_step = 0;
};
struct Preference {
  std::uint32_t mark = preference_mark, reduction = CUBLASLT_REDUCTION_SCHEME_MASK, search = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
  std::uint64_t workspace = 0;
};
struct Algorithm {
  std::uint32_t mark = algorithm_mark;
  std::uint32_t alignment[4] = {};  ///< of A, B, C, D
  std::uint32_t bias_alignment = 0;
  std::uint64_t problem = 0, workspace = 0;
};

template <class State, class Block>
void put(Block* block, const State& s) {
  static_assert(sizeof(State) <= sizeof(Block));
  std::memcpy(block, &s, sizeof s);
}
/// False: nobody initialised the block.
template <class State, class Block>
bool take(State& s, const Block* block) {
  const std::uint32_t mark = s.mark;
  if (block == nullptr) return false;
  std::memcpy(static_cast<void*>(&s), block, sizeof s);
  return s.mark == mark;
}

/// Sets a field from a buffer that must have just its size.
template <class T>
bool assign(T& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return false;
  std::memcpy(&field, value, bytes);
  return true;
}

template <class State, class Block, class F>
cublasStatus_t change(Block* block, const F& f) {
  State s;
  if (!take(s, block) || !f(s)) return CUBLAS_STATUS_INVALID_VALUE;
  put(block, s);
  return CUBLAS_STATUS_SUCCESS;
}

/// The layouts and the description of one call.
struct Call {
  Description op;
  Layout a, b, c, d;

  bool read(const cublasLtMatmulDescOpaque_t* description, const cublasLtMatrixLayoutOpaque_t* la,
            const cublasLtMatrixLayoutOpaque_t* lb, const cublasLtMatrixLayoutOpaque_t* lc,
            const cublasLtMatrixLayoutOpaque_t* ld) {
    return take(op, description) && take(a, la) && take(b, lb) && take(c, lc) && take(d, ld);
  }
  std::uint64_t m() const { return d.rows; }
  std::uint64_t n() const { return d.cols; }
  std::uint64_t k() const { return op.transpose_a == CUBLAS_OP_N ? a.cols : a.rows; }
  bool has_bias() const { return (op.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
};

bool sound(const Layout& l, bool written) {
  if (l.order != 0 || l.batch < 1 || l.rows == 0 || l.cols == 0) return false;
  if (l.ld < static_cast<std::int64_t>(l.rows)) return false;
  return !written || l.batch == 1 || l.step >= l.ld * static_cast<std::int64_t>(l.cols);
}

bool shapes_fit(const Call& c) {
  const bool ta = c.op.transpose_a != CUBLAS_OP_N, tb = c.op.transpose_b != CUBLAS_OP_N;
  const bool inner = c.k() == (tb ? c.b.cols : c.b.rows);
  const bool outer = c.m() == (ta ? c.a.cols : c.a.rows) && c.n() == (tb ? c.b.rows : c.b.cols);
  const bool results = c.c.rows == c.d.rows && c.c.cols == c.d.cols && c.c.type == c.d.type;
  const bool batches = c.a.batch == c.d.batch && c.b.batch == c.d.batch && c.c.batch == c.d.batch;
  return inner && outer && results && batches;
}

/// The combinations of types that the documentation of cublasLtMatmul lists, of those that DType has.
bool types_supported(const Call& c) {
  if (c.a.type != c.b.type) return false;
  const bool same = c.d.type == c.a.type;
  switch (c.op.compute) {
    case CUBLAS_COMPUTE_64F: return c.op.scale == CUDA_R_64F && c.a.type == CUDA_R_64F && same;
    case CUBLAS_COMPUTE_32F:
      return c.op.scale == CUDA_R_32F &&
             (c.a.type == CUDA_R_32F
                  ? same
                  : (c.a.type == CUDA_R_16BF || c.a.type == CUDA_R_16F) && (same || c.d.type == CUDA_R_32F));
    case CUBLAS_COMPUTE_32F_FAST_TF32: return c.op.scale == CUDA_R_32F && c.a.type == CUDA_R_32F && same;
    default: return false;
  }
}

bool epilogue_supported(const Call& c) {
  if (c.op.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  const bool known = c.op.epilogue == CUBLASLT_EPILOGUE_RELU || c.op.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                     c.op.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  if (!known || c.op.compute == CUBLAS_COMPUTE_64F) return false;
  return !c.has_bias() || c.op.bias_type == -1 || c.op.bias_type == c.d.type;
}

cublasStatus_t judge(const Call& c) {
  const bool whole = sound(c.a, false) && sound(c.b, false) && sound(c.c, false) && sound(c.d, true);
  if (!whole || !shapes_fit(c) || c.op.pointers != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (c.op.transpose_a == CUBLAS_OP_C || c.op.transpose_b == CUBLAS_OP_C) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (c.has_bias() && c.op.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return types_supported(c) && epilogue_supported(c) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/// One number for all that an algorithm was chosen for. It may serve no other problem.
std::uint64_t fingerprint(const Call& c) {
  std::uint64_t hash = 14695981039346656037u;
  auto mix = [&](auto v) { hash = (hash ^ static_cast<std::uint64_t>(v)) * 1099511628211u; };
  for (const Layout* l : {&c.a, &c.b, &c.c, &c.d}) {
    mix(l->type);
    mix(l->batch);
    mix(l->rows);
    mix(l->cols);
    mix(l->ld);
    mix(l->step);
  }
  mix(c.op.compute);
  mix(c.op.scale);
  mix(c.op.transpose_a);
  mix(c.op.transpose_b);
  mix(c.op.epilogue);
  mix(c.op.bias_type);
  return hash;
}

bool lies_at(const void* p, std::uint64_t alignment) {
  return p != nullptr && reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}
/// Of an address, as far as kernels make use of it.
std::uint32_t alignment_of(const void* p) {
  std::uint32_t a = 16;
  while (a > 1 && !lies_at(p, a)) a /= 2;
  return a;
}

Algorithm choose(const Call& c, const Preference& p) {
  Algorithm chosen;
  for (int i = 0; i < 4; ++i) chosen.alignment[i] = std::min<std::uint32_t>(p.alignment[i], 16);
  chosen.bias_alignment = c.has_bias() ? alignment_of(c.op.bias) : 1;
  chosen.problem = fingerprint(c);
  // As the real one does with a long k: partial sums in the workspace.
  const std::uint64_t parts = c.m() * c.n() * static_cast<std::uint64_t>(c.d.batch) * 8;
  const bool may = (p.reduction & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 && parts <= p.workspace;
  if (may && c.k() > c.m() && c.k() > c.n()) chosen.workspace = parts;
  return chosen;
}

struct Pointers {
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
};

cublasStatus_t judge(const Call& c, const Pointers& p, const Algorithm& chosen) {
  if (chosen.problem != fingerprint(c)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool aligned = lies_at(p.a, chosen.alignment[0]) && lies_at(p.b, chosen.alignment[1]) &&
                       lies_at(p.c, chosen.alignment[2]) && lies_at(p.d, chosen.alignment[3]) &&
                       (!c.has_bias() || lies_at(c.op.bias, chosen.bias_alignment));
  const bool room = p.workspace_bytes >= chosen.workspace && (chosen.workspace == 0 || lies_at(p.workspace, 16));
  const bool in_place = p.c != p.d || (c.c.ld == c.d.ld && c.c.step == c.d.step);
  return aligned && room && in_place ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

DType dtype(int type) {
  switch (type) {
    case CUDA_R_64F: return DType::f64;
    case CUDA_R_16BF: return DType::bf16;
    case CUDA_R_16F: return DType::f16;
    default: return DType::f32;
  }
}
Columns columns(const Layout& l, const void* data) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), dtype(l.type), l.ld, l.step};
}

void check_on_device(const Layout& l, const void* data, int device) {
  const std::uint64_t last = (l.cols - 1) * static_cast<std::uint64_t>(l.ld) + l.rows;
  const std::uint64_t count = static_cast<std::uint64_t>(l.batch - 1) * static_cast<std::uint64_t>(l.step) + last;
  if (!on_device(data, count * static_cast<std::size_t>(size_of(dtype(l.type))), device))
    throw std::runtime_error("cublasLtMatmul was given memory that is not the device's");
}

/// T: the type of scaling and sums.
template <class T>
void multiply(const Call& call, const void* alpha, const void* beta, const Pointers& p, std::uint64_t workspace,
              cudaStream_t stream) {
  ColumnProduct<T> product;
  product.m = static_cast<Index>(call.m());
  product.n = static_cast<Index>(call.n());
  product.k = static_cast<Index>(call.k());
  product.batch = call.d.batch;
  product.transpose_a = call.op.transpose_a != CUBLAS_OP_N;
  product.transpose_b = call.op.transpose_b != CUBLAS_OP_N;
  product.coarse = call.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  product.relu = (call.op.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
  std::memcpy(&product.alpha, alpha, sizeof(T));
  std::memcpy(&product.beta, beta, sizeof(T));
  product.a = columns(call.a, p.a);
  product.b = columns(call.b, p.b);
  product.c = columns(call.c, p.c);
  product.d = columns(call.d, p.d);
  if (call.has_bias())
    product.bias = {static_cast<std::byte*>(const_cast<void*>(call.op.bias)), product.d.type, 0, call.op.bias_step};
  enqueue(stream, [=, device = device_of(stream)] {
    check_on_device(call.a, p.a, device);
    check_on_device(call.b, p.b, device);
    check_on_device(call.d, p.d, device);
    if (workspace > 0) std::memset(p.workspace, 0xab, workspace);  // whatever: it is the library's
    product.compute();
  });
}

bool current(const cublasLtContext* handle) {
  int device = -1;
  return handle != nullptr && cudaGetDevice(&device) == cudaSuccess && device == handle->device;
}

}  // namespace
}  // namespace emulator

using namespace emulator;  // NOLINT: what follows has the names of the real library

std::size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "an error";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int device = 0;
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type, std::uint64_t rows,
                                        std::uint64_t cols, std::int64_t ld) {
  Layout l;
  l.type = type;
  l.rows = rows;
  l.cols = cols;
  l.ld = ld;
  put(layout, l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, std::size_t bytes) {
  return change<Layout>(layout, [&](Layout& l) {
    switch (name) {
      case CUBLASLT_MATRIX_LAYOUT_TYPE: return assign(l.type, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_ORDER: return assign(l.order, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_ROWS: return assign(l.rows, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_COLS: return assign(l.cols, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_LD: return assign(l.ld, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return assign(l.batch, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return assign(l.step, value, bytes);
    }
    return false;
  });
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t description, cublasComputeType_t compute,
                                      cudaDataType scale) {
  Description d;
  d.compute = compute;
  d.scale = scale;
  put(description, d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  return change<Description>(description, [&](Description& d) {
    switch (name) {
      case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return assign(d.compute, value, bytes);
      case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return assign(d.scale, value, bytes);
      case CUBLASLT_MATMUL_DESC_POINTER_MODE: return assign(d.pointers, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSA: return assign(d.transpose_a, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB: return assign(d.transpose_b, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(d.epilogue, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(d.bias, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return assign(d.bias_step, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return assign(d.bias_type, value, bytes);
    }
    return false;
  });
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  put(preference, Preference{});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    std::size_t bytes) {
  return change<Preference>(preference, [&](Preference& p) {
    switch (name) {
      case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return assign(p.search, value, bytes);
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return assign(p.workspace, value, bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return assign(p.reduction, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return assign(p.alignment[0], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return assign(p.alignment[1], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return assign(p.alignment[2], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return assign(p.alignment[3], value, bytes);
    }
    return false;
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  Call call;
  Preference p;
  if (!current(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (captures()) return CUBLAS_STATUS_INTERNAL_ERROR;  // as that of CUDA 13.3
  if (wanted < 1 || results == nullptr || count == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  if (!call.read(description, a, b, c, d) || !take(p, preference)) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = judge(call); status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm chosen = choose(call, p);
  put(&results->algo, chosen);
  results->workspaceSize = chosen.workspace;
  results->state = CUBLAS_STATUS_SUCCESS;
  results->wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  Call call;
  Algorithm chosen;
  if (!current(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool complete = call.read(description, layout_a, layout_b, layout_c, layout_d) && take(chosen, algo);
  if (!complete || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = judge(call); status != CUBLAS_STATUS_SUCCESS) return status;
  const Pointers p{a, b, c, d, workspace, workspace_bytes};
  if (const cublasStatus_t status = judge(call, p, chosen); status != CUBLAS_STATUS_SUCCESS) return status;
  if (device_of(stream) != handle->device) return CUBLAS_STATUS_INVALID_VALUE;
  if (call.op.compute == CUBLAS_COMPUTE_64F)
    multiply<double>(call, alpha, beta, p, chosen.workspace, stream);
  else
    multiply<float>(call, alpha, beta, p, chosen.workspace, stream);
  return CUBLAS_STATUS_SUCCESS;
}
