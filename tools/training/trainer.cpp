#include "tools/training/trainer.h"

#include <fmt/format.h>

#include <algorithm>

#include "datasets/text/tokens.h"
#include "framework/io/checkpoint.h"
#include "framework/io/json.h"
#include "parallel/comm/call.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/job_monitor.h"
#include "parallel/runtime/step_flags.h"
#include "parallel/runtime/step_forward.h"
#include "parallel/runtime/step_probe.h"
#include "parallel/runtime/step_resume.h"
#include "parallel/runtime/step_tickets.h"
#include "tools/training/algorithms.h"
#include "tools/training/banner.h"
#include "tools/training/data_record.h"
#include "tools/training/from_options.h"
#include "tools/training/inject_fault.h"
#include "tools/training/prediction.h"
#include "tools/training/prepared_input.h"
#include "tools/training/replicas.h"
#include "tools/training/resume.h"
#include "tools/training/rollbacks.h"
#include "tools/training/run_clock.h"
#include "tools/training/run_lock.h"
#include "tools/training/run_log.h"
#include "tools/training/saver.h"
#include "tools/training/step_trace.h"
#include "tools/training/stop_request.h"
#include "tools/training/stragglers.h"
#include "tools/training/train_metrics.h"

namespace trireme {
namespace {

/// Name in the rank-local state of checkpoints in virtual time: start of the epoch.
constexpr char epoch_start[] = "epoch_start";

}  // namespace

struct Trainer::Impl {
  Impl(TrainerInput given, TrainerOptions o, World& w)
      : world(w),
        monitor(w.clock() ? nullptr : std::make_unique<JobMonitor>(w.comm())),
        options(validated(std::move(o), given, w)),
        clock(w),
        found(agree_on_resume(options, world, lock)),
        cpus(use_threads(options, world)),
        stop(given.request, options, world),
        algorithms(use_all_reduce(options, world)),
        device(make_device(options, world.local_rank())),
        staged(world.use(device)),
        mesh(make_mesh(options, world)),
        saver(options, world),
        log(options, world, clock),
        input(prepared_input(std::move(given), options)),
        loader(input.train, loader_options(options, input, {mesh.index("data"), mesh.size("data")}, device)),
        strategy(input.strategy ? *input.strategy : make_strategy(options, world.size())) {
    compare_ranks(world.comm(), "trainer", input.program);
    check_fault(options.run.fault, world.size());
    Loader(input.test, {.batch = options.data.eval_batch, .shard = world, .workers = 0});  // refuses invalid settings
    if (input.validation) Loader(input.validation, {.batch = options.data.eval_batch, .shard = world, .workers = 0});
    compare_ranks(world.comm(), "data",
                  "train " + description(*input.train) + "test " + description(*input.test) +
                      (input.validation ? "validation " + description(*input.validation) : ""));
    options_model = !input.model;
    if (!input.model)
      input.model = make_undrawn_model(options, options_for(*input.train), device);
    else
      move_to(input.model, options, device);
    if (world.main()) data = data_record(input.train, input.test);
    log.open_run(input.train, input.metrics, bool(input.validation));
    if (log.writes()) log.dir().keep_algorithms(algorithms.table);
    const Tensor example = make_example(options, input, world.size(), device);
    const int between_flags = steps_between_flags(input.model, example);
    StepOptions how = step_options(options);
    how.checks = finite_checks(options, between_flags);
    how.cuda_graphs = options.cuda_graphs;
    how.epoch_steps = loader.batches();
    how.profile = {.example = example, .batch = options.data.batch, .partition = found ? found->partition : ""};
    how.flags = {.names = stop.flags(), .every = between_flags};
    how.keep_outputs =
        how.keep_outputs && !text_of(input.train) ? metrics.keep(input.train->classes()) : metrics.keep_nothing();
    how.tickets = true;
    if (options_model) how.initialize = how.seed;
    step.emplace(input.model, input.loss ? input.loss : make_loss(options),
                 input.optimizer ? *input.optimizer : make_optimizer(options, loader.batches()), mesh, strategy, how);
    rows_of_norms = norm_rows(*step, strategy);
    prediction.emplace(options, world, *step, device, !options_model);
    if (found)
      resume();
    else if (!options.weights.empty())
      redrawn = StepResume(*step).import_weights(options.weights);
    check(options.run.on_nan == "stop" || can_roll_back(), "run.on_nan",
          "runs in virtual time, and ranks that train apart or meet only by messages, cannot roll back; use stop");
    saver.check_room(log, *step);
    if (!options.run.replay.empty()) StepResume(*step).replay(replayed_checkpoint(options));
    if (log.writes() && options.run.tensorboard)
      log.open_events(found || log.dir().was_used() ? std::optional(at.step + 1) : std::nullopt);
  }

  TrainerResult run() {
    const std::string directory = log.agreed_directory(world);
    if (!directory.empty() && !clock.simulated())
      log.copy_to(fmt::format("{}/logs/rank_{}.log", directory, world.rank()));
    if (monitor && world.main() && !directory.empty()) monitor->write_to(directory + "/live.json");
    try {
      return run_in(directory);
    } catch (const std::exception& e) {
      log.console().copy(e.what());
      if (log.events()) log.events()->end_session(false);
      throw;
    }
  }
  TrainerResult run_in(const std::string& directory) {
    banner();
    log.begin(*step, strategy.scope(), mesh.size("data"), *input.train, *input.test, loader.batches());
    if (log.writes()) log.dir().remove_result();
    if (!directory.empty())
      set_crash_directory(directory + "/crash");  // failures before run() are errors of usage,
                                                  // without a crash report
    const Nanoseconds start = clock.simulated() ? 0 : clock.now();
    Evaluation last;
    while (!at.ended && at.epoch < options.epochs && !ended_early()) {
      epoch_with_rollbacks();
      if (at.in_epoch()) break;  // stopped within an epoch
      if (input.callbacks.on_epoch) input.callbacks.on_epoch(ended);
      if (trace.complete(at.step) && !clock.simulated())
        trace.finish(mesh, device, make_dtype(options), directory, log.console());
      log.ml("INTERVAL_START", "eval_start", Json(), at.epoch);
      last = evaluate(input.validation ? input.validation : input.test);
      if (log.wants_weights(ended.epoch)) step->gather_weights();
      log.epoch_end(ended, last, step->parameters());
      if (!clock.simulated()) stragglers.report(ended, world, log.console());
      if (input.callbacks.on_evaluation) at.ended = !rank_0_says(input.callbacks.on_evaluation(last, ended));
      save({{"test_accuracy", last.accuracy()}, {"test_loss", last.loss}});
    }
    if (at.in_epoch()) save({});
    if (trace.is_wanted() && !clock.simulated())
      trace.finish(mesh, device, make_dtype(options), directory, log.console());
    if (!in_parts()) step->gather_weights();
    const bool asked = stop.stops(*step);
    // With a validation split the test set is for the end of all epochs, and not for each pause of a search.
    const bool tests = !asked && (!input.validation || at.ended || at.epoch >= options.epochs);
    if (tests && (input.validation || last.samples == 0 || at.in_epoch())) last = evaluate(input.test);
    if (tests && input.validation) log.test_end(at, last);
    if (!asked) prediction->finish(mesh, *step, input, log);
    const BadSamples train = input.train->bad(), test = input.test->bad(),
                     held = input.validation ? input.validation->bad() : BadSamples{};
    const bool counts = !clock.simulated() || world.main();  // ranks in virtual time share their data sets
    TrainerResult result{.test = tests || (!input.validation && !at.in_epoch()) ? last : Evaluation{},
                         .stopped = asked,
                         .steps = at.step,
                         .seconds = seconds(clock.now() - start),
                         .sent = over_ranks(static_cast<double>(StepProbe(*step).bytes_sent())),
                         .bad_images = all_ranks(counts ? train.count + held.count + test.count : 0),
                         .first_bad = train.count > 0  ? train.first
                                      : held.count > 0 ? held.first
                                                       : test.first};
    saved = saver.wait();
    if (log.writes()) {
      log.end(asked, at.ended || at.epoch >= options.epochs);
      result.checkpoint = saved;
      result.metrics = log.dir().metrics();
      log.dir().write_result(asked ? "preempted" : "finished", at.step, at.epoch);
    }
    (void)rank_0_says(false);  // Ranks wait for rank 0's files here, where the time limit is longer.
    return result;
  }

  double over_ranks(double number) {
    const Tensor sum = Tensor::of(std::vector{number}, {1}, DType::f64);
    world.comm().all_reduce(sum).wait();
    return sum.item();
  }
  /// Rank 0's answer, on all ranks. Takes no simulated time.
  bool rank_0_says(bool mine) {
    const ClockPause pause(clock);
    return over_ranks(world.main() && mine ? 1 : 0) > 0;
  }
  Index all_ranks(Index count) {
    return options.data.on_bad == "stop" ? 0 : static_cast<Index>(over_ranks(static_cast<double>(count)));
  }
  /// Records the phase for crash reports.
  void enter(const char* phase) {
    const bool steady = std::exchange(entered, phase) == phase && std::string_view(phase) == "step";
    scale_timeouts(steady ? 1 : slow_phase);  // in the first step other ranks may still be in the phase before
    if (FlightRecorder* r = FlightRecorder::current()) r->set_phase(phase, at.step);
  }
  /// Whether evaluations leave weights where steps do. A program may use its own model, so all ranks get its weights.
  bool in_parts() { return options_model && StepForward(*step).is_needed(); }
  Evaluation evaluate(const Dataset& data) {
    enter("evaluate");
    EvaluateOptions how = evaluate_options(options, device, log.console(), data->size());
    how.loss = input.loss;
    how.metrics = input.metrics;
    how.collate = input.collate;
    const bool gathered = !in_parts();
    if (gathered) step->gather_weights();
    const bool divided = divide(how, *step, gathered);
    return trireme::evaluate(divided ? step->model() : input.model, data, world, how);
  }
  /// Whether all ranks have every step in common, so that they can return to one.
  bool can_roll_back() { return !clock.simulated() && !StepProbe(*step).trains_apart() && step->plan().tickets == 0; }
  void epoch_with_rollbacks() {
    for (;;) {
      try {
        return epoch();
      } catch (const NonFiniteError& e) {
        if (options.run.on_nan != "rollback" || rollbacks.spent()) throw;
        roll_back(e.what());
      }
    }
  }
  /// Rolls back to the newest checkpoint. First the same samples are tried again. If that fails, the run continues with
  /// the next samples. A checkpoint to which the run has already returned is skipped.
  void roll_back(const std::string& why) {
    log.console().finish();
    const Progress here = at;
    const bool again = rollbacks.tries_again(here);
    (void)saver.wait();
    const std::string path = broadcast_text(world.comm(),
                                            world.main() && (!again || rollbacks.path().empty())
                                                ? log.dir().checkpoint_before(rollbacks.path())
                                                : rollbacks.path(),
                                            0);
    check(!path.empty(), ErrorKind::numerics, "run.on_nan", "{}; no checkpoint to go back to exists", why);
    log.console().log(again ? fmt::format("retry     {}; trying again from {}", why, path)
                            : fmt::format("rollback  {}; weights of {}, next samples ({} of {})", why, path,
                                          rollbacks.count(), Rollbacks::most));
    const LoadedCheckpoint loaded = step->load_checkpoint(path);
    at = rollbacks.go_back(again, path, progress_of(loaded.state), here);
    if (at.loss_scale > 0) StepResume(*step).set_loss_scale({.scale = at.loss_scale, .good_steps = at.good_steps});
    metrics.forget();
    log.rewind(at);
    if (!log.writes()) return;
    if (log.events()) log.open_events(at.step + 1);
  }
  bool compares_replicas() { return options.run.digest_steps > 0 && world.size() > 1 && can_roll_back(); }
  bool ended_early() { return (options.run.max_steps > 0 && at.step >= options.run.max_steps) || stop.stops(*step); }

  void resume() {
    if (!algorithms.note.empty()) found->notes.push_back(algorithms.note);
    for (const std::string& note :
         resume_notes(options, *found, rows_of_norms, input.program, changed_data(options, data, *input.train, world)))
      log.console().log(note);
    if (!found->changes.empty()) overridden = found->progress.step;
    at = found->progress;
    saved = found->path;
    at.ended = at.ended && !options.run.override;
    const std::map<std::string, Tensor> own = restore(*step, *found);
    if (VirtualClock* simulated = clock.simulated()) {
      simulated->restore(from_tensors(own));
      const auto began = own.find(epoch_start);
      check(began != own.end() && began->second.dtype() == DType::i64 && began->second.numel() == 1, ErrorKind::data,
            "resume", "{} does not hold when the epoch began for this rank ({})", saved, epoch_start);
      metrics.resume_epoch(began->second.view().span<std::int64_t>()[0], at.samples);
    }
    log.rewind(at);
    if (at.samples >= epoch_size(input)) at.next_epoch();  // there may be less data than when the run started
  }

  void banner() {
    const std::string where =
        at.epoch < options.epochs ? fmt::format("epoch {}, sample {}", at.epoch + 1, at.samples) : "no epoch is left";
    const Banner told{.options = options,
                      .world = world,
                      .step = *step,
                      .train = input.train,
                      .test = input.test,
                      .validation = input.validation,
                      .strategy = strategy,
                      .device = device,
                      .cpus = cpus,
                      .staged = staged,
                      .optimizer = input.optimizer ? to_string(*input.optimizer) : options.optim.name,
                      .batches = loader.batches(),
                      .redrawn = at.step == 0 ? redrawn : std::vector<std::string>{},
                      .resuming = found ? fmt::format("at step {} ({}) from {}", at.step, where, saved) : "",
                      .directory = log.writes() ? log.dir().path() : ""};
    tell(told, log.console());
    if (clock.simulated()) return;
    const Json kept = environment(told);
    if (log.writes()) log.dir().write_environment(kept);
  }

  /// Batches from here to the next point at which all ranks synchronize.
  Index batches_to_stop() const {
    const Index left = epoch_size(input) - at.samples, size = options.data.batch;
    Index count = left / size + (left % size != 0 ? 1 : 0);
    if (options.run.max_steps > 0) count = std::min<Index>(count, options.run.max_steps - at.step);
    const Index every = options.checkpoint.steps;
    return every > 0 ? std::min<Index>(count, every - at.step % every) : count;
  }

  /// Trains from the current position to the end of the epoch, or until the run is stopped.
  void epoch() {
    LoaderOptions from = loader_options(options, input, step->shard(), device);
    from.epoch = at.epoch;
    from.start_sample = at.samples;
    Loader batches(input.train, from);
    Loader::Pass pass = batches.pass();
    if (!clock.simulated() || !at.in_epoch()) metrics.start_epoch();
    stragglers.begin();
    log.ml("INTERVAL_START", "epoch_start", Json(), at.epoch + 1);
    Nanoseconds ready = clock.now();
    std::optional<TrainMetrics::StepReport> pending;
    const auto settle = [&] {
      if (!pending) return;
      const StepMetrics done = metrics.add(std::move(*pending));
      pending.reset();
      log.train_step(metrics.epoch(), done, batches.batches());
      rollbacks.look(done.loss, done.step);
      if (input.callbacks.on_step) input.callbacks.on_step(done);
    };
    const auto train_one = [&] {
      enter("step");
      const Nanoseconds begun = ready;
      trace.begin(at.step + 1);
      Batch& batch = [&]() -> Batch& {
        const StepTrace::Section waits(trace, FlightRecorder::Event::data, "waits for data");
        return pass.next();
      }();
      metrics.waited(clock.now() - ready);
      log.show_inputs(batch, *input.train, at.step + 1);
      inject_fault(options.run.fault, world, at.step + 1, injected, {batch.x, *step});
      if (saver.is_due()) stop.save();
      stop.take(*step, log.console());
      prediction->before(*step);
      TrainMetrics::StepReport report = metrics.run(*step, batch);
      prediction->after(*step);
      if (const std::string why = StepProbe(*step).not_replayed(); !why.empty() && !std::exchange(told, true))
        log.console().log("no CUDA graphs: " + why);
      settle();
      pending = std::move(report);
      if (device.kind == DeviceKind::cpu) settle();
      if (const std::string said = rollbacks.passed(at); !said.empty()) log.console().log("retry     " + said);
      if (at.step % std::max<std::int64_t>(1, options.run.digest_steps) == 0 && compares_replicas())
        compare_replicas(*step, world, at.step);
      ready = clock.now();
      metrics.took(ready - begun);
      trace.end();
    };
    StepTickets tickets(*step);
    Index done = 0;  // batches done in this pass
    while (at.samples < epoch_size(input)) {
      const Index count = batches_to_stop();
      tickets.open(count);
      metrics.open(*step, options.data.batch, epoch_size(input));
      for (;;) {
        for (const Ticket& ticket : tickets.granted()) pass.add(done + ticket.batch, ticket.share);
        if (pass.done()) break;
        train_one();
        if (at.samples < epoch_size(input) && stop.stops(*step)) {
          settle();
          return tickets.close();
        }
        if (!pass.done() && StepFlags(*step).raised("save")) {
          settle();
          save({});
          ready = clock.now();
        }
      }
      tickets.close();
      settle();
      metrics.close(count);
      done += count;
      if (StepProbe(*step).trains_apart())
        inject_fault(options.run.fault, world, at.step, injected, {{}, *step});  // servers have no step
      stop.meet(*step, world, log.console());
      if (at.samples == epoch_size(input)) break;
      if (ended_early()) return;
      save({});  // the state at which it stopped
      ready = clock.now();
    }
    log.console().finish();
    step->flush();  // Other ranks may wait for this rank's messages, which it does not answer during a save.
    metrics.sum_ranks(step->shard(), world);
    metrics.take_latest(world);
    ended = metrics.epoch();
    at.next_epoch();
  }

  /// Each rank writes its part. A collective call. Takes no simulated time.
  void save(std::map<std::string, double> test_metrics) {
    enter("save");
    const StepTrace::Section saves(trace, FlightRecorder::Event::save, "save");
    step->flush();
    const ClockPause pause(clock);
    if (compares_replicas()) compare_replicas(*step, world, at.step);
    metrics.sum_ranks(step->shard(), world);
    TrainState state;
    state.seed = static_cast<std::uint64_t>(options.seed);
    state.config = kept_settings(options);
    state.metrics = std::move(test_metrics);
    state.partition = step->plan().partition;
    state.norm_rows = rows_of_norms;
    state.program = input.program;
    if (options.dtype == "f16") {
      const LossScaleState now = StepResume(*step).loss_scale();
      at.loss_scale = now.scale;
      at.good_steps = now.good_steps;
    }
    store(at, state);
    if (log.writes()) {
      log.keep_settings(overridden);
      log.dir().keep_algorithms(algorithms.table);
      log.keep_data(input.train, data, overridden.has_value());
    }
    std::map<std::string, Tensor> own;
    if (clock.simulated()) {
      own = to_tensors(pause.before());
      const Tensor began = own[epoch_start] = Tensor::empty({1}, DType::i64);  // as integer: a double would round
      began.view().span<std::int64_t>()[0] = metrics.epoch_start();
    }
    saver.save(log, *step, state, std::move(own));
    if (input.callbacks.on_save)
      input.callbacks.on_save(at.step, log.writes() ? log.dir().checkpoints() + "/" + step_directory(at.step) : "");
    if (const auto [begin, end] = saver.written(); end > 0) trace.wrote(begin, end);
    rollbacks.saved(at);
  }

  World& world;
  std::unique_ptr<JobMonitor> monitor;  // null in virtual time
  TrainerOptions options;
  const RunClock clock;
  std::optional<RunLock> lock;       // of a resumed run; RunDir locks the directory of a new run
  std::optional<ResumePoint> found;  // position from which the run resumes
  std::string cpus;                  // to which this rank is bound; empty: to none
  StopRequest stop;
  const RunAlgorithms algorithms;
  Device device;
  bool options_model = false;  // whether the model is of the options, not the program's own
  std::string staged;          // why collectives go through the host; empty: they do not
  Mesh mesh;
  Saver saver;
  RunLog log;
  PreparedInput input;
  Loader loader;  // gives the batches per epoch, and refuses invalid settings before anything is written
  Strategy strategy;
  Progress at;
  TrainMetrics metrics{at, clock};
  Stragglers stragglers;
  StepTrace trace{options.run.profile};
  std::optional<Step> step;
  std::optional<Prediction> prediction;
  int injected = 0;               // number of faults injected so far
  const char* entered = nullptr;  // current phase
  Rollbacks rollbacks{options.run.spike};
  std::string saved, rows_of_norms, data;  // data: data_record() of rank 0
  std::vector<std::string> redrawn;        // tensors that options.weights does not match
  std::optional<std::int64_t> overridden;  // first step with overridden settings
  EpochMetrics ended;                      // of the last complete epoch
  bool told = false;                       // whether the reason for missing CUDA graphs was logged
};

Trainer::Trainer(TrainerInput input, TrainerOptions options, World& world)
    : impl_(std::make_unique<Impl>(std::move(input), std::move(options), world)) {}
Trainer::~Trainer() { scale_timeouts(1); }
TrainerResult Trainer::run() { return impl_->run(); }
Step& Trainer::step() { return *impl_->step; }

}  // namespace trireme
