#include "tests/parallel/sweep/random_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "framework/layers/recompute.h"
#include "framework/tensor/create.h"
#include "tests/framework/cases.h"

namespace trireme::test {

Block BlockDrawing::draw(const Tensor& x, Index nodes, Index outputs) {
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

bool BlockDrawing::add(const std::string& what, const std::vector<std::size_t>& reads, const Block::Node& run,
                       bool head) {
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

std::size_t BlockDrawing::keep(Module m) {
  block_.layers.push_back(std::move(m));
  return block_.layers.size() - 1;
}

std::size_t BlockDrawing::own(const Shape& shape, const char* name, double std, double mean, StateKind kind) {
  const Init init = draws_.integers ? Init::constant(1) : Init::normal(std, mean);
  block_.own.push_back({name, init.make(shape).to(DType::f64).detach(), init, kind});
  return block_.own.size() - 1;
}

bool BlockDrawing::on(const std::string& what, std::size_t i, Module m) {
  const std::size_t at = keep(std::move(m));
  return add(what, {i}, [=](const Block& b, const Pool& p) { return b.layers[at](p[i]); });
}

std::size_t BlockDrawing::any() {
  return dice_.chance(55) ? pool_.size() - 1 : static_cast<std::size_t>(dice_.between(0, std::ssize(pool_) - 1));
}

std::size_t BlockDrawing::like(std::size_t i) {
  std::vector<std::size_t> fit;
  for (std::size_t j = 0; j < pool_.size(); ++j)
    if (pool_[j].shape() == pool_[i].shape() && j != i) fit.push_back(j);
  return fit.empty() ? i : dice_.of(fit);
}

void BlockDrawing::node() {
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

bool BlockDrawing::one(std::size_t i, const Tensor& v) {
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

bool BlockDrawing::nested(std::size_t i) {
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

bool BlockDrawing::of_table(std::size_t i) {
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

void BlockDrawing::join(Index outputs) {
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

}  // namespace trireme::test
