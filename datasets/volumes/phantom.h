// Phantom: a picture or volume of ellipsoids of several classes as a tomograph would see it: grey values, artefacts of
// few and missing angles, noise. Made by seed, without memory of its voxels: any box of it is computed by itself, the
// same numbers whatever box a voxel is in.
#pragma once
#include <cstdint>
#include <memory>

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Options of a Phantom. Lengths are in voxels.
struct PhantomOptions {
  Shape size{256, 256};  ///< [H, W], or [D, H, W]
  Index classes = 3;     ///< labels, at least 2; 0 is what lies between the ellipsoids, whose grey value is 0
  /// As many ellipsoids are tried as spheres of the mean semi-axis (of pictures discs) have so many times the phantom's
  /// volume; of two whose bounding spheres meet the later is left out, which is why they fill less.
  double density = 1;
  double smallest = 3, largest = 16;  ///< semi-axes are drawn between, uniformly; directions, too
  /// Parallel projections that image() is reconstructed from, spread evenly over 180 degrees about the axis D, slice by
  /// slice; 0: none, image() is clean() and noise.
  Index angles = 0;
  double missing = 0;      ///< degrees in [0, 180) at the end of these 180 that were not measured (a missing wedge)
  double noise = 0;        ///< standard deviation of what image() adds to each voxel, normal, independent of others'
  std::uint64_t seed = 0;  ///< of everything, together with the phantom's number
};

/// Boxes are of [D, H, W]; of a picture D is 1. Copies share the ellipsoids. May be read by several threads.
class Phantom {
 public:
  /// Number so and so of the phantoms of these options. Throws Error for options outside their ranges and for more than
  /// ten million ellipsoids.
  explicit Phantom(const PhantomOptions&, std::uint64_t number = 0);
  const Shape& size() const;  ///< [D, H, W]
  Index ellipsoids() const;   ///< there are so many
  /// Classes, i64 [d, h, w]: of label k are the voxels whose centres lie in an ellipsoid of that label.
  Tensor labels(const Box&) const;
  /// Grey values, f32 [d, h, w]: of an ellipsoid of label k a number within a quarter of 1 / (classes - 1) about
  /// k / (classes - 1), the same in all of it.
  Tensor clean(const Box&) const;
  /// What a tomograph makes of clean(), f32 [d, h, w]: filtered back-projection (Kak and Slaney, "Principles of
  /// Computerized Tomographic Imaging", ch. 3) by the measured angles, of projections on a detector of pixels of one
  /// voxel, interpolated linearly. Projections of ellipses and their ramp filter are known in closed form, so nothing
  /// is transformed and no voxel outside of the box is needed: few angles give streaks, missing ones blur and shadows,
  /// as they do in a reconstruction of the whole. Then noise is added. Takes per slice about angles * (ellipsoids that
  /// it cuts * (h + w) + h * w) steps.
  Tensor image(const Box&) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace trireme
