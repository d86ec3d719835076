#include "datasets/volumes/phantom.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <unordered_map>
#include <vector>

#include "datasets/core/random_stream.h"

namespace trireme {
namespace {

constexpr double pi = std::numbers::pi;
constexpr double most_ellipsoids = 1e7;
using Vector = std::array<double, 3>;  // along D, H, W

/// { p: (p - centre)^T form (p - centre) <= 1 }
struct Ellipsoid {
  Vector centre;
  std::array<Vector, 3> form;
  double radius;  // of the bounding sphere
  Index label;
  float grey;
};

/// A sequence of numbers in (0, 1) from one Philox counter.
class Uniform {
 public:
  Uniform(const Philox& random, std::uint64_t counter) : random_(random), counter_(counter) {}
  double operator()() {
    if (drawn_ % 4 == 0) words_ = random_(counter_, drawn_ / 4);
    return (static_cast<double>(words_[drawn_++ % 4]) + 0.5) * 0x1p-32;
  }

 private:
  const Philox& random_;
  std::uint64_t counter_, drawn_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

/// Three random orthogonal directions, uniformly distributed. picture: the first one is the depth axis.
std::array<Vector, 3> rotation(Uniform& draw, bool picture) {
  const double u = draw(), v = 2 * pi * draw(), t = 2 * pi * draw();
  if (picture) return {{{1, 0, 0}, {0, std::cos(v), std::sin(v)}, {0, -std::sin(v), std::cos(v)}}};
  // Shoemake, "Uniform Random Rotations" (1992): by a unit quaternion.
  const double a = std::sqrt(1 - u), b = std::sqrt(u);
  const double x = a * std::sin(v), y = a * std::cos(v), z = b * std::sin(t), w = b * std::cos(t);
  return {{{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
           {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
           {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}}};
}

Ellipsoid draw_ellipsoid(const PhantomOptions& o, const Shape& size, Uniform draw) {
  const bool picture = o.size.rank() == 2;
  Ellipsoid e{};
  for (int i = 0; i < 3; ++i) e.centre[static_cast<std::size_t>(i)] = draw() * static_cast<double>(size[i]) - 0.5;
  if (picture) e.centre[0] = 0;
  Vector axes{};
  for (double& axis : axes) axis = o.smallest + (o.largest - o.smallest) * draw();
  const auto directions = rotation(draw, picture);
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 3; ++j) e.form[i][j] += directions[k][i] * directions[k][j] / (axes[k] * axes[k]);
  e.radius = picture ? std::max(axes[1], axes[2]) : std::ranges::max(axes);
  const double kinds = static_cast<double>(o.classes - 1);
  e.label = 1 + std::min(o.classes - 2, static_cast<Index>(draw() * kinds));
  e.grey = static_cast<float>((static_cast<double>(e.label) + 0.5 * (draw() - 0.5)) / kinds);
  return e;
}

/// Draws ellipsoids, drops each that overlaps an earlier one, and sorts them by position along D.
std::vector<Ellipsoid> draw_ellipsoids(const PhantomOptions& o, const Shape& size, std::uint64_t number) {
  const double mean = (o.smallest + o.largest) / 2;
  const double volume = o.size.rank() == 2 ? pi * mean * mean : 4.0 / 3 * pi * mean * mean * mean;
  const double count = std::ceil(o.density * static_cast<double>(size.numel()) / volume);
  check(count <= most_ellipsoids, "phantom", "{} ellipsoids, at most {} are drawn: make them larger", count,
        most_ellipsoids);
  const Philox random = random_stream(o.seed, RandomStream::phantom, static_cast<std::int64_t>(number));
  // Two ellipsoids that overlap have centres in the same or in adjacent cells of this side.
  const double side = 2 * o.largest;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> cells;
  const auto cell_of = [&](const Vector& at, const std::array<int, 3>& move) {
    std::uint64_t key = 0;
    for (std::size_t i = 0; i < 3; ++i)
      key = mix(key, static_cast<std::uint64_t>(static_cast<std::int64_t>(std::floor(at[i] / side)) + move[i]));
    return key;
  };
  std::vector<Ellipsoid> all;
  const auto meets = [&](const Ellipsoid& e) {
    for (int i = 0; i < 27; ++i) {
      const auto near = cells.find(cell_of(e.centre, {i / 9 - 1, i / 3 % 3 - 1, i % 3 - 1}));
      if (near == cells.end()) continue;
      for (const std::size_t k : near->second) {
        double square = 0;
        for (std::size_t a = 0; a < 3; ++a) square += std::pow(all[k].centre[a] - e.centre[a], 2);
        if (square < std::pow(all[k].radius + e.radius, 2)) return true;
      }
    }
    return false;
  };
  for (std::uint64_t i = 0; static_cast<double>(i) < count; ++i) {
    const Ellipsoid e = draw_ellipsoid(o, size, Uniform(random, i));
    if (meets(e)) continue;
    cells[cell_of(e.centre, {0, 0, 0})].push_back(all.size());
    all.push_back(e);
  }
  std::ranges::stable_sort(all, {}, [](const Ellipsoid& e) { return e.centre[0]; });
  return all;
}

/// An ellipse in a slice: { p: (p - centre)^T inverse^-1 (p - centre) <= 1 }.
struct Ellipse {
  double h, w;        // centre
  double hh, hw, ww;  // inverse of its form
  double grey;
};

/// Integral of the ramp-filtered projection of a disc of radius 1 and value 1, from its centre to u. Within the disc's
/// shadow it is u / pi; outside it falls to 0.
double filtered(double u) {
  const double out = std::abs(u);
  if (out <= 1) return u / pi;
  return std::copysign(1 / (pi * (out + std::sqrt(out * out - 1))), u);
}

}  // namespace

struct Phantom::Impl {
  PhantomOptions options;
  Shape size;
  std::vector<Ellipsoid> ellipsoids;
  Philox noise;

  /// Calls f(ellipsoid) for ellipsoids that may touch slice d.
  template <class F>
  void each_near(Index d, F f) const {
    const double at = static_cast<double>(d);
    auto e =
        std::ranges::lower_bound(ellipsoids, at - options.largest, {}, [](const Ellipsoid& x) { return x.centre[0]; });
    for (; e != ellipsoids.end() && e->centre[0] <= at + options.largest; ++e) f(*e);
  }
  /// Calls set(element of the box, ellipsoid) for each voxel of the box inside an ellipsoid.
  template <class F>
  void paint(const Box& box, F set) const {
    for (Index d = 0; d < box.size[0]; ++d)
      each_near(box.at[0] + d, [&](const Ellipsoid& e) {
        std::array<Index, 2> begin{}, end{};
        for (int i = 0; i < 2; ++i) {
          const double centre = e.centre[static_cast<std::size_t>(i) + 1];
          begin[static_cast<std::size_t>(i)] =
              std::max(box.at[i + 1], static_cast<Index>(std::ceil(centre - e.radius)));
          end[static_cast<std::size_t>(i)] =
              std::min(box.at[i + 1] + box.size[i + 1], static_cast<Index>(std::floor(centre + e.radius)) + 1);
        }
        const double x = static_cast<double>(box.at[0] + d) - e.centre[0];
        for (Index h = begin[0]; h < end[0]; ++h)
          for (Index w = begin[1]; w < end[1]; ++w) {
            const double y = static_cast<double>(h) - e.centre[1], z = static_cast<double>(w) - e.centre[2];
            const double inside = x * (e.form[0][0] * x + 2 * e.form[0][1] * y + 2 * e.form[0][2] * z) +
                                  y * (e.form[1][1] * y + 2 * e.form[1][2] * z) + e.form[2][2] * z * z;
            if (inside <= 1) set(((d * box.size[1]) + h - box.at[1]) * box.size[2] + w - box.at[2], e);
          }
      });
  }
  std::vector<Ellipse> cut(Index d) const {
    std::vector<Ellipse> all;
    each_near(d, [&](const Ellipsoid& e) {
      const auto& f = e.form;
      const double x = static_cast<double>(d) - e.centre[0], det = f[1][1] * f[2][2] - f[1][2] * f[1][2];
      // Inverse of the form's lower block, and its product with the first column, give the ellipse's centre in the
      // slice.
      const double hh = f[2][2] / det, hw = -f[1][2] / det, ww = f[1][1] / det;
      const double sh = hh * f[0][1] + hw * f[0][2], sw = hw * f[0][1] + ww * f[0][2];
      const double rest = 1 - x * x * (f[0][0] - f[0][1] * sh - f[0][2] * sw);
      if (rest > 0)
        all.push_back({e.centre[1] - x * sh, e.centre[2] - x * sw, hh * rest, hw * rest, ww * rest, double{e.grey}});
    });
    return all;
  }
  /// Adds the filtered back-projection of slice d, at h, w of the box.
  void reconstruct(Index d, const Box& box, float* to) const {
    const std::vector<Ellipse> ellipses = cut(d);
    const double middle_h = static_cast<double>(size[1] - 1) / 2, middle_w = static_cast<double>(size[2] - 1) / 2;
    std::vector<double> sum(static_cast<std::size_t>(box.size[1] * box.size[2])), bins;
    for (Index k = 0; k < options.angles; ++k) {
      const double share = static_cast<double>(k) / static_cast<double>(options.angles);
      if (180 * share >= 180 - options.missing) break;
      const double n_h = std::sin(pi * share), n_w = std::cos(pi * share);
      const auto place = [&](Index h, Index w) {  // position on the detector
        return (static_cast<double>(h) - middle_h) * n_h + (static_cast<double>(w) - middle_w) * n_w;
      };
      const Index h0 = box.at[1], w0 = box.at[2], h1 = h0 + box.size[1] - 1, w1 = w0 + box.size[2] - 1;
      const auto [least, most] = std::minmax({place(h0, w0), place(h0, w1), place(h1, w0), place(h1, w1)});
      const Index first = static_cast<Index>(std::floor(least)) - 1;
      bins.assign(static_cast<std::size_t>(static_cast<Index>(std::floor(most)) + 3 - first), 0);
      for (const Ellipse& e : ellipses) {
        const double centre = (e.h - middle_h) * n_h + (e.w - middle_w) * n_w;
        const double half = std::sqrt(e.hh * n_h * n_h + 2 * e.hw * n_h * n_w + e.ww * n_w * n_w);  // half width of the
                                                                                                    // shadow
        const double factor = e.grey * std::sqrt(e.hh * e.ww - e.hw * e.hw) / half;
        double before = filtered((static_cast<double>(first) - 0.5 - centre) / half);
        for (std::size_t i = 0; i < bins.size(); ++i) {
          const double after = filtered((static_cast<double>(first + static_cast<Index>(i)) + 0.5 - centre) / half);
          bins[i] += factor * (after - before);
          before = after;
        }
      }
      for (Index h = h0, i = 0; h <= h1; ++h)
        for (Index w = w0; w <= w1; ++w, ++i) {
          const double at = place(h, w), whole = std::floor(at), part = at - whole;
          const auto bin = static_cast<std::size_t>(static_cast<Index>(whole) - first);
          sum[static_cast<std::size_t>(i)] += (1 - part) * bins[bin] + part * bins[bin + 1];
        }
    }
    const double step = pi / static_cast<double>(options.angles);
    for (std::size_t i = 0; i < sum.size(); ++i) to[i] = static_cast<float>(step * sum[i]);
  }
  void add_noise(const Box& box, float* to) const {
    std::array<double, 4> normal{};
    std::uint64_t drawn = ~std::uint64_t{0};  // index of the four numbers drawn last
    for (Index d = 0; d < box.size[0]; ++d)
      for (Index h = 0; h < box.size[1]; ++h) {
        const Index row = ((box.at[0] + d) * size[1] + box.at[1] + h) * size[2] + box.at[2];
        for (Index w = 0; w < box.size[2]; ++w) {
          const auto voxel = static_cast<std::uint64_t>(row + w);
          if (voxel / 4 != drawn) {
            Uniform uniform(noise, drawn = voxel / 4);
            for (std::size_t i = 0; i < 4; i += 2) {  // Box and Muller (1958)
              const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * pi * uniform();
              normal[i] = radius * std::cos(angle);
              normal[i + 1] = radius * std::sin(angle);
            }
          }
          *to++ += static_cast<float>(options.noise * normal[voxel % 4]);
        }
      }
  }
  Tensor room(const Box& box, DType dtype) const {
    bool inside = box.at.rank() == 3 && box.size.rank() == 3;
    for (int i = 0; inside && i < 3; ++i)
      inside = box.at[i] >= 0 && box.size[i] >= 0 && box.size[i] <= size[i] && box.at[i] <= size[i] - box.size[i];
    check(inside, "phantom", "a box at {} of {} is not inside {}", box.at, box.size, size);
    return Tensor::zeros(box.size, dtype);
  }
};

Phantom::Phantom(const PhantomOptions& o, std::uint64_t number) {
  const char* op = "phantom";
  check(o.size.rank() == 2 || o.size.rank() == 3, op, "its size is {}, expected [H, W] or [D, H, W]", o.size);
  for (const Index extent : o.size)
    check(extent >= 1 && extent <= Index{1} << 20, op, "its size is {}, extents are 1 to 2^20", o.size);
  check(o.classes >= 2 && o.classes <= 1 << 20, op, "{} classes, expected at least 2", o.classes);
  check(o.density > 0 && std::isfinite(o.density), op, "its density is {}, expected more than 0", o.density);
  check(o.smallest > 0 && o.smallest <= o.largest && std::isfinite(o.largest), op,
        "semi-axes are {} to {}, expected more than 0, the smallest first", o.smallest, o.largest);
  check(o.angles >= 0, op, "{} angles, expected 0 or more", o.angles);
  check(o.missing >= 0 && o.missing < 180, op, "{} degrees are missing, expected less than 180", o.missing);
  check(o.noise >= 0 && std::isfinite(o.noise), op, "its noise is {}, expected 0 or more", o.noise);
  const Shape size = o.size.rank() == 3 ? o.size : Shape{1, o.size[0], o.size[1]};
  impl_ = std::make_shared<const Impl>(
      Impl{o, size, draw_ellipsoids(o, size, number),
           random_stream(o.seed, RandomStream::voxel_noise, static_cast<std::int64_t>(number))});
}
const Shape& Phantom::size() const { return impl_->size; }
Index Phantom::ellipsoids() const { return std::ssize(impl_->ellipsoids); }

Tensor Phantom::labels(const Box& box) const {
  const Tensor all = impl_->room(box, DType::i64);
  auto* const to = all.data<std::int64_t>();
  impl_->paint(box, [&](Index i, const Ellipsoid& e) { to[i] = e.label; });
  return all;
}

Tensor Phantom::clean(const Box& box) const {
  const Tensor all = impl_->room(box, DType::f32);
  float* const to = all.data<float>();
  impl_->paint(box, [&](Index i, const Ellipsoid& e) { to[i] = e.grey; });
  return all;
}

Tensor Phantom::image(const Box& box) const {
  const Tensor all = impl_->options.angles > 0 ? impl_->room(box, DType::f32) : clean(box);
  if (box.empty()) return all;
  float* const to = all.data<float>();
  if (impl_->options.angles > 0)
    for (Index d = 0; d < box.size[0]; ++d) impl_->reconstruct(box.at[0] + d, box, to + d * box.size[1] * box.size[2]);
  if (impl_->options.noise > 0) impl_->add_noise(box, to);
  return all;
}

}  // namespace trireme
