// The codecs of compress(), and the options that each takes by name.
#pragma once
#include <vector>

#include "parallel/plan/codec.h"

namespace trireme {

/// An option of a codec: a number. compress() stores it in Action::arguments of the reductions that the codec encodes.
struct CodecParameter {
  std::string_view name;          ///< as in compress(): "ratio"
  double value;                   ///< default
  double least = 0, most = 1e15;  ///< range, both ends included
  double multiple = 0;            ///< the value must be a multiple of this; 0: any value
  bool is_flag = false;           ///< the value is 1 or 0, which texts write as true or false
};
/// A codec and its options.
struct CodecRow {
  const Codec* codec;                      ///< a constant
  std::vector<CodecParameter> parameters;  ///< in the order of texts
};
/// All codecs of the library. A new codec gets a row in codecs.cpp.
const std::vector<CodecRow>& codecs();

namespace codec_rows {
/// Rounds to bf16 or f16. A sum for all ranks is in that type, a sum to shards (zero) in the type of the gradients. The
/// rounding error is added to the next step's gradients.
extern const Codec bf16, f16;
/// Each rank sends the numbers of a slice that are largest in absolute value, a fraction `ratio` of them, with their
/// positions (Aji and Heafield, arXiv 1704.05021). The other numbers are added to the next step's gradients.
extern const Codec topk;
/// topk with momentum correction, momentum factor masking and warm-up (Lin et al., Deep Gradient Compression, arXiv
/// 1712.01887), for an optimizer without momentum: u = m u + g; v = v + u; the largest numbers of v are sent, and u and
/// v are set to 0 at their positions. u and v are states, one number per parameter each.
/// - warmup: number of steps over which the ratio falls from 1/4 over 1/16 and 1/64 to 1/256 (in the paper: epochs).
/// - clip: a rank's gradient of a slice is clipped to this L2 norm divided by the square root of the number of ranks
///   (the paper's local gradient clipping; its threshold is for the sum); 0: no clipping.
/// The selection of the largest is exact.
extern const Codec dgc;
/// Sends a fraction `ratio` of a slice's numbers, at random positions that are the same on all ranks, so that no
/// positions are sent (Stich et al., Sparsified SGD with Memory, arXiv 1809.07599). The other numbers are added to the
/// next step's gradients.
extern const Codec randomk;
/// Divides a slice into chunks of `chunk` numbers, and sends the fraction `ratio` of the chunks whose L1 norms, summed
/// over ranks, are largest. So ranks send the same chunks, without positions (Sun et al., coarse-grained sparse
/// communication, arXiv 1902.06855). The other numbers are added to the next step's gradients.
extern const Codec chunks;
/// Rounds each number to a multiple of n / `levels`, where n is the L2 norm of its block of `block` numbers. Rounding
/// is random and unbiased (Alistarh et al., QSGD, arXiv 1610.02132). A number has a code of 2, 4 or 8 bits, not the
/// paper's Elias code.
extern const Codec qsgd;
/// Sends the sign of each number, and two means for each block of `block` numbers: of its positive numbers, and of the
/// others. The error is added to the next step's gradients (Seide et al., 1-bit stochastic gradient descent,
/// Interspeech 2014, whose blocks are columns of matrices).
extern const Codec onebit;
/// PowerSGD (Vogels et al., arXiv 1905.13727): approximates each matrix M [rows, columns] by P Q', where P and Q have
/// `rank` columns. A filter is a matrix whose rows are its first axis. Each step makes one step of subspace iteration;
/// with warm_start it begins with the previous step's Q. The error M - P Q' of each rank is added to its next
/// gradients. Tensors of one axis, and rows that a bucket cuts, are sent uncompressed. The state "factors" stores Q in
/// the place of its matrix.
extern const Codec powersgd;
}  // namespace codec_rows

}  // namespace trireme
