#include "tools/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/image.h"
#include "framework/checkpoint.h"
#include "framework/metrics.h"
#include "framework/ops.h"
#include "framework/pass.h"
#include "framework/reading.h"
#include "framework/weights.h"
#include "kernels/backend.h"
#include "kernels/runtime.h"
#include "parallel/step.h"
#include "tools/counts.h"
#include "tools/recipe.h"
#include "tools/run_dir.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

/// Where a run is: counts that are equal on all ranks.
struct Cursor {
  std::int64_t step = 0, epoch = 0, batch = 0;
};

/// "throw:RANK:STEP"
void inject_fault(const std::string& fault, const World& world, std::int64_t step) {
  if (fault.empty()) return;
  int rank = 0;
  long long at = 0;
  check(std::sscanf(fault.c_str(), "throw:%d:%lld", &rank, &at) == 2, "run.fault", "'{}' is not throw:RANK:STEP",
        fault);
  check(world.rank() != rank || step != at, "run.fault", "injected on rank {} before step {}", rank, at);
}

/// A sample as the model sees it, as pixels again.
Tensor pixels_of(const Tensor& sample, const PixelScale& scale) {
  const std::vector<double> x = sample.to_vector();
  std::vector<double> pixels(x.size());
  const std::size_t channels = scale.mean.size();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = 255 * (x[i] * scale.deviation[i % channels] + scale.mean[i % channels]);
    pixels[i] = std::clamp(std::round(value), 0.0, 255.0);
  }
  return Tensor::of(pixels, {sample.dim(1), sample.dim(2), sample.dim(3)}, DType::u8);
}

class Trainer {
 public:
  Trainer(const Config& config, World& world)
      : config_(config),
        world_(world),
        device_(make_device(config, world.local_rank())),
        staged_(world.use(device_)),
        mesh_(make_mesh(config, world)),
        console_(!world.main(), config.run.progress, config.run.log_seconds),
        opening_test_(std::async(std::launch::async, [&config] { return make_dataset(config, "test"); })),
        train_(make_dataset(config, "train")),
        test_(opening_test_.get()),
        loader_(train_, loader_options({mesh_.index("data"), mesh_.size("data")})),
        model_(make_model(config, options_for(*train_), device_)) {
    if (config.parallel.threads > 0) set_threads(static_cast<int>(config.parallel.threads));
    if (world.main()) dir_.emplace(config.run.dir, config.model, to_toml(config), config.run.resume);
    if (world.main() && !config.run.resume) dir_->write_classes(train_->class_names());
    step_.emplace(
        model_, counting(make_loss(config)), make_recipe(config, loader_.batches()), mesh_,
        make_strategy(config, world.size()),
        StepOptions{.seed = static_cast<std::uint64_t>(config.seed),
                    .optimizer = {.clip_norm = config.optim.clip_norm, .decay_biases = config.optim.decay_biases},
                    .loss_scale = config.dtype == "f16" ? config.loss_scale : 0,
                    .cuda_graphs = config.cuda_graphs,
                    .example = example()});
    if (config.run.resume)
      resume();
    else if (!config.weights.empty())
      start_from(config.weights);
    if (dir_ && config.run.tensorboard)
      dir_->open_events(config.run.resume ? std::optional(cursor_.step + 1) : std::nullopt);
  }

  void run() {
    banner();
    Clock::time_point start = Clock::now();
    Evaluation last;
    while (cursor_.epoch < config_.epochs && !stopped()) {
      epoch();
      if (cursor_.batch != 0) break;  // stopped by run.max_steps in mid-epoch
      step_->gather();
      last = evaluate();
      report(last);
      save({{"test_accuracy", last.accuracy()}, {"test_loss", last.loss}});
    }
    if (cursor_.batch != 0) save({});
    step_->gather();
    if (last.samples == 0 || cursor_.batch != 0) last = evaluate();
    const double bad = count_bad();
    if (!world_.main()) return;
    if (EventFile* events = dir_->events()) events->flush();
    console_.result(fmt::format("{}, after {} steps in {:.1f} s", last.text(), cursor_.step, seconds_since(start)));
    if (bad > 0)
      console_.result(fmt::format("bad images:    {:.0f} reads answered by the next good image; {}", bad, first_bad()));
    console_.result("checkpoint:    " + saved_);
    console_.result("metrics:       " + dir_->metrics());
  }

 private:
  LoaderOptions loader_options(Shard shard) const {
    return {.batch = config_.data.batch,
            .shuffle = config_.data.shuffle,
            .seed = static_cast<std::uint64_t>(config_.seed),
            .shard = shard,
            .workers = static_cast<int>(config_.data.workers),
            .dtype = make_dtype(config_),
            .device = device_};
  }
  /// What the model's parts may be measured on.
  Tensor example() const {
    Shape shape{std::max<Index>(1, config_.data.batch / world_.size())};
    for (Index extent : train_->shape()) shape.push_back(extent);
    return Tensor::zeros(shape, make_dtype(config_), device_);
  }
  /// The loss, which also keeps what will tell the rows that were right.
  Loss counting(Loss loss) {
    return [this, loss = std::move(loss)](const Tensor& logits, const Tensor& labels) {
      answers_.emplace_back(argmax(logits.detach()), labels.detach());
      return loss(logits, labels);
    };
  }
  /// A step, and its answers on their way to the host. One that is replayed writes those of the step that was noted
  /// anew.
  std::pair<Reading, std::vector<std::pair<Reading, Reading>>> step(const Batch& batch) {
    auto before = std::exchange(answers_, {});
    Reading loss((*step_)(batch.x, batch.y));
    if (step_->replayed() && answers_.empty()) answers_ = std::move(before);
    // The first of more than one per micro-batch is of a step that could not be noted.
    while (std::ssize(answers_) > step_->plan().micros) answers_.erase(answers_.begin());
    std::vector<std::pair<Reading, Reading>> answers;
    for (const auto& [likeliest, labels] : answers_) answers.emplace_back(Reading(likeliest), Reading(labels));
    if (!step_->replayed()) answers_.clear();
    return {std::move(loss), std::move(answers)};
  }
  /// What a step leaves to be read. On a device that is done when the next step has been started, so that the device
  /// need not wait for the host.
  struct Report {
    Reading loss;
    std::vector<std::pair<Reading, Reading>> answers;  // likeliest classes, labels
    double rate = 0;
    Index rows = 0;
    std::int64_t step = 0, batch = 0;
  };
  /// What an epoch has come to.
  struct Sums {
    Clock::time_point start = Clock::now();
    double loss = 0, waited = 0;
    Index samples = 0;
  };
  void account(Report&& r, Sums& sums, const std::string& label, Index batches) {
    const double loss = r.loss.item();
    for (auto& [answer, wanted] : r.answers) {
      const std::vector<double> a = answer.values(), b = wanted.values();
      for (std::size_t row = 0; row < a.size(); ++row) trained_.correct += a[row] == b[row];
      trained_.samples += std::ssize(a);
    }
    sums.loss += loss * static_cast<double>(r.rows), sums.samples += r.rows;
    images_per_s_ = static_cast<double>(sums.samples) / seconds_since(sums.start);
    wait_share_ = sums.waited / seconds_since(sums.start);
    console_.progress(label, r.batch, batches,
                      fmt::format("loss {:.4f}, {:.0f} images/s, data {:.1f} %",
                                  sums.loss / static_cast<double>(sums.samples), images_per_s_, 100 * wait_share_));
    if (dir_ && r.step % log_every == 0)
      dir_->record({{"kind", "train"},
                    {"epoch", cursor_.epoch + 1},
                    {"step", r.step},
                    {"loss", loss},
                    {"lr", r.rate},
                    {"images_per_s", images_per_s_},
                    {"wait_share", wait_share_}});
    if (dir_ && dir_->events()) dir_->events()->tick();
  }
  Evaluation evaluate() {
    if (!step_->divided()) return trireme::evaluate(model_, device_, test_, config_, world_, console_);
    return trireme::evaluate(step_->model(), device_, test_, config_, world_, console_, step_->shard());
  }
  bool stopped() const { return config_.run.max_steps > 0 && cursor_.step >= config_.run.max_steps; }

  void resume() {
    step_->gather();  // the optimizer's whole state, to be read into
    std::vector<double> numbers(5, 0);
    if (world_.main() || step_->divided()) {
      auto loaded = load_latest(config_.run.dir, step_->parameters(), &step_->optimizer());
      check(loaded.has_value(), "resume", "no usable checkpoint in {}", config_.run.dir);
      if (!loaded->note.empty()) console_.log(loaded->note);
      const TrainState& s = loaded->state;
      numbers = {static_cast<double>(s.step), static_cast<double>(s.epoch), static_cast<double>(s.batch),
                 static_cast<double>(s.seed),
                 s.metrics.contains("loss_scale") ? s.metrics.at("loss_scale") : config_.loss_scale};
      saved_ = loaded->path;
      if (dir_) dir_->rewind(s.step);
    }
    Tensor shared = Tensor::of(numbers, {5}, DType::f64);
    world_.comm().broadcast(shared, 0).wait();
    numbers = shared.to_vector();
    check(static_cast<std::int64_t>(numbers[3]) == config_.seed, "resume",
          "the checkpoint's seed is {}, the config's {}; they must agree", static_cast<std::int64_t>(numbers[3]),
          config_.seed);
    cursor_ = {static_cast<std::int64_t>(numbers[0]), static_cast<std::int64_t>(numbers[1]),
               static_cast<std::int64_t>(numbers[2])};
    step_->optimizer().set_steps(cursor_.step);
    if (config_.dtype == "f16") step_->set_loss_scale(numbers[4]);
    if (step_->divided()) return;
    broadcast_state(step_->parameters(), world_);
    broadcast_state(step_->optimizer(), world_);
  }

  void start_from(const std::string& weights) {
    if (world_.main() || step_->divided())
      started_ = import_but_head(step_->parameters(), read_safetensors(weights), weights);
    if (!step_->divided()) broadcast_state(step_->parameters(), world_);
  }

  void banner() {
    console_.log(
        fmt::format("model     {}, {} parameters, {}", config_.model, step_->parameters().count(), config_.dtype));
    console_.log(
        fmt::format("data      {}: {} training, {} test samples", train_->name(), train_->size(), test_->size()));
    const std::string place = device_.kind == DeviceKind::cpu
                                  ? fmt::format("{} thread{}", threads(), threads() == 1 ? "" : "s")
                                  : open_backend(device_.kind).names.at(static_cast<std::size_t>(device_.index));
    console_.log(fmt::format("ranks     {} ({}), {} each; global batch {}; {}", world_.size(), world_.transport(),
                             place, config_.data.batch, make_strategy(config_, world_.size()).name()));
    if (!staged_.empty()) console_.log("messages  through the host: " + staged_);
    console_.log(fmt::format("optimizer {}, {} epochs of {} steps, seed {}", config_.optim.name, config_.epochs,
                             loader_.batches(), config_.seed));
    if (cursor_.step == 0 && !config_.weights.empty())
      console_.log(
          fmt::format("weights   {}{}{}", config_.weights,
                      started_.empty() ? "" : "; of another shape, so drawn anew: ", fmt::join(started_, ", ")));
    if (cursor_.step > 0)
      console_.log(fmt::format("resuming  at step {} (epoch {}, batch {}) from {}", cursor_.step, cursor_.epoch + 1,
                               cursor_.batch, saved_));
    if (dir_) console_.log("run       " + dir_->path());
  }

  /// Reads, on all ranks, that met an image which cannot be used.
  double count_bad() {
    if (config_.data.on_bad == "stop") return 0;
    Tensor sum =
        Tensor::of(std::vector{static_cast<double>(train_->bad().count + test_->bad().count)}, {1}, DType::f64);
    world_.comm().all_reduce(sum).wait();
    return sum.item();
  }
  std::string first_bad() const {
    const std::string first = train_->bad().count > 0 ? train_->bad().first : test_->bad().first;
    return first.empty() ? "none of them on rank 0" : "rank 0's first: " + first;
  }

  /// From the cursor to the end of its epoch, or to run.max_steps.
  void epoch() {
    LoaderOptions options = loader_options(step_->shard());
    options.epoch = cursor_.epoch;
    options.start_batch = cursor_.batch;
    Loader loader(train_, options);
    const std::string label = fmt::format("epoch {}/{}", cursor_.epoch + 1, config_.epochs);
    Sums sums;
    Clock::time_point ready = sums.start;
    std::vector<Report> done;
    const auto settle = [&] {
      for (Report& report : std::exchange(done, {})) account(std::move(report), sums, label, loader.batches());
    };
    trained_ = {};
    for (Batch& batch : loader) {
      sums.waited += seconds_since(ready);
      show_inputs(batch);
      inject_fault(config_.run.fault, world_, cursor_.step + 1);
      const double rate = step_->optimizer().rate();
      auto [loss, answers] = step(batch);
      if (const std::string why = step_->not_replayed(); !why.empty() && !std::exchange(told_, true))
        console_.log("no CUDA graphs: " + why);
      ++cursor_.step, ++cursor_.batch;
      settle();
      done.push_back({std::move(loss), std::move(answers), rate, batch.global, cursor_.step, cursor_.batch});
      if (device_.kind == DeviceKind::cpu) settle();
      if (cursor_.batch == loader.batches()) break;
      if (stopped()) return settle();
      if (config_.checkpoint.steps > 0 && cursor_.step % config_.checkpoint.steps == 0) save({});
      ready = Clock::now();
    }
    settle();
    console_.finish();
    ++cursor_.epoch, cursor_.batch = 0;
    const Counts all = sum_shares(trained_, step_->shard().rank(), world_);
    check(all.samples == sums.samples, "train", "counted the answers of {} of the {} samples", all.samples,
          sums.samples);
    train_loss_ = sums.samples ? sums.loss / static_cast<double>(sums.samples) : 0;
    train_top1_ = sums.samples ? 100 * static_cast<double>(all.correct) / static_cast<double>(sums.samples) : 0;
  }

  /// The first inputs of a run, in TensorBoard.
  void show_inputs(const Batch& batch) {
    if (shown_ || !dir_ || !dir_->events()) return;
    shown_ = true;
    const Shape& s = batch.x.shape();
    if (s.rank() != 4 || (s[3] != 1 && s[3] != 3)) return;
    for (Index i = 0; i < std::min<Index>(s[0], config_.run.images); ++i)
      dir_->events()->image(fmt::format("inputs/{}", i), cursor_.step + 1,
                            encode_png(pixels_of(batch.x.rows(i, i + 1), train_->scale())), s[1], s[2], s[3]);
  }
  void show_weights() {
    if (!dir_->events() || config_.run.histograms == 0 || cursor_.epoch % config_.run.histograms != 0) return;
    for (const auto& e : step_->parameters().entries())
      dir_->events()->histogram("weights/" + e.name, cursor_.step, e.tensor.to_vector());
  }

  void report(const Evaluation& e) {
    if (!dir_) return;
    console_.log(fmt::format(
        "epoch {}/{}: train loss {:.4f}, accuracy {:.2f} %, test loss {:.4f}, test accuracy {:.2f} %, {:.0f} "
        "images/s, {:.1f} % of the time waiting for data",
        cursor_.epoch, config_.epochs, train_loss_, train_top1_, e.loss, e.accuracy(), images_per_s_,
        100 * wait_share_));
    nlohmann::json line{{"kind", "eval"},
                        {"epoch", cursor_.epoch},
                        {"step", cursor_.step},
                        {"train_loss", train_loss_},
                        {"train_top1", train_top1_},
                        {"test_loss", e.loss},
                        {"test_top1", e.accuracy()},
                        {"test_correct", e.correct},
                        {"test_samples", e.samples},
                        {"images_per_s", images_per_s_},
                        {"wait_share", wait_share_}};
    if (e.has_top5()) line["test_top5"] = e.percent(e.in_top5);
    dir_->record(line);
    show_weights();
  }

  void save(std::map<std::string, double> metrics) {
    step_->gather();
    if (!dir_ && !step_->divided()) return;
    TrainState state;
    state.step = cursor_.step, state.epoch = cursor_.epoch, state.batch = cursor_.batch;
    state.seed = static_cast<std::uint64_t>(config_.seed);
    state.config = to_toml(config_);
    if (config_.dtype == "f16") metrics["loss_scale"] = step_->loss_scale();
    state.metrics = std::move(metrics);
    saved_ = save_checkpoint(dir_ ? dir_->path() : "", step_->parameters(), step_->optimizer(), state,
                             {.keep_last = static_cast<int>(config_.checkpoint.keep), .write = dir_.has_value()});
  }

  static constexpr std::int64_t log_every = 20;
  const Config& config_;
  World& world_;
  Device device_;
  std::string staged_;  // why collectives go through the host, if they do
  Mesh mesh_;
  Console console_;
  std::future<Dataset> opening_test_;  // inflated beside the training set
  Dataset train_, test_;
  Loader loader_;  // tells the batches per epoch, and refuses impossible settings before anything is written
  Module model_;
  std::optional<RunDir> dir_;
  std::optional<Step> step_;
  Cursor cursor_;
  std::string saved_;
  std::vector<std::string> started_;                // tensors that config_.weights does not fit
  Counts trained_;                                  // this rank's rows in this epoch
  std::vector<std::pair<Tensor, Tensor>> answers_;  // likeliest classes and labels of the step at hand
  double train_loss_ = 0, train_top1_ = 0, images_per_s_ = 0, wait_share_ = 0;
  bool shown_ = false, told_ = false;
};

}  // namespace

void train(const Config& config, World& world) {
  world.use_all_reduce(config.parallel.allreduce);
  check_shards(config, world.size());
  Trainer(config, world).run();
}

}  // namespace trireme
