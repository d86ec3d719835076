// Unary formulas: kernel::Map and kernel::MapBackward.
#include "kernels/cpu/map.h"

#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

const CpuFormula<pointwise::Relu> relu;
const CpuFormula<pointwise::LeakyRelu> leaky_relu;
const CpuFormula<pointwise::Elu> elu;
const CpuFormula<pointwise::Gelu> gelu;
const CpuFormula<pointwise::Sigmoid> sigmoid;
const CpuFormula<pointwise::Silu> silu;
const CpuFormula<pointwise::Hardtanh> hardtanh;
const CpuFormula<pointwise::Clamp> clamp;
const CpuFormula<pointwise::Hardsigmoid> hardsigmoid;
const CpuFormula<pointwise::Hardswish> hardswish;
const CpuFormula<pointwise::Tanh> tanh;
const CpuFormula<pointwise::Softplus> softplus;
const CpuFormula<pointwise::Softsign> softsign;
const CpuFormula<pointwise::Exp> exp;
const CpuFormula<pointwise::Log> log;
const CpuFormula<pointwise::Sqrt> sqrt;
const CpuFormula<pointwise::Rsqrt> rsqrt;
const CpuFormula<pointwise::Reciprocal> reciprocal;
const CpuFormula<pointwise::Square> square;
const CpuFormula<pointwise::Abs> abs;
const CpuFormula<pointwise::Neg> neg;
const CpuFormula<pointwise::AddScalar> add_scalar;

}  // namespace
}  // namespace trireme
