// Convolution of an image that is split over ranks (Dryden et al., arXiv 1903.06681), for any window and split.
//
// A rank first convolves its own block, with zeros in place of the halo. Only the outputs near a cut are wrong. When
// the halo has arrived, these outputs are computed again from the small patches that they read. Gradients are computed
// in the same two steps. So no block is copied to make room for a halo, and the large step overlaps with the messages.
#include "framework/ops/help.h"
#include "framework/ops/moves.h"
#include "framework/ops/ops.h"
#include "kernels/contracts/conv.h"

namespace trireme {
namespace {

using Halos = std::vector<Exchange::Received>;

/// One rank's share of a convolution.
class Part {
 public:
  Part(const Tensor& x, const Shape& filter, const ConvOptions& o, const ShardSpec& has, const ShardSpec& out)
      : x_(x),
        has_(has.shared_from_this()),
        mine_(has.box()),
        out_(out.box()),
        windows_(windows(filter, o)),
        options_(o),
        reads_(reads(out_)),
        padded_(reads_),
        halo_(has, out, windows_) {
    bool reaches = reads_.extents == reads_.inputs.size;  // not padding alone, and zeros for the halo are a padding
    for (std::size_t s = 0; s < windows_.size(); ++s) {
      const int axis = static_cast<int>(s) + 1;
      Index &before = padded_.before[s], &behind = padded_.behind[s];
      before += mine_.at[axis] - reads_.inputs.at[axis];
      behind += reads_.inputs.at[axis] + reads_.inputs.size[axis] - mine_.at[axis] - mine_.size[axis];
      reaches = reaches && before >= reads_.before[s] && before < windows_[s].reach() && behind >= reads_.behind[s] &&
                behind < windows_[s].reach();
    }
    const Box core = inner(out_, mine_, windows_, has.global_shape());
    whole_ = core.empty() || !reaches;
    edges_ = whole_ ? std::vector{out_} : around(out_, core);
  }

  /// True when no rank needs anything from another: then this is an ordinary convolution.
  bool alone() const { return halo_.have == halo_.want && reads_.extents == reads_.inputs.size; }
  ConvOptions options() const { return at(reads_); }

  Tensor forward(const Tensor& w, const Tensor& bias);
  void backward_input(const Tensor& dy, const Tensor& w, Gradients& g) const;
  void backward_weight(const Tensor& dy, const View& dw, const View& db, bool accumulate) const;

 private:
  ConvOptions at(const Patch& p) const {
    ConvOptions o = options_;
    o.pad_begin = p.before;
    o.pad_end = p.behind;
    return o;
  }
  Patch reads(const Box& out) const { return patch(out, mine_, windows_, has_->global_shape()); }
  /// A patch's inputs: from the halo, and from x unless that has been counted; zeros elsewhere.
  Tensor inputs(const Patch& p, bool with_x) const {
    const Tensor in = Tensor::zeros(p.extents, x_.get().dtype(), x_.get().device());
    if (with_x) copy_box(in, p.inputs.at, x_, mine_.at, intersect(p.inputs, mine_));
    for (const auto& [box, values] : halos_) copy_box(in, p.inputs.at, values, box.at, intersect(p.inputs, box));
    return in;
  }

  SavedTensor x_;
  std::shared_ptr<const ShardSpec> has_;
  Box mine_, out_;  // x's and y's
  std::vector<Window> windows_;
  ConvOptions options_;
  Patch reads_,  // after all outputs
      padded_;   // the same with zeros for the halo
  Halo halo_;
  Halos halos_;
  std::vector<Box> edges_;  // outputs that read the halo
  bool whole_;              // all outputs are treated as such
};

Tensor Part::forward(const Tensor& w, const Tensor& bias) {
  Exchange exchange(has_->mesh(), halo_.line, route(halo_.have, halo_.want, halo_.line.me), x_, mine_.at,
                    MemoryKind::halos);
  const Tensor y = Tensor::empty(out_.size, x_.get().dtype(), x_.get().device());
  if (!whole_) launch<kernel::Conv>(y, x_, w, bias, View{}, at(padded_));
  halos_ = exchange.wait();
  for (const Box& edge : edges_) {
    const Patch p = reads(edge);
    const Tensor part = whole_ ? y : Tensor::empty(edge.size, y.dtype(), y.device());
    launch<kernel::Conv>(part, inputs(p, true), w, bias, View{}, at(p));
    if (!whole_) copy_box(y, out_.at, part, edge.at, edge);
  }
  return y;
}

void Part::backward_input(const Tensor& dy, const Tensor& w, Gradients& g) const {
  if (!g.needs_grad(0)) return;
  const Gradients::Target dx = g.grad_buffer(0);
  const Route back = route(halo_.want, halo_.have, halo_.line.me);
  std::vector<Tensor> sends;
  for (const auto& piece : back.sends) sends.push_back(Tensor::zeros(piece.box.size, dy.dtype(), dy.device()));
  if (whole_ && !dx.accumulate) launch<kernel::Fill>(dx.tensor, 0.0);
  for (const Box& edge : edges_) {
    const Patch p = reads(edge);
    const Tensor wide = Tensor::empty(p.extents, dy.dtype(), dy.device());
    launch<kernel::ConvBackwardInput>(wide, whole_ ? dy : cut(dy, out_.at, edge), w, at(p), false);
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const Box& box = back.sends[i].box;
      copy_box(sends[i], box.at, wide, p.inputs.at, intersect(box, p.inputs), true);
    }
    if (whole_) copy_box(dx.tensor, mine_.at, wide, p.inputs.at, intersect(mine_, p.inputs), true);
  }
  Exchange exchange(has_->mesh(), halo_.line, back, sends, dy.dtype(), dy.device());
  if (!whole_) launch<kernel::ConvBackwardInput>(dx.tensor, dy, w, at(padded_), dx.accumulate);
  for (const auto& [box, values] : exchange.wait()) copy_box(dx.tensor, mine_.at, values, box.at, box, true);
}

void Part::backward_weight(const Tensor& dy, const View& dw, const View& db, bool accumulate) const {
  if (whole_) return launch<kernel::ConvBackwardWeight>(dw, db, inputs(reads_, true), dy, at(reads_), accumulate);
  launch<kernel::ConvBackwardWeight>(dw, db, x_, dy, at(padded_), accumulate);
  for (const Box& edge : edges_) {
    const Patch p = reads(edge);
    launch<kernel::ConvBackwardWeight>(dw, View{}, inputs(p, false), cut(dy, out_.at, edge), at(p), true);
  }
}

}  // namespace

Tensor halo_conv(const Tensor& x, const Tensor& w_given, const Tensor& bias_given, const ConvOptions& o,
                 const ShardSpec& has, const ShardSpec& out) {
  ConvOptions options = o;
  if (w_given.dtype() != x.dtype()) options.filters = nullptr;  // a converted copy: its address is no cache key
  Part part(x, w_given.shape(), options, has, out);
  if (part.alone()) return conv(x, w_given, bias_given, part.options());
  const auto [w, bias, leaf_w, leaf_bias] = ops::Weights(w_given, bias_given, x.dtype());
  Tensor y = part.forward(w, bias);
  if (!needs_record("conv", y, {&x, &leaf_w, &leaf_bias})) return y;

  const auto kept = std::make_shared<const Part>(std::move(part));
  Backward halves{[kept, w = SavedTensor(w)](const Tensor& dy, Gradients& g) { kept->backward_input(dy, w, g); },
                  [kept](const Tensor& dy, Gradients& g) {
                    const View rows = ops::shaped(dy, ops::as_rows(dy.shape()));
                    ops::give_weight_and_bias(g, 1, 2, rows, [&](const View& dw, const View& db, bool accumulate) {
                      kept->backward_weight(dy, dw, db, accumulate);
                    });
                  }};
  if (!o.relu) return record("conv", std::move(y), {x, leaf_w, leaf_bias}, o, std::move(halves));
  return ops::record_relu(y, record("conv", y.detach(), {x, leaf_w, leaf_bias}, o, std::move(halves)));
}

}  // namespace trireme
