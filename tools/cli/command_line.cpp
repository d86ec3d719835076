#include "tools/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "kernels/core/suggest.h"
#include "tools/backtest/scaling_table.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"
#include "tools/training/resume.h"

namespace trireme {

/// Of what is counted on a command line.
constexpr int most_count = 1'000'000'000;

static std::string model_names() {
  return fmt::format("{}", fmt::join(models() | std::views::transform(&ModelRow::name), ", "));
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
  command.add_option("model", model_, model_names())->type_name("MODEL");
}

int CommandLine::configured(const std::function<int(const TrainerOptions&)>& act, const TrainerOptions& base) {
  if (!model_.empty()) settings_.set_first("model", model_);
  const TrainerOptions options = settings_.over(base);
  validate(options);
  check_model_name(options);
  const std::string command = app_.get_subcommands()[0]->get_name();
  const TrainerOptions::Parallel given = settings_.over({}).parallel;
  if (command != "train" && given.virtual_ranks > 0)
    throw OptionError(fmt::format("parallel.virtual is for trireme train; {} {}", command,
                                  command == "simulate" ? "starts no ranks" : "runs in real time"));
  const bool searches = command == "plan" && to_ == "search";
  if (command != "train" && command != "simulate" && !searches && !given.cluster.empty())
    throw OptionError(fmt::format(
        "parallel.cluster is for trireme simulate and train --virtual, and plan search; {} runs on this machine",
        command));
  if (!settings_.print_config()) return act(options);
  fmt::print("{}", to_toml(options));
  return 0;
}

void CommandLine::train() {
  CLI::App& command = add("train", "train a model; under mpiexec or srun each process is a rank", [this] {
    const TrainerOptions given = settings_.over({});  // a run that goes on has settings of its own
    TrainerOptions base = goes_on(given) ? resume_config(given.run.dir) : TrainerOptions{};
    TrainerOptions::Parallel& kept = base.parallel;
    if (given.parallel.strategy == "auto" && given.parallel.mesh.empty() && !kept.mesh.empty())  // it chooses anew
      kept.ranks = ranks_of(parse_mesh(kept.mesh)), kept.mesh.clear();
    return configured(
        [&](const TrainerOptions& options) {
          return train_command(argc_, argv_, options, !given.parallel.cluster.empty());
        },
        base);
  });
  add_model(command);
  settings_.add_to(command);
}

void CommandLine::launch() {
  CLI::App& command =
      add("launch", "run a training as a job, and start it again from its newest checkpoint when it fails",
          [this] { return launch_command(launch_); });
  command.footer("What to launch stands behind --: trireme launch --ranks 4 -- train mnist_cnn --run.dir DIR");
  LaunchOptions& o = launch_.launch;
  command
      .add_option("--ranks,--np", o.ranks,
                  "processes, or threads; -np means the same (default: the hosts' slots, or 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("-H,--hosts", launch_.hosts, "hosts and how many ranks each has: a:4,b:4")->type_name("LIST");
  command.add_option("--hostfile", launch_.host_file, "a host in each line: a slots=4")->type_name("FILE");
  command.add_option("--max-restarts", o.max_restarts, "after so many failures in all it gives up (default: 3)")
      ->type_name("K")
      ->check(CLI::Range(0, most_count));
  command
      .add_option("--min-ranks", o.min_ranks,
                  "go on with fewer ranks, but no fewer, where hosts are gone (default: all)")
      ->type_name("M")
      ->check(CLI::Range(1, most_count));
  command
      .add_option("--launcher", o.launcher, "auto, threads, mpiexec, srun (default: auto: srun in a Slurm allocation)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "threads", "mpiexec", "srun"}));
  command.add_option("--grace", o.grace, "seconds to stop in, before what is left is killed (default: 60)")
      ->type_name("S")
      ->check(CLI::Range(1e-3, 1e9));
}

void CommandLine::scaling() {
  CLI::App& command =
      add("scaling", "train under several strategies, ranks and seeds: the data of a scaling study, resumed by itself",
          [this] {
            return configured([this](const TrainerOptions& options) { return scaling_command(options, scaling_); },
                              scaling_base(scaling_, !model_.empty()));
          });
  add_model(command);
  add_options(command, scaling_);
  settings_.add_to(command);
}

void CommandLine::tune() {
  CLI::App& command = add("tune", "search hyper-parameters: random, Sobol, grid, TPE, ASHA, population-based training",
                          [this] { return tune_command(tune_); });
  command.footer(
      "What to train stands behind --: trireme tune space.toml --out DIR -- train mnist_cnn --epochs 9\n"
      "The same command, or trireme tune --out DIR, goes on; trireme tune report DIR shows what it has come to");
  add_options(command, tune_);
}

void CommandLine::doctor() {
  CLI::App& command =
      add("doctor", "check this machine, or under mpiexec or srun all hosts of a job, before a training",
          [this] { return doctor_command(argc_, argv_, doctor_); });
  command.add_option("--dir", doctor_.directory, "where runs are to be written (default: here)")->type_name("DIR");
  command.add_option("--live", doctor_.live, "what the ranks of a run that trains now do, and what holds them up")
      ->type_name("RUN");
  command.add_flag("--json", doctor_.json, "print a JSON array of findings");
}

void CommandLine::report() {
  CLI::App& command = add("report", "a page of one run or several side by side, or of a scaling study",
                          [this] { return report_command(runs_, page_); });
  command.add_option("runs", runs_, "run directories, or one of a study")->required()->type_name("RUN");
  command.add_option("--out", page_, "HTML file to write (default: report.html)")->type_name("FILE");
}

void CommandLine::eval() {
  CLI::App& command = add("eval", "accuracy and loss of a run's newest checkpoint on the test set", [this] {
    return configured(
        [this](const TrainerOptions& options) { return eval_command(argc_, argv_, options, run_, weights_); },
        run_config(run_));
  });
  command.add_option("run", run_, "run directory")->required()->type_name("RUN");
  add_weights(command, weights_);
  settings_.add_to(command, std::nullopt);
}

void CommandLine::predict_images() {
  CLI::App& command =
      add("predict",
          "probabilities of the classes of image files (PNG, JPEG), by a run's model or a weights file; pixels are "
          "scaled as in training, photographs resized by their shorter side and cut to the centre, small pictures "
          "resized as a whole",
          [this] { return predict(predict_); });
  command.add_option("images", predict_.images, "image files")->required()->type_name("FILE");
  CLI::Option* from = command.add_option("--run", predict_.run, "run directory")->type_name("RUN");
  command.add_option("--model", predict_.model, "without a run: a model of ImageNet's, resnet50, and its --weights")
      ->type_name("MODEL")
      ->excludes(from);
  command.add_option("--labels", predict_.labels, "file with the name of one class per line")->type_name("FILE");
  CLI::Option* top = command.add_option("--topk", predict_.top, "likeliest classes shown per image (default: 1)");
  CLI::Option* json = command.add_flag("--json", predict_.json, "a JSON object per line, which also holds all classes");
  top->type_name("K");
  command.add_flag("--logits", predict_.logits, "logits instead of probabilities");
  command.add_option("--npy", predict_.npy, "write an array [images, classes] for NumPy, and print no lines")
      ->type_name("FILE")
      ->excludes(top)
      ->excludes(json);
  command.add_flag("--gray,--grey", predict_.gray, "make colour pictures grey for a model of grey ones");
  command.add_flag("--invert", predict_.invert, "dark ink on light paper: swap light and dark");
  add_weights(command, predict_.weights);
}

void CommandLine::generate_text() {
  CLI::App& command = add("generate", "text that a language model writes behind prompts, printed as it is drawn",
                          [this] { return generate_command(generate_); });
  command
      .add_option("run", generate_.run,
                  "run directory, a checkpoint in one, or a folder of Hugging Face's: config.json, weights, tokenizer")
      ->type_name("RUN");
  command.add_option("--prompt", generate_.prompts, "text to begin with; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_option("--prompts", generate_.prompt_file, "file of prompts, one a line")->type_name("FILE");
  GenerateOptions& o = generate_.options;
  command.add_option("--tokens", o.tokens, "drawn for each prompt at most (default: 100)")->type_name("N");
  command.add_option("--temperature", o.temperature, "logits are divided by it (default: 1); 0: the likeliest token")
      ->type_name("X");
  command.add_option("--top_k,--top-k", o.top_k, "draw among the K likeliest tokens; 0: all (default)")->type_name("K");
  command
      .add_option("--top_p,--top-p", o.top_p,
                  "of those the fewest likeliest that have so much probability (default: 1)")
      ->type_name("P");
  command.add_option("--seed", o.seed, "the same seed, prompt and weights: the same text (default: 1)")->type_name("N");
  command.add_option("--samples", generate_.samples, "texts for each prompt (default: 1)")->type_name("N");
  command.add_option("--stop", generate_.stop, "text that ends one, and is not printed; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command
      .add_option("--context", generate_.context,
                  "most tokens that the model sees at a time: where a text is longer the older half is forgotten "
                  "(default: as many as the model has positions for)")
      ->type_name("N");
  command.add_option("--tokenizer", generate_.tokenizer, "another than the run's: bytes, or a file or folder")
      ->type_name("FILE");
  command.add_option("--model", generate_.model, "without a run: gpt2, say, its --weights and its --tokenizer")
      ->type_name("MODEL");
  command.add_flag("--json", generate_.json, "a JSON object per line, of whole texts");
  add_weights(command, generate_.weights);
}

void CommandLine::infer() {
  CLI::App& command = add("infer", "a model over a volume, whole, in tiles, or divided over ranks: all the same voxels",
                          [this] { return infer_command(argc_, argv_, infer_); });
  add_options(command, infer_);
}

void CommandLine::pack() {
  CLI::App& command =
      add("pack", "decode a data set once, into one file for --data packed; phantoms into a folder for --data volumes",
          [this] { return configured([this](const TrainerOptions& options) { return pack_command(options, to_); }); });
  command.add_option("file", to_, "file to write, of phantoms a folder")->required()->type_name("FILE");
  settings_.add_to(command);
}

void CommandLine::import() {
  CLI::App& command = add("import", "turn weights of other frameworks into safetensors, names and values kept",
                          [this] { return import_command(from_, to_, listing_); });
  command.add_option("file", from_, ".npz, .pt, .pth, .bin or .safetensors")->required()->type_name("FILE");
  command.add_option("--out", to_, "safetensors file to write")->type_name("FILE");
  command.add_flag("--list", listing_, "print the tensors' names, types and shapes");
}

void CommandLine::export_model() {
  CLI::App& command = add("export", "write a run's model, or a weights file's, for other programs",
                          [this] { return export_command(export_); });
  command.add_option("run", export_.run, "run directory")->type_name("RUN");
  command.add_option("--model", export_.model, "without a run: resnet50, say, and its --weights")->type_name("MODEL");
  command.add_option("--onnx", export_.onnx, "ONNX file to write (opset 17, for onnxruntime and its like)")
      ->type_name("FILE");
  command
      .add_option(
          "--pretrained", export_.pretrained,
          "folder to write for Hugging Face's from_pretrained(): config.json, model.safetensors, tokenizer.json")
      ->type_name("FOLDER");
  add_weights(command, export_.weights);
}

void CommandLine::bench() {
  CLI::App& command = add("bench", "images per second on synthetic images, and where the time goes", [this] {
    return configured([this](const TrainerOptions& options) { return bench_command(argc_, argv_, options, bench_); });
  });
  add_model(command);
  command.add_option("--steps", bench_.steps, "steps to time, after two that prepare everything (default: 10)")
      ->type_name("N")
      ->check(CLI::Range(1, most_count));
  command.add_flag("--infer", bench_.infer, "evaluation instead of training, batch norms folded");
  settings_.add_to(command);
}

void CommandLine::profile() {
  CLI::App& command =
      add("profile", "measure this machine: a model's steps by rows, calls between ranks, disk", [this] {
        return configured(
            [this](const TrainerOptions& options) { return profile_command(argc_, argv_, options, profile_); });
      });
  add_model(command);
  command.add_option("--out", profile_.to, "machine file to write, for --cost of simulate and plan")->type_name("FILE");
  command
      .add_option("--rows", profile_.rows, "of micro-batches: 8,16,32 (default: up to a rank's share of data.batch)")
      ->delimiter(',')
      ->check(CLI::Range(1, most_count));
  command.add_option("--runs", profile_.runs, "of each measurement (default: 15)")->check(CLI::Range(1, most_count));
  command.add_flag("--load", profile_.load, "measure the loader of the data set, too");
  command.add_option("--disk", profile_.disk, "directory whose disk is measured (default: this one)")->type_name("DIR");
  settings_.add_to(command);
}

/// Of plan show and plan search, whichever is not asked for.
void CommandLine::refuse_options_of_other_plan() {
  const CLI::App& plan = *app_.get_subcommand("plan");
  const bool search = to_ == "search";
  const std::vector<const char*> others =
      search ? std::vector{"--trace", "--svg", "--html", "--latency", "--bandwidth", "--actions", "--measure"}
             : std::vector{"--memory", "--top", "--json", "--run"};
  for (const char* name : others)
    if (plan.count(name) > 0)
      throw OptionError(fmt::format("{} is for plan {}, not for plan {}", name, search ? "show" : "search", to_));
  if (search && plan.count("--cost") > 0) search_.cost = plan_.cost;
}

void CommandLine::plan() {
  CLI::App& command =
      add("plan",
          "show what every rank does in a step under a strategy, what it costs, and when; or search for "
          "the strategies that take the least time on a cluster",
          [this] {
            refuse_options_of_other_plan();
            return configured([this](const TrainerOptions& options) {
              return to_ == "show" ? plan_show(options, plan_) : plan_search(argc_, argv_, options, search_);
            });
          });
  command.add_option("what", to_, "show, or search")
      ->required()
      ->check(CLI::IsMember({"show", "search"}))
      ->type_name("");
  add_drawings(command);
  command.add_option("--latency", plan_.latency, "seconds before a message arrives")->type_name("SECONDS");
  command.add_option("--bandwidth", plan_.bandwidth, "bytes per second that a rank sends; 0: any number")
      ->type_name("BYTES");
  command.add_flag("--actions", plan_.actions, "print every action, not one line for those that are alike");
  command.add_flag("--measure", plan_.measure, "also run the plan, ranks as threads, and draw what happened");
  command
      .add_option("--memory", search_.memory,
                  "of search: bytes that a rank may hold, 16e9, 16GB, 16GiB (default: the cluster's; else any number)")
      ->type_name("BYTES");
  command.add_option("--top", search_.top, "of search: strategies ranked (default: 20)")
      ->type_name("K")
      ->check(CLI::Range(1, 10000));
  command.add_option("--json", search_.json, "of search: write what was found")->type_name("FILE");
  command.add_flag("--run", search_.run, "of search: then train with the first, ranks as threads");
  settings_.add_to(command);
}

void CommandLine::simulate() {
  CLI::App& command =
      add("simulate", "what a step would take on a cluster that is described, of however many ranks", [this] {
        if (!plan_.backtest.empty()) return backtest_command(plan_);
        return configured([this](const TrainerOptions& options) { return simulate_command(options, plan_); });
      });
  add_drawings(command);
  command
      .add_option("--steps", plan_.steps,
                  "simulate so many, one behind the other, where ranks may get ahead of each other; default 1")
      ->check(CLI::Range(1, most_count));
  command
      .add_option("--collectives", plan_.collectives,
                  "what they take: by formula (default), or by their single messages on links that nodes share, of up "
                  "to 256 ranks; all-reduces by --parallel.allreduce, along rings unless given")
      ->check(CLI::IsMember({"formula", "messages"}))
      ->type_name("formula|messages");
  CLI::Option* sweep = command.add_option("--sweep", plan_.sweep,
                                          "ranks=1,2,4,8: samples per second over numbers of ranks; --svg and --html "
                                          "show a chart");
  sweep->type_name("LIST")->excludes(command.get_option("--trace"));
  command
      .add_option("--scaling", plan_.scaling,
                  "of a sweep: weak (default), each rank takes the rows that it takes now; strong, all ranks share "
                  "data.batch; or both")
      ->check(CLI::IsMember({"weak", "strong", "both"}))
      ->type_name("weak|strong|both")
      ->needs(sweep);
  command
      .add_option("--measured", plan_.measured,
                  "of a sweep: steps that were measured, to be shown beside the simulated ones: CSV or a JSON object a "
                  "line (ranks, seconds; scaling, batch, evidence), or the directory of a scaling study")
      ->type_name("FILE")
      ->needs(sweep);
  CLI::Option* table = command.add_option("--backtest", plan_.backtest,
                                          "public results of others: a family's two smallest sizes calibrate, larger "
                                          "ones are predicted, every error is printed; " +
                                              std::string(scaling_columns()));
  table->type_name("TABLE.csv");
  command.add_option("--predictions", plan_.predictions, "of a back-test: file to write, CSV or (.md) Markdown")
      ->type_name("FILE")
      ->needs(table);
  command
      .add_flag("--leave_submitter,--leave-submitter", plan_.leave_submitter,
                "of a back-test: learn from families of other submitters alone")
      ->needs(table);
  settings_.add_to(command);
}

/// The model, its costs, and the files: of plan show and simulate.
void CommandLine::add_drawings(CLI::App& command) {
  command.add_option("model,--model", model_, model_names())->type_name("MODEL");
  command
      .add_option(
          "--cost", plan_.cost,
          "of the model's parts: measured here (default), counted from shapes for the cluster's flops (plan search's "
          "default), equal, or those of a machine file (trireme profile)")
      ->type_name("measured|counted|equal|FILE");
  command.add_option("--trace", plan_.trace, "write the timeline for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE");
  command.add_option("--svg", plan_.svg, "write it as a picture")->type_name("FILE");
  command.add_option("--html", plan_.html, "write the picture and the table as a page")->type_name("FILE");
}

void CommandLine::verify() {
  TrainerOptions base;  // small and exact, unless the settings say otherwise
  base.dtype = "f64";
  base.data.name = "synthetic", base.data.batch = 16;
  base.optim.name = "sgd", base.optim.lr = 0.01, base.optim.schedule = "constant";
  CLI::App& command =
      add("verify", "train under a strategy and serially, side by side; name the first difference (status 1)",
          [this, base] {
            return configured(
                [this](const TrainerOptions& options) { return verify_command(argc_, argv_, options, verify_); }, base);
          });
  command.add_option("model,--model", model_, model_names())->type_name("MODEL");
  command.add_option("--steps", verify_.steps, "steps to compare (default: 20)")->type_name("N");
  command
      .add_option("--tolerance", verify_.tolerance,
                  "relative difference that counts as equal; 0: 1e-11 in f64, else 1e-4")
      ->type_name("X");
  settings_.add_to(command, base);
}

}  // namespace trireme
