// Accuracy and loss of a model over a data set, each sample counted once whichever rank reads it.
#include "datasets/loader.h"
#include "framework/metrics.h"
#include "framework/ops.h"
#include "framework/pass.h"
#include "tools/recipe.h"
#include "tools/trainer.h"

namespace trireme {

std::string Evaluation::text() const {
  return fmt::format("test accuracy: {:.2f} % ({} of {}){}, loss {:.5f}", accuracy(), correct, samples,
                     has_top5() ? fmt::format(", top-5 {:.2f} %", percent(in_top5)) : "", loss);
}

Evaluation evaluate(Module& model, Device device, const Dataset& data, const Config& config, World& world,
                    Console& console, std::optional<Shard> shard) {
  const Inference inference;
  Loader loader(data, {.batch = config.data.eval_batch,
                       .shard = shard ? *shard : Shard(world),
                       .workers = static_cast<int>(config.data.workers),
                       .dtype = make_dtype(config),
                       .device = device,
                       .training = false});
  double loss = 0;
  Index correct = 0, in_top5 = 0;
  for (Batch& batch : loader) {
    console.progress("evaluate", batch.index, loader.batches(), fmt::format("{} samples", data->size()));
    if (batch.rows() == 0 && !shard) continue;
    Tensor logits = model(batch.x);
    loss += cross_entropy(logits, batch.y).item() * static_cast<double>(batch.global);
    correct += count_correct(logits, batch.y);
    in_top5 += count_in_top(logits, batch.y, 5);
  }
  console.finish();
  const std::vector<double> mine{loss, static_cast<double>(correct), static_cast<double>(in_top5)};
  Tensor sums = Tensor::of(mine, {3}, DType::f64);
  world.comm().all_reduce(sums).wait();
  std::vector<double> all = sums.to_vector();
  if (shard)  // ranks of equal shards counted the same samples
    for (double& v : all) v /= world.size() / shard->size;
  return {.correct = static_cast<Index>(all[1]),
          .in_top5 = static_cast<Index>(all[2]),
          .samples = data->size(),
          .classes = data->classes(),
          .loss = all[0] / static_cast<double>(data->size())};
}

}  // namespace trireme
