// A model is blocks one behind the other, or one block; a block is a graph of ops and layers. Each op is tried on four
// rows, and on two of them alone: what does not fit, or mixes rows, is left out.
#include "tests/parallel/sweep/random_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/layers/recompute.h"
#include "framework/ops/mixed_scale.h"
#include "framework/tensor/create.h"
#include "tests/framework/cases.h"
#include "tests/parallel/training.h"
#include "tests/support/distance.h"

namespace trireme::test {
namespace {

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

Index per_row(const Tensor& t) { return t.numel() / t.dim(0); }
Shape with_rows(const Tensor& x, Shape rest) {
  Shape all{x.dim(0)};
  for (Index extent : rest) all.push_back(extent);
  return all;
}
Shape rest_of(const Tensor& t) {
  Shape rest;
  for (int axis = 1; axis < t.rank(); ++axis) rest.push_back(t.dim(axis));
  return rest;
}
/// [N, C] as [N, 1, ..., C] with so many axes between.
Tensor spread(const Tensor& t, int between) {
  Shape shape{t.dim(0)};
  for (int a = 0; a < between; ++a) shape.push_back(1);
  shape.push_back(t.dim(1));
  return t.reshape(shape);
}
Tensor flat(const Tensor& t) { return t.rank() == 1 ? t.reshape({-1, 1}) : t.rank() == 2 ? t : flatten(t); }

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
  Block draw(const Tensor& x, Index nodes, Index outputs = 0) {
    draws_.text += " {";
    const Tensor two = x.rows(1, 3).with("table", x.at("table"));  // which has rows of its own
    pool_ = {x};
    part_ = {two};
    used_ = {false};
    for (Index tries = 0; std::ssize(block_.nodes) < nodes && tries < 12 * nodes; ++tries) node();
    join(outputs);
    draws_.text += " }";
    return std::move(block_);
  }

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
  bool add(const std::string& what, const std::vector<std::size_t>& reads, const Block::Node& run, bool head = false) {
    const NoGrad off;
    Tensor y, two;
    try {
      const Inference evaluation;
      y = run(block_, pool_);
      two = run(block_, part_);
      if (!y || y.rank() < 2 || y.dim(0) != rows_tried || two.dim(0) != 2 || y.dtype() != DType::f64) return false;
      if (y.rank() > 5 || per_row(y) < 1 || per_row(y) > 400 || !(y.rows(1, 3).shape() == two.shape())) return false;
    } catch (const Error&) { return false; }
    const auto all = y.to_vector(), some = y.rows(1, 3).to_vector(), alone = two.to_vector();
    double most = 0;
    for (const double v : all) {
      if (!std::isfinite(v) || (draws_.integers && v * 256 != std::floor(v * 256))) return false;
      most = std::max(most, std::abs(v));
    }
    for (std::size_t i = 0; i < some.size(); ++i)
      if (!(std::abs(some[i] - alone[i]) <= 1e-9 * (1 + most))) return false;
    if (!head && most > (draws_.integers ? 1e5 : 1e3)) return false;
    if (!draws_.integers && most > 4) {  // keeps chains of products and exponentials in range
      const double down = 2 / most;
      block_.nodes.push_back([run, down](const Block& b, const Pool& p) { return scale(run(b, p), down); });
      const Inference evaluation;
      y = scale(y, down);
      two = scale(two, down);
    } else {
      block_.nodes.push_back(run);
    }
    draws_.text += fmt::format(" v{}={}(v{}):{}", pool_.size(), what, fmt::join(reads, ",v"), rest_of(y));
    for (const std::size_t i : reads) used_[i] = true;
    pool_.push_back(y);
    part_.push_back(two);
    used_.push_back(false);
    return true;
  }

  std::size_t keep(Module m) {
    block_.layers.push_back(std::move(m));
    return block_.layers.size() - 1;
  }
  std::size_t own(const Shape& shape, const char* name = "weight", double std = 0.4, double mean = 0,
                  StateKind kind = StateKind::weight) {
    const Init init = draws_.integers ? Init::constant(1) : Init::normal(std, mean);
    block_.own.push_back({name, init.make(shape).to(DType::f64).detach(), init, kind});
    return block_.own.size() - 1;
  }
  /// A layer on value i.
  bool on(const std::string& what, std::size_t i, Module m) {
    const std::size_t at = keep(std::move(m));
    return add(what, {i}, [=](const Block& b, const Pool& p) { return b.layers[at](p[i]); });
  }

  /// Mostly the newest value.
  std::size_t any() {
    return dice_.chance(55) ? pool_.size() - 1 : static_cast<std::size_t>(dice_.between(0, std::ssize(pool_) - 1));
  }
  /// Another value of this shape; i itself where there is none.
  std::size_t like(std::size_t i) {
    std::vector<std::size_t> fit;
    for (std::size_t j = 0; j < pool_.size(); ++j)
      if (pool_[j].shape() == pool_[i].shape() && j != i) fit.push_back(j);
    return fit.empty() ? i : dice_.of(fit);
  }

  void node() {
    const std::size_t layers = block_.layers.size(), owned = block_.own.size();
    const std::size_t i = any();
    const bool norm = draws_.batch_norm;
    const std::size_t named = draws_.cases.size();
    if (one(i, pool_[i])) return;
    draws_.batch_norm = norm;
    draws_.cases.resize(named);
    while (block_.layers.size() > layers) block_.layers.pop_back();
    while (block_.own.size() > owned) block_.own.pop_back();
  }

  bool one(std::size_t i, const Tensor& v) {
    const Index channels = v.dim(-1);
    const int axes = v.rank() - 2;  // spatial ones, of an image
    switch (dice_.between(0, 33)) {
      case 0:
      case 1: return unary(i);
      case 2: {
        const std::size_t j = like(i);
        const int kind = static_cast<int>(dice_.between(0, draws_.integers ? 4 : 5));
        return add(std::array{"+", "-", "*", "max", "min", "/"}[static_cast<std::size_t>(kind)], {i, j},
                   [=](const Block&, const Pool& p) {
                     switch (kind) {
                       case 0: return p[i] + p[j];
                       case 1: return p[i] - p[j];
                       case 2: return p[i] * p[j];
                       case 3: return maximum(p[i], p[j]);
                       case 4: return minimum(p[i], p[j]);
                       default: return p[i] / (square(p[j]) + 0.5);
                     }
                   });
      }
      case 3: return gated(i);
      case 4: return scaled(i);
      case 5:
      case 6: return dense(i);
      case 7:
      case 8: return axes >= 1 && axes <= 3 && convolution(i, axes, channels);
      case 9: return axes >= 1 && axes <= 3 && resampled(i, axes, channels);
      case 10:
      case 11: return axes >= 1 && axes <= 3 && pooled(i, axes);
      case 12:
      case 13: return !draws_.integers && normed(i, channels);
      case 14: {
        const double p = draws_.integers ? 0.5 : 0.3;
        const int kind = static_cast<int>(dice_.between(0, 2));
        return on(fmt::format("dropout{}", kind), i,
                  kind == 0   ? Module(Dropout(p))
                  : kind == 1 ? Module(Dropout2d(p))
                              : Module(DropPath(p)));
      }
      case 15: return along(i);
      case 16: return reduced(i);
      case 17: return moved(i);
      case 18: {
        const int axis = static_cast<int>(dice_.between(1, std::max(1, v.rank() - 1)));
        const std::size_t j = like(i);
        const bool stacked = dice_.chance(25);
        return add(fmt::format("{}[{}]", stacked ? "stack" : "concat", axis), {i, j}, [=](const Block&, const Pool& p) {
          return stacked ? stack({p[i], p[j]}, axis) : concat({p[i], p[j]}, axis);
        });
      }
      case 19: return chosen(i);
      case 20: return attended(i, channels);
      case 21: {
        if (v.rank() != 3) return false;
        const double by = draws_.integers ? 1 : 1 / std::sqrt(static_cast<double>(channels));
        const std::size_t j = like(i);
        return add("matmul_t", {i, j},
                   [=](const Block&, const Pool& p) { return scale(matmul(p[i], p[j], {.transpose_b = true}), by); });
      }
      case 22: return field(i);
      case 23:
      case 24:
      case 25: return !draws_.integers && of_table(i);
      case 26: return nested(i);
      case 27: return masked(i);
      case 28: return together(i, axes, channels);
      case 29: {
        const std::size_t at = keep(layer(Embedding(words, dice_.between(2, 5))));
        return add("embedding", {0}, [=](const Block& b, const Pool& p) { return b.layers[at](p[0].at("ids")); });
      }
      case 30: {
        const std::size_t at = keep(layer(Linear(channels, channels)));
        return add("residual", {i}, [=](const Block& b, const Pool& p) { return p[i] + relu(b.layers[at](p[i])); });
      }
      case 31: {
        if (draws_.integers) return false;
        const int kind = static_cast<int>(dice_.between(0, 2));
        if (kind == 0) return on("prelu", i, layer(PReLU(dice_.chance(50) ? channels : 1)));
        return add(kind == 1 ? "glu" : "swiglu", {i},
                   [=](const Block&, const Pool& p) { return kind == 1 ? glu(p[i]) : swiglu(p[i]); });
      }
      case 32: return add("detached", {i}, [=](const Block&, const Pool& p) { return p[i] + square(p[i].detach()); });
      default: return v.rank() == 4 && twice(i, channels);
    }
  }

  bool unary(std::size_t i) {
    using Op = Tensor (*)(const Tensor&);
    struct Named {
      const char* name;
      Op op;
    };
    static const std::vector<Named> exact = {{"relu", relu}, {"abs", abs}, {"neg", neg}};
    static const std::vector<Named> smooth = {
        {"tanh", tanh}, {"silu", silu}, {"gelu", gelu},           {"sigmoid", sigmoid},   {"softplus", softplus},
        {"relu", relu}, {"abs", abs},   {"hardswish", hardswish}, {"softsign", softsign}, {"mish", mish},
        {"sin", sin},   {"erf", erf},   {"gelu_tanh", gelu_tanh}, {"relu", relu}};
    const Named& f = dice_.of(draws_.integers ? exact : smooth);
    const Op op = f.op;
    if (dice_.chance(50)) return on(f.name, i, Module(op));
    return add(f.name, {i}, [=](const Block&, const Pool& p) { return op(p[i]); });
  }

  /// A value of channels only on one of more axes: squeeze and excitation, a time embedding.
  bool gated(std::size_t i) {
    const Tensor& v = pool_[i];
    std::vector<std::size_t> fit;
    for (std::size_t j = 0; j < pool_.size(); ++j)
      if (pool_[j].rank() == 2) fit.push_back(j);
    if (fit.empty() || v.rank() < 3) return false;
    const std::size_t j = dice_.of(fit), at = keep(layer(Linear(pool_[j].dim(1), v.dim(-1))));
    const bool times = dice_.chance(50);
    const int between = v.rank() - 2;
    return add(times ? "gate" : "bias", {i, j}, [=](const Block& b, const Pool& p) {
      const Tensor wide = spread(b.layers[at](p[j]), between);
      return times ? p[i] * wide : p[i] + wide;
    });
  }

  /// By weights of a layer of its own: one number, one for each channel, or one for each place.
  bool scaled(std::size_t i) {
    const Tensor& v = pool_[i];
    Shape shape = rest_of(v);
    const int kind = static_cast<int>(dice_.between(0, 3));
    if (kind == 0) shape = {1};
    if (kind == 1) shape = {v.dim(-1)};
    if (kind == 2 && shape.rank() > 1) shape[-1] = 1;
    const bool times = dice_.chance(50);
    const std::size_t at = own(shape, dice_.of({"weight", "map", "gain"}), 0.3, times ? 1 : 0,
                               dice_.chance(70) ? StateKind::weight : StateKind::no_decay);
    return add(fmt::format("{}w{}", times ? "*" : "+", shape), {i}, [=](const Block& b, const Pool& p) {
      return times ? p[i] * b.own[at].tensor : b.own[at].tensor + p[i];
    });
  }

  /// A linear layer, now and then one that has been called before; a layer of the caller's own.
  bool dense(std::size_t i) {
    const Index in = pool_[i].dim(-1), out = dice_.between(1, 7);
    if (dice_.chance(30))
      for (std::size_t l = 0; l < block_.layers.size(); ++l)
        if (const auto* same = block_.layers[l].as<Linear>(); same && same->weight.dim(1) == in)
          return add(fmt::format("same_l{}", l), {i}, [=](const Block& b, const Pool& p) { return b.layers[l](p[i]); });
    switch (dice_.between(0, 3)) {
      case 0: {
        const std::size_t at = own({out, in}, dice_.of({"weight", "kernel"})), bias = own({out}, "bias");
        return add(fmt::format("own_linear({},{})", in, out), {i},
                   [=](const Block& b, const Pool& p) { return linear(p[i], b.own[at].tensor, b.own[bias].tensor); });
      }
      case 1: {
        const std::size_t at = own({in, out}, dice_.of({"weight", "kernel"}));
        return add(fmt::format("own_matmul({},{})", in, out), {i},
                   [=](const Block& b, const Pool& p) { return matmul(p[i], b.own[at].tensor); });
      }
      case 2:
        return on(fmt::format("mlp({},{})", in, out), i,
                  layer(Sequential{Linear(in, out), relu, Linear(out, in, {.bias = false})}));
      default: return on(fmt::format("fc({},{})", in, out), i, layer(Linear(in, out, {.bias = dice_.chance(70)})));
    }
  }

  bool convolution(std::size_t i, int axes, Index channels) {
    const Index groups = channels % 2 == 0 && dice_.chance(30) ? 2 : dice_.chance(10) ? channels : 1;
    const Index out = groups * dice_.between(1, 3), k = dice_.of({1, 2, 3, 3, 5});
    const Index stride = dice_.chance(20) ? 2 : 1;
    const ConvLayerOptions o{.stride = stride,
                             .pad = dice_.chance(60) ? k / 2 : dice_.between(0, k / 2),
                             .dilation = dice_.chance(15) ? 2 : 1,
                             .groups = groups,
                             .bias = dice_.chance(60)};
    const std::string what = fmt::format("conv{}({},{},k{},s{},g{})", axes, channels, out, k, stride, groups);
    if (dice_.chance(25))
      for (std::size_t l = 0; l < block_.layers.size(); ++l)
        if (const auto* same = as_conv(block_.layers[l]);
            same && same->weight.rank() == axes + 2 && same->weight.dim(-1) * same->options.groups == channels)
          return add(fmt::format("same_l{}", l), {i}, [=](const Block& b, const Pool& p) { return b.layers[l](p[i]); });
    return on(what, i,
              axes == 1   ? layer(Conv1d(channels, out, k, o))
              : axes == 2 ? layer(Conv2d(channels, out, k, o))
                          : layer(Conv3d(channels, out, k, o)));
  }

  bool resampled(std::size_t i, int axes, Index channels) {
    if (draws_.integers || dice_.chance(50)) {
      const ConvTransposeLayerOptions o{.stride = dice_.of({1, 2, 2}), .pad = dice_.of({0, 0, 1})};
      const Index k = dice_.between(1, 3), out = dice_.between(1, 3);
      return on(fmt::format("conv_transpose{}({},{},k{})", axes, channels, out, k), i,
                axes == 1   ? layer(ConvTranspose1d(channels, out, k, o))
                : axes == 2 ? layer(ConvTranspose2d(channels, out, k, o))
                            : layer(ConvTranspose3d(channels, out, k, o)));
    }
    InterpolateOptions o{.mode = dice_.of({ResampleMode::nearest, ResampleMode::linear, ResampleMode::linear})};
    o.align_corners = o.mode == ResampleMode::linear && dice_.chance(30);
    if (dice_.chance(50))
      o.scale = dice_.of({0.5, 1.5, 2.0});
    else
      for (int a = 0; a < axes; ++a) o.size.push_back(dice_.between(1, 6));
    return add(fmt::format("interpolate({},{})", o.size, o.scale), {i},
               [=](const Block&, const Pool& p) { return interpolate(p[i], o); });
  }

  bool pooled(std::size_t i, int axes) {
    PoolOptions o;
    for (std::size_t a = 0; a < static_cast<std::size_t>(axes); ++a) {
      o.window[a] = dice_.between(1, 3);
      o.stride[a] = dice_.between(1, 2);
      if (draws_.integers) o.window[a] = o.stride[a] = dice_.of({1, 2, 2});
      if (!draws_.integers && dice_.chance(25)) o.pad_begin[a] = o.pad_end[a] = o.window[a] / 2;
    }
    o.ceil_mode = !draws_.integers && dice_.chance(20);
    Shape size;
    for (int a = 0; a < axes; ++a) size.push_back(dice_.between(1, 4));
    switch (dice_.between(0, draws_.integers ? 1 : 6)) {
      case 0: return add("max_pool", {i}, [=](const Block&, const Pool& p) { return max_pool(p[i], o); });
      case 1: return add("avg_pool", {i}, [=](const Block&, const Pool& p) { return avg_pool(p[i], o); });
      case 2: return add("global_max", {i}, [=](const Block&, const Pool& p) { return global_max_pool(p[i]); });
      case 3: return add("global_avg", {i}, [=](const Block&, const Pool& p) { return global_avg_pool(p[i]); });
      case 4:
        return add("adaptive_avg", {i}, [=](const Block&, const Pool& p) { return adaptive_avg_pool(p[i], size); });
      case 5:
        return add("adaptive_max", {i}, [=](const Block&, const Pool& p) { return adaptive_max_pool(p[i], size); });
      default: {
        const Init init = draws_.integers ? Init::constant(1) : Init::normal(0.2);
        return on("bias_relu_pool_dropout", i, layer(Tail{init.make({pool_[i].dim(-1)}), init}));
      }
    }
  }

  bool normed(std::size_t i, Index channels) {
    const double eps = 0.05;  // slopes of few elements stay small
    const Tensor& v = pool_[i];
    switch (dice_.between(0, 7)) {
      case 0: return on("layer_norm", i, layer(LayerNorm(channels, eps)));
      case 1: return on("rms_norm", i, layer(RMSNorm(channels, eps)));
      case 2: {
        const Index groups = channels % 2 == 0 ? 2 : 1;
        return on(fmt::format("group_norm{}", groups), i, layer(GroupNorm(groups, channels, eps)));
      }
      case 3: return on("instance_norm", i, layer(InstanceNorm(channels, eps, dice_.chance(50))));
      case 4: return v.rank() > 2 && on("layer_norm2", i, layer(LayerNorm(Shape{v.dim(-2), channels}, eps)));
      case 5: {
        const std::size_t j = like(i), at = keep(layer(BatchNorm(channels, {.eps = eps, .relu = dice_.chance(50)})));
        draws_.batch_norm = true;
        return j != i && add("batch_norm_add", {i, j}, [=](const Block& b, const Pool& p) {
                 return (*b.layers[at].as<BatchNorm>())(p[i], p[j]);
               });
      }
      default: draws_.batch_norm = true; return on("batch_norm", i, layer(BatchNorm(channels, {.eps = eps})));
    }
  }

  /// Softmax and sums along an axis, which keep the shape.
  bool along(std::size_t i) {
    const Tensor& v = pool_[i];
    const int axis = static_cast<int>(dice_.between(1, std::max(1, v.rank() - 1)));
    const int kind = draws_.integers ? 0 : static_cast<int>(dice_.between(0, 3));
    return add(
        fmt::format("{}[{}]",
                    std::array{"cumsum", "softmax", "log_softmax", "normalised"}[static_cast<std::size_t>(kind)], axis),
        {i}, [=](const Block&, const Pool& p) {
          switch (kind) {
            case 0: return cumsum(p[i], axis);
            case 1: return softmax(p[i], axis);
            case 2: return log_softmax(p[i], axis);
            default: return p[i] / (norm(p[i], {axis}, true) + 0.5);
          }
        });
  }

  bool reduced(std::size_t i) {
    const Tensor& v = pool_[i];
    if (v.rank() < 3) return false;
    std::vector<int> axes{static_cast<int>(dice_.between(1, v.rank() - 1))};
    if (v.rank() > 3 && dice_.chance(40)) axes = {1, 2};
    const bool keep = dice_.chance(50);
    const int kind = draws_.integers ? 0 : static_cast<int>(dice_.between(0, 6));  // ties of amax share by three
    static constexpr std::array names{"sum", "amax", "amin", "mean", "logsumexp", "var", "norm"};
    return add(fmt::format("{}{}{}", names[static_cast<std::size_t>(kind)], axes, keep ? "k" : ""), {i},
               [=](const Block&, const Pool& p) {
                 switch (kind) {
                   case 0: return sum(p[i], axes, keep);
                   case 1: return amax(p[i], axes, keep);
                   case 2: return amin(p[i], axes, keep);
                   case 3: return mean(p[i], axes, keep);
                   case 4: return logsumexp(p[i], axes, keep);
                   case 5: return var(p[i], axes, keep, 0);
                   default: return sqrt(sum(square(p[i]), axes, keep) + 0.1);
                 }
               });
  }

  /// The same elements, or some, in another place.
  bool moved(std::size_t i) {
    const Tensor& v = pool_[i];
    const int axis = static_cast<int>(dice_.between(1, std::max(1, v.rank() - 1)));
    if (axis >= v.rank()) return false;
    const Index n = v.dim(axis), at = dice_.between(0, n - 1);
    switch (dice_.between(0, 9)) {
      case 0:
        return add(fmt::format("flip[{}]", axis), {i}, [=](const Block&, const Pool& p) { return flip(p[i], {axis}); });
      case 1:
        return add(fmt::format("roll[{}]", axis), {i},
                   [=](const Block&, const Pool& p) { return roll(p[i], at + 1, axis); });
      case 2: {
        const Index step = dice_.between(1, 2);
        return add(fmt::format("slice[{}]", axis), {i},
                   [=](const Block&, const Pool& p) { return slice(p[i], axis, at, n, step); });
      }
      case 3: {
        Shape begin = v.shape();
        for (int a = 0; a < v.rank(); ++a) begin[a] = 0;
        Shape end = begin;
        begin[axis] = dice_.between(0, 1);
        end[axis] = dice_.between(0, 1);
        const int kind = static_cast<int>(dice_.between(0, 3));
        const PadMode mode = kind == 1 ? PadMode::reflect : kind == 2 ? PadMode::replicate : PadMode::circular;
        return add(fmt::format("pad{}[{}]", kind, axis), {i}, [=](const Block&, const Pool& p) {
          return kind == 0 ? pad(p[i], begin, end, 1) : pad(p[i], begin, end, mode);
        });
      }
      case 4: {
        const int other = static_cast<int>(dice_.between(1, v.rank() - 1));
        return add(fmt::format("transpose[{},{}]", axis, other), {i},
                   [=](const Block&, const Pool& p) { return transpose(p[i], axis, other); });
      }
      case 5: {
        Shape to{rows_tried};
        for (int a = 1; a < v.rank(); ++a)
          if (a == axis && n % 2 == 0 && v.rank() < 5) {
            to.push_back(2);
            to.push_back(n / 2);
          } else
            to.push_back(v.dim(a));
        to[0] = -1;
        return add(fmt::format("reshape{}", to), {i}, [=](const Block&, const Pool& p) { return p[i].reshape(to); });
      }
      case 6: {
        if (n < 2) return false;
        const std::vector<Index> sizes{n / 2, n - n / 2};
        return add(fmt::format("split[{}]", axis), {i}, [=](const Block&, const Pool& p) {
          const auto parts = split(p[i], sizes, axis);
          return concat({parts[1], scale(parts[0], 2)}, axis);
        });
      }
      case 7: return add("flatten", {i}, [=](const Block&, const Pool& p) { return flat(p[i]); });
      case 8: {
        const bool square = v.rank() > 2;
        return square && add("tril", {i}, [=](const Block&, const Pool& p) { return tril(p[i], 1); });
      }
      default:
        return add(fmt::format("select[{}]", axis), {i},
                   [=](const Block&, const Pool& p) { return select(p[i], axis, at); });
    }
  }

  /// By ids that come with the batch, or by their size.
  bool chosen(std::size_t i) {
    const Tensor& v = pool_[i];
    const int axis = static_cast<int>(dice_.between(1, std::max(1, v.rank() - 1)));
    if (axis >= v.rank()) return false;
    const Index n = v.dim(axis);
    Shape one = v.shape();
    one[0] = -1;
    for (int a = 1; a < v.rank(); ++a) one[a] = a == axis ? ids_per_row : 1;
    const Shape rest = rest_of(v);
    const auto ids = [=](const Pool& p) {  // [N, .., ids_per_row, ..] of extents of v
      Shape wide = with_rows(p[0], rest);
      wide[axis] = ids_per_row;
      return expand(remainder(p[0].at("ids"), static_cast<double>(n)).reshape(one), wide);
    };
    switch (dice_.between(0, 4)) {
      case 0:
        return add(fmt::format("gather[{}]", axis), {i},
                   [=](const Block&, const Pool& p) { return gather(p[i], ids(p), axis); });
      case 1:
        return add(fmt::format("scatter_add[{}]", axis), {i}, [=](const Block&, const Pool& p) {
          return scatter_add(p[i], ids(p), gather(p[i], ids(p), axis) * 0.5, axis);
        });
      case 2: {
        const bool down = dice_.chance(50);
        return add(fmt::format("sort[{}]", axis), {i},
                   [=](const Block&, const Pool& p) { return sort(p[i], axis, down).values; });
      }
      case 3: {
        const Index k = dice_.between(1, n);
        return add(fmt::format("topk{}[{}]", k, axis), {i},
                   [=](const Block&, const Pool& p) { return topk(p[i], k, axis).values; });
      }
      default: {
        std::vector<Index> at;
        for (Index k = dice_.between(1, 4); k > 0; --k) at.push_back(dice_.between(0, n - 1));
        return add(fmt::format("take{}[{}]", at, axis), {i},
                   [=](const Block&, const Pool& p) { return take(p[i], Tensor::from(at), axis); });
      }
    }
  }

  bool attended(std::size_t i, Index channels) {
    if (draws_.integers || pool_[i].rank() != 3) return false;
    const Index heads = channels % 2 == 0 ? 2 : 1;
    const SelfAttentionOptions o{.causal = dice_.chance(40), .dropout = dice_.chance(25) ? 0.2 : 0};
    const std::size_t at = keep(layer(SelfAttention(channels, heads, o)));
    const bool lengths = dice_.chance(40);
    const Index n = pool_[i].dim(1);
    if (dice_.chance(20) && channels % 2 == 0)
      return add("rope", {i}, [=](const Block&, const Pool& p) {
        return rope(p[i].reshape({-1, n, 1, channels}), rope_table(n, channels)).reshape({-1, n, channels});
      });
    return add(lengths ? "attention(lengths)" : "attention", {i}, [=](const Block& b, const Pool& p) {
      const Tensor some = lengths ? remainder(select(p[0].at("ids"), 1, 0), static_cast<double>(n)) + 1 : Tensor();
      return (*b.layers[at].as<SelfAttention>())(p[i], some);
    });
  }

  /// What comes with the batch beside x.
  bool field(std::size_t i) {
    const Tensor& v = pool_[i];
    if (pool_[0].fields().contains("memory"))
      return add("memory", {0}, [](const Block&, const Pool& p) { return p[0].at("memory"); });
    switch (dice_.between(0, 2)) {
      case 0: return add("u", {0}, [](const Block&, const Pool& p) { return p[0].at("u"); });
      case 1: {
        const Tensor& t = pool_[0].at("table");
        if (t.dim(0) != v.dim(-1)) {
          const std::size_t at = keep(layer(Linear(v.dim(-1), t.dim(0))));
          return add("table", {i},
                     [=](const Block& b, const Pool& p) { return matmul(b.layers[at](p[i]), p[0].at("table")); });
        }
        return add("table", {i}, [=](const Block&, const Pool& p) { return matmul(p[i], p[0].at("table")); });
      }
      default: {
        const std::size_t at = keep(layer(Linear(pool_[0].at("u").dim(1), v.dim(-1))));
        return v.rank() == 2 &&
               add("+u", {i}, [=](const Block& b, const Pool& p) { return b.layers[at](p[0].at("u")) + p[i]; });
      }
    }
  }

  /// Under a mask that comes with the batch, or that the value itself gives.
  bool masked(std::size_t i) {
    const Tensor& v = pool_[i];
    const Tensor& m = pool_[0].at("mask");
    if (dice_.chance(50) && m.rank() == v.rank()) {
      const bool times = dice_.chance(50);
      return add(times ? "*mask" : "masked_fill(mask)", {i}, [=](const Block&, const Pool& p) {
        return times ? p[i] * p[0].at("mask") : masked_fill(p[i], p[0].at("mask") > 0, 0.5);
      });
    }
    const std::size_t j = like(i);
    return add("where", {i, j}, [=](const Block&, const Pool& p) { return where(p[i] > 0.25, p[i] * 2, p[j]); });
  }

  /// Ops that join several layers.
  bool together(std::size_t i, int axes, Index channels) {
    if (axes < 2 || axes > 3) return false;
    Shape w{1};
    for (int a = 0; a < axes; ++a) w.push_back(3);
    w.push_back(channels);
    Shape w2 = w;
    w2[0] = 2;
    w2[-1] = channels + 1;
    const std::size_t a = own(w), b0 = own({1}, "bias"), c = own(w2), d = own({2}, "bias");
    const Index far = dice_.between(1, 3);
    return add(fmt::format("mixed_scale_dense({})", far), {i}, [=](const Block& b, const Pool& p) {
      return mixed_scale_dense(p[i], {b.own[a].tensor, b.own[c].tensor}, {b.own[b0].tensor, b.own[d].tensor}, {1, far});
    });
  }

  /// A convolution called twice, with a norm between: weights shared within a graph.
  bool twice(std::size_t i, Index channels) {
    const std::size_t at = keep(layer(Conv2d(channels, channels, 3, {.pad = 1})));
    return add("twice", {i},
               [=](const Block& b, const Pool& p) { return b.layers[at](relu(b.layers[at](p[i]))) + p[i]; });
  }

  /// A graph within a graph, now and then one that is computed again in backward.
  bool nested(std::size_t i) {
    if (depth_ > 2) return false;
    Tensor x = pool_[i];
    for (const auto& [name, t] : pool_[0].fields()) x = x.with(name, t);
    const std::string before = std::exchange(draws_.text, "");
    Block inner = BlockDrawing(draws_, depth_ + 1).draw(x, dice_.between(1, 4));
    const std::string text = std::exchange(draws_.text, before);
    const bool again = dice_.chance(60);
    const std::size_t at = keep(again ? Module(Recompute(std::move(inner))) : Module(std::move(inner)));
    return add((again ? "recompute" : "graph") + text, {i}, [=](const Block& b, const Pool& p) {
      Tensor x = p[i];
      for (const auto& [name, t] : p[0].fields()) x = x.with(name, t);
      return b.layers[at](x);
    });
  }

  /// A row of the table of ops, its operands made of a value and of weights.
  bool of_table(std::size_t i) {
    const Case& c = dice_.of(test::cases());
    // The first change the pass that they run in, or draw by a key that stages might share; the others have other
    // rows, or another device.
    for (const char* part : {"batch_norm", "/eval", "/share", "/positions", "dropout"})
      if (c.name.find(part) != c.name.npos) return false;
    for (const char* name : {"reshape", "log_softmax/axis", "to"})
      if (c.name == name) return false;
    draws_.cases.push_back(c.name);
    const std::size_t value = i;
    const Tensor& v = pool_[i];
    const bool any_shape = std::ranges::all_of(c.inputs, [&](const Input& in) {
      return in.rows && in.grad && in.shape == c.inputs[0].shape && in.shape == Shape{3, 5};
    });
    std::vector<std::function<Tensor(const Block&, const Pool&)>> operands;
    for (const Input& in : c.inputs) {
      Shape rest;
      for (int a = 1; a < in.shape.rank(); ++a) rest.push_back(in.shape[a]);
      const Index size = rest.numel();
      const auto ranged = [in](const Tensor& t) {
        if (in.low > 0 && in.draw != InputValues::away) return square(t) * 0.3 + in.low;
        if (in.draw == InputValues::away) return where(t > 0, t + in.low, t - in.low);
        return t;
      };
      if (in.draw == InputValues::statistic) return false;
      if (!in.rows || in.shape.rank() == 0) {
        if (in.draw == InputValues::label) {
          std::vector<Index> at;
          for (Index k = 0; k < in.shape.numel(); ++k) at.push_back(dice_.between(0, static_cast<Index>(in.high) - 1));
          const Tensor ids = Tensor::from(at, in.shape);
          operands.emplace_back([=](const Block&, const Pool&) { return ids; });
        } else {
          const std::size_t at = own(in.shape);
          operands.emplace_back([=](const Block& b, const Pool&) { return ranged(b.own[at].tensor); });
        }
      } else if (in.draw == InputValues::label) {
        operands.emplace_back([=](const Block&, const Pool& p) {
          const Tensor ids = repeat(p[0].at("ids"), {1, (size + ids_per_row - 1) / ids_per_row});
          return remainder(slice(ids, 1, 0, size), in.high).reshape(with_rows(ids, rest));
        });
      } else if (any_shape && operands.empty()) {
        operands.emplace_back([=](const Block&, const Pool& p) { return ranged(p[value]); });
      } else if (any_shape) {
        const std::size_t j = like(i);
        operands.emplace_back([=](const Block&, const Pool& p) { return ranged(p[j]); });
      } else {
        const std::size_t at = keep(layer(Linear(per_row(v), size)));
        operands.emplace_back([=](const Block& b, const Pool& p) {
          return ranged(tanh(b.layers[at](flat(p[value])))).reshape(with_rows(p[value], rest));
        });
      }
    }
    return add("case:" + c.name, {i}, [=, &c](const Block& b, const Pool& p) {
      Pool all;
      for (const auto& operand : operands) all.push_back(operand(b, p));
      const Tensor y = c.op(all).to(DType::f64);
      return any_shape ? y : y.reshape({p[0].dim(0), -1});
    });
  }

  /// The last node: all values that nothing has read, in one; or in [N, outputs].
  void join(Index outputs) {
    std::vector<std::size_t> unused;
    for (std::size_t i = 0; i + 1 < pool_.size(); ++i)
      if (!used_[i]) unused.push_back(i);
    for (const std::size_t i : unused) {
      const std::size_t last = pool_.size() - 1;
      if (pool_[i].shape() == pool_[last].shape()) {
        add("+", {last, i}, [=](const Block&, const Pool& p) { return p[last] + p[i]; });
        continue;
      }
      const int between = pool_[last].rank() - 2;
      if (between < 0) continue;
      const std::size_t at = keep(layer(Linear(per_row(pool_[i]), pool_[last].dim(-1))));
      if (!add("join", {last, i},
               [=](const Block& b, const Pool& p) { return p[last] + spread(b.layers[at](flat(p[i])), between); }))
        block_.layers.pop_back();
    }
    if (outputs == 0) {
      if (block_.nodes.empty()) add("same", {0}, [](const Block&, const Pool& p) { return p[0] + 0; });
      return;
    }
    const std::size_t main = pool_.size() - 1;
    const std::size_t at = keep(layer(Linear(per_row(pool_[main]), outputs)));
    const bool made = add(
        fmt::format("head({})", outputs), {main},
        [=](const Block& b, const Pool& p) { return b.layers[at](flat(p[main])); }, true);
    check(made, "sweep", "no head behind {}", draws_.text);
  }

  Draws& draws_;
  RandomChoice& dice_;
  int depth_;  // graphs around this one
  Block block_;
  Pool pool_, part_;        // values of four rows, and of two of them
  std::vector<bool> used_;  // whether a node has read the value
};

Tensor numbers(const Shape& shape, std::uint64_t seed, bool integers) {
  if (!integers) return normal(shape, 0, 1, seed, DType::f64);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(mix(seed * 65537 + i) % 5) - 2;
  return Tensor::of(values, shape, DType::f64);
}
Tensor counted(const Shape& shape, std::uint64_t seed, Index below) {
  std::vector<Index> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<Index>(mix(seed * 65539 + i) % static_cast<std::uint64_t>(below));
  return Tensor::from(values, shape);
}

/// What a skip connection across blocks goes through.
struct Far {
  Module fc;
  Shape rest;  ///< of its result
  Tensor operator()(const Tensor& t) const { return expand(spread(fc(flat(t)), rest.rank() - 1), with_rows(t, rest)); }
  void visit(const StateVisitor& v) { v("fc", fc); }
};

/// Blocks in a row, or one; now and then with layers between that a Sequential fuses, a skip across blocks, a block
/// that comes twice, and a field that one makes and a later one reads.
Module composed(Draws& draws, Tensor x, Index outputs, Index second) {
  RandomChoice& dice = draws.dice;
  const auto fields = x.fields();
  // A dropout returns its own input in evaluation, fields included; in training it does not.
  const auto run = [&](Module m, bool gives_memory = false) {
    const Inference evaluation;
    const Tensor given = m(x);
    Tensor y = given.detach();
    y.impl()->batch = given.impl()->batch;
    y.impl()->fields = nullptr;
    if (gives_memory) y = y.with("memory", given.at("memory"));
    for (const auto& [name, t] : fields) y = y.with(name, t);
    x = y;
    return m;
  };
  const auto head = [&](Block last) {
    if (second > 0) {  // two outputs: a node in front of the last one
      const std::size_t at = last.layers.size();
      last.layers.push_back(BlockDrawing::layer(draws, Linear(per_row(x), second)));
      last.beside.emplace_back("second", last.nodes.size());
      last.nodes.insert(last.nodes.end() - 1,
                        [at](const Block& b, const Pool& p) { return tanh(b.layers[at](flat(p[0]))); });
    }
    return last;
  };
  if (dice.chance(30)) return head(BlockDrawing(draws).draw(x, dice.between(3, 10), outputs));
  Sequential row;
  const bool skip = dice.chance(25);
  if (skip) {
    row.add(Stash{"far"});
    draws.text += " stash";
  }
  const Index far = per_row(x);
  for (Index blocks = dice.between(2, 4); blocks > 0; --blocks) {
    Block made = BlockDrawing(draws).draw(x, dice.between(1, 4));
    const bool recomputed = dice.chance(20), memory = !recomputed && dice.chance(12);
    if (memory) {
      made.beside.emplace_back("memory", made.nodes.size());
      draws.text += " and memory";
    }
    if (recomputed) {
      draws.text += " recomputed";
      row.add(run(Recompute(Module(std::move(made)))));
    } else {
      const Module m = run(Module(std::move(made)), memory);
      row.add(m);
      bool same = false;
      if (dice.chance(20)) try {  // its shape may not allow it
          const Inference evaluation;
          Tensor again = relu(x);
          for (const auto& [name, t] : fields) again = again.with(name, t);
          const Tensor y = m(again), two = m(again.rows(1, 3).with("table", again.at("table")));
          same = y.shape() == x.shape() && max(abs(y)).item() < 100 &&
                 distance(y.rows(1, 3).to_vector(), two.to_vector()) < 1e-9;
        } catch (const Error&) {}
      if (same) {
        row.add(relu).add(m);
        run(Module(relu));
        run(m);
        draws.text += " relu and the same again";
      }
    }
    if (dice.chance(35)) {
      const Index out = dice.between(2, 5), in = x.dim(-1);
      draws.text += fmt::format(" fc({},{}) relu", in, out);
      row.add(run(BlockDrawing::layer(draws, Linear(in, out)))).add(run(Module(relu)));
    }
  }
  if (skip) {
    const Module fc = BlockDrawing::layer(draws, Linear(far, x.dim(-1)));
    row.add(AddStashed("far", Far{fc, rest_of(x)}));
    run(Module([](const Tensor& t) { return t + 0; }));
    draws.text += " add";
  }
  row.add(head(BlockDrawing(draws).draw(x, dice.between(0, 3), outputs)));
  return row;
}

}  // namespace

RandomModel random_model(RandomChoice dice, bool integers) {
  RandomModel model;
  const Index samples = dice.between(5, 14);
  Shape one;
  const int kind = static_cast<int>(dice.between(0, 9));
  const int axes = kind < 5 ? 2 : kind < 7 ? 1 : kind < 8 ? 3 : 0;
  for (int a = 0; a < axes; ++a) one.push_back(dice.between(2, axes == 3 ? 4 : 7));
  one.push_back(dice.between(1, axes == 0 ? 9 : 4));
  const auto of = [&](Shape rest) {
    Shape all{samples};
    for (Index extent : rest) all.push_back(extent);
    return all;
  };
  Shape mask = one;
  mask[-1] = 1;
  const std::uint64_t seed = static_cast<std::uint64_t>(dice.between(1, 1 << 20));
  const Index shared = dice.between(2, samples);  // rows of a field that all samples share
  model.data.x =
      numbers(of(one), seed, integers)
          .with("u", numbers(of({dice.between(1, 4)}), seed + 1, integers))
          .with("ids", counted(of({ids_per_row}), seed + 2, words))
          .with("mask", counted(of(mask), seed + 3, 2).to(DType::f64))
          .with("table", numbers({shared == samples ? shared + 1 : shared, dice.between(2, 4)}, seed + 4, integers));
  const Index outputs = dice.between(2, 5), second = !integers && dice.chance(30) ? dice.between(1, 3) : 0;
  model.text = fmt::format("{}{} samples of {}{}", integers ? "integers, " : "", samples, one,
                           second > 0 ? ", two outputs" : "");
  // Losses.
  const Tensor values = numbers(of({outputs}), seed + 5, integers), labels = counted(of({}), seed + 6, outputs);
  const Tensor weights = counted(of({outputs}), seed + 7, 3).to(DType::f64);
  const int which = integers ? 0 : static_cast<int>(dice.between(1, 9));
  static constexpr std::array names{
      "pattern", "cross_entropy", "smoothed, ignored", "weighted classes", "mse", "own", "masked",
      "huber",   "bce",           "weighted field"};
  model.text += fmt::format(", loss {}:", names[static_cast<std::size_t>(which)]);
  model.data.y = which >= 1 && which <= 3 ? labels : values;
  switch (which) {
    case 0: model.loss = Loss([](const Tensor& p, const Tensor& t) { return sum(p * t); }); break;
    case 1: model.loss = cross_entropy; break;
    case 2: model.loss = cross_entropy_with({.label_smoothing = 0.1, .ignore_index = 1}); break;
    case 3: {
      std::vector<double> w;
      for (Index c = 0; c < outputs; ++c) w.push_back(static_cast<double>(c % 3) + 0.5);
      model.loss = cross_entropy_with({.weights = Tensor::of(w, {outputs}, DType::f64)});
      break;
    }
    case 4: model.loss = mse_loss; break;
    case 5:
      model.loss = Loss([](const Tensor& p, const Tensor& t) { return batch_mean(tanh(p - t) * (p - t)); });
      break;
    case 6:
      model.data.y = model.data.y.with("w", weights);
      model.loss = Loss([](const Tensor& p, const Tensor& t) { return batch_mean(square(p - t), t.at("w")); },
                        [](const Tensor& t) { return sum(1 - t.at("w")).item(); });
      break;
    case 7: model.loss = Loss([](const Tensor& p, const Tensor& t) { return huber_loss(p, t, 0.7); }); break;
    case 8:
      model.loss = Loss([](const Tensor& p, const Tensor& t) { return bce_with_logits_loss(p, sigmoid(t)); });
      break;
    default:
      model.data.y = model.data.y.with("w", weights);
      model.loss = Loss([](const Tensor& p, const Tensor& t) { return batch_mean(t.at("w") * square(p - t)); });
  }
  if (second > 0) {
    model.data.y = model.data.y.with("second", numbers(of({second}), seed + 8, integers));
    const Loss first = model.loss;
    const Loss::Function both = [first](const Tensor& p, const Tensor& t) {
      return first(p, t) + mse_loss(p.at("second"), t.at("second"));
    };
    model.loss = Loss(both, first.ignored());
  }
  const RandomChoice rolled = dice;
  const Tensor tried = [&] {
    Tensor x = model.data.x.rows(0, rows_tried);
    return x.with("table", model.data.x.at("table"));
  }();
  const auto draw = [=] {
    Draws draws{rolled, integers};
    const NoGrad off;
    Module m = composed(draws, tried, outputs, second);
    return std::pair(std::move(m), draws);
  };
  const Draws draws = draw().second;
  model.text += draws.text;
  model.batch_norm = draws.batch_norm;
  model.cases = draws.cases;
  model.make = [draw] { return draw().first; };
  return model;
}

}  // namespace trireme::test
