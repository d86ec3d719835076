// Ops on tensors that ranks divide. The rule of an op says which dimensions of its operands and result are the same
// index, a factor. place() decides, from global shapes alone, which factor each mesh axis divides. It gives the
// operands these placements, and the op runs on this rank's blocks. An op without a rule refuses divided operands
// (framework/autograd/tape.h).
//
// The notation is that of factor rules (OpenXLA Shardy, GSPMD: Xu et al., arXiv 2105.04663); compare einops.
#pragma once
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/ops/moves.h"

namespace trireme::ops {

/// The rule of an op. dims lists the factors of each dimension: operands separated by commas, an arrow, the result:
/// "n.. k, o k, o -> n.. o" is linear(). A factor is a letter, with ".." any number of dimensions (the first operand
/// with this factor decides how many), in brackets a dimension of several factors, the outer one first: "(g i)".
struct OpRule {
  const char* op;                 ///< name, for messages
  std::string_view dims;          ///< operands and result
  std::string_view sums = "";     ///< factors that the result lacks and may be divided: results are then added
  std::string_view whole = "";    ///< factors that stay whole
  std::string_view windows = "";  ///< spatial factors: a rank's outputs may read cells of its neighbours
  int late = 99;   ///< first operand that is used after such a sum (a bias); place() does not move it then. 99: none
  int stays = 99;  ///< first operand that is never moved (a buffer that is written): it decides where it is. 99: none
};

/// Dimensions and factors of a call, for ops whose rule depends on their arguments (reshape, concat).
struct Factors {
  /// One factor: a dimension, or a part of one, that ranks may divide.
  struct Factor {
    Index extent = 1;    ///< of the whole tensor
    bool whole = false,  ///< stays whole
        sums = false,    ///< may be divided although the result lacks it
        window = false;  ///< spatial
  };
  using Dim = std::vector<int>;           ///< factors of a dimension, the outer one first; empty: extent 1
  std::vector<Factor> factors = {};       ///< their numbers are used below
  std::vector<std::vector<Dim>> in = {};  ///< of each operand, dimension by dimension
  std::vector<Dim> out = {};              ///< of the result
  Shape result = {};                      ///< global shape of the result
  int late = 99;                          ///< as OpRule::late
  int stays = 99;                         ///< as OpRule::stays
  std::vector<Shares> shares = {};        ///< of each factor, instead of those of the operands; empty: none
};

/// Operands where an op needs them, and how its result lies.
class Placed {
 public:
  /// For place(), which makes one.
  Placed(std::vector<Tensor> blocks, std::vector<ShardSpec::Ptr> specs, ShardSpec::Ptr out, AxisMask sum)
      : blocks_(std::move(blocks)), specs_(std::move(specs)), out_(std::move(out)), sum_(sum) {}
  /// An operand as a plain tensor: this rank's block. Undefined stays undefined.
  const Tensor& operator[](std::size_t i) const { return blocks_[i]; }
  const ShardSpec& spec(std::size_t i) const { return *specs_[i]; }  ///< how an operand lies now
  const ShardSpec& out() const { return *out_; }                     ///< how the result lies
  AxisMask sum() const { return sum_; }                              ///< axes over which results are to be added
  /// The result: y, this rank's block, is added over sum(), and gets its ShardSpec. Along whole dimensions it may have
  /// any extent.
  Tensor put(Tensor y) const;

 private:
  std::vector<Tensor> blocks_;
  std::vector<ShardSpec::Ptr> specs_;
  ShardSpec::Ptr out_;
  AxisMask sum_;
};

/// Whether an op on these tensors needs place(): ranks divide one of them, or sum the gradient of one.
inline bool is_divided(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (t->shard_spec()) return true;
  return false;
}

/// Sees every place() of its thread while it lives: for dry runs that find out how weights are used. Watches cannot be
/// nested.
class PlaceWatch {
 public:
  PlaceWatch();
  PlaceWatch(const PlaceWatch&) = delete;
  PlaceWatch& operator=(const PlaceWatch&) = delete;
  virtual ~PlaceWatch();
  /// Before the decision. Operands may be given other ShardSpecs here.
  virtual void decide(const Factors&, const std::vector<Tensor>& operands) = 0;
  /// A weight is used. axes: along these, ranks do different work with it.
  virtual void used(const Tensor& weight, AxisMask axes) = 0;
  /// Ranks gather an operand along some axis, other than tokens along RankMesh::sequence(). elements: of the whole.
  virtual void gathers(Index elements) = 0;
};

/// Tells a PlaceWatch of this thread of an op that places its operands itself.
void decides(const Factors&, const std::vector<Tensor>& operands);
/// Moves the operands to where the op can work on them. A mesh axis divides the factor that a divided weight has along
/// it, else that of the largest operand it divides; the other operands follow. Collective. Throws Error if the extents
/// do not fit.
Placed place(const char* op, const Factors&, const std::vector<Tensor>& operands);
/// As above. result: the global shape of the result, if the factors do not give it (windows). sizes: extents of factors
/// that stand in brackets.
Placed place(const OpRule&, const std::vector<Tensor>& operands, const Shape& result = {},
             std::initializer_list<std::pair<char, Index>> sizes = {});
/// The factors of a rule for these operands.
Factors factors_of(const OpRule&, const std::vector<Tensor>& operands, const Shape& result = {},
                   std::initializer_list<std::pair<char, Index>> sizes = {});
/// The factors of an elementwise op whose operands broadcast. Throws Error naming op if they do not.
Factors elementwise(const char* op, const std::vector<Tensor>& operands);

/// The factors of an op whose operands and result have the same dimensions, each a factor of its own. whole: dimensions
/// that stay whole; there the extents may differ. The result has the first operand's extents.
Factors same_dims(const std::vector<Tensor>& operands, const std::vector<int>& whole);

/// f(blocks...) for an op that needs nothing but its blocks.
template <class F>
Tensor on_blocks(const OpRule& rule, const Tensor& x, F&& f) {
  const Placed p = place(rule, {x});
  return p.put(f(p[0]));
}
/// As above, for two operands.
template <class F>
Tensor on_blocks(const OpRule& rule, const Tensor& a, const Tensor& b, F&& f) {
  const Placed p = place(rule, {a, b});
  return p.put(f(p[0], p[1]));
}

/// A weight for an op whose ranks along `axes` compute different parts: a plain tensor with other placements. Its
/// gradient is this rank's share of the sum that the plan computes, and complete along all other axes.
Tensor placed_weight(const Tensor& w, const ShardSpec& to, AxisMask axes);

}  // namespace trireme::ops
