// Vision transformers (Dosovitskiy et al., arXiv 2010.11929), with torchvision's names or with Hugging Face's.
#pragma once
#include <string>

#include "models/registry/models.h"

namespace trireme {

/// Options of vit(); the defaults are ViT-B/16 for ImageNet with 86,567,656 parameters.
struct VitOptions {
  Shape input = {224, 224, 3};  ///< [height, width, channels] of an image; patch must divide height and width
  Index patch = 16,             ///< side of a patch in pixels
      layers = 12,              ///< number of blocks
      heads = 12,               ///< attention heads; must divide width
      width = 768,              ///< C: elements of a token
      hidden = 0,               ///< width of the MLP's hidden layer; 0: 4 * width
      classes = 1000;           ///< number of logits
  double dropout = 0;           ///< probability on embeddings, attention and residual branches, in [0, 1)
  double eps = 1e-6;            ///< epsilon of the norms
  bool recompute = false;  ///< activation checkpointing: blocks store only their input (framework/layers/recompute.h)
  /// hidden, or its default if 0.
  Index hidden_size() const { return hidden ? hidden : 4 * width; }
  /// Number of patches plus the class token. Throws Error unless patch divides the image.
  Index tokens() const;
};
/// torchvision's vit_b_16 and related models, with its names and initialisation: images [N, H, W, channels] -> logits
/// [N, classes]. Pre-norm blocks, exact GELU. Throws Error for sizes below 1, a patch that does not divide the image
/// and heads that do not divide the width.
Sequential vit(const VitOptions& = {});
/// The same model with the names of Hugging Face's ViTForImageClassification ("vit.encoder.layer.0..."), which has
/// separate query, key and value layers and eps 1e-12.
Sequential vit_hf(const VitOptions& = {.eps = 1e-12});
/// The options with the changes of `o`: input, classes, and from arch layers, heads, width, hidden and dropout. Throws
/// Error for settings that these models do not have.
VitOptions vit_options(VitOptions, const ModelOptions& o);
/// Hugging Face's config.json for vit_hf(). Throws Error for images that are not square.
std::string vit_config(const VitOptions&);

}  // namespace trireme
