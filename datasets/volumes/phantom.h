// Phantom: a synthetic picture or volume of ellipsoids of several classes, as a tomograph would show it: grey values,
// artefacts of few and missing angles, noise. It is defined by a seed and stores no voxels: any box is computed on
// demand, and a voxel has the same value in every box.
#pragma once
#include <cstdint>
#include <memory>

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// Options of a Phantom. Lengths are in voxels.
struct PhantomOptions {
  Shape size{256, 256};  ///< extents [H, W] or [D, H, W]
  Index classes = 3;     ///< number of labels, at least 2; label 0 is the background, with grey value 0
  /// Determines the number of ellipsoids that are tried: that many spheres (discs in pictures) of the mean semi-axis
  /// have `density` times the phantom's volume. If two bounding spheres intersect, the later ellipsoid is dropped, so
  /// the ellipsoids fill less.
  double density = 1;
  double smallest = 3,  ///< smallest semi-axis; semi-axes and directions are drawn uniformly
      largest = 16;     ///< largest semi-axis
  /// Number of parallel projections from which image() is reconstructed, slice by slice, spread evenly over 180 degrees
  /// about the axis D. 0: no reconstruction, image() is clean() plus noise.
  Index angles = 0;
  double missing = 0;      ///< degrees in [0, 180) at the end of the 180 that are not measured (missing wedge)
  double noise = 0;        ///< standard deviation of the normal noise that image() adds independently to each voxel
  std::uint64_t seed = 0;  ///< random seed, combined with the phantom's number
};

/// One phantom. Boxes have axes [D, H, W]; D is 1 for a picture. Copies share the ellipsoids. Several threads may read
/// it.
class Phantom {
 public:
  /// The phantom with this number among the phantoms of these options. Throws Error for options outside their ranges
  /// and for more than ten million ellipsoids.
  explicit Phantom(const PhantomOptions&, std::uint64_t number = 0);
  const Shape& size() const;  ///< [D, H, W]
  Index ellipsoids() const;   ///< number of ellipsoids
  /// Labels, i64 [d, h, w]: k if the voxel's centre is in an ellipsoid of label k, else 0.
  Tensor labels(const Box&) const;
  /// Grey values, f32 [d, h, w]. An ellipsoid of label k has one value within a quarter of 1 / (classes - 1) of k /
  /// (classes - 1).
  Tensor clean(const Box&) const;
  /// The tomographic reconstruction of clean(), f32 [d, h, w], plus noise: filtered back-projection (Kak and Slaney,
  /// "Principles of Computerized Tomographic Imaging", ch. 3) of the measured angles. The detector has pixels of one
  /// voxel and linear interpolation. Projections of ellipses and their ramp filter have closed forms, so no transform
  /// and no voxel outside the box is needed. Few angles give streaks, missing angles blur and shadows, as in a
  /// reconstruction of the whole. The cost per slice is about angles * (ellipsoids in the slice * (h + w) + h * w)
  /// operations.
  Tensor image(const Box&) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace trireme
