// Convolutions of 1 x 1 filters without padding in f32 with AVX2 or AVX-512: products of the rows of x and the filter.
// A row of y is read and written once, with bias, residual and ReLU. While a block of sums is in registers, the rows
// that come next are fetched into the second cache, so that products do not wait for memory. Sums run over the channels
// in order, so that bits do not depend on blocks or threads.
#include <array>
#include <utility>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/conv/conv_dnnl.h"
#include "kernels/cpu/conv/conv_impl.h"

namespace trireme {
namespace {

struct RowsJob {
  float* y;
  const float *x, *filter, *bias, *residual;
  Index c_in, c_out;
  bool relu;
};
/// Where a block of sums lies, and what is fetched meanwhile.
struct RowsBlock {
  Index row, column;
  const float* next_y;      ///< the corner of the next block
  const std::byte* next_x;  ///< read by a later block
  Index next_bytes;         ///< of next_x, for each channel
};

/// Channels of y that a block has: two vectors.
template <class L>
constexpr Index rows_panel = 2 * L::lanes;
/// Rows of a block: 28 sums in 32 registers, or 12 in 16.
template <class L>
constexpr int rows_tall = L::registers == 32 ? 14 : 6;

template <class L, int R>
void multiply_rows(const RowsJob& job, const RowsBlock& block) {
  L::run([=] {
    using Vector = typename L::Vector;
    constexpr Index panel = rows_panel<L>, ahead = 8;
    constexpr int line = 64 / sizeof(float);
    const float* const x = job.x + block.row * job.c_in;
    const float* filter = job.filter + block.column * job.c_in;
    const Index corner = block.row * job.c_out + block.column;
    for (int r = 0; r < R; ++r)
      for (Index i = 0; i < panel; i += line) __builtin_prefetch(block.next_y + r * job.c_out + i, 1, 2);
    Vector sum[R][2] = {};
    for (Index k = 0; k < job.c_in; ++k, filter += panel) {
      for (Index i = 0; i < panel; i += line) __builtin_prefetch(filter + ahead * panel + i);
      __builtin_prefetch(block.next_x + k * block.next_bytes, 0, 2);
      const Vector left = L::at(filter), right = L::at(filter + L::lanes);
#pragma GCC unroll 14
      for (int r = 0; r < R; ++r) {
        const float factor = x[r * job.c_in + k];
        sum[r][0] += left * factor;
        sum[r][1] += right * factor;
      }
    }
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const Index at = corner + r * job.c_out + half * L::lanes;
        Vector v = sum[r][half];
        if (job.bias) v += L::at(job.bias + block.column + half * L::lanes);
        if (job.residual) v += L::at(job.residual + at);
        if (job.relu) v = v <= 0.f ? Vector{} : v;  // NaN stays
        L::at(job.y + at) = v;
      }
  });
}
/// By number of rows, less one.
template <class L>
constexpr auto multiply_rows_of = []<int... R>(std::integer_sequence<int, R...>) {
  return std::array{multiply_rows<L, R + 1>...};
}
(std::make_integer_sequence<int, rows_tall<L>>{});

/// Rows [begin, end) of y. Each panel of the filter serves some strips of rows, which stay in the second cache.
template <class L>
void run_rows(const RowsJob& job, Index begin, Index end) {
  constexpr Index most = (L::registers == 32 ? 8 : 16) * rows_tall<L>, panel = rows_panel<L>;
  const Index groups = (end - begin + most - 1) / most, together = (end - begin + groups - 1) / groups;
  const Index bytes = (rows_tall<L> * panel * Index{sizeof(float)} + job.c_out - 1) / job.c_out;
  const float* const read = job.residual ? job.residual : job.y;
  for (; begin < end; begin += together) {
    const Index rows = std::min(together, end - begin), strips = (rows + rows_tall<L> - 1) / rows_tall<L>;
    for (Index column = 0; column < job.c_out; column += panel)
      for (Index strip = 0; strip < strips; ++strip) {
        const Index first = begin + rows * strip / strips, after = begin + rows * (strip + 1) / strips;
        const bool down = strip + 1 < strips, right = column + panel < job.c_out;
        const Index next_row = down ? after : right || after == end ? begin : after;
        const Index next_column = down ? column : right ? column + panel : 0;
        const float* later = job.x + std::min(first + rows, end - 1) * job.c_in;
        multiply_rows_of<L>[static_cast<std::size_t>(after - first - 1)](
            job, {.row = first,
                  .column = column,
                  .next_y = read + next_row * job.c_out + next_column,
                  .next_x = reinterpret_cast<const std::byte*>(later) + column / panel * job.c_in * bytes,
                  .next_bytes = bytes});
      }
  }
}

/// The filter in panels [c_in, panel], from w [c_out, c_in], or w [c_in, c_out] if `turned`.
template <class L>
void pack_filter(float* to, const float* w, Index c_in, Index c_out, bool turned) {
  constexpr Index panel = rows_panel<L>;
  parallel_for(c_out / panel, c_in * panel, [=](Index begin, Index end) {
    for (Index p = begin; p < end; ++p) {
      float* const block = to + p * panel * c_in;
      if (!turned)
        tiles::transpose<tiles::Plain<float, L::lanes * 4>>(block, panel, w + p * panel * c_in, c_in, panel, c_in);
      else
        for (Index k = 0; k < c_in; ++k) std::copy_n(w + k * c_out + p * panel, panel, block + k * panel);
    }
  });
}

}  // namespace

bool conv_pointwise(const View& y, const View& x, const View& w, const View& bias, const View& residual,
                    const ConvShape& s, bool turned) {
  // With more channels, strips of x do not stay in the first cache. With few rows, packing costs too much. With a
  // stride and fewer channels or AVX2, oneDNN is as fast.
  constexpr Index least_channels = 32, most_channels = 512, least_rows = 512;
  const Index rows = s.n * s.out_cells();
  const auto is_f32 = [](const View& v) { return !v || v.dtype == DType::f32; };
  if (vector_level() < VectorLevel::v3 || !is_f32(y) || !is_f32(x) || !is_f32(w) || !is_f32(bias) ||
      s.filter_cells() != 1 || (s.in != s.out && (s.c_in < most_channels || vector_level() < VectorLevel::v4)) ||
      s.options.groups != 1 || s.c_in % 16 != 0 || s.c_out % 32 != 0 || s.c_in < least_channels ||
      s.c_in > most_channels || rows < least_rows)
    return false;
  for (std::size_t d = 0; d < 3; ++d)
    if (s.options.pad_begin[d] != 0 || s.options.pad_end[d] != 0) return false;
  onednn::Scratch dense(s.in == s.out ? 0 : static_cast<std::size_t>(rows * s.c_in) * sizeof(float));
  if (dense.data() != nullptr) onednn::make_columns(dense.as<std::byte>(), x, s);
  FilterCache* const filters = turned ? nullptr : s.options.filters;
  onednn::Scratch now(filters != nullptr ? 0 : static_cast<std::size_t>(w.bytes()));
  with_vectors([&]<class L>(L) {
    const auto pack = [&](void* to) {
      pack_filter<L>(static_cast<float*>(to), w.as<const float>(), s.c_in, s.c_out, turned);
    };
    const void* filter = now.data();
    if (filters != nullptr)
      filter = filters->get(w.data, 0, static_cast<std::size_t>(w.bytes()), pack);
    else
      pack(now.data());
    const RowsJob job{.y = y.as<float>(),
                      .x = dense.data() != nullptr ? dense.as<float>() : x.as<const float>(),
                      .filter = static_cast<const float*>(filter),
                      .bias = bias ? bias.as<const float>() : nullptr,
                      .residual = residual ? residual.as<const float>() : nullptr,
                      .c_in = s.c_in,
                      .c_out = s.c_out,
                      .relu = s.options.relu && !turned};
    parallel_for(rows, s.c_in * s.c_out, [&](Index begin, Index end) { run_rows<L>(job, begin, end); });
  });
  return true;
}

}  // namespace trireme
