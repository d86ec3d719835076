// Vision transformers (Dosovitskiy et al., arXiv 2010.11929), with torchvision's names or with Hugging Face's.
#pragma once
#include <string>

#include "models/registry/models.h"

namespace trireme {

/// Sizes and choices; the defaults are ViT-B/16's for ImageNet, of 86,567,656 parameters.
struct VitOptions {
  Shape input = {224, 224, 3};  ///< [height, width, channels] of an image; patch divides both
  Index patch = 16,             ///< pixels of a patch in each direction
      layers = 12,              ///< blocks
      heads = 12,               ///< of attention; divides width
      width = 768,              ///< C: elements of a token
      hidden = 0,               ///< of the MLP between; 0: 4 width
      classes = 1000;           ///< of the logits
  double dropout = 0;           ///< of embeddings, attention and what blocks add, in [0, 1)
  double eps = 1e-6;            ///< of the norms
  bool recompute = false;       ///< blocks keep their input alone (framework/layers/recompute.h)
  /// hidden, or what stands for 0.
  Index hidden_size() const { return hidden ? hidden : 4 * width; }
  /// Patches and the class token. Throws Error unless the patch divides the image.
  Index tokens() const;
};
/// torchvision's vit_b_16 and its kin, names and start alike: images [N, H, W, channels] -> logits [N, classes].
/// Pre-norm blocks, exact GELU. Throws Error for sizes below 1, a patch that does not divide the image and heads that
/// do not divide the width.
Sequential vit(const VitOptions& = {});
/// The same model as Hugging Face's files of a ViTForImageClassification name it ("vit.encoder.layer.0..."), which have
/// queries, keys and values apart. Its eps is 1e-12 there.
Sequential vit_hf(const VitOptions& = {.eps = 1e-12});
/// The options with what `o` says otherwise: input, classes, and of arch layers, heads, width, hidden and dropout.
/// Throws Error for what these models do not have.
VitOptions vit_options(VitOptions, const ModelOptions& o);
/// Hugging Face's config.json of vit_hf(). Throws Error for images that are not square.
std::string vit_config(const VitOptions&);

}  // namespace trireme
