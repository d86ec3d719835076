#include "tools/training/evaluate.h"

#include <cmath>
#include <numbers>

#include "datasets/text/tokens.h"
#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"
#include "framework/metrics/metrics.h"
#include "framework/tensor/fields.h"
#include "parallel/comm/world/metric_sums.h"
#include "parallel/model/chain.h"
#include "parallel/runtime/step_forward.h"
#include "parallel/runtime/step_probe.h"

namespace trireme {
namespace {

/// Sums losses of batches. Each mean is weighted by the number that it is over: rows, or labels that are not ignored.
class LossSum {
 public:
  /// shares: number of parts into which a batch is divided; equal numbers of ranks compute each part.
  LossSum(Loss loss, int shares, World& world)
      : loss_(std::move(loss)), holders_(static_cast<double>(world.size() / shares)), world_(world) {}
  const MetricState& state() const { return state_; }
  /// A collective call, also for ranks without rows, because ranks sum their ignored labels (Loss::ignored()). rows:
  /// weight of this rank's rows.
  void add(const Batch& batch, const Loss::Function& loss_of, const Tensor& prediction, double rows) {
    if (!loss_) return;
    state_.counts.resize(1);
    state_.sums.resize(2);
    double weight = static_cast<double>(batch.global);
    StepContext now = StepContext::current();
    if (loss_.ignored()) {
      const double mine = batch.rows() > 0 ? loss_.ignored()(batch.y) : 0;
      const Tensor ignored = Tensor::of(std::vector{mine}, {1}, DType::f64);
      if (world_.size() > 1) world_.comm().all_reduce(ignored).wait();
      now.ignored = ignored.item() / holders_;
      const Index labels = batch.rows() > 0 ? batch.y.numel() / batch.rows() : 1;
      weight = weight * static_cast<double>(labels) - *now.ignored;
    }
    if (batch.rows() == 0) return;
    now.in_loss = true;
    const StepScope scope(std::move(now));
    state_.sums[0].add((loss_of ? loss_of : loss_.function())(prediction, batch.y).item() * weight);
    // Each rank has the mean over its own rows, so one rank of each part adds the weight.
    state_.sums[1].add(weight * rows / static_cast<double>(batch.global));
    state_.samples += batch.rows();
  }

 private:
  Loss loss_;
  double holders_;  // ranks that compute the same rows
  World& world_;
  MetricState state_;
};

/// x through all parts, by `how` or one after another.
Tensor passed(const Tensor& x, const PartsForward::RunPart& run, const Chain& chain, const EvaluateOptions& how) {
  if (how.forward) return how.forward(x, run);
  Tensor activation = x;
  Stashed stashed;
  for (int p = 0; p < chain.size(); ++p) activation = run(p, std::move(activation), stashed);
  return activation;
}

/// Evaluates a language model's loss without logits: the head's product and the loss are one fused op.
struct FusedHead {
  const Chain& chain;
  const LmHead* head;  // null: another model or loss, or predictions are needed
  FusedHead(const Chain& model, const Loss& loss, bool wants_predictions)
      : chain(model), head(!wants_predictions && loss && loss.cross_entropy() ? model.head() : nullptr) {}
  /// The loss, computed from the output of the other parts. Loss is then the identity.
  Tensor operator()(const Tensor& x, const Tensor& labels, const EvaluateOptions& how,
                    const LabelLossOptions& options) const {
    const PartsForward::RunPart run = [&](int p, Tensor activation, Stashed& stashed) {
      if (p + 1 < chain.size()) return chain.run(p, std::move(activation), stashed);
      return head->loss(activation, labels.to(activation.device()), options);
    };
    return passed(x, run, chain, how);
  }
};

/// The prediction for x, which a rank without rows computes with the others.
Tensor predicted(Module& model, const Chain& chain, const Tensor& x, const EvaluateOptions& how) {
  if (!how.forward) return model(x);
  return how.forward(
      x, [&](int p, Tensor activation, Stashed& stashed) { return chain.run(p, std::move(activation), stashed); });
}

/// For data with classes. Padded and overlapping positions of a text have ignored labels.
Loss usual_loss(bool some_ignored) { return some_ignored ? cross_entropy_with({}) : Loss(cross_entropy); }

/// The field of y by which samples that overlap count each element once (datasets/volumes/volume_pairs.h).
constexpr const char* counted_field = "counted";
bool has_counted(const Dataset& data) {
  return data->tensors() && data->size() > 0 && field_of(sample_of(data, 0).y, counted_field);
}
/// The elements of x [rows, ...] or [rows, ..., C] at which counted [rows, ...] is not 0: [n] or [n, C].
Tensor counted_of(const Tensor& x, const Tensor& counted, const Tensor& places) {
  Shape flat{counted.numel()};
  if (x.rank() > counted.rank()) flat.push_back(x.dim(-1));
  return take(x.reshape(flat), places);
}
/// Restricts the loss to counted elements. Labels of other elements are set to ignored; numbers of other elements are
/// set equal, so their distance is 0. Returns the weight of the rows.
double count_once(Batch& batch, Tensor& prediction, const Tensor& counted) {
  const auto rows = static_cast<double>(batch.rows());
  if (batch.y.dtype() == DType::i64) {
    batch.y = masked_fill(batch.y, eq(counted, 0), static_cast<double>(CrossEntropyOptions{}.ignore_index));
    return rows;
  }
  Shape shape = counted.shape();
  if (batch.y.rank() > shape.rank()) shape.push_back(1);
  const Mask others = eq(counted, 0).reshape(shape);
  prediction = masked_fill(prediction, others, 0);
  batch.y = masked_fill(batch.y, others, 0);
  return rows * sum(counted.to(DType::f64)).item() / static_cast<double>(counted.numel());
}

/// Labels that are no class must be negative or ignored by the loss.
void check_ignored(const std::vector<Index>& labels, const Loss& loss, const DatasetSource& data) {
  for (const Index label : labels) {
    const bool ignored = label < 0 || (loss && loss.ignored() && loss.ignored()(Tensor::from({label})) == 1);
    check(
        ignored, ErrorKind::data, "evaluate", "{} has a label {}, but only {} classes", [&] { return data.name(); },
        label, data.classes());
  }
}

}  // namespace

std::string Evaluation::text() const {
  std::string text = is_classified()
                         ? fmt::format("test accuracy: {:.2f} % ({} of {}){}, loss {:.5f}", accuracy(), correct, labels,
                                       has_top5() ? fmt::format(", top-5 {:.2f} %", percent(in_top5)) : "", loss)
                         : fmt::format("test loss: {:.5f} ({} samples)", loss, samples);
  for (const MetricResult& m : metrics) text += fmt::format(", {} {:.5g}", m.name, m.value);
  return text;
}

bool divide(EvaluateOptions& how, Step& step, bool gathered) {
  const StepForward forward(step);
  const bool in_parts = !gathered && forward.is_needed();
  if (!in_parts && !StepProbe(step).is_tensor_parallel()) return false;
  how.shard = forward.share();
  if (in_parts) how.forward = forward;
  return true;
}

bool scores_classes(const Tensor& prediction, const Tensor& target, Index classes) {
  return classes > 0 && target && target.dtype() == DType::i64 && prediction.rank() > 0 &&
         prediction.dim(-1) >= classes && target.shape() == prediction.shape().without(prediction.rank() - 1);
}

Evaluation evaluate(Module& model, const Dataset& data, World& world, const EvaluateOptions& options) {
  const Inference inference;
  Loader loader(data, {.batch = options.batch,
                       .shard = options.shard.value_or(RankShare(world)),
                       .workers = options.workers,
                       .dtype = options.dtype,
                       .device = options.device,
                       .training = false,
                       .collate = options.collate});
  const Index classes = data->classes();
  const Chain chain(model);
  const TextSource* text = text_of(data);
  const bool overlaps = has_counted(data);
  const Loss chosen = options.loss || classes == 0 ? options.loss : usual_loss(text != nullptr || overlaps);
  const FusedHead fused(chain, chosen, !text || !options.metrics.empty());
  LossSum loss(chosen, loader.options().shard.size, world);
  std::vector<Metric> metrics = options.metrics;
  for (Metric& metric : metrics) metric.reset();
  MetricState counts;
  for (Batch& batch : loader) {
    if (options.progress) options.progress(batch.index, loader.batches());
    const bool runs = batch.rows() > 0 || options.shard;
    if (fused.head) {
      const auto of_head = [&](const Tensor& x, const Tensor& y) {
        return fused(x, y, options, *chosen.cross_entropy());
      };
      loss.add(batch, of_head, batch.x, static_cast<double>(batch.rows()));
      if (batch.rows() == 0 && options.shard)  // the others' layers may need this rank
        (void)passed(
            batch.x,
            [&](int p, Tensor x, Stashed& stashed) {
              return p + 1 < chain.size() ? chain.run(p, std::move(x), stashed) : x;
            },
            chain, options);
      counts.samples += batch.rows();
      continue;
    }
    Tensor prediction = runs ? predicted(model, chain, batch.x, options) : Tensor();
    if (const Tensor counted = overlaps && batch.rows() > 0 ? field_of(batch.y, counted_field) : Tensor()) {
      const Tensor y = batch.y, all = prediction;
      // A custom loss of labels sees all of them.
      const bool once = y.dtype() != DType::i64 || !options.loss;
      const double rows = once ? count_once(batch, prediction, counted) : static_cast<double>(batch.rows());
      loss.add(batch, {}, prediction, rows);
      std::vector<Index> places;
      const std::vector<double> weights = counted.to_vector();
      for (std::size_t i = 0; i < weights.size(); ++i)
        if (weights[i] != 0) places.push_back(static_cast<Index>(i));
      const Tensor here = Tensor::from(places).to(all.device());
      counts.samples += batch.rows();
      prediction = counted_of(all, counted, here);
      batch.y = counted_of(y, counted, here);
    } else {
      loss.add(batch, {}, prediction, static_cast<double>(batch.rows()));
      if (!runs) continue;
      counts.samples += batch.rows();
    }
    counts.counts.resize(3);
    if (!text && scores_classes(prediction, batch.y, classes)) {
      counts.counts[0] += count_correct(prediction, batch.y);
      counts.counts[1] += count_in_top(prediction, batch.y, 5);
      std::vector<Index> others;  // labels that are no class
      for (const Index label : batch.y.to_vector<Index>())
        label >= 0 && label < classes ? void(++counts.counts[2]) : others.push_back(label);
      check_ignored(others, options.loss, *data);
    }
    if (batch.rows() > 0)
      for (Metric& metric : metrics) metric.add(prediction, batch.y);
  }
  const int share = loader.options().shard.rank;
  const MetricState all = sum_over_ranks(counts, share, world), losses = sum_over_ranks(loss.state(), share, world);
  check(all.samples == data->size(), ErrorKind::internal, "evaluate", "counted {} of the {} samples", all.samples,
        data->size());
  sum_over_ranks(metrics, share, world);
  Evaluation found{.correct = all.count(0),
                   .in_top5 = all.count(1),
                   .labels = all.count(2),
                   .samples = all.samples,
                   .classes = classes,
                   .loss = losses.sum(0) / losses.sum(1)};
  for (const Metric& metric : metrics) {
    found.states.push_back(metric.state());
    for (MetricResult& result : metric.results()) found.metrics.push_back(std::move(result));
  }
  if (text && chosen.cross_entropy()) {  // of tokens, by their mean loss in nats
    found.metrics.push_back({"perplexity", std::exp(found.loss)});
    if (const Index bytes = text->bytes(); bytes > 0)  // 0: token files without a tokenizer
      found.metrics.push_back({"bits_per_byte", found.loss / std::numbers::ln2 * static_cast<double>(text->tokens()) /
                                                    static_cast<double>(bytes)});
  }
  return found;
}

}  // namespace trireme
