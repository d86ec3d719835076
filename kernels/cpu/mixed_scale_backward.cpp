// Mixed-scale dense layers, backward. Both gradients are products of the features, or the filter, with the gradients of
// the layer's output channels at each tap. These are packed first, with zeros around.
#include "kernels/core/kernel.h"
#include "kernels/cpu/mixed_scale.h"

namespace trireme {
namespace {

using mixed_scale::stretch;

/// The gradients of a layer's outputs [N, outputs, region...] for the positions of `part`; zeros elsewhere.
template <class A>
class OutputGradients {
 public:
  OutputGradients(const A* gradient, const MixedScaleShape& s, const Extents& begin, const Extents& size,
                  const Extents& part_begin, const Extents& part_size)
      : s_(s), begin_(begin), size_(size), values_(s.n * s.outputs * size[0] * size[1] * size[2]) {
    parallel_for(s.n * size[0] * size[1], size[2] * s.outputs * 8, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        const Index n = i / (size[0] * size[1]), z = begin[0] + i / size[1] % size[0], y = begin[1] + i % size[1];
        const auto in = [&](Index at, int axis) {
          return at >= part_begin[axis] && at < part_begin[axis] + part_size[axis];
        };
        for (Index o = 0; o < s.outputs; ++o) {
          A* const row = values_.data() + offset(n, o, z, y, begin[2]);
          std::fill_n(row, size[2], A{});
          if (!in(z, 0) || !in(y, 1)) continue;
          const A* const line =
              gradient + ((n * s.extent[0] + z) * s.extent[1] + y) * s.extent[2] * s.width + s.channels + o;
          const Index last = std::min(part_begin[2] + part_size[2], begin[2] + size[2]);
          for (Index x = std::max(part_begin[2], begin[2]); x < last; ++x) row[x - begin[2]] = line[x * s.width];
        }
      }
    });
  }
  const A* at(Index n, Index o, Index z, Index y, Index x) const { return values_.data() + offset(n, o, z, y, x); }
  /// Fills to [outputs * taps, stretch] with the values that each tap reads for `count` positions, at the tap's offset.
  void taps(A* to, Index n, Index z, Index y, Index x, Index count) const {
    for (Index o = 0; o < s_.outputs; ++o)
      for (Index t = 0; t < s_.taps(); ++t, to += stretch) {
        const Extents d = s_.offset(t);
        std::copy_n(at(n, o, z - d[0], y - d[1], x - d[2]), count, to);
      }
  }

 private:
  Index offset(Index n, Index o, Index z, Index y, Index x) const {
    return (((n * s_.outputs + o) * size_[0] + z - begin_[0]) * size_[1] + y - begin_[1]) * size_[2] + x - begin_[2];
  }
  const MixedScaleShape s_;
  Extents begin_, size_;
  mixed_scale::Room<A> values_;
};

/// A box, extended by the cells that are one tap away.
struct Widened {
  Extents begin, size;
  Widened(const Extents& at, const Extents& extent, const MixedScaleShape& s) : begin(at), size(extent) {
    for (std::size_t d = s.planes == 3 ? 0 : 1; d < 3; ++d) {
      begin[d] -= s.dilation;
      size[d] += 2 * s.dilation;
    }
  }
};

void backward_relu(View gradient, View block, const MixedScaleOptions& options) {
  constexpr auto op = kernel::MixedScaleBackwardRelu::name;
  const MixedScaleShape s = mixed_scale_shape(block, options, op);
  check_mixed_scale_gradient(block, gradient, op);
  dispatch_float(block.dtype, op, [&](auto t) {
    using T = decltype(t);
    const T* const y = block.as<const T>();
    auto* const g = gradient.as<Accumulator<T>>();
    parallel_for(s.n * s.size[0] * s.size[1], s.size[2] * s.outputs * 4, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        const Index n = i / (s.size[0] * s.size[1]), z = s.begin[0] + i / s.size[1] % s.size[0];
        const Index cell =
            ((n * s.extent[0] + z) * s.extent[1] + s.begin[1] + i % s.size[1]) * s.extent[2] + s.begin[2];
        for (Index x = cell; x < cell + s.size[2]; ++x)
          for (Index at = x * s.width + s.channels, o = 0; o < s.outputs; ++o, ++at)
            if (static_cast<Accumulator<T>>(y[at]) <= 0) g[at] = 0;
      }
    });
  });
}

template <class A>
void add_input(A* gradient, const View& w, const MixedScaleShape& s) {
  const auto code = mixed_scale::code<A>();
  const Index columns = mixed_scale::round_up(s.channels, code.lanes), terms = s.outputs * s.taps();
  const mixed_scale::Room<A> filter(terms * s.channels), packed(terms * columns, A{});  // [terms, columns]
  load(filter.data(), w, 1, kernel::MixedScaleBackwardInput::name);
  for (Index k = 0; k < terms; ++k)
    std::copy_n(filter.data() + k * s.channels, s.channels, packed.data() + k * columns);
  const Widened seen(s.begin, s.size, s);
  const OutputGradients<A> own(gradient, s, seen.begin, seen.size, {0, 0, 0}, s.extent);
  parallel_for(s.n * s.size[0] * s.size[1], s.size[2] * terms * s.channels, [&](Index from, Index to) {
    const mixed_scale::Room<A> taps(terms * stretch, A{}), sums(stretch * columns);
    for (Index i = from; i < to; ++i) {
      const Index n = i / (s.size[0] * s.size[1]), z = s.begin[0] + i / s.size[1] % s.size[0];
      const Index y = s.begin[1] + i % s.size[1], last = s.begin[2] + s.size[2];
      A* const line = gradient + ((n * s.extent[0] + z) * s.extent[1] + y) * s.extent[2] * s.width;
      for (Index x = s.begin[2]; x < last; x += stretch) {
        const Index count = std::min(stretch, last - x);
        own.taps(taps.data(), n, z, y, x, count);
        code.scaled_by_columns({sums.data(), columns, taps.data(), stretch, packed.data(), columns,
                                mixed_scale::round_up(count, tiles::row_step), columns, terms});
        vectorised([=, room = static_cast<const A*>(sums.data()), width = s.width, channels = s.channels] {
          for (Index k = 0; k < count; ++k) {
            A* const cell = line + (x + k) * width;
            const A* const sum = room + k * columns;
#pragma omp simd
            for (Index c = 0; c < channels; ++c) cell[c] += sum[c];
          }
        });
      }
    }
  });
}

void mixed_scale_backward_input(View gradient, View w, const MixedScaleOptions& options) {
  constexpr auto op = kernel::MixedScaleBackwardInput::name;
  const MixedScaleShape s = mixed_scale_shape(gradient, options, op);
  check_mixed_scale_input_gradient(s, gradient, w, op);
  if (s.n * s.box_cells() == 0) return;
  dispatch_float(gradient.dtype, op, [&]<class T>(T) { add_input(gradient.as<Accumulator<T>>(), w, s); });
}

/// The sums of a filter's gradient [outputs * taps, channels] and of its bias' [outputs] over part of the rows.
template <class T>
class FilterSums {
 public:
  using A = Accumulator<T>;
  FilterSums(const View& block, const OutputGradients<A>& own, const MixedScaleShape& s)
      : block_(block.as<const T>()),
        elements_(block.numel()),
        own_(own),
        s_(s),
        columns_(mixed_scale::round_up(s.channels, code_.lanes)),
        taps_(padded_terms() * stretch, A{}),
        short_(padded_terms() * columns_, A{}),
        rows_(stretch * columns_, A{}) {}
  /// Adds row y of plane z to sums; the bias' sums follow the filter's.
  void add(double* sums, Index n, Index z, Index y, Index first, Index last) {
    const T* const line = block_ + ((n * s_.extent[0] + z) * s_.extent[1] + y) * s_.extent[2] * s_.width;
    for (Index x = first; x < last; x += stretch) {
      const Index count = std::min(stretch, last - x);
      own_.taps(taps_.data(), n, z, y, x, count);
      const auto right = operand(line + x * s_.width, count);
      code_.added(
          {short_.data(), columns_, taps_.data(), stretch, right.data, right.step, padded_terms(), columns_, count});
      if (++taken_ == 16) flush(sums);
    }
    const auto in = [&](Index at, int axis) { return at >= s_.begin[axis] && at < s_.begin[axis] + s_.size[axis]; };
    for (Index o = 0; in(z, 0) && in(y, 1) && o < s_.outputs; ++o)
      for (const A *g = own_.at(n, o, z, y, s_.begin[2]), *end = g + s_.size[2]; g < end; ++g)
        sums[terms() * s_.channels + o] += static_cast<double>(*g);
  }
  void flush(double* sums) {
    taken_ = 0;
    vectorised([=, from = short_.data(), terms = terms(), columns = columns_, channels = s_.channels] {
      for (Index k = 0; k < terms; ++k) {
#pragma omp simd
        for (Index c = 0; c < channels; ++c) sums[k * channels + c] += static_cast<double>(from[k * columns + c]);
        std::fill_n(from + k * columns, columns, A{});
      }
    });
  }

 private:
  Index terms() const { return s_.outputs * s_.taps(); }
  Index padded_terms() const { return mixed_scale::round_up(terms(), tiles::row_step); }
  /// Features [count, columns_]; the contents after the channels are undefined.
  mixed_scale::Rows<A> operand(const T* from, Index count) const {
    if constexpr (std::is_same_v<A, T>)
      if (from + (count - 1) * s_.width + columns_ <= block_ + elements_) return {from, s_.width};
    for (Index i = 0; i < count; ++i)
      for (Index c = 0; c < s_.channels; ++c) rows_.data()[i * columns_ + c] = static_cast<A>(from[i * s_.width + c]);
    return {rows_.data(), columns_};
  }

  const T* block_;
  Index elements_;
  const OutputGradients<A>& own_;
  const MixedScaleShape s_;
  const mixed_scale::Code<A> code_ = mixed_scale::code<A>();
  Index columns_, taken_ = 0;  // stretches in short_
  mixed_scale::Room<A> taps_, short_, rows_;
};

template <class T>
void filter_gradient(const View& dw, const View& dbias, const View& block, const View& gradient,
                     const MixedScaleShape& s, bool accumulate) {
  using A = Accumulator<T>;
  constexpr auto op = kernel::MixedScaleBackwardWeight::name;
  Widened read(s.begin, s.size, s);  // positions whose features the box reads
  for (std::size_t d = 0; d < 3; ++d) {
    const Index end = std::min(s.extent[d], read.begin[d] + read.size[d]);
    read.begin[d] = std::max<Index>(0, read.begin[d]);
    read.size[d] = end - read.begin[d];
  }
  const Widened seen(read.begin, read.size, s);
  const OutputGradients<A> own(gradient.as<const A>(), s, seen.begin, seen.size, s.begin, s.size);
  // Parts by the shape alone, added in order: the bits do not depend on the number of threads.
  const Index rows = s.n * read.size[0] * read.size[1], count = s.outputs * (s.taps() * s.channels + 1);
  const Index parts =
      std::clamp<Index>(std::min(rows * read.size[2] / 4096, (Index{1} << 20) / count), 1, std::min<Index>(64, rows));
  const mixed_scale::Room<double> sums(parts * count, 0.0);
  parallel_for(parts, rows / parts * read.size[2] * count, [&](Index from, Index to) {
    FilterSums<T> work(block, own, s);
    for (Index part = from; part < to; ++part) {
      double* const sum = sums.data() + part * count;
      for (Index i = rows * part / parts; i < rows * (part + 1) / parts; ++i)
        work.add(sum, i / (read.size[0] * read.size[1]), read.begin[0] + i / read.size[1] % read.size[0],
                 read.begin[1] + i % read.size[1], read.begin[2], read.begin[2] + read.size[2]);
      work.flush(sum);
    }
  });
  for (Index part = 1; part < parts; ++part)
    for (Index i = 0; i < count; ++i) sums.data()[i] += sums.data()[part * count + i];
  store(dw, sums.data(), accumulate, op);
  if (dbias) store(dbias, sums.data() + count - s.outputs, accumulate, op);
}

void mixed_scale_backward_weight(View dw, View dbias, View block, View gradient, const MixedScaleOptions& options,
                                 bool accumulate) {
  constexpr auto op = kernel::MixedScaleBackwardWeight::name;
  const MixedScaleShape s = mixed_scale_shape(block, options, op);
  check_mixed_scale_weights(s, block, dw, dbias, op);
  check_mixed_scale_gradient(block, gradient, op);
  if (s.n * s.box_cells() == 0) {
    const std::vector<double> none(static_cast<std::size_t>(dw.numel()));
    if (!accumulate) store(dw, none.data(), false, op);
    if (!accumulate && dbias) store(dbias, none.data(), false, op);
    return;
  }
  dispatch_float(block.dtype, op, [&]<class T>(T) { filter_gradient<T>(dw, dbias, block, gradient, s, accumulate); });
}

const Kernel<kernel::MixedScaleBackwardRelu> backward_relu_cpu{DeviceKind::cpu, backward_relu};
const Kernel<kernel::MixedScaleBackwardInput> mixed_scale_backward_input_cpu{DeviceKind::cpu,
                                                                             mixed_scale_backward_input};
const Kernel<kernel::MixedScaleBackwardWeight> mixed_scale_backward_weight_cpu{DeviceKind::cpu,
                                                                               mixed_scale_backward_weight};

}  // namespace
}  // namespace trireme
