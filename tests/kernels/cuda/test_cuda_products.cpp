// Matrix products on a CUDA device beside the CPU's f64: odd sizes, rows that are not aligned, batches on either side,
// every pair of types.
#include "kernels/contracts/matmul.h"
#include "kernels/core/backend.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/no_device.h"

namespace test_cuda_products {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Of a sum of so many products, in the type it is stored in.
double rounded_by(DType result, Index terms) { return rounding(result, static_cast<double>(terms)); }

DType narrow_or_f32(DType type) { return is_half(type) && pick(0, 1) ? DType::f32 : type; }

Shape batched(Index batch, Index rows, Index cols, bool transposed) {
  if (transposed) std::swap(rows, cols);
  return batch ? Shape{batch, rows, cols} : Shape{rows, cols};
}

}  // namespace

TEST_CASE("matrix products on a device equal the CPU's", "[products]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 64; ++i) {
      const Index m = pick(1, 70), n = i % 4 == 1 ? 8 * pick(1, 9) : pick(1, 70), k = i % 16 == 7 ? 0 : pick(1, 200);
      const Index a_batch = i & 1 ? 3 : 0, b_batch = i & 2 ? 3 : 0;
      const MatMulOptions o{
          .transpose_a = pick(0, 1) == 1, .transpose_b = pick(0, 1) == 1, .accumulate = pick(0, 1) == 1};
      INFO(m << " x " << n << " x " << k << " " << name_of(type) << " batches " << a_batch << " " << b_batch << " "
             << o.transpose_a << o.transpose_b << o.accumulate);
      const DType result = narrow_or_f32(type);
      Array a = filled(batched(a_batch, m, k, o.transpose_a), type),
            b = filled(batched(b_batch, k, n, o.transpose_b), type);
      Array c = filled(batched(std::max(a_batch, b_batch), m, n, false), result);
      Array a64 = as_f64(a), b64 = as_f64(b), c64 = as_f64(c);
      run<kernel::MatMul>(c64.view(), a64.view(), b64.view(), o);
      run_there<kernel::MatMul>(c, a, b, o);
      agree(c, c64, rounded_by(result, k));
    }
}

TEST_CASE("fully connected layers on a device equal the CPU's", "[products]") {
  if (no_device()) return;
  for (DType type : device_types)
    for (int i = 0; i < 32; ++i) {
      const Index rows = i == 31 ? 20000 : pick(0, 300), in = pick(1, 70), out = i % 2 ? 8 * pick(1, 9) : pick(1, 70);
      const bool with_bias = pick(0, 1), relu = pick(0, 1), accumulate = pick(0, 1);
      INFO(rows << " rows, " << in << " to " << out << " " << name_of(type) << " " << with_bias << relu << accumulate);
      const DType y_type = narrow_or_f32(type), bias_type = narrow_or_f32(type), dw_type = narrow_or_f32(type);
      Array x = filled({rows, in}, type), w = filled({out, in}, type), dy = filled({rows, out}, type);
      Array bias = with_bias ? filled({out}, bias_type) : Array(), y({rows, out}, y_type), dx({rows, in}, type);
      Array dw = filled({out, in}, dw_type), db = with_bias ? filled({out}, dw_type) : Array();
      Array x64 = as_f64(x), w64 = as_f64(w), dy64 = as_f64(dy), bias64 = as_f64(bias), y64({rows, out}, DType::f64);
      Array dx64({rows, in}, DType::f64), dw64 = as_f64(dw), db64 = as_f64(db);
      run<kernel::Linear>(y64.view(), x64.view(), w64.view(), bias64.view(), relu);
      run<kernel::LinearBackwardInput>(dx64.view(), dy64.view(), w64.view());
      run<kernel::LinearBackwardWeight>(dw64.view(), db64.view(), x64.view(), dy64.view(), accumulate);
      run_there<kernel::Linear>(y, x, w, bias, relu);
      run_there<kernel::LinearBackwardInput>(dx, dy, w);
      run_there<kernel::LinearBackwardWeight>(dw, db, x, dy, accumulate);
      agree(y, y64, 2 * rounded_by(y_type, in));
      agree(dx, dx64, rounded_by(type, out));
      agree(dw, dw64, rounded_by(dw_type, rows));
      if (with_bias) agree(db, db64, rounded_by(dw_type, rows));
    }
}

}  // namespace test_cuda_products
