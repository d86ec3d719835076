#include "models/volumes/msd.h"

#include <cmath>

namespace trireme {

MixedScaleDense::MixedScaleDense(int axes, Index in, Index width, std::vector<Index> given, double std)
    : dilations(std::move(given)), init(Init::normal(std)) {
  check(axes == 2 || axes == 3, "msd", "{} spatial axes, expected 2 or 3", axes);
  check(in >= 1 && width >= 1, "msd", "{} channels of the input and {} of each layer, expected at least 1", in, width);
  for (std::size_t i = 0; i < dilations.size(); ++i) {
    check(dilations[i] >= 1, "msd", "dilation {} of layer {}, expected at least 1", dilations[i], i);
    Shape filter{width};
    for (int d = 0; d < axes; ++d) filter.push_back(3);
    filter.push_back(in + width * static_cast<Index>(i));
    weight.push_back(init.make(filter, i));
    bias.push_back(Tensor::zeros({width}));
  }
}

void MixedScaleDense::visit(const StateVisitor& v) {
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const std::string layer = std::to_string(i);
    v(layer + ".weight", weight[i], StateKind::weight, init, FileLayout::filter);
    v(layer + ".bias", bias[i], StateKind::no_decay, Init::zeros());
  }
}

Sequential msd(const ModelOptions& o, const MsdOptions& net) {
  const int axes = o.input.rank() - 1;
  check(axes == 2 || axes == 3, "msd",
        "a sample is {}, expected [height, width, channels] or [depth, height, width, channels]", o.input);
  check(net.depth >= 1 && net.width >= 1 && !net.dilations.empty(), "msd",
        "depth {}, width {} and {} dilations, expected at least 1 of each", net.depth, net.width, net.dilations.size());
  std::vector<Index> dilations;
  for (std::size_t i = 0; i < static_cast<std::size_t>(net.depth); ++i)
    dilations.push_back(net.dilations[i % net.dilations.size()]);
  const Index in = o.input[-1], taps = axes == 2 ? 9 : 27, all = in + net.width * net.depth;
  const auto connections = static_cast<double>(taps * (all - net.width) + o.classes);
  const ConvLayerOptions last{.init = Init::zeros()};
  Sequential model;
  model.add("dense", MixedScaleDense(axes, in, net.width, std::move(dilations), std::sqrt(2 / connections)));
  return axes == 2 ? model.add("final", Conv2d(all, o.classes, 1, last))
                   : model.add("final", Conv3d(all, o.classes, 1, last));
}

namespace {
/// arch.layers: the depth; arch.width: the width; 0: the paper's value.
Module msd_of(const ModelOptions& o) {
  MsdOptions net;
  if (o.arch.layers > 0) net.depth = o.arch.layers;
  if (o.arch.width > 0) net.width = o.arch.width;
  ArchOptions known;
  known.layers = o.arch.layers;
  known.width = o.arch.width;
  check(o.arch == known, "msd",
        "takes the settings arch.layers (hidden layers) and arch.width (channels of each) alone");
  return msd(o, net);
}
const bool msd_added = add_model(
    {.name = "msd", .make = msd_of, .usual = {.input = {256, 256, 1}, .classes = 2}, .sized = true, .dense = true});
}  // namespace

}  // namespace trireme
