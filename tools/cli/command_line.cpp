#include "tools/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ranges>

#include "kernels/core/suggest.h"
#include "tools/cli/config_file.h"
#include "tools/cli/help_formatter.h"
#include "tools/cli/manual.h"
#include "tools/training/from_options.h"
#include "tools/training/resume.h"

namespace trireme {

/// Upper bound of counts on the command line.
constexpr int most_count = 1'000'000'000;

/// The group of options with which `train` is supervised as a job.
constexpr const char* job_group = "Job";

/// The last lines of a subcommand's --help.
constexpr std::pair<const char*, const char*> examples[] = {
    {"train",
     "  trireme train mnist_cnn\n"
     "  trireme train mnist_cnn --epochs 1 --ranks 4 --run.dir runs/a\n"
     "  trireme train --run.dir runs/a --resume\n"
     "  trireme train mnist_cnn --mesh pipe=2,data=2 \\\n"
     "      --strategy 'pipeline(micro=4) | data_parallel'\n"
     "  mpiexec -n 4 trireme train mnist_cnn\n"
     "  trireme train mnist_cnn -n 4 --run.dir runs/b     # restarted after failures\n"
     "  trireme train mnist_cnn --hosts a:4,b:4 --min-ranks 4 --run.dir runs/c"},
    {"eval",
     "  trireme eval runs/a\n"
     "  trireme eval runs/a --data fashion_mnist\n"
     "  trireme eval runs/a --mesh tensor=2 --strategy tensor"},
    {"study",
     "  trireme study run --ranks 1,2,4 --target 98.5 --out study -- train mnist_cnn\n"
     "  trireme study run space.toml --out search -- train mnist_cnn --epochs 3\n"
     "  trireme study run --out search       # continue\n"
     "  trireme study report search          # print the results"},
    {"predict",
     "  trireme predict digit.png --run runs/a\n"
     "  trireme predict cat.jpg --model resnet50 --weights resnet50.safetensors \\\n"
     "      --topk 5"},
    {"generate",
     "  trireme generate runs/text --prompt 'To be' --tokens 50 --temperature 0.8\n"
     "  trireme generate gpt2 --prompt 'The sea' --top_k 40 --samples 3\n"
     "  trireme generate gpt2 --prompt 'The sea' --mesh tensor=2 --strategy tensor"},
    {"infer",
     "  trireme infer runs/unet --volume scan.npy --out labels.npy --result labels\n"
     "  trireme infer runs/unet --volume scan.npy --memory 4GiB --plan\n"
     "  mpiexec -n 4 trireme infer runs/unet --volume scan.npy --out out.npy \\\n"
     "      --mesh d=4"},
    {"pack",
     "  trireme pack train.packed --data imagenet --data.root /data/imagenet \\\n"
     "      --data.image_size 256"},
    {"import",
     "  trireme import model.pt --list\n"
     "  trireme import model.pt --out model.safetensors"},
    {"export",
     "  trireme export runs/a --onnx model.onnx\n"
     "  trireme export runs/text --pretrained folder"},
    {"plan show",
     "  trireme plan show resnet20 --mesh pipe=4 --strategy 'pipeline(micro=8)' \\\n"
     "      --svg plan.svg"},
    {"plan search",
     "  trireme plan search lenet5 --data synthetic --batch 4096 --ranks 64 \\\n"
     "      --cluster dgx_a100"},
    {"plan simulate",
     "  trireme plan simulate resnet20 --ranks 16 --cluster gigabit_ethernet \\\n"
     "      --cost counted\n"
     "  trireme plan simulate lenet5 --data synthetic --cost counted \\\n"
     "      --sweep ranks=1,4,16 --cluster dgx_a100"},
    {"plan verify",
     "  trireme plan verify lenet5 --ranks 4 --strategy data_parallel\n"
     "  trireme plan verify lenet5 --mesh pipe=2 --strategy 'pipeline(micro=4)' \\\n"
     "      --steps 3"},
    {"bench",
     "  trireme bench resnet50 --batch 32\n"
     "  trireme bench lenet5 --batch 256 --infer\n"
     "  trireme bench lenet5 --data synthetic --batch 32 --ranks 2 \\\n"
     "      --machine machine.toml"},
    {"doctor",
     "  trireme doctor\n"
     "  mpiexec -n 4 trireme doctor\n"
     "  trireme doctor --live runs/a"},
    {"report",
     "  trireme report runs/a runs/b --out report.html\n"
     "  trireme report study --out runs.csv\n"
     "  trireme report --compare study/runs/serial study/runs/strong-r2-data_parallel"},
    {"info",
     "  trireme info\n"
     "  trireme info --env\n"
     "  source <(trireme info --completion)"},
};

constexpr const char* statuses =
    "Exit status:\n"
    "  0   success\n"
    "  1   the answer is no (plan verify: a difference; doctor: a fault), or runs\n"
    "      failed (study, and train -n if none of the errors below says why)\n"
    "  85  asked to stop; the run has saved its state, and --resume continues it\n"
    "  An error's status names its kind: 2 usage, 65 data, 66 file, 67 device,\n"
    "  68 communicator, 69 numerics, 70 out of memory, 71 internal.\n"
    "\n"
    "Examples:\n"
    "  trireme train mnist_cnn --epochs 1       # train on one rank\n"
    "  mpiexec -n 4 trireme train mnist_cnn     # train on four ranks\n"
    "  trireme train --help                     # options, settings and examples\n"
    "  trireme doctor                           # check this machine";

CommandLine::CommandLine(int argc, char** argv) : argc_(argc), argv_(argv) {
  app_.require_subcommand(1);
  app_.set_help_flag("-h,--help", "print this help");
  app_.set_version_flag("--version", version(), "print the version");
  app_.formatter(std::make_shared<HelpFormatter>());  // subcommands inherit it
  train();
  eval();
  study();
  predict_images();
  generate_text();
  infer();
  pack();
  import();
  export_model();
  plan();
  bench();
  doctor();
  report();
  CLI::App& info = add("info", machine, "print build, devices, MPI, threads, models and strategies", [this] {
    const auto names = models() | std::views::transform(&ModelRow::name);
    if (manual_) fmt::print("{}", man_page(app_));
    if (completion_) fmt::print("{}", bash_completion(app_, fmt::format("{}", fmt::join(names, " "))));
    return manual_ || completion_ ? 0 : environment_ ? info_environment() : trireme::info();
  });
  info.add_flag("--env", environment_, "print the environment variables instead, with values and defaults");
  info.add_flag("--man", manual_, "print the manual page, trireme(1)");
  info.add_flag("--completion", completion_, "print a script with which Bash completes commands and options");
  for (const auto& [name, lines] : examples)
    for (auto& [command, action] : actions_)
      if (full_name(*command) == name) command->footer(std::string("Examples:\n") + lines);
  app_.footer(statuses);
  for (auto& [command, action] : actions_) refuse_empty_paths(*command);
}

void CommandLine::refuse_empty_paths(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string kind = option->get_type_name();
    if (kind != "FILE" && kind != "DIR" && kind != "FOLDER" && kind != "RUN") continue;
    option->check(
        CLI::Validator([](const std::string& path) { return path.empty() ? "it is empty, expected a path" : ""; }, ""));
  }
}

void CommandLine::add_model(CLI::App& command) {
  command.add_option("model", model_, "model; trireme info lists the names")->type_name("MODEL");
}

int CommandLine::configured(const std::function<int(const TrainerOptions&)>& act, const TrainerOptions& base) {
  if (!model_.empty()) settings_.set_first("model", model_);
  const TrainerOptions options = settings_.over(base);
  validate(options);
  check_model_name(options);
  const auto chosen = std::ranges::find_if(actions_, [](const auto& a) { return a.first->parsed(); });
  const std::string command = full_name(*chosen->first);
  const TrainerOptions::Parallel given = settings_.over({}).parallel;
  if (command != "train" && given.virtual_ranks > 0)
    throw OptionError(fmt::format("parallel.virtual is for trireme train only; {} {}; leave it out", command,
                                  command == "plan simulate" ? "starts no ranks" : "runs in real time"));
  if (command != "train" && command != "plan simulate" && command != "plan search" && !given.cluster.empty())
    throw OptionError(fmt::format(
        "parallel.cluster is for plan simulate, plan search and train --virtual; {} runs on this machine", command));
  if (!settings_.print_config()) return act(options);
  fmt::print("{}", to_toml(options));
  return 0;
}

void CommandLine::train() {
  CLI::App& command = add("train", training, "train a model; under mpiexec or srun each process is a rank", [this] {
    const auto launches = train_->get_options([](const CLI::Option* o) { return o->get_group() == job_group; });
    if (!settings_.print_config() &&
        std::ranges::any_of(launches, [](const CLI::Option* o) { return o->count() > 0; })) {
      launch_.words = settings_.words();
      launch_.words.insert(launch_.words.begin(), "train");
      if (!model_.empty()) launch_.words.push_back(model_);
      return launch_command(launch_);
    }
    const TrainerOptions given = settings_.over({});  // a resumed run has saved settings
    TrainerOptions base = goes_on(given) ? resume_config(given.run.dir) : TrainerOptions{};
    TrainerOptions::Parallel& kept = base.parallel;
    if (given.parallel.strategy == "auto" && given.parallel.mesh.empty() && !kept.mesh.empty())  // strategy auto
                                                                                                 // chooses a mesh again
    {
      kept.ranks = ranks_of(parse_mesh(kept.mesh));
      kept.mesh.clear();
    }
    return configured(
        [&](const TrainerOptions& options) {
          return train_command(argc_, argv_, options, !given.parallel.cluster.empty());
        },
        base);
  });
  train_ = &command;
  add_model(command);
  add_launch(command, launch_);
  settings_.add_to(command);
}

void CommandLine::add_launch(CLI::App& command, LaunchCommand& given) {
  LaunchOptions& o = given.launch;
  command.option_defaults()->group(job_group);
  command
      .add_option("-n,--np", o.ranks,
                  "supervise the training as a job of N ranks, processes or threads; after a failure, restart it from "
                  "its newest checkpoint (default with hosts: their slots)")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("-H,--hosts", given.hosts, "hosts and the ranks of each: a:4,b:4")->type_name("LIST");
  command.add_option("--hostfile", given.host_file, "file with one host per line: a slots=4")->type_name("FILE");
  command.add_option("--max-restarts", o.max_restarts, "give up after K restarts (default: 3)")
      ->type_name("K")
      ->check(CLI::Range(0, most_count));
  command
      .add_option("--min-ranks", o.min_ranks,
                  "if hosts are gone, continue with fewer ranks, but at least M (default: all ranks)")
      ->type_name("M")
      ->check(CLI::Range(1, most_count));
  command
      .add_option("--launcher", o.launcher,
                  "auto, threads, mpiexec or srun (default: auto, which is srun in a Slurm allocation)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "threads", "mpiexec", "srun"}));
  command.add_option("--grace", o.grace, "seconds that ranks get to stop; then the rest is killed (default: 60)")
      ->type_name("S")
      ->check(CLI::Range(1e-3, 1e9));
  command.option_defaults()->group("Options");
}

void CommandLine::study() {
  CLI::App& command = add("study", training,
                          "compare strategies over ranks and seeds (a scaling study), or search hyper-parameters: "
                          "random, Sobol, grid, TPE, ASHA, population-based training",
                          [this] { return study_command(study_); });
  add_options(command, study_);
}

void CommandLine::doctor() {
  CLI::App& command =
      add("doctor", machine, "check this machine before a training; under mpiexec or srun, all hosts of the job",
          [this] { return doctor_command(argc_, argv_, doctor_); });
  command.add_option("--dir", doctor_.directory, "folder for runs, whose disk is checked (default: this folder)")
      ->type_name("DIR");
  command.add_option("--live", doctor_.live, "show what the ranks of a running training do and wait for")
      ->type_name("RUN");
  command.add_flag("--json", doctor_.json, "print the findings as a JSON array");
}

void CommandLine::report() {
  CLI::App& command =
      add("report", machine, "write a page of one run, of several runs, of a scaling study, or of a search",
          [this] { return compare_ ? compare_command(runs_) : report_command(runs_, page_); });
  command.add_option("runs", runs_, "run directories, or the directory of a study or search")
      ->required()
      ->type_name("RUN");
  command.add_option("--out", page_, "page to write, or .json or .csv (default: report.html)")->type_name("FILE");
  command.add_flag("--compare", compare_,
                   "test the difference of two runs, or of two folders of runs, paired by seed; prints a table");
}

void CommandLine::eval() {
  CLI::App& command =
      add("eval", training, "print accuracy and loss of a run's newest checkpoint on the test set", [this] {
        TrainerOptions base = run_config(run_);
        const bool run_layout = !settings_.gives_layout();
        if (!run_layout) base.parallel = {.threads = base.parallel.threads, .bind = base.parallel.bind};
        return configured(
            [&](const TrainerOptions& options) {
              return eval_command(argc_, argv_, options, run_, weights_, run_layout);
            },
            base);
      });
  command
      .add_option(
          "run", run_,
          "run directory. Without --ranks, --mesh and --strategy, ranks divide the model as in the run if their "
          "number is the run's. With one of them, the others are not the run's. Without --strategy, each rank "
          "gets the whole model")
      ->required()
      ->type_name("RUN");
  add_weights(command, weights_);
  settings_.add_to(command, std::nullopt);
}

void CommandLine::predict_images() {
  CLI::App& command = add("predict", using_models, "print the most probable classes of image files (PNG, JPEG)",
                          [this] { return predict(predict_); });
  command
      .add_option("images", predict_.images,
                  "image files; pixels are scaled as in training, photographs resized by their shorter side and cut to "
                  "the centre, small pictures resized as a whole")
      ->required()
      ->type_name("FILE");
  CLI::Option* from = command.add_option("--run", predict_.run, "run directory")->type_name("RUN");
  command
      .add_option("--model", predict_.model,
                  "without a run: a model of ImageNet, for example resnet50; needs --weights")
      ->type_name("MODEL")
      ->excludes(from);
  command.add_option("--labels", predict_.labels, "file with one class name per line")->type_name("FILE");
  CLI::Option* top = command.add_option("--topk", predict_.top, "number of classes to print per image (default: 1)");
  CLI::Option* json = command.add_flag("--json", predict_.json, "print a JSON object per image, with all classes");
  top->type_name("K");
  command.add_flag("--logits", predict_.logits, "print logits instead of probabilities");
  command.add_option("--npy", predict_.npy, "write an array [images, classes] for NumPy instead of printing lines")
      ->type_name("FILE")
      ->excludes(top)
      ->excludes(json);
  command.add_flag("--gray,--grey", predict_.gray, "turn colour pictures grey, for a model of grey pictures");
  command.add_flag("--invert", predict_.invert, "swap light and dark, for dark ink on light paper");
  add_weights(command, predict_.weights);
}

void CommandLine::generate_text() {
  CLI::App& command = add("generate", using_models, "continue prompts with a language model",
                          [this] { return generate_command(argc_, argv_, generate_); });
  command
      .add_option("run", generate_.run,
                  "run directory, a checkpoint of a run, or a Hugging Face folder (config.json, weights, tokenizer)")
      ->type_name("RUN");
  command.add_option("--prompt", generate_.prompts, "text to continue; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_option("--prompts", generate_.prompt_file, "file with one prompt per line")->type_name("FILE");
  GenerateOptions& o = generate_.options;
  command.add_option("--tokens", o.tokens, "most tokens to draw for each prompt (default: 100)")->type_name("N");
  command
      .add_option("--temperature", generate_.temperature,
                  "divide the logits by X; 0 takes the most probable token (default: the folder's "
                  "generation_config.json, or 1)")
      ->type_name("X");
  command
      .add_option("--top_k,--top-k", generate_.top_k,
                  "draw among the K most probable tokens; 0: all (default: the folder's generation_config.json, or 0)")
      ->type_name("K");
  command
      .add_option("--top_p,--top-p", generate_.top_p,
                  "draw among the fewest tokens with a total probability of P (default: the folder's "
                  "generation_config.json, or 1)")
      ->type_name("P");
  command.add_option("--seed", o.seed, "seed; the same seed, prompt and weights give the same text (default: 1)")
      ->type_name("N");
  command.add_option("--samples", generate_.samples, "texts for each prompt (default: 1)")->type_name("N");
  command
      .add_option("--stop", generate_.stop, "text that ends the output and is not printed; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command
      .add_option("--context", generate_.context,
                  "most tokens that the model sees at once; of a longer text the older half is forgotten (default: the "
                  "model's positions)")
      ->type_name("N");
  command
      .add_option("--tokenizer", generate_.tokenizer, "another tokenizer than the run's: bytes, or a file or folder")
      ->type_name("FILE");
  command
      .add_option("--model", generate_.model,
                  "without a run: a model, for example gpt2; needs --weights and --tokenizer")
      ->type_name("MODEL");
  command.add_flag("--json", generate_.json, "print whole texts, one JSON object per line");
  TrainerOptions::Parallel& parallel = generate_.parallel;
  command
      .add_option("--ranks", parallel.ranks,
                  "ranks as threads, for a model larger than one rank; ignored under mpiexec or srun (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--mesh", parallel.mesh, "axes of the ranks and their sizes, tensor=2 (default: all on axis data)")
      ->type_name("TEXT");
  command
      .add_option("--strategy", parallel.strategy,
                  "how ranks divide the model: tensor, pipeline, zero(3) (default: data_parallel, which divides the "
                  "prompts)")
      ->type_name("TEXT");
  add_weights(command, generate_.weights);
}

void CommandLine::infer() {
  CLI::App& command = add("infer", using_models,
                          "apply a model to a volume: whole, in tiles, or divided over ranks, with the same result",
                          [this] { return infer_command(argc_, argv_, infer_); });
  add_options(command, infer_);
}

void CommandLine::pack() {
  CLI::App& command =
      add("pack", using_models,
          "decode a data set once, into one file for --data packed (phantoms: a folder for --data volumes)",
          [this] { return configured([this](const TrainerOptions& options) { return pack_command(options, to_); }); });
  command.add_option("file", to_, "file to write (phantoms: folder)")->required()->type_name("FILE");
  settings_.add_to(command);
}

void CommandLine::import() {
  CLI::App& command =
      add("import", using_models, "convert weights of other frameworks to safetensors; names and values stay",
          [this] { return import_command(from_, to_, listing_); });
  command.add_option("file", from_, ".npz, .npy, .pt, .pth, .bin or .safetensors")->required()->type_name("FILE");
  command.add_option("--out", to_, "safetensors file to write")->type_name("FILE");
  command.add_flag("--list", listing_, "print names, types and shapes of the tensors");
}

void CommandLine::export_model() {
  CLI::App& command =
      add("export", using_models, "write a model for other programs: ONNX or Hugging Face's from_pretrained()",
          [this] { return export_command(export_); });
  command.add_option("run", export_.run, "run directory")->type_name("RUN");
  command.add_option("--model", export_.model, "without a run: a model, for example resnet50; needs --weights")
      ->type_name("MODEL");
  command.add_option("--onnx", export_.onnx, "ONNX file to write (opset 17, for example for onnxruntime)")
      ->type_name("FILE");
  command
      .add_option("--pretrained", export_.pretrained,
                  "folder to write for from_pretrained(): config.json, model.safetensors, tokenizer.json")
      ->type_name("FOLDER");
  add_weights(command, export_.weights);
}

void CommandLine::bench() {
  CLI::App& command = add(
      "bench", machine,
      "measure images per second on synthetic images, and where the time goes; or this machine for predictions",
      [this] {
        if (!profile_.to.empty() &&
            (!settings_.over({}).parallel.mesh.empty() || !settings_.over({}).parallel.strategy.empty()))
          throw OptionError("bench --machine measures the model's parts on one rank; leave out --mesh and --strategy");
        return configured([this](const TrainerOptions& options) {
          return profile_.to.empty() ? bench_command(argc_, argv_, options, bench_)
                                     : profile_command(argc_, argv_, options, profile_);
        });
      });
  add_model(command);
  command.add_option("--steps", bench_.steps, "steps to time, after two warm-up steps (default: 10)")
      ->type_name("N")
      ->check(CLI::Range(1, most_count));
  command.add_flag("--infer", bench_.infer, "time evaluation instead of training, with folded batch norms");
  CLI::Option* machine = command.add_option("--machine", profile_.to,
                                            "instead measure steps of the model, calls between ranks and the disk; "
                                            "machine file to write, for --cost of plan");
  machine->type_name("FILE")->excludes(command.get_option("--steps"))->excludes(command.get_option("--infer"));
  command
      .add_option("--rows", profile_.rows,
                  "machine: rows of micro-batches, 8,16,32 (default: up to a rank's share of data.batch)")
      ->delimiter(',')
      ->check(CLI::Range(1, most_count))
      ->needs(machine);
  command.add_option("--runs", profile_.runs, "machine: repetitions of each measurement (default: 15)")
      ->check(CLI::Range(1, most_count))
      ->needs(machine);
  command.add_flag("--load", profile_.load, "machine: also measure the loader of the data set")->needs(machine);
  command.add_option("--disk", profile_.disk, "machine: directory whose disk is measured (default: this directory)")
      ->type_name("DIR")
      ->needs(machine);
  settings_.add_to(command);
}

void CommandLine::plan() {
  CLI::App* command =
      app_.add_subcommand("plan", "show, search, simulate or verify what ranks do in a step")->group(planning);
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  trireme plan show mnist_cnn --mesh pipe=2 --strategy pipeline\n"
      "  trireme plan simulate --help");
  show(*command);
  search(*command);
  simulate(*command);
  verify(*command);
}

void CommandLine::show(CLI::App& plan) {
  CLI::App& command = add(plan, "show", "", "show what each rank does in a step, its cost and timeline", [this] {
    return configured([this](const TrainerOptions& options) { return plan_show(options, plan_); });
  });
  add_drawings(command);
  command.add_option("--latency", plan_.latency, "seconds before a message arrives")->type_name("SECONDS");
  command.add_option("--bandwidth", plan_.bandwidth, "bytes per second that a rank sends; 0: unlimited")
      ->type_name("BYTES");
  command.add_flag("--actions", plan_.actions, "print every action; without it, similar actions share a line");
  command.add_flag("--measure", plan_.measure,
                   "also run the plan with ranks as threads, and draw the measured timeline");
  settings_.add_to(command);
}

void CommandLine::search(CLI::App& plan) {
  CLI::App& command = add(plan, "search", "", "rank the fastest strategies for these ranks on a cluster", [this] {
    return configured([this](const TrainerOptions& options) { return plan_search(argc_, argv_, options, search_); });
  });
  command.add_option("model,--model", model_, "model; trireme info lists the names")->type_name("MODEL");
  add_cost(command, search_.cost);
  command
      .add_option("--memory", search_.memory,
                  "bytes that a rank may hold, 16e9, 16GB, 16GiB (default: the cluster's memory, or no limit)")
      ->type_name("BYTES");
  command.add_option("--top", search_.top, "number of strategies to print (default: 20)")
      ->type_name("K")
      ->check(CLI::Range(1, 10000));
  command.add_option("--json", search_.json, "JSON file to write")->type_name("FILE");
  command.add_flag("--run", search_.run, "then train with the best strategy, ranks as threads");
  settings_.add_to(command);
}

void CommandLine::simulate(CLI::App& plan) {
  CLI::App& command =
      add(plan, "simulate", "", "predict the time of a step on a described cluster, for any number of ranks", [this] {
        return configured([this](const TrainerOptions& options) { return simulate_command(options, plan_); });
      });
  add_drawings(command);
  command
      .add_option("--steps", plan_.steps, "steps to simulate in a row; ranks may get ahead of each other (default: 1)")
      ->check(CLI::Range(1, most_count));
  command
      .add_option("--collectives", plan_.collectives,
                  "cost of collectives: by formula (default), or message by message on shared links, for up to 256 "
                  "ranks; all-reduces follow --parallel.allreduce (default: ring)")
      ->check(CLI::IsMember({"formula", "messages"}))
      ->type_name("formula|messages");
  CLI::Option* sweep = command.add_option(
      "--sweep", plan_.sweep,
      "samples per second for several numbers of ranks, ranks=1,2,4,8; --svg and --html draw a chart");
  sweep->type_name("LIST")->excludes(command.get_option("--trace"));
  command
      .add_option("--scaling", plan_.scaling,
                  "sweep: weak (default; each rank keeps its rows), strong (all ranks share data.batch) or both")
      ->check(CLI::IsMember({"weak", "strong", "both"}))
      ->type_name("weak|strong|both")
      ->needs(sweep);
  command
      .add_option("--measured", plan_.measured,
                  "sweep: measured steps to show next to the simulated ones: CSV or one JSON object per line (ranks, "
                  "seconds; scaling, batch, evidence), or the directory of a scaling study")
      ->type_name("FILE")
      ->needs(sweep);
  const auto moved = [](const std::string&) { throw OptionError("--backtest: use bench/backtest TABLE.csv"); };
  command.add_option_function<std::string>("--backtest", moved)->group("");
  settings_.add_to(command);
}

/// Options of plan show and simulate: the model, its costs, and the output files.
void CommandLine::add_cost(CLI::App& command, std::string& cost) {
  command
      .add_option(
          "--cost", cost,
          "costs of the model's parts: measured on this machine (default where that takes seconds), counted from "
          "shapes and the cluster's flops (default elsewhere), equal, or from a machine file (trireme bench --machine)")
      ->type_name("COST");
}

void CommandLine::add_drawings(CLI::App& command) {
  command.add_option("model,--model", model_, "model; trireme info lists the names")->type_name("MODEL");
  add_cost(command, plan_.cost);
  command.add_option("--trace", plan_.trace, "timeline to write, for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  command.add_option("--svg", plan_.svg, "picture of the timeline to write")->type_name("FILE");
  command.add_option("--html", plan_.html, "page to write, with the picture and the table")->type_name("FILE");
}

void CommandLine::verify(CLI::App& plan) {
  TrainerOptions base;  // small and exact, unless the settings say otherwise
  base.dtype = "f64";
  base.data.name = "synthetic";
  base.data.batch = 16;
  base.optim.name = "sgd";
  base.optim.lr = 0.01;
  base.optim.schedule = "constant";
  CLI::App& command =
      add(plan, "verify", "", "train with a strategy and serially, and name the first difference (exit status 1)",
          [this, base] {
            return configured(
                [this](const TrainerOptions& options) { return verify_command(argc_, argv_, options, verify_); }, base);
          });
  command.add_option("model,--model", model_, "model; trireme info lists the names")->type_name("MODEL");
  command.add_option("--steps", verify_.steps, "steps to compare (default: 20)")->type_name("N");
  command
      .add_option("--tolerance", verify_.tolerance,
                  "largest relative difference that counts as equal (default: 1e-11 in f64, else 1e-4)")
      ->type_name("X");
  settings_.add_to(command, base);
}

}  // namespace trireme
