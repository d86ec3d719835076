// Nodes of a BlockDrawing that are ops, and those that read fields of the batch.
#include "tests/parallel/sweep/random_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "framework/tensor/create.h"

namespace trireme::test {

bool BlockDrawing::unary(std::size_t i) {
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

bool BlockDrawing::along(std::size_t i) {
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

bool BlockDrawing::reduced(std::size_t i) {
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

bool BlockDrawing::moved(std::size_t i) {
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

bool BlockDrawing::chosen(std::size_t i) {
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

bool BlockDrawing::field(std::size_t i) {
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

bool BlockDrawing::masked(std::size_t i) {
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

}  // namespace trireme::test
