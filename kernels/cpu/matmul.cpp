// Matrix products: oneDNN for f32 and bf16 (in f32 if the CPU has no bf16); our product for few rows in f32; below
// AVX-512 our product for large ones, and oneDNN's tile by tile for narrow ones; Eigen for f64.
#include <omp.h>

#include <cstring>

#include "kernels/contracts/elementwise.h"
#include "kernels/core/kernel.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/dnnl.h"
#include "kernels/cpu/narrow_product.h"
#include "kernels/cpu/packed_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/vector.h"
#include "kernels/formulas/pointwise.h"
#include "kernels/plans/matmul_job.h"

namespace trireme {
namespace {
using onednn::Desc;
using onednn::Dims;
using onednn::Prepared;

Desc matrix(Index batch, Index rows, Index cols, bool transposed, DType type) {
  return onednn::dense({batch, rows, cols}, transposed ? std::vector{0, 2, 1} : std::vector{0, 1, 2}, type);
}

Prepared prepare(const MatMulJob& j, DType tc, DType ta, DType tb, const View& bias) {
  Desc a = matrix(j.batched_a ? j.batch : 1, j.m, j.k, j.transpose_a, ta);
  Desc b = matrix(j.batched_b ? j.batch : 1, j.k, j.n, j.transpose_b, tb);
  Desc c = matrix(j.batch, j.m, j.n, false, tc);
  dnnl::primitive_attr attr = onednn::attributes();
  dnnl::post_ops ops;
  if (j.accumulate) ops.append_sum(1.f);
  attr.set_post_ops(ops);
  std::vector<Prepared::Arg> args{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
  if (!bias) {
    auto pd = onednn::describe<dnnl::matmul>(attr, a, b, c);
    return Prepared(dnnl::matmul(pd), args, pd.scratchpad_desc());
  }
  Desc d = matrix(1, 1, j.n, false, bias.dtype);
  args.push_back({DNNL_ARG_BIAS, d});
  auto pd = onednn::describe<dnnl::matmul>(attr, a, b, d, c);
  return Prepared(dnnl::matmul(pd), args, pd.scratchpad_desc());
}

struct MatMulPlan {
  Prepared run;  // empty: the types are not implemented here
};

bool try_onednn(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  onednn::Key key;
  for (const View* v : {&c, &a, &b, &bias}) key.add(*v);
  key.add(j.transpose_a + 2 * j.transpose_b + 4 * j.accumulate);
  key.add({{j.batch, j.m, j.n, j.k}});
  auto& plan = onednn::cached<MatMulPlan>(key, [&] {
    try {
      return MatMulPlan{prepare(j, c.dtype, a.dtype, b.dtype, bias)};
    } catch (const dnnl::error& e) {
      check(a.dtype != DType::f32, ErrorKind::device, "matmul", "oneDNN: {}", e.what());
      return MatMulPlan{};
    }
  });
  if (!plan.run) return false;
  if (bias)
    plan.run({a.data, b.data, c.data, bias.data});
  else
    plan.run({a.data, b.data, c.data});
  // A pass of ours: oneDNN's ReLU makes 0 of NaN.
  if (j.relu) Kernel<kernel::Map<pointwise::Relu>>::on(DeviceKind::cpu)(c, c, {});
  return true;
}

/// oneDNN's plain sgemm: a fifth faster than its matmul when b is wide and not transposed, as in a layer's
/// backward.
bool try_sgemm(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  constexpr Index worth = 1 << 20;
  bool plain = c.dtype == DType::f32 && a.dtype == DType::f32 && j.batch == 1 && !bias && !j.relu && !j.transpose_b;
  if (!plain || j.n < j.m || j.m * j.n * j.k < worth) return false;
  (void)threads();  // settles how many there are
  return dnnl_sgemm(j.transpose_a ? 'T' : 'N', 'N', j.m, j.n, j.k, 1.f, a.as<float>(), j.transpose_a ? j.m : j.k,
                    b.as<float>(), j.n, j.accumulate ? 1.f : 0.f, c.as<float>(), j.n) == dnnl_success;
}

/// While it lives, oneDNN uses one thread.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

/// Below AVX-512 oneDNN divides the sums of a product among threads, so that bits depend on their number, and is slow
/// for most transposed operands. There packed_product() computes large products. Narrow products are cut into tiles of
/// c, whose size does not depend on threads. Each tile is a separate product on one thread.
bool try_tiles(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  constexpr Index tall = 128, wide = 512;
  if (vector_level() == VectorLevel::v4 || c.dtype != DType::f32 || a.dtype != DType::f32 ||
      (bias && bias.dtype != DType::f32))
    return false;
  if (j.m >= 16 && j.n > 8) {  // enough to be worth the packing
    packed_product(c, a, b, bias, j);
    return true;
  }
  const Index rows = (j.m + tall - 1) / tall, columns = (j.n + wide - 1) / wide;
  parallel_for(j.batch * rows * columns, std::min(tall, j.m) * std::min(wide, j.n) * j.k, [&](Index begin, Index end) {
    const OneThread alone;
    for (Index tile = begin; tile < end; ++tile) {
      const Index i = tile / (rows * columns), row = tile / columns % rows * tall, column = tile % columns * wide;
      const Index m = std::min(tall, j.m - row), n = std::min(wide, j.n - column);
      const float* from_a = a.as<float>() + (j.batched_a ? i * j.m * j.k : 0) + (j.transpose_a ? row : row * j.k);
      const float* from_b = b.as<float>() + (j.batched_b ? i * j.k * j.n : 0) + (j.transpose_b ? column * j.k : column);
      float* to = c.as<float>() + (i * j.m + row) * j.n + column;
      const dnnl_status_t status =
          dnnl_sgemm(j.transpose_a ? 'T' : 'N', j.transpose_b ? 'T' : 'N', m, n, j.k, 1.f, from_a,
                     j.transpose_a ? j.m : j.k, from_b, j.transpose_b ? j.k : j.n, j.accumulate ? 1.f : 0.f, to, j.n);
      check(status == dnnl_success, ErrorKind::device, "matmul", "oneDNN's sgemm failed with status {}",
            static_cast<int>(status));
      for (Index r = 0; r < m && (bias || j.relu); ++r, to += j.n) {
        for (Index o = 0; bias && o < n; ++o) to[o] += bias.as<float>()[column + o];
        for (Index o = 0; j.relu && o < n; ++o) to[o] = to[o] < 0 ? 0 : to[o];
      }
    }
  });
  return true;
}

void multiply_f64(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j) {
  Index lead_a = j.transpose_a ? j.m : j.k, lead_b = j.transpose_b ? j.k : j.n;
  for (Index i = 0; i < j.batch; ++i) {
    MatrixRef l{a.as<double>() + (j.batched_a ? i * j.m * j.k : 0), lead_a, j.transpose_a};
    MatrixRef r{b.as<double>() + (j.batched_b ? i * j.k * j.n : 0), lead_b, j.transpose_b};
    product_parallel(c.as<double>() + i * j.m * j.n, j.n, l, r, j.m, j.n, j.k, j.accumulate);
  }
  if (!bias && !j.relu) return;
  parallel_for(j.batch * j.m, j.n, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      double* row = c.as<double>() + i * j.n;
      for (Index o = 0; bias && o < j.n; ++o) row[o] += bias.as<double>()[o];
      for (Index o = 0; j.relu && o < j.n; ++o) row[o] = row[o] < 0 ? 0 : row[o];
    }
  });
}

struct Products {
  static void multiply(const View& c, const View& a, const View& b, const View& bias, const MatMulJob& j,
                       std::string_view op) {
    check_matmul_types(c, a, b, bias, op);
    if (c.numel() == 0) return;
    if (j.k == 0) {
      if (!j.accumulate) std::memset(c.data, 0, static_cast<std::size_t>(c.bytes()));
      return;
    }
    if (c.dtype == DType::f64) return multiply_f64(c, a, b, bias, j);
    if (narrow_product(c, a, b, bias, j) || try_tiles(c, a, b, bias, j) || try_sgemm(c, a, b, bias, j) ||
        try_onednn(c, a, b, bias, j))
      return;
    InF32 af(a), bf(b), biasf(bias);
    OutF32 cf(c, j.accumulate);
    if (!try_tiles(cf.view(), af.view(), bf.view(), biasf.view(), j))
      try_onednn(cf.view(), af.view(), bf.view(), biasf.view(), j);
    cf.store();
  }
  static void sum_rows(const View& sum, const View& x, bool accumulate, std::string_view op) {
    trireme::sum_rows(sum, x, accumulate, op);
  }
};

const MatMulKernels<DeviceKind::cpu, Products> products_cpu;

}  // namespace
}  // namespace trireme
