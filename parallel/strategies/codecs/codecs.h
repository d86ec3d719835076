// The codecs of compress(), and the options that each takes by name.
#pragma once
#include <vector>

#include "parallel/plan/codec.h"

namespace trireme {

/// An option of a codec: a number, passed as an argument of the actions that it encodes.
struct CodecParameter {
  std::string_view name;
  double value;  ///< default
  double least = 0, most = 1e15;
  double multiple = 0;   ///< the value must be a multiple of this; 0: any
  bool is_flag = false;  ///< true (1) or false (0)
};
struct CodecRow {
  const Codec* codec;
  std::vector<CodecParameter> parameters;
};
/// All codecs of the library. A new codec gets a row in codecs.cpp.
const std::vector<CodecRow>& codecs();

namespace codec_rows {
/// Rounds to bf16 or f16 and sums in that type. The rounding error is added to the next step's gradients.
extern const Codec bf16, f16;
/// Sends the `ratio` largest numbers of a slice, chosen by each rank, with their positions (Aji and Heafield, arXiv
/// 1704.05021). The rest is added to the next step's gradients.
extern const Codec topk;
/// topk with momentum correction, momentum factor masking and warm-up (Lin et al., Deep Gradient Compression, arXiv
/// 1712.01887), for an optimizer without momentum: u = m u + g; v = v + u; the largest of v are sent, and u and v are
/// set to 0 there. Both are kept for each slice that is reduced.
/// - warmup: number of steps over which the ratio falls from 1/4 over 1/16 and 1/64 to 1/256 (in the paper: epochs).
/// - clip: a rank's gradient of a slice is clipped to this L2 norm divided by the square root of the number of ranks
///   (the paper's local gradient clipping; its threshold is for the sum); 0: no clipping.
/// The selection of the largest is exact.
extern const Codec dgc;
/// Sends the `ratio` of a slice's numbers at random positions, equal on all ranks, so that they are summed without
/// positions (Stich et al., Sparsified SGD with Memory, arXiv 1809.07599). The rest is added to the next step's
/// gradients.
extern const Codec randomk;
/// Sends the `ratio` of a slice's chunks of `chunk` numbers with the largest L1 norms, summed over ranks, so that they
/// are summed without positions (Sun et al., coarse-grained sparse communication, arXiv 1902.06855). The rest is added
/// to the next step's gradients.
extern const Codec chunks;
/// Rounds each number stochastically to one of `levels` levels of the L2 norm of its `block` numbers, with sign;
/// unbiased (Alistarh et al., QSGD, arXiv 1610.02132). Uses codes of fixed length (2, 4 or 8 bits) instead of the
/// paper's Elias codes.
extern const Codec qsgd;
/// Sends the sign of each number, and for each `block` the means of its positive and of its other numbers. The error is
/// added to the next step's gradients (Seide et al., 1-bit stochastic gradient descent, Interspeech 2014, whose blocks
/// are columns).
extern const Codec onebit;
/// Approximates each matrix M [rows, columns] (a filter with its first axis as rows) by P Q' with `rank` columns: one
/// step of subspace iteration from the previous step's Q (warm_start), with error feedback M - P Q' on each rank.
/// Tensors of one axis, and rows that a bucket cuts, are sent uncompressed (Vogels et al., PowerSGD, arXiv 1905.13727).
/// The state "factors" stores Q at the position of its matrix.
extern const Codec powersgd;
}  // namespace codec_rows

}  // namespace trireme
