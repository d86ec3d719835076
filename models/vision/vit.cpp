#include "models/vision/vit.h"

#include <cmath>

#include "framework/layers/recompute.h"
#include "framework/ops/help.h"
#include "models/vision/vit_parts.h"

namespace trireme {
namespace vision {

Conv2d patches(const VitOptions& o, Init init) {
  return Conv2d(o.input[2], o.width, o.patch, {.stride = o.patch, .init = std::move(init)});
}

Tensor ClassToken::operator()(const Tensor& x) const {
  const Shape& s = x.global_shape();
  const Index rows = s[0], width = s[3];
  const Tensor first = expand(ops::in_type(token, x.dtype()), {rows, 1, width});
  return concat({first, x.reshape({rows, s[1] * s[2], width})}, 1);
}

Tensor Positions::operator()(const Tensor& x) const {
  const Shape &s = x.global_shape(), &positions = table.global_shape();
  check(s.rank() == 3 && s[1] == positions[1] && s[2] == positions[2], "vit",
        "the tokens are {}, expected [N, {}, {}]; use images of the size that the model was built for", s, positions[1],
        positions[2]);
  return x + ops::in_type(table, x.dtype());
}

Tensor first_token(const Tensor& x) { return select(x, 1, 0); }

void check_options(const char* op, const VitOptions& o) {
  for (const auto& [what, size] : {std::pair{"layers", o.layers},
                                   {"width", o.width},
                                   {"pixels of a patch", o.patch},
                                   {"hidden", o.hidden_size()},
                                   {"classes", o.classes}})
    check(size > 0, op, "{} {}, expected at least 1", size, what);
  (void)o.tokens();
}

}  // namespace vision

namespace {

/// torchvision's EncoderBlock.
struct VitBlock {
  explicit VitBlock(const VitOptions& o)
      : ln_1(o.width, o.eps),
        self_attention(o.width, o.heads, {.dropout = o.dropout}),
        dropout(o.dropout),
        ln_2(o.width, o.eps),
        mlp{Linear(o.width, o.hidden_size(), {.init = Init::xavier_uniform()}), gelu, Dropout(o.dropout),
            Linear(o.hidden_size(), o.width, {.init = Init::xavier_uniform()}), Dropout(o.dropout)} {}
  Tensor operator()(const Tensor& x) const {
    const Tensor y = x + dropout(self_attention(ln_1(x)));
    return y + mlp(ln_2(y));
  }
  void visit(const StateVisitor& v) {
    v("ln_1", ln_1, "self_attention", self_attention, "dropout", dropout, "ln_2", ln_2, "mlp", mlp);
  }
  LayerNorm ln_1;
  SelfAttention self_attention;
  Dropout dropout;
  LayerNorm ln_2;
  Sequential mlp;
};

}  // namespace

Index VitOptions::tokens() const {
  check(input.rank() == 3, "vit", "a sample is {}, expected [height, width, channels]", input);
  check(patch > 0 && input[0] > 0 && input[1] > 0 && input[0] % patch == 0 && input[1] % patch == 0, "vit",
        "patches of {} pixels do not tile images of {} x {}: resize them to a multiple", patch, input[0], input[1]);
  return 1 + (input[0] / patch) * (input[1] / patch);
}

Sequential vit(const VitOptions& o) {
  vision::check_options("vit", o);
  Sequential layers, encoder, heads, model;
  for (Index i = 0; i < o.layers; ++i)
    layers.add("encoder_layer_" + std::to_string(i),
               o.recompute ? Module(Recompute(VitBlock(o))) : Module(VitBlock(o)));
  encoder.add("pos_embedding", vision::Positions(o.tokens(), o.width, Init::normal(0.02)))
      .add("dropout", Dropout(o.dropout))
      .add("layers", std::move(layers))
      .add("class", vision::first_token)
      .add("ln", LayerNorm(o.width, o.eps));
  const double fan_in = static_cast<double>(o.input[2] * o.patch * o.patch);
  return model.add("conv_proj", vision::patches(o, Init::trunc_normal(std::sqrt(1 / fan_in))))
      .add("class_token", vision::ClassToken(o.width, Init::zeros()))
      .add("encoder", std::move(encoder))
      .add("heads", heads.add("head", Linear(o.width, o.classes, {.init = Init::zeros()})));
}

VitOptions vit_options(VitOptions base, const ModelOptions& o) {
  const ArchOptions& a = o.arch;
  const bool others =
      a ==
      ArchOptions{.layers = a.layers, .heads = a.heads, .width = a.width, .hidden = a.hidden, .dropout = a.dropout};
  check(others, "vit",
        "only arch.layers, heads, width, hidden and dropout are supported; leave out other arch settings");
  for (const auto& [own, given] :
       {std::pair{&base.layers, a.layers}, {&base.heads, a.heads}, {&base.width, a.width}, {&base.hidden, a.hidden}})
    if (given != 0) *own = given;
  if (a.dropout >= 0) base.dropout = a.dropout;
  base.input = o.input;
  base.classes = o.classes;
  base.recompute = o.recompute;
  return base;
}

namespace {
bool add_sizes() {
  const ModelOptions imagenet{.input = {224, 224, 3}, .classes = 1000};
  const VitOptions base, large{.layers = 24, .heads = 16, .width = 1024};
  const auto of_patch = [](VitOptions o, Index patch) {
    o.patch = patch;
    return o;
  };
  const std::vector<std::pair<std::string, VitOptions>> sizes = {
      {"vit_b_16", base},
      {"vit_b_32", of_patch(base, 32)},
      {"vit_l_16", large},
      {"vit_l_32", of_patch(large, 32)},
      {"vit_h_14", {.patch = 14, .layers = 32, .heads = 16, .width = 1280}}};
  for (const auto& [name, sized] : sizes) {
    VitOptions hf = sized;
    hf.eps = 1e-12;
    add_model({.name = name,
               .make = [=](const ModelOptions& o) { return vit(vit_options(sized, o)); },
               .usual = imagenet,
               .sized = true});
    add_model({.name = name + "_hf",
               .make = [=](const ModelOptions& o) { return vit_hf(vit_options(hf, o)); },
               .usual = imagenet,
               .sized = true,
               .config = [=](const ModelOptions& o) { return vit_config(vit_options(hf, o)); }});
  }
  return true;
}
const bool vit_added = add_sizes();
}  // namespace
}  // namespace trireme
