// Recorded moves of tensors between ranks: other placements, sums, halos. Each is a collective call of the ranks
// concerned, and so is its backward. Their gradients follow the placements of Narayanan et al. (arXiv 2104.04473) and
// Korthikanti et al. (arXiv 2205.05198).
#pragma once
#include <span>
#include <vector>

#include "framework/ops/windows.h"
#include "framework/tensor/memory_tracker.h"
#include "framework/tensor/shard_spec.h"

namespace trireme {

/// The boxes that a rank sends and receives so that rank r, which has boxes have[r], gets boxes want[r]. Boxes that
/// stay on the rank are left out. Every element of a wanted box must be in exactly one box of `have`.
struct Route {
  /// A box that one rank sends to another.
  struct Piece {
    int peer;  ///< position of the other rank in the line
    Box box;   ///< of the whole
  };
  std::vector<Piece> sends,       ///< to other ranks, in the order of sending
      recvs;                      ///< from other ranks, in the order of sending
  std::vector<std::size_t> from,  ///< of each of `sends`: index of this rank's box that has it
      to;                         ///< of each of `recvs`: index of this rank's box that wants it
};
/// The pieces that rank `me` sends and receives. have, want: for each rank of the line, the disjoint boxes that it has
/// and that it needs, in coordinates of the whole tensor.
Route route(std::span<const std::vector<Box>> have, std::span<const std::vector<Box>> want, int me);
/// As above, for one box on each rank.
Route route(std::span<const Box> have, std::span<const Box> want, int me);

/// Names of the moves between ranks: the NamedRange in which their messages are sent.
inline constexpr const char *move_gather = "gather",  ///< parts become copies
    *move_exchange = "exchange",                      ///< parts become other parts
        *move_scatter = "scatter",                    ///< each rank gets its part of a sum (reduce-scatter)
            *move_halo = "halo";                      ///< edges of parts, and their gradients

/// An exchange of boxes between the ranks of a line. The constructor starts all sends and receives.
class Exchange {
 public:
  /// x is this rank's block, at `origin` of the whole; the route's peers are positions in the line.
  Exchange(const RankMesh&, const RankMesh::Line&, const Route&, const Tensor& x, const Shape& origin,
           MemoryKind = MemoryKind::packed, const char* move = move_halo);
  /// sends: the values of the route's sends, one tensor per box.
  Exchange(const RankMesh&, const RankMesh::Line&, const Route&, const std::vector<Tensor>& sends, DType, Device,
           MemoryKind = MemoryKind::packed, const char* move = move_halo);
  /// A box that was received.
  struct Received {
    Box box;        ///< of the whole
    Tensor values;  ///< its elements
  };
  /// Waits for all messages and returns the received boxes.
  const std::vector<Received>& wait();

 private:
  std::vector<Received> received_;
  std::vector<RankMesh::Wait> waits_;
};

/// A copy of the box, which has coordinates of the whole, from a block that begins at `origin` of the whole.
Tensor cut(const Tensor& from, const Shape& origin, const Box&);
/// to = from (or to += from, with add) in `box`; each block begins at its origin of the whole.
void copy_box(const Tensor& to, const Shape& to_origin, const Tensor& from, const Shape& from_origin, const Box& box,
              bool add = false);

/// The block without its ShardSpec; undefined stays undefined.
inline Tensor plain(const Tensor& t) { return t ? t.with_shard_spec({}) : t; }

/// x with other placements. Where the result is a copy, all ranks use it for the same work: the gradient arrives as a
/// copy, and each rank takes its own part of it.
Tensor relayout(const Tensor& x, const ShardSpec& to);
/// The whole of x, as a plain tensor: relayout() to copies.
Tensor gathered(const Tensor& x);
/// x, a copy that each rank along `axes` uses for different work: backward sums the gradients (Megatron-LM's f,
/// arXiv 1909.08053, section 3). While the sum travels, the gradient of a weight is computed.
Tensor replicated(const Tensor& x, const ShardSpec::Mesh&, AxisMask axes);
/// The sum of x over the ranks along `axes`, in place: x must have no other reader. Backward is the identity
/// (Megatron-LM's g).
Tensor summed(const Tensor& x, const RankMesh&, AxisMask axes);

/// The sum of x, this rank's block of `have`, over the axes along which only `to` divides it: each rank gets its part.
/// Backward gathers the parts. Neither may have Shares.
Tensor scattered(const Tensor& x, const ShardSpec& have, const ShardSpec& to);
/// relayout() of x as a plain tensor that each rank along `axes` uses for different work, as after replicated(). If it
/// gathers along these axes, backward scatters the sum of the gradients, on a device also during the gradient of a
/// weight. Ops that read one tensor gather it once.
Tensor collected(const Tensor& x, const ShardSpec& to, AxisMask axes);

/// What each rank of a line has of a window layer's input, and what its box of the output reads. transposed: of the
/// convolution that transposes these windows.
struct Halo {
  ShardSpec::Mesh mesh;   ///< the ranks
  RankMesh::Line line;    ///< along the axes that divide the input's spatial dimensions
  std::vector<Box> have,  ///< by rank of the line: its part of the input
      want;               ///< by rank of the line: the box that its part of the output reads
  /// has: placement of the input; out: placement of the output.
  Halo(const ShardSpec& has, const ShardSpec& out, const std::vector<Window>&, bool transposed = false);
};
/// The mesh axes that divide x's spatial dimensions, all but the first and the last.
AxisMask spatial_axes(const ShardSpec& x);
/// Halo exchange: turns x, this rank's block, into the box halo.want of this rank, as a plain tensor. Several ranks may
/// want the same cells; backward sums their gradients.
Tensor halo_exchange(const Tensor& x, const Halo& halo);
/// conv() of x, this rank's block of `has`, for its block of `out`; w and bias are plain. The outputs that need no halo
/// are computed while the halo is sent.
Tensor halo_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions&, const ShardSpec& has,
                 const ShardSpec& out);

}  // namespace trireme
