// trireme generate: prints the text of a language model while it is sampled.
#include "models/text/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "datasets/text/tokenizer.h"
#include "framework/io/checkpoint.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "framework/layers/init.h"
#include "models/text/pretrained.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A model without weights, its tokenizer, and where its weights are.
struct LanguageModel {
  Module model = {};
  Tokenizer tokenizer = {};
  Index context = 0;              ///< most tokens that the model sees
  bool special = false;           ///< prompts begin, and end, with the tokenizer's special tokens
  std::vector<Index> ends = {};   ///< tokens that stop a text; empty: those with the usual names
  GenerateOptions sampling = {};  ///< defaults of temperature, top_k and top_p
  Device device = cpu();          ///< of the weights
  std::string run = {};           ///< run directory whose newest checkpoint has the weights
  std::string checkpoint = {};    ///< instead: this checkpoint; empty: none
  std::string weights = {};       ///< instead: this file; empty: none
};

/// path: a run directory, or a checkpoint in one.
LanguageModel of_run(const GenerateCommand& c, World& world) {
  const bool is_checkpoint = fs::exists(c.run + "/manifest.json");
  const fs::path path = fs::absolute(c.run).lexically_normal();
  const fs::path checkpoint = path.has_filename() ? path : path.parent_path();
  const std::string run = is_checkpoint ? checkpoint.parent_path().parent_path().string() : c.run;
  TrainerOptions config = run_config(run);
  config.parallel = c.parallel;
  check(model_row(config.model).text, "generate",
        "{} is a run of {}, expected a language model; give a run of gpt2 or llama", run, config.model);
  const std::string kept = run + "/" + tokenizer_file;
  check(fs::exists(kept) || !c.tokenizer.empty(), ErrorKind::file, "generate",
        "{} has no {}, because it was trained on token files; give their tokenizer with --tokenizer", run,
        tokenizer_file);
  const ModelOptions shape = text_run_options(config, run);
  const Device device = make_device(config, world);
  return {.model = make_undrawn_model(config, shape, device),
          .tokenizer = open_tokenizer(c.tokenizer.empty() ? kept : c.tokenizer),
          .context = shape.input[0],
          .device = device,
          .run = run,
          .checkpoint = is_checkpoint ? c.run : "",
          .weights = c.weights};
}

/// path: a folder as written by Hugging Face's save_pretrained().
LanguageModel of_folder(const GenerateCommand& c) {
  const std::string config = read_text(c.run + "/config.json", std::size_t{1} << 20);
  const Json parsed = parse_json(config);
  const bool is_gpt2 = parsed.is_object() && parsed.value("model_type", Json()) == "gpt2";
  auto [model, weights] = undrawn_pretrained(c.run);
  return {.model = std::move(model),
          .tokenizer = open_tokenizer(c.tokenizer.empty() ? c.run : c.tokenizer),
          .context = is_gpt2 ? gpt_options(config).positions : llama_options(config).positions,
          .special = true,
          .ends = end_tokens(c.run),
          .sampling = with_folder_sampling({}, c.run),
          .weights = std::move(weights)};
}

/// A registered model of its default size, with Hugging Face weights.
LanguageModel by_name(const GenerateCommand& c) {
  if (c.model.empty() || c.weights.empty() || c.tokenizer.empty())
    throw OptionError(
        "generate: no model is given; give a run directory, a Hugging Face folder, or --model NAME, --weights FILE and "
        "--tokenizer FILE");
  TrainerOptions config;
  config.model = c.model;
  check_model_name(config);
  const ModelRow& row = model_row(c.model);
  check(row.text, "generate", "{} is no language model; use gpt2 or llama", c.model);
  const SkipInit read_below;
  return {.model = row.make(row.usual),
          .tokenizer = open_tokenizer(c.tokenizer),
          .context = row.usual.input[0],
          .special = true,
          .weights = c.weights};
}

LanguageModel language_model(const GenerateCommand& c, World& world) {
  if (c.run.empty()) return by_name(c);
  if (!c.model.empty())
    throw OptionError("generate: --model and a run are given; use --model only without a run directory");
  const bool is_run = fs::exists(c.run + "/config.toml") || fs::exists(c.run + "/manifest.json");
  check(is_run || fs::exists(c.run + "/config.json"), ErrorKind::file, "generate",
        "{} is neither a run directory (config.toml) nor a checkpoint (manifest.json) nor a Hugging Face folder "
        "(config.json)",
        c.run);
  return is_run ? of_run(c, world) : of_folder(c);
}

std::vector<std::string> prompts_of(const GenerateCommand& c) {
  std::vector<std::string> prompts = c.prompts;
  if (!c.prompt_file.empty())
    for (const std::string& line : text_lines(read_text(c.prompt_file, std::size_t{1} << 26)))
      if (!line.empty()) prompts.push_back(line);
  if (prompts.empty())
    throw OptionError("generate: no prompt is given; use --prompt TEXT, or --prompts FILE with one prompt per line");
  for (const std::string& prompt : prompts)
    if (prompt.empty()) throw OptionError("generate: a prompt is empty; give at least one character");
  return prompts;
}

/// Tokens that stop a text.
std::vector<Index> ends_of(const Tokenizer& tokenizer) {
  std::vector<Index> ends;
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>"})
    if (const auto id = tokenizer.special(name)) ends.push_back(*id);
  return ends;
}

/// Prints texts in the order of prompts. The current text is printed as it is sampled; later texts are kept until it is
/// their turn.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const GenerateCommand& c, const GenerateOptions& o,
          std::vector<std::string> prompts, bool prints)
      : tokenizer_(tokenizer),
        command_(c),
        options_(o),
        prints_(prints),
        prompts_(std::move(prompts)),
        texts_(prompts_.size()) {
    for (const std::string& stop : c.stop) held_ = std::max(held_, stop.size() - 1);
    begin();
  }
  /// Adds a token. Returns whether the text continues.
  bool add(Index sample, Index id) {
    Text& text = texts_[static_cast<std::size_t>(sample)];
    const bool ends = std::ranges::find(options_.stop, id) != options_.stop.end();
    const std::size_t before = text.bytes.size();
    if (!ends) text.bytes += tokenizer_->bytes(id);
    std::size_t cut = std::string::npos;
    for (const std::string& stop : command_.stop)
      cut = std::min(cut, text.bytes.find(stop, before - std::min(before, stop.size() - 1)));
    if (cut != std::string::npos) text.bytes.resize(cut);
    text.done = ends || cut != std::string::npos || ++text.tokens == options_.tokens;
    for (bool more = true; more && turn_ < texts_.size();) more = show();
    return !text.done;
  }

 private:
  struct Text {
    std::string bytes = {};
    Index tokens = 0;
    std::size_t shown = 0;
    bool done = false;
  };
  void print(std::string_view text) {
    if (prints_ && !command_.json) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    }
  }
  void begin() {
    if (turn_ < texts_.size()) print((turn_ > 0 ? "---\n" : "") + stream_.push(prompts_[turn_]));
  }
  /// Prints what is certain. Waits if the end may become a stop text, or is an incomplete character. Returns whether
  /// the text is finished.
  bool show() {
    Text& text = texts_[turn_];
    const std::size_t size = text.bytes.size(), end = text.done ? size : size - std::min(size, held_);
    if (end > text.shown) {
      print(stream_.push(std::string_view(text.bytes).substr(text.shown, end - text.shown)));
      text.shown = end;
    }
    if (!text.done) return false;
    print(stream_.finish() + "\n");
    const Json line{{"prompt", prompts_[turn_]},
                    {"sample", static_cast<Index>(turn_) % command_.samples},
                    {"text", text.bytes},
                    {"tokens", text.tokens}};
    if (prints_ && command_.json) fmt::print("{}\n", json_text(line, NotUtf8::replaced));
    ++turn_;
    begin();
    return true;
  }

  const Tokenizer& tokenizer_;
  const GenerateCommand& command_;
  const GenerateOptions& options_;
  const bool prints_;  // rank 0
  std::vector<std::string> prompts_;
  std::vector<Text> texts_;
  std::size_t turn_ = 0, held_ = 0;
  Utf8Stream stream_;
};

/// Generates on this rank, together with the others.
void generate_on(World& world, const GenerateCommand& c, const std::vector<std::string>& given) {
  LanguageModel s = language_model(c, world);
  check(c.context <= s.context, "generate",
        "--context is {}, but the model sees at most {} tokens; give a smaller number", c.context, s.context);
  GenerateOptions options = c.options;
  options.temperature = c.temperature.value_or(s.sampling.temperature);
  options.top_k = c.top_k.value_or(s.sampling.top_k);
  options.top_p = c.top_p.value_or(s.sampling.top_p);
  options.context = c.context > 0 ? c.context : s.context;
  options.vocabulary = s.tokenizer.vocabulary();
  options.stop = s.ends.empty() ? ends_of(s.tokenizer) : s.ends;
  std::vector<std::vector<Index>> prompts;
  std::vector<std::string> texts;
  for (const std::string& prompt : given)
    for (Index sample = 0; sample < c.samples; ++sample) {
      prompts.push_back(s.special ? s.tokenizer.encode_with_special(prompt) : s.tokenizer.encode(prompt));
      texts.push_back(prompt);
      options.samples.push_back(sample);  // numbered within its prompt: a text does not depend on the other prompts
    }
  for (const std::vector<Index>& prompt : prompts)  // checked before any text is printed
    check(std::ssize(prompt) <= options.context, "generate",
          "a prompt has {} tokens, but the model sees at most {}; shorten it", prompt.size(), options.context);
  const auto begin = [&](const std::string& source) {
    if (world.main())
      fmt::print(stderr, "generate: {}, {}, context of {} tokens, temperature {}, top_k {}, top_p {}\n", source,
                 s.tokenizer.name(), options.context, options.temperature, options.top_k, options.top_p);
    return Printer(s.tokenizer, c, options, std::move(texts), world.main());
  };
  const auto show = [](Printer& printer) {
    return [&printer](Index sample, Index id) { return printer.add(sample, id); };
  };
  if (world.size() == 1 && c.parallel.strategy.empty()) {
    Parameters parameters(s.model);
    Printer printer =
        begin(s.checkpoint.empty() || !s.weights.empty() ? load_weights(parameters, s.run, s.weights)
                                                         : load_checkpoint(s.checkpoint, parameters, nullptr).path);
    generate(s.model, prompts, options, show(printer));
    return;
  }
  TrainerOptions config;
  config.parallel = c.parallel;
  const Strategy strategy = make_strategy(config, world.size());
  Mesh mesh = make_mesh(config, world);
  const auto step = forward_step(std::move(s.model), mesh, strategy,
                                 Tensor::full({1, std::min<Index>(options.context, 8)}, 0, DType::i64).to(s.device));
  Printer printer = begin(load_weights(*step, world, s.checkpoint.empty() ? s.run : s.checkpoint, s.weights));
  generate(*step, prompts, options, show(printer));
}

}  // namespace

int generate_command(int argc, char** argv, const GenerateCommand& c) {
  if (c.context < 0) throw OptionError(fmt::format("--context is {}, expected at least 0", c.context));
  if (c.samples < 1) throw OptionError(fmt::format("--samples is {}, expected at least 1", c.samples));
  if (std::ranges::find(c.stop, "") != c.stop.end())
    throw OptionError("--stop is empty; give a text that ends the output");
  const std::vector<std::string> given = prompts_of(c);
  TrainerOptions config;
  config.parallel = c.parallel;
  return World::run(argc, argv, make_ranks(config), [&](World& world) { generate_on(world, c, given); });
}

}  // namespace trireme
