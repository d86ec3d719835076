// Rotary position embeddings.
#include <cmath>
#include <numbers>

#include "framework/ops/attention.h"
#include "framework/ops/help.h"
#include "framework/ops/ops.h"
#include "framework/ops/place.h"
#include "kernels/contracts/attention.h"

namespace trireme {
namespace {
/// Factor for the frequency of an angle that turns by `frequency` radians per token. llama3: 1 for wavelengths that are
/// short compared with the context, 1 / factor for long ones, and in between linear in tokens^-1 (Grattafiori et al.,
/// arXiv 2407.21783; constants as in Hugging Face's rope_parameters).
double stretched(double frequency, const RopeScaling& s) {
  if (s.kind == RopeScaling::Kind::none) return frequency;
  if (s.kind == RopeScaling::Kind::linear) return frequency / s.factor;
  const double wavelength = 2 * std::numbers::pi / frequency, context = static_cast<double>(s.original_context);
  if (wavelength > context / s.low_frequency) return frequency / s.factor;
  if (wavelength < context / s.high_frequency) return frequency;
  const double smooth = (context / wavelength - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}
}  // namespace

Tensor rope_table(Index positions, Index width, const RopeOptions& o) {
  const char* op = "rope_table";
  check(positions >= 0 && width > 0 && width % 2 == 0, op,
        "got {} positions of {} elements, expected an even number of elements", positions, width);
  check(o.base > 0, op, "base is {}, expected a positive number", o.base);
  const RopeScaling& s = o.scaling;
  check(s.factor >= 1, op, "the scaling's factor is {}, expected at least 1", s.factor);
  const bool fits = s.kind != RopeScaling::Kind::llama3 ||
                    (0 < s.low_frequency && s.low_frequency < s.high_frequency && s.original_context > 0);
  check(fits, op,
        "llama3 scaling has low_frequency {} and high_frequency {} for a context of {}, expected 0 < low_frequency < "
        "high_frequency",
        s.low_frequency, s.high_frequency, s.original_context);
  Tensor table = Tensor::empty({positions, width}, DType::f64);
  const Index pairs = width / 2;
  for (Index i = 0; i < pairs; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(width);
    const double frequency = stretched(std::pow(o.base, -exponent), s);
    for (Index t = 0; t < positions; ++t) {
      double* row = table.data<double>() + t * width;
      const double angle = static_cast<double>(t) * frequency;
      row[i] = std::cos(angle);
      row[pairs + i] = std::sin(angle);
    }
  }
  return ops::constant(table);
}

Tensor rope(const Tensor& x, const Tensor& table_given, bool interleaved) {
  const char* op = "rope";
  ops::check_float(op, x);
  ops::check_float(op, table_given);
  check(x.rank() == 4, op, "x is {}, expected [N, T, H, D]", x.shape());
  if (ops::is_divided({&x, &table_given})) {
    const ops::OpRule rule{.op = op,
                           .dims = table_given.rank() == 3 ? "n t h d, n t r -> n t h d" : "n t h d, t r -> n t h d",
                           .whole = "dr"};
    const ops::Placed p = ops::place(rule, {x, table_given});
    return p.put(rope(p[0], p[1], interleaved));
  }
  const Shape& t = table_given.shape();
  const bool rows = (t.rank() == 2 && t[0] == x.dim(1)) || (t.rank() == 3 && t[0] == x.dim(0) && t[1] == x.dim(1));
  check(rows && t[-1] % 2 == 0 && t[-1] <= x.dim(3), op,
        "the table is {} for x {}, expected [T, R] or [N, T, R] with an even R of at most D", t, x.shape());
  const Tensor table = table_given.to(ops::accumulator(x.dtype()));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  launch<kernel::Rope>(y, x, table, interleaved, false);
  if (!needs_record(op, y, {&x})) return y;
  return record(op, std::move(y), {x, table}, interleaved,
                ops::twice([table = SavedTensor(table.detach()), interleaved](const Tensor& dy, Gradients& g) {
                  const auto turn = [table, interleaved](bool back) {
                    return [=](const Tensor& to, const Tensor& from) {
                      launch<kernel::Rope>(to, from, table, interleaved, back);
                    };
                  };
                  if (!g.records()) return write_grad(g, 0, [&](const Tensor& dx) { turn(true)(dx, dy); });
                  g.set_grad(0, ops::linear_map("rope", dy, g.input(0), turn(true), turn(false)));
                }));
}

}  // namespace trireme
