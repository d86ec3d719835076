// Unary formulas: kernel::Map and kernel::MapBackward.
#include "kernels/cpu/map.h"

#include "kernels/formulas/pointwise.h"

namespace trireme {
namespace {

const pointwise::EachUnary<CpuFormula> formulas_cpu;

}  // namespace
}  // namespace trireme
