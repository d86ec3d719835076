#include "tools/training/evaluate.h"

#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"
#include "framework/metrics/metrics.h"
#include "framework/ops/ops.h"
#include "tools/training/counts.h"

namespace trireme {

std::string Evaluation::text() const {
  return fmt::format("test accuracy: {:.2f} % ({} of {}){}, loss {:.5f}", accuracy(), correct, samples,
                     has_top5() ? fmt::format(", top-5 {:.2f} %", percent(in_top5)) : "", loss);
}

Evaluation evaluate(Module& model, const Dataset& data, World& world, const EvaluateOptions& options) {
  const Inference inference;
  Loader loader(data, {.batch = options.batch,
                       .shard = options.shard.value_or(RankShare(world)),
                       .workers = options.workers,
                       .dtype = options.dtype,
                       .device = options.device,
                       .training = false});
  Counts mine;
  for (Batch& batch : loader) {
    if (options.progress) options.progress(batch.index, loader.batches());
    if (batch.rows() == 0 && !options.shard) continue;
    Tensor logits = model(batch.x);
    mine.loss += cross_entropy(logits, batch.y).item() * static_cast<double>(batch.global);
    mine.correct += count_correct(logits, batch.y);
    mine.in_top5 += count_in_top(logits, batch.y, 5);
    mine.samples += batch.rows();
  }
  const Counts all = sum_shares(mine, loader.options().shard.rank, world);
  check(all.samples == data->size(), "evaluate", "counted {} of the {} samples", all.samples, data->size());
  return {.correct = all.correct,
          .in_top5 = all.in_top5,
          .samples = all.samples,
          .classes = data->classes(),
          .loss = all.loss / static_cast<double>(all.samples)};
}

}  // namespace trireme
