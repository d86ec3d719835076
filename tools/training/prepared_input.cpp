#include "tools/training/prepared_input.h"

#include <future>

#include "kernels/core/thread.h"
#include "parallel/comm/call.h"
#include "tools/training/auto_strategy.h"
#include "tools/training/data_record.h"
#include "tools/training/dtype_dataset.h"
#include "tools/training/from_options.h"
#include "tools/training/saver.h"

namespace trireme {
namespace {

/// A line for each member that the program set.
std::string input_text(const TrainerInput& given) {
  std::string text;
  if (given.train) text += "train: " + description(*given.train);
  if (given.test) text += "test: " + description(*given.test);
  if (given.validation) text += "validation: " + description(*given.validation);
  if (given.optimizer) text += "optimizer: " + to_string(*given.optimizer) + "\n";
  if (given.collate) text += "collate: a function\n";
  if (given.sampler.order) {
    std::uint64_t hash = 0;
    for (const Index id : given.sampler.order(0, 0)) hash = hash * 31 + static_cast<std::uint64_t>(id);
    text += fmt::format("sampler: {} samples, order {:x}\n", given.sampler.size, hash);
  }
  for (const Metric& metric : given.metrics)
    for (const MetricResult& result : metric.results()) text += "metric: " + result.name + "\n";
  return text;
}

}  // namespace

TrainerOptions validated(TrainerOptions options, const TrainerInput& given, World& world) {
  scale_timeouts(slow_phase);  // while runs are opened
  check(!given.model || (given.train && given.test), "trainer",
        "the model is the program's own, but no data sets are given; give TrainerInput::train and test");
  check(options.parallel.virtual_ranks == 0 || world.clock(), "trainer",
        "parallel.virtual is {}, but the world's time is real; use World::virtual_time",
        options.parallel.virtual_ranks);
  if (world.clock()) options.parallel.virtual_ranks = world.size();
  validate(options);
  choose_strategy(options, given, world);
  return options;
}

PreparedInput prepared_input(TrainerInput given, const TrainerOptions& options) {
  std::string text = input_text(given);
  const bool characters = options.run.resume == "yes" && options.data.tokenizer == "chars";
  const TrainerOptions from = characters ? with_kept_tokenizer(options, options.run.dir) : options;
  std::packaged_task<Dataset()> open([&] { return given.test ? given.test : make_dataset(from, "test"); });
  std::future<Dataset> test = open.get_future();
  const auto thread = start_thread<std::jthread>("data", std::ref(open));
  if (!given.train) {
    given.train = make_dataset(from, "train");
    if (!given.validation && options.data.validation_split > 0) given.validation = make_dataset(from, "validation");
  }
  given.test = in_dtype(test.get(), make_dtype(options));
  given.train = in_dtype(given.train, make_dtype(options));
  if (given.validation) given.validation = in_dtype(given.validation, make_dtype(options));
  if (takes_volumes(options)) {
    if (!given.loss && given.train->classes() == 0) given.loss = make_loss(options);
    if (given.metrics.empty()) given.metrics = make_metrics(options, *given.train);
  }
  check(given.loss || given.train->classes() > 0, "trainer",
        "{} has no classes, so cross-entropy is not possible; give TrainerInput::loss, or a data set with classes",
        [&] { return given.train->name(); });
  return {std::move(given), std::move(text)};
}

LoaderOptions loader_options(const TrainerOptions& options, const TrainerInput& input, RankShare share, Device device) {
  LoaderOptions how = loader_options(options, share, device);
  how.collate = input.collate;
  how.sampler = input.sampler;
  return how;
}
Index epoch_size(const TrainerInput& input) { return input.sampler.order ? input.sampler.size : input.train->size(); }

Tensor make_example(const TrainerOptions& c, const TrainerInput& input, int ranks, Device device) {
  const Index rows = std::max<Index>(1, c.data.batch / ranks);
  if (input.train->tensors()) {
    const std::vector<Sample> alike(static_cast<std::size_t>(rows), sample_of(input.train, 0));
    return (input.collate ? input.collate(alike, [&] { return alike; }) : stack_samples(alike)).x.to(device);
  }
  Shape shape{rows};
  for (Index extent : input.train->shape()) shape.push_back(extent);
  return Tensor::zeros(shape, make_dtype(c), device);
}

}  // namespace trireme
