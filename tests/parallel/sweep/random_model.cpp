// A model is blocks one behind the other, or one block.
#include "tests/parallel/sweep/random_model.h"

#include <fmt/format.h>

#include "framework/layers/recompute.h"
#include "framework/tensor/create.h"
#include "tests/parallel/sweep/random_block.h"
#include "tests/support/distance.h"

namespace trireme::test {
namespace {

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
