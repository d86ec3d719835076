// The codecs that compress() knows, with the numbers that each of them takes by name.
#pragma once
#include <vector>

#include "parallel/plan/codec.h"

namespace trireme {

/// A number that a codec takes: an argument of the actions that it encodes.
struct CodecParameter {
  std::string_view name;
  double value;  ///< unless it is given
  double least = 0, most = 1e15;
  double multiple = 0;   ///< it must be a multiple of this; 0: any number
  bool is_flag = false;  ///< true (1) or false (0)
};
struct CodecRow {
  const Codec* codec;
  std::vector<CodecParameter> parameters;
};
/// Every codec of the library. A new one adds its row in codecs.cpp.
const std::vector<CodecRow>& codecs();

namespace codec_rows {
/// Rounded to bf16 or f16, summed as such; what rounding loses is kept for the next step.
extern const Codec bf16, f16;
/// The `ratio` of a slice's numbers that are largest, by each rank its own, with their positions (Aji and Heafield,
/// arXiv 1704.05021). The rest is kept for the next step.
extern const Codec topk;
/// The same with momentum correction, momentum factor masking and warm-up (Lin et al., Deep Gradient Compression, arXiv
/// 1712.01887), for an optimizer without momentum: u = m u + g; v = v + u; the largest of v are sent, and u and v are 0
/// there. warmup: the first so many steps send 1/4, then 1/16, 1/64 and 1/256 of the numbers, as the paper's epochs do.
/// clip: what a rank adds of a slice has at most this L2 norm over the square root of the ranks (the paper's local
/// gradient clipping, its threshold being that of the sum; 0: any). The largest are exact. Both are of each slice that
/// is reduced.
extern const Codec dgc;
/// The `ratio` of a slice's numbers, drawn alike on all ranks in each step, so that they are summed without positions
/// (Stich et al., Sparsified SGD with Memory, arXiv 1809.07599). The rest is kept.
extern const Codec randomk;
/// The `ratio` of a slice's chunks of `chunk` numbers whose L1 norms, summed over ranks, are largest, so that they are
/// summed without positions (Sun et al., coarse-grained sparse communication, arXiv 1902.06855). The rest is kept.
extern const Codec chunks;
/// Stochastic rounding to one of `levels` levels of the L2 norm of each `block` numbers, with sign; unbiased (Alistarh
/// et al., QSGD, arXiv 1610.02132). In codes of a fixed length (2, 4 or 8 bits) instead of the paper's Elias codes.
extern const Codec qsgd;
/// The sign of each number; the positive ones of a `block` of numbers become their mean, the others theirs. What that
/// loses is kept (Seide et al., 1-bit stochastic gradient descent, Interspeech 2014, whose blocks are columns).
extern const Codec onebit;
/// Each matrix M [rows, columns] (a filter with its first axis as rows) as P Q' of so many columns (`rank`), by one
/// step of subspace iteration from the Q of the step before (warm_start), with error feedback: each rank keeps M - P Q'
/// by its own Q. Tensors of one axis, and what a bucket cuts off a row, go as they are (Vogels et al., PowerSGD, arXiv
/// 1905.13727). The state "factors" has Q, in the place of its matrix.
extern const Codec powersgd;
}  // namespace codec_rows

}  // namespace trireme
