// What vision transformers with torchvision's names and with Hugging Face's are made of.
#pragma once
#include "framework/layers/conv.h"
#include "models/vision/vit.h"

namespace trireme::vision {

/// Patches of an image as tokens: a convolution whose windows tile it.
Conv2d patches(const VitOptions&, Init);

/// A learned token in front of the others: [N, h, w, C] -> [N, 1 + h w, C].
struct ClassToken {
  ClassToken(Index width, Init draw) : init(std::move(draw)), token(init.make({1, 1, width})) {}
  Tensor operator()(const Tensor& x) const;
  /// Names the tensor as the layer.
  void visit(const StateVisitor& v) { v("", token, StateKind::weight, init); }
  Init init;     ///< of token
  Tensor token;  ///< [1, 1, C]
};

/// Learned positions of all tokens, added: x [N, T, C] -> the same shape.
struct Positions {
  Positions(Index tokens, Index width, Init draw) : init(std::move(draw)), table(init.make({1, tokens, width})) {}
  /// Throws Error for another number of tokens.
  Tensor operator()(const Tensor& x) const;
  /// Names the tensor as the layer.
  void visit(const StateVisitor& v) { v("", table, StateKind::weight, init); }
  Init init;     ///< of table
  Tensor table;  ///< [1, T, C]
};

/// [N, T, C] -> [N, C]: the class token, of which alone the logits are computed. A norm of each token may as well stand
/// behind it.
Tensor first_token(const Tensor& x);

/// Throws Error for options that are none of a ViT.
void check_options(const char* op, const VitOptions&);

}  // namespace trireme::vision
