// Convolution of an image that is split over ranks (Dryden et al., arXiv 1903.06681), for any window and split.
#include "kernels/conv.h"
#include "framework/ops/help.h"
#include "parallel/split/windows.h"

namespace trireme {
namespace {

/// What one rank's convolution reads and where its parts come from.
struct Reader {
  Tensor x;
  Box mine;  // x's
  std::vector<Window> windows;
  Shape whole;
  ConvOptions options;

  Patch reads(const Box& out) const { return patch(out, mine, windows, whole); }
  ConvOptions at(const Patch& p) const {
    ConvOptions o = options;
    o.pad_begin = p.before, o.pad_end = p.behind;
    return o;
  }
  /// The patch's inputs in one block: x itself where it is just that.
  Tensor gathered(const Patch& p, const std::vector<Exchange::Received>& halos) const {
    if (p.inputs == mine && p.extents == p.inputs.size) return x;
    const bool padding = !(p.extents == p.inputs.size);
    const Tensor in =
        padding ? Tensor::zeros(p.extents, x.dtype(), x.device()) : Tensor::empty(p.extents, x.dtype(), x.device());
    copy_box(in, p.inputs.at, x, mine.at, intersect(p.inputs, mine));
    for (const auto& [box, values] : halos) copy_box(in, p.inputs.at, values, box.at, intersect(p.inputs, box));
    return in;
  }
};

/// y in the box `to`, piece by piece: first what needs nobody else.
Tensor forward(const Reader& reader, const Box& to, const Tensor& w, const Tensor& bias, Exchange& exchange) {
  const Tensor y = Tensor::empty(to.size, reader.x.dtype(), reader.x.device());
  const Box core = inner(to, reader.mine, reader.windows, reader.whole);
  const std::vector<Exchange::Received> nothing;
  for (const Box& piece : around(to, core)) {
    const Patch p = reader.reads(piece);
    const Tensor in = reader.gathered(p, piece == core ? nothing : exchange.wait());
    if (piece == to) {
      launch<kernel::Conv>(y, in, w, bias, View{}, reader.at(p));
      continue;
    }
    const Tensor part = Tensor::empty(piece.size, y.dtype(), y.device());
    launch<kernel::Conv>(part, in, w, bias, View{}, reader.at(p));
    copy_box(y, to.at, part, piece.at, piece);
  }
  return y;
}

}  // namespace

Tensor halo_conv(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o,
                 const Sharding& has, const Sharding& out) {
  const Tensor w = ops::in_type(w_given, x.dtype()), bias = ops::in_type(bias_given, x.dtype());
  Reader reader{x, has.box(), windows(w.shape(), o), has.whole(), o};
  const Box to = out.box();
  const Patch patch = reader.reads(to);
  if (!(w.id() == w_given.id())) reader.options.filter_version = 0;
  const Halo halo(has, out, reader.windows);
  if (halo.have == halo.want && patch.extents == patch.inputs.size) return conv(x, w, bias, reader.at(patch));

  const Sharding::Ptr keep = has.shared_from_this();
  Exchange exchange(has.grid(), halo.line, route(halo.have, halo.want, halo.line.me), x, reader.mine.at);
  Tensor y = forward(reader, to, w, bias, exchange);
  std::vector<Exchange::Received> halos = exchange.wait();
  if (!recording({&x, &w, &bias})) return y;

  const Route back = route(halo.want, halo.have, halo.line.me);
  const ConvOptions local = reader.at(patch);
  Backward halves{[keep, line = halo.line, back, patch, local, w, mine = reader.mine](const Tensor& dy, Gradients& g) {
                    give(g, 0, [&](const Tensor& dx) {
                      const Tensor wide = Tensor::empty(patch.extents, dy.dtype(), dy.device());
                      launch<kernel::ConvBackwardInput>(wide, dy, w, local, false);
                      Exchange exchange(keep->grid(), line, back, wide, patch.inputs.at);
                      launch<kernel::Fill>(dx, 0.0);
                      copy_box(dx, mine.at, wide, patch.inputs.at, intersect(mine, patch.inputs));
                      for (const auto& [box, values] : exchange.wait())
                        copy_box(dx, mine.at, values, box.at, box, true);
                    });
                  },
                  // The halo is kept, not the wide block: that is made again for the moment.
                  [reader, halos, patch, local](const Tensor& dy, Gradients& g) {
                    const View rows = ops::shaped(dy, ops::as_rows(dy.shape()));
                    ops::give_weight_and_bias(g, 1, 2, rows, [&](const View& dw, const View& db, bool accumulate) {
                      launch<kernel::ConvBackwardWeight>(dw, db, reader.gathered(patch, halos), dy, local, accumulate);
                    });
                  }};
  if (!o.relu) return record("conv", std::move(y), {x, w, bias}, o, std::move(halves));
  return ops::record_relu(y, record("conv", y.detach(), {x, w, bias}, o, std::move(halves)));
}

}  // namespace trireme
