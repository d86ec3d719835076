#include "tools/training/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/images/image.h"
#include "framework/autograd/step_context.h"
#include "framework/io/checkpoint.h"
#include "framework/io/weights.h"
#include "framework/metrics/metrics.h"
#include "framework/ops/ops.h"
#include "framework/tensor/host_copy.h"
#include "kernels/core/backend.h"
#include "kernels/core/runtime.h"
#include "kernels/core/thread.h"
#include "parallel/comm/world/compare.h"
#include "parallel/runtime/step.h"
#include "tools/training/answers.h"
#include "tools/training/counts.h"
#include "tools/training/recipe.h"
#include "tools/training/resume.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

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
    const double value = 255 * (x[i] * scale.std[i % channels] + scale.mean[i % channels]);
    pixels[i] = std::clamp(std::round(value), 0.0, 255.0);
  }
  return Tensor::of(pixels, {sample.dim(1), sample.dim(2), sample.dim(3)}, DType::u8);
}

/// Opens a data set in a thread of its own.
class Opening {
 public:
  explicit Opening(std::function<Dataset()> open)
      : open_(std::move(open)),
        opened_(open_.get_future()),
        thread_(start_thread<std::jthread>("data", std::ref(open_))) {}
  Dataset get() { return opened_.get(); }  ///< once; throws what opening it threw

 private:
  std::packaged_task<Dataset()> open_;
  std::future<Dataset> opened_;
  std::jthread thread_;
};

class Trainer {
 public:
  /// found: where the run goes on.
  Trainer(const Config& config, World& world, const std::optional<ResumePoint>& found)
      : config_(config),
        world_(world),
        device_(make_device(config, world.local_rank())),
        staged_(world.use(device_)),
        mesh_(make_mesh(config, world)),
        console_(!world.main(), config.run.progress, config.run.log_seconds),
        opening_test_([&config] { return make_dataset(config, "test"); }),
        train_(make_dataset(config, "train")),
        test_(opening_test_.get()),
        loader_(train_, loader_options({mesh_.index("data"), mesh_.size("data")})),
        model_(make_model(config, options_for(*train_), device_)) {
    compare_ranks(world.comm(), "data", "train " + description(*train_) + "test " + description(*test_));
    if (config.parallel.threads > 0) set_threads(static_cast<int>(config.parallel.threads));
    if (world.main()) dir_.emplace(config.run.dir, config.model, kept_settings(config), config.run.resume);
    if (world.main() && !config.run.resume) dir_->write_classes(train_->class_names());
    step_.emplace(
        model_, answers_.counting(make_loss(config)), make_recipe(config, loader_.batches()), mesh_,
        make_strategy(config, world.size()),
        StepOptions{.seed = static_cast<std::uint64_t>(config.seed),
                    .optimizer = {.clip_norm = config.optim.clip_norm, .decay_biases = config.optim.decay_biases},
                    .loss_scale = config.dtype == "f16" ? config.loss_scale : 0,
                    .cuda_graphs = config.cuda_graphs,
                    .partition = found ? found->partition : "",
                    .example = example()});
    norm_rows_ = norm_rows(*step_, make_strategy(config, world.size()));
    if (found)
      resume(*found);
    else if (!config.weights.empty())
      start_from(config.weights);
    if (dir_ && config.run.tensorboard)
      dir_->open_events(config.run.resume ? std::optional(at_.step + 1) : std::nullopt);
  }

  void run() {
    banner();
    Clock::time_point start = Clock::now();
    Evaluation last;
    while (at_.epoch < config_.epochs && !stopped()) {
      epoch();
      if (at_.in_epoch()) break;  // stopped by run.max_steps in mid-epoch
      step_->gather();
      last = evaluate();
      report(last);
      save({{"test_accuracy", last.accuracy()}, {"test_loss", last.loss}});
    }
    if (at_.in_epoch()) save({});
    step_->gather();
    if (last.samples == 0 || at_.in_epoch()) last = evaluate();
    const double bad = count_bad();
    if (!world_.main()) return;
    if (EventFile* events = dir_->events()) events->flush();
    console_.result(fmt::format("{}, after {} steps in {:.1f} s", last.text(), at_.step, seconds_since(start)));
    if (bad > 0)
      console_.result(fmt::format("bad images:    {:.0f} reads answered by the next good image; {}", bad, first_bad()));
    console_.result("checkpoint:    " + saved_);
    console_.result("metrics:       " + dir_->metrics());
    console_.check_results();
  }

 private:
  LoaderOptions loader_options(RankShare shard) const {
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
  /// What a step leaves to be read. On a device that is done when the next step has been started, so that the device
  /// need not wait for the host.
  struct Report {
    HostCopy loss;
    Answers::HostCopies answers;
    double rate = 0;
    Index rows = 0;
    std::int64_t step = 0, batch = 0;
  };
  /// Of the part of an epoch that this process has trained.
  struct Pace {
    Clock::time_point start = Clock::now();
    double waited = 0;
    Index samples = 0;
  };
  void account(Report&& r, Pace& pace, const std::string& label, Index batches) {
    const double loss = r.loss.item();
    for (auto& [answer, wanted] : r.answers) {
      const std::vector<double> a = answer.values(), b = wanted.values();
      for (std::size_t row = 0; row < a.size(); ++row) mine_.correct += a[row] == b[row];
      mine_.samples += std::ssize(a);
    }
    at_.loss += loss * static_cast<double>(r.rows), at_.counted += r.rows;
    uncounted_ += r.rows, pace.samples += r.rows;
    images_per_s_ = static_cast<double>(pace.samples) / seconds_since(pace.start);
    wait_share_ = pace.waited / seconds_since(pace.start);
    console_.progress(
        label, r.batch, batches,
        fmt::format("loss {:.4f}, {:.0f} images/s, data {:.1f} %", mean_loss(), images_per_s_, 100 * wait_share_));
    if (dir_ && r.step % log_every == 0)
      record({{"kind", "train"},
              {"epoch", at_.epoch + 1},
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
  bool stopped() const { return config_.run.max_steps > 0 && at_.step >= config_.run.max_steps; }

  void resume(const ResumePoint& point) {
    for (const std::string& note : point.notes) console_.log(note);
    std::vector<std::string> changes = point.changes;
    if (const std::string norms = changed_norm_rows(config_, point, norm_rows_); !norms.empty())
      changes.push_back(norms);
    for (const std::string& change : changes) console_.log("override  " + change);
    if (!changes.empty()) overridden_ = point.progress.step;
    if (point.reordered)
      console_.log(
          fmt::format("override  epoch {} goes on at sample {} of other data or in another order: some of its "
                      "samples may come twice, or not at all",
                      point.progress.epoch + 1, point.progress.samples));
    at_ = point.progress, saved_ = point.path;
    step_->gather();  // the optimizer's whole state, to be read into
    if (world_.main() || step_->divided()) load_checkpoint(point.path, step_->parameters(), &step_->optimizer());
    step_->optimizer().set_steps(at_.step);
    if (config_.dtype == "f16" && at_.loss_scale > 0)
      step_->set_loss_scale({.scale = at_.loss_scale, .good_steps = at_.good_steps});
    if (dir_) dir_->rewind(at_.step);
    if (at_.counted < at_.samples)
      console_.log(
          fmt::format("resume: {} holds no sums of epoch {}, so its train loss and accuracy will be those of "
                      "the samples after the first {}",
                      point.path, at_.epoch + 1, at_.samples));
    if (at_.samples >= train_->size()) at_.next_epoch();  // with less data than the run had
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
    if (const std::string rows = step_->batch_norm(); !rows.empty()) console_.log("batch norm: " + rows);
    if (!staged_.empty()) console_.log("messages  through the host: " + staged_);
    console_.log(fmt::format("optimizer {}, {} epochs of {} steps, seed {}", config_.optim.name, config_.epochs,
                             loader_.batches(), config_.seed));
    if (at_.step == 0 && !config_.weights.empty())
      console_.log(
          fmt::format("weights   {}{}{}", config_.weights,
                      started_.empty() ? "" : "; of another shape, so drawn anew: ", fmt::join(started_, ", ")));
    if (config_.run.resume)
      console_.log(fmt::format("resuming  at step {} ({}) from {}", at_.step,
                               at_.epoch < config_.epochs
                                   ? fmt::format("epoch {}, sample {}", at_.epoch + 1, at_.samples)
                                   : "no epoch is left",
                               saved_));
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

  /// From where the run stands to the end of its epoch, or to run.max_steps.
  void epoch() {
    LoaderOptions options = loader_options(step_->shard());
    options.epoch = at_.epoch;
    options.start_sample = at_.samples;
    Loader loader(train_, options);
    const std::string label = fmt::format("epoch {}/{}", at_.epoch + 1, config_.epochs);
    Pace pace;
    Clock::time_point ready = pace.start;
    std::vector<Report> done;
    const auto settle = [&] {
      for (Report& report : std::exchange(done, {})) account(std::move(report), pace, label, loader.batches());
    };
    for (Batch& batch : loader) {
      pace.waited += seconds_since(ready);
      show_inputs(batch);
      inject_fault(config_.run.fault, world_, at_.step + 1);
      const double rate = step_->optimizer().rate();
      auto [loss, answers] = answers_.run(*step_, batch.x, batch.y);
      if (const std::string why = step_->not_replayed(); !why.empty() && !std::exchange(told_, true))
        console_.log("no CUDA graphs: " + why);
      ++at_.step, at_.batch = batch.index + 1, at_.samples += batch.global;
      settle();
      done.push_back({std::move(loss), std::move(answers), rate, batch.global, at_.step, at_.batch});
      if (device_.kind == DeviceKind::cpu) settle();
      if (at_.samples == train_->size()) break;
      if (stopped()) return settle();
      if (config_.checkpoint.steps > 0 && at_.step % config_.checkpoint.steps == 0) settle(), save({});
      ready = Clock::now();
    }
    settle();
    console_.finish();
    count();
    train_loss_ = mean_loss();
    train_top1_ = at_.counted ? 100 * static_cast<double>(at_.correct) / static_cast<double>(at_.counted) : 0;
    at_.next_epoch();
  }
  double mean_loss() const { return at_.counted ? at_.loss / static_cast<double>(at_.counted) : 0; }
  /// Adds the right answers of all ranks since the last call to those of the epoch. A collective call.
  void count() {
    const Counts all = sum_shares(std::exchange(mine_, {}), step_->shard().rank, world_);
    check(all.samples == uncounted_, "train", "counted the answers of {} of {} samples", all.samples, uncounted_);
    at_.correct += all.correct, uncounted_ = 0;
  }

  /// The first inputs of a run, in TensorBoard.
  void show_inputs(const Batch& batch) {
    if (shown_ || !dir_ || !dir_->events()) return;
    shown_ = true;
    const Shape& s = batch.x.shape();
    if (s.rank() != 4 || (s[3] != 1 && s[3] != 3)) return;
    for (Index i = 0; i < std::min<Index>(s[0], config_.run.images); ++i)
      dir_->events()->image(fmt::format("inputs/{}", i), at_.step + 1,
                            encode_png(pixels_of(batch.x.rows(i, i + 1), train_->scale())), s[1], s[2], s[3]);
  }
  void show_weights() {
    if (!dir_->events() || config_.run.histograms == 0 || at_.epoch % config_.run.histograms != 0) return;
    for (const auto& e : step_->parameters().entries())
      dir_->events()->histogram("weights/" + e.name, at_.step, e.tensor.to_vector());
  }

  void report(const Evaluation& e) {
    if (!dir_) return;
    console_.log(fmt::format(
        "epoch {}/{}: train loss {:.4f}, accuracy {:.2f} %, test loss {:.4f}, test accuracy {:.2f} %, {:.0f} "
        "images/s, {:.1f} % of the time waiting for data",
        at_.epoch, config_.epochs, train_loss_, train_top1_, e.loss, e.accuracy(), images_per_s_, 100 * wait_share_));
    nlohmann::json line{{"kind", "eval"},
                        {"epoch", at_.epoch},
                        {"step", at_.step},
                        {"train_loss", train_loss_},
                        {"train_top1", train_top1_},
                        {"test_loss", e.loss},
                        {"test_top1", e.accuracy()},
                        {"test_correct", e.correct},
                        {"test_samples", e.samples},
                        {"images_per_s", images_per_s_},
                        {"wait_share", wait_share_}};
    if (e.has_top5()) line["test_top5"] = e.percent(e.in_top5);
    record(line);
    show_weights();
  }

  void record(const nlohmann::json& line) {
    tell_if_removed();
    dir_->record(line);
  }
  void tell_if_removed() {
    if (dir_->restore_if_removed(kept_settings(config_)))
      console_.log(
          fmt::format("run directory: {} was removed; it is made anew, its earlier metrics are lost", dir_->metrics()));
  }
  void save(std::map<std::string, double> metrics) {
    step_->gather();
    count();
    if (!dir_ && !step_->divided()) return;
    TrainState state;
    state.seed = static_cast<std::uint64_t>(config_.seed);
    state.config = kept_settings(config_);
    state.metrics = std::move(metrics), state.partition = step_->plan().partition;
    state.norm_rows = norm_rows_;
    if (config_.dtype == "f16") {
      const LossScaleState scale = step_->loss_scale();
      at_.loss_scale = scale.scale, at_.good_steps = scale.good_steps;
    }
    store(at_, state);
    if (dir_) tell_if_removed(), dir_->keep_settings(state.config, overridden_);
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
  Opening opening_test_;  // inflated beside the training set
  Dataset train_, test_;
  Loader loader_;  // tells the batches per epoch, and refuses impossible settings before anything is written
  Module model_;
  std::optional<RunDir> dir_;
  std::optional<Step> step_;
  Progress at_;
  std::string saved_, norm_rows_;
  std::vector<std::string> started_;        // tensors that config_.weights does not fit
  Counts mine_;                             // this rank's rows since the last count()
  Index uncounted_ = 0;                     // all ranks' rows since then
  std::optional<std::int64_t> overridden_;  // from this step on the run has other settings
  Answers answers_;
  double train_loss_ = 0, train_top1_ = 0, images_per_s_ = 0, wait_share_ = 0;
  bool shown_ = false, told_ = false;
};

}  // namespace

void train(const Config& config, World& world) {
  compare_ranks(world.comm(), "settings", common_settings(config));
  world.use_all_reduce(config.parallel.allreduce);
  check_shards(config, world.size());
  std::optional<ResumePoint> found;
  if (config.run.resume) {
    found = world.main() ? find_resume_point(config) : ResumePoint{};
    broadcast(*found, world);
  }
  Trainer(config, world, found).run();
}

}  // namespace trireme
