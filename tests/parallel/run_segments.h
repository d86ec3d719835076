// A run in segments: it trains under a strategy, is saved as the trainer saves, and goes on under another strategy.
#pragma once
#include <algorithm>
#include <filesystem>

#include "framework/io/checkpoint.h"
#include "framework/io/safetensors.h"
#include "framework/layers/inference.h"
#include "parallel/runtime/step_probe.h"
#include "tests/parallel/pairs.h"
#include "tests/parallel/training.h"
#include "tools/training/replicas.h"

namespace trireme::test {

/// What a run has come to: the files of its checkpoint, where it stands, and what it says.
struct TrainedState {
  std::vector<std::pair<std::string, std::vector<double>>> tensors;  ///< weights, buffers and optimizer state by name
  std::vector<double> losses;
  /// Outputs for samples that were not trained on: before the segment, where sums of integers are exact, and behind it.
  std::vector<double> before, after;
  std::int64_t step = 0, epoch = 0, batch = 0;
  int microbatches = 1;  ///< micro-batches of its plan
};

/// Where a segment of a run begins and how long it is.
struct RunSegment {
  std::string from, to;  ///< run directories; from: "" for the start
  int steps = 2;
  bool compares = false;  ///< the weights that ranks hold in common, bit by bit
  bool nudged = false;    ///< begins with weights changed in their last bits, so that its end shows what those bits do
};

/// Outputs for all rows, on every rank; each rank computes those of its share of them.
inline std::vector<double> outputs(Step& step, World& world, const Setup& s) {
  const Inference inference;
  const Index rows = 6, classes = 5;
  const bool divided = StepProbe(step).is_tensor_parallel();
  const RankShare shard = divided ? RankShare(step.shard().rank, step.shard().size) : RankShare();
  Loader loader(Dataset(std::make_unique<Noise>(rows, s.shape, s.integers)),
                {.batch = rows, .shard = shard, .workers = 0, .dtype = s.dtype, .training = false});
  Tensor sums = Tensor::zeros({rows, classes + 1}, DType::f64);
  for (auto& batch : loader) {
    const Tensor logits = divided ? whole(step.model()(batch.x)) : step.model()(batch.x);
    const auto values = logits.to_vector(), ids = batch.samples.to_vector();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      double* row = sums.data<double>() + static_cast<Index>(ids[i]) * (classes + 1);
      for (std::size_t j = 0; j < static_cast<std::size_t>(classes); ++j)
        row[j] = values[i * static_cast<std::size_t>(classes) + j];
      row[classes] = 1;
    }
  }
  world.comm().all_reduce(sums).wait();
  auto all = sums.to_vector();
  for (std::size_t i = 0; i < all.size(); ++i) all[i] /= all[i / 6 * 6 + 5];  // ranks that computed the row
  return all;
}

/// Multiplies each weight by 1 + 1e-15 or 1 - 1e-15.
inline void nudge(Module& model) {
  model.visit(StateVisitor([](const NamedState& leaf) {
    if (leaf.kind == StateKind::buffer) return;
    std::vector<double> values = leaf.tensor->to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= i * 2654435761U >> 16 & 1 ? 1 + 1e-15 : 1 - 1e-15;
    leaf.tensor->copy_from(Tensor::from(values, leaf.tensor->shape()));
  }));
}

inline TrainedState train_segment(const Setup& s, World& world, const Arrangement& how, const RunSegment& segment) {
  Module model = s.model();
  if (!s.integers) initialize(model, 1);
  if (!segment.from.empty() || world.rank() > 0)  // the start is rank 0's, or the checkpoint's
    model.visit(StateVisitor([&](const NamedState& leaf) {
      if (leaf.kind != StateKind::buffer) fill_integers(*leaf.tensor, 77, 3);
    }));
  convert(model, s.dtype);
  Mesh mesh(world, how.mesh);
  Strategy strategy = parse_strategy(how.strategy);
  Step step(model, s.loss, s.optimizer_config, mesh, parse_strategy(how.strategy),
            {.seed = 5, .optimizer = s.optimizer});
  TrainState at{.seed = 5};
  if (!segment.from.empty()) {
    at = step.load_checkpoint(find_latest(segment.from).value().path).state;
    StepProbe(step).consolidate();
  }
  Loader loader(Dataset(std::make_unique<Noise>(s.samples, s.shape, s.integers)), {.batch = s.batch,
                                                                                   .shuffle = true,
                                                                                   .seed = 3,
                                                                                   .epoch = at.epoch,
                                                                                   .shard = step.shard(),
                                                                                   .workers = 0,
                                                                                   .dtype = s.dtype,
                                                                                   .start_batch = at.batch});
  TrainedState result;
  result.before = outputs(step, world, s);
  if (segment.nudged) nudge(model);
  std::vector<Tensor> losses;
  for (auto& [x, y] : loader) {
    losses.push_back(step(x, y));
    ++at.step;
    ++at.batch;
    if (static_cast<int>(losses.size()) == segment.steps) break;
  }
  for (auto& loss : losses) result.losses.push_back(loss.item());
  if (segment.compares) compare_replicas(step, world, at.step);
  const std::string path =
      save_checkpoint(segment.to, step.parameters(), step.optimizer(), at, {.shard = step.checkpoint_shard()});
  StepProbe(step).consolidate();
  result.after = outputs(step, world, s);
  if (!world.main()) return {};
  result.microbatches = step.plan().microbatches;
  for (const std::string file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string whole = path + "/" + file;
    auto tensors = read_safetensors(std::filesystem::exists(whole) ? whole : whole + ".index.json").tensors;
    std::ranges::sort(tensors, {}, &NamedTensor::name);
    for (auto& [name, tensor] : tensors) result.tensors.emplace_back(file + ": " + name, tensor.to_vector());
  }
  const TrainState saved = verify_checkpoint(path);
  result.step = saved.step;
  result.epoch = saved.epoch;
  result.batch = saved.batch;
  return result;
}

/// What differs by more than `tolerance`, relative to the largest value beside it (or to `least`, where gradients may
/// be nothing but rounding); "" when nothing does. With `nudged`, which is `b` from nudged weights, a tensor may also
/// differ by ten times what it differs there.
inline std::string difference(const TrainedState& a, const TrainedState& b, double tolerance, double least = 0,
                              const TrainedState* nudged = nullptr) {
  const auto differs = [&](const std::vector<double>& x, const std::vector<double>& y,
                           const std::vector<double>* beside = nullptr) {
    if (x.size() != y.size()) return true;
    double scale = least, spread = 0;
    for (double v : y) scale = std::max(scale, std::abs(v));
    for (std::size_t i = 0; beside && i < y.size(); ++i) spread = std::max(spread, std::abs((*beside)[i] - y[i]));
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!(std::abs(x[i] - y[i]) <= tolerance * scale + 10 * spread)) return true;  // NaN differs
    return false;
  };
  if (a.step != b.step || a.epoch != b.epoch || a.batch != b.batch) return "the cursor";
  if (differs(a.losses, b.losses)) return "the losses";
  if (a.tensors.size() != b.tensors.size()) return "the number of tensors";
  std::string names;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].first != b.tensors[i].first) return "the name " + a.tensors[i].first;
    if (differs(a.tensors[i].second, b.tensors[i].second, nudged ? &nudged->tensors[i].second : nullptr))
      names += " " + a.tensors[i].first;
  }
  if (!names.empty()) return names.substr(1);
  if (differs(a.before, b.before)) return "the outputs before";
  tolerance = std::max(tolerance, 1e-12);  // of fractions that are too long by now
  return differs(a.after, b.after) ? "the outputs behind" : "";
}

}  // namespace trireme::test
