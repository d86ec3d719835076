// BlockDrawing: random graphs of ops and layers, the blocks of random models. Each op is tried on four rows, and on two
// of them alone: what does not fit, or mixes rows, is left out.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/layers/layers.h"
#include "tests/parallel/sweep/sweep.h"
#include "tests/parallel/training.h"

namespace trireme::test {

constexpr Index words = 11, ids_per_row = 6, rows_tried = 4;
using Pool = std::vector<Tensor>;

/// A tensor of a layer of the caller's own.
struct Own {
  std::string name;
  Tensor tensor;
  Init init;
  StateKind kind = StateKind::weight;
  void visit(const StateVisitor& v) { v(name, tensor, kind, init); }
};

/// The fused end of a block of convolutions, as a layer.
struct Tail {
  Tensor bias;
  Init init;
  std::uint64_t key = 0;
  Tensor operator()(const Tensor& x) const {
    return bias_relu_pool_dropout(x, bias, {.window = {2, 2, 2}, .stride = {2, 2, 2}}, 0.25, key);
  }
  void visit(const StateVisitor& v) {
    v("bias", bias, StateKind::no_decay, init);
    v.random(key);
  }
};

/// A graph: values are its input, then the result of each node; the last one leaves it.
struct Block {
  using Node = std::function<Tensor(const Block&, const Pool&)>;
  std::vector<Module> layers;
  std::vector<Own> own;
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, std::size_t>> beside;  ///< values that leave it as fields of the last one
  Tensor operator()(const Tensor& x) const {
    Pool pool{x};
    for (const Node& node : nodes) pool.push_back(node(*this, pool));
    Tensor y = pool.back();
    for (const auto& [name, value] : beside) y = y.with(name, pool[value]);
    return y;
  }
  void visit(const StateVisitor& v) {
    for (std::size_t i = 0; i < layers.size(); ++i) v("l" + std::to_string(i), layers[i]);
    for (std::size_t i = 0; i < own.size(); ++i) v("w" + std::to_string(i), own[i]);
  }
};

inline Index per_row(const Tensor& t) { return t.numel() / t.dim(0); }
inline Shape with_rows(const Tensor& x, Shape rest) {
  Shape all{x.dim(0)};
  for (Index extent : rest) all.push_back(extent);
  return all;
}
inline Shape rest_of(const Tensor& t) {
  Shape rest;
  for (int axis = 1; axis < t.rank(); ++axis) rest.push_back(t.dim(axis));
  return rest;
}
/// [N, C] as [N, 1, ..., C] with so many axes between.
inline Tensor spread(const Tensor& t, int between) {
  Shape shape{t.dim(0)};
  for (int a = 0; a < between; ++a) shape.push_back(1);
  shape.push_back(t.dim(1));
  return t.reshape(shape);
}
inline Tensor flat(const Tensor& t) { return t.rank() == 1 ? t.reshape({-1, 1}) : t.rank() == 2 ? t : flatten(t); }

/// What the graphs of a model have in common.
struct Draws {
  RandomChoice dice;
  bool integers = false;
  std::string text = {};
  bool batch_norm = false;
  std::vector<std::string> cases = {};
};

class BlockDrawing {
 public:
  explicit BlockDrawing(Draws& draws, int depth = 0) : draws_(draws), dice_(draws.dice), depth_(depth) {}

  /// So many nodes behind x, four rows of samples. outputs > 0: the result is [N, outputs].
  Block draw(const Tensor& x, Index nodes, Index outputs = 0);

  /// A layer f64 from the start, and of integers where all is.
  template <class L>
  static Module layer(const Draws& draws, L l) {
    Module m = convert(Module(std::move(l)), DType::f64);
    return draws.integers ? with_integers(m) : m;
  }

 private:
  template <class L>
  Module layer(L l) {
    return layer(draws_, std::move(l));
  }

  /// A node, unless it does not fit its operands or is no function of single rows. reads: the values that it takes.
  bool add(const std::string& what, const std::vector<std::size_t>& reads, const Block::Node& run, bool head = false);
  std::size_t keep(Module m);
  std::size_t own(const Shape& shape, const char* name = "weight", double std = 0.4, double mean = 0,
                  StateKind kind = StateKind::weight);
  /// A layer on value i.
  bool on(const std::string& what, std::size_t i, Module m);
  /// Mostly the newest value.
  std::size_t any();
  /// Another value of this shape; i itself where there is none.
  std::size_t like(std::size_t i);
  void node();
  bool one(std::size_t i, const Tensor& v);
  bool unary(std::size_t i);
  /// A value of channels only on one of more axes: squeeze and excitation, a time embedding.
  bool gated(std::size_t i);
  /// By weights of a layer of its own: one number, one for each channel, or one for each place.
  bool scaled(std::size_t i);
  /// A linear layer, now and then one that has been called before; a layer of the caller's own.
  bool dense(std::size_t i);
  bool convolution(std::size_t i, int axes, Index channels);
  bool resampled(std::size_t i, int axes, Index channels);
  bool pooled(std::size_t i, int axes);
  bool normed(std::size_t i, Index channels);
  /// Softmax and sums along an axis, which keep the shape.
  bool along(std::size_t i);
  bool reduced(std::size_t i);
  /// The same elements, or some, in another place.
  bool moved(std::size_t i);
  /// By ids that come with the batch, or by their size.
  bool chosen(std::size_t i);
  bool attended(std::size_t i, Index channels);
  /// What comes with the batch beside x.
  bool field(std::size_t i);
  /// Under a mask that comes with the batch, or that the value itself gives.
  bool masked(std::size_t i);
  /// Ops that join several layers.
  bool together(std::size_t i, int axes, Index channels);
  /// A convolution called twice, with a norm between: weights shared within a graph.
  bool twice(std::size_t i, Index channels);
  /// A graph within a graph, now and then one that is computed again in backward.
  bool nested(std::size_t i);
  /// A row of the table of ops, its operands made of a value and of weights.
  bool of_table(std::size_t i);
  /// The last node: all values that nothing has read, in one; or in [N, outputs].
  void join(Index outputs);

  Draws& draws_;
  RandomChoice& dice_;
  int depth_;  // graphs around this one
  Block block_;
  Pool pool_, part_;        // values of four rows, and of two of them
  std::vector<bool> used_;  // whether a node has read the value
};

}  // namespace trireme::test
