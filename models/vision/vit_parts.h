// The layers that vit() and vit_hf() share.
#pragma once
#include "framework/layers/conv.h"
#include "models/vision/vit.h"

namespace trireme::vision {

/// The patch embedding: a convolution whose windows tile the image.
Conv2d patches(const VitOptions&, Init);

/// Puts a learned token before the patches: [N, h, w, C] -> [N, 1 + h w, C].
struct ClassToken {
  ClassToken(Index width, Init draw) : init(std::move(draw)), token(init.make({1, 1, width})) {}
  Tensor operator()(const Tensor& x) const;
  /// Names the tensor as the layer.
  void visit(const StateVisitor& v) { v("", token, StateKind::weight, init); }
  Init init;     ///< of token
  Tensor token;  ///< [1, 1, C]
};

/// Adds learned positions of all tokens: x [N, T, C] -> the same shape.
struct Positions {
  Positions(Index tokens, Index width, Init draw) : init(std::move(draw)), table(init.make({1, tokens, width})) {}
  /// Throws Error for another number of tokens.
  Tensor operator()(const Tensor& x) const;
  /// Names the tensor as the layer.
  void visit(const StateVisitor& v) { v("", table, StateKind::weight, init); }
  Init init;     ///< of table
  Tensor table;  ///< [1, T, C]
};

/// [N, T, C] -> [N, C]: the class token, from which the logits are computed. A norm per token may come before or after
/// it.
Tensor first_token(const Tensor& x);

/// Throws Error for invalid options.
void check_options(const char* op, const VitOptions&);

}  // namespace trireme::vision
