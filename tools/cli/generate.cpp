// trireme generate: text of a language model, as it is drawn.
#include "models/text/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "datasets/text/tokenizer.h"
#include "framework/io/file.h"
#include "models/text/pretrained.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A model and the tokenizer that it was trained with.
struct Subject {
  Module model = {};
  Tokenizer tokenizer = {};
  Index context = 0;        ///< most tokens that it sees
  std::string source = {};  ///< of the weights, in words
};

Subject of_run(const GenerateCommand& c) {
  TrainerOptions config = run_config(c.run);
  check(model_row(config.model).text, "generate", "{} is a run of {}, which is no language model", c.run, config.model);
  const std::string kept = c.run + "/" + tokenizer_file;
  Subject s{.tokenizer = open_tokenizer(!c.tokenizer.empty() ? c.tokenizer
                                        : fs::exists(kept)   ? kept
                                                             : config.data.tokenizer)};
  s.context = config.arch.positions > 0 ? config.arch.positions : context_of(config);
  s.model = make_model(config, {.input = {s.context}, .classes = s.tokenizer.vocabulary()}, make_device(config));
  Parameters parameters(s.model);
  s.source = load_weights(parameters, c.run, c.weights);
  return s;
}

/// A folder as Hugging Face's save_pretrained() writes it.
Subject of_folder(const GenerateCommand& c) {
  Subject s{.model = load_pretrained(c.run),
            .tokenizer = open_tokenizer(c.tokenizer.empty() ? c.run : c.tokenizer),
            .source = c.run};
  s.context = c.context;
  return s;
}

std::vector<std::string> prompts_of(const GenerateCommand& c) {
  std::vector<std::string> prompts = c.prompts;
  if (!c.prompt_file.empty()) {
    const std::vector<std::byte> bytes = read_bytes(c.prompt_file);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end > at) prompts.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  if (prompts.empty()) throw OptionError("generate: give a --prompt, or --prompts FILE with one a line");
  std::vector<std::string> all;
  for (const std::string& prompt : prompts) all.insert(all.end(), static_cast<std::size_t>(c.samples), prompt);
  return all;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Texts as they come: one alone is printed token by token, several when each is whole.
class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const GenerateCommand& c, const std::vector<std::string>& prompts)
      : tokenizer_(tokenizer), stop_(c.stop), prompts_(prompts), drawn_(prompts.size()) {
    if (alone()) print(prompts_[0]);
  }
  bool add(Index sample, Index id) {
    std::string& text = drawn_[static_cast<std::size_t>(sample)];
    const std::string piece = tokenizer_.decode(std::vector<std::int64_t>{id});
    const std::size_t before = text.size();
    text += piece;
    const std::size_t at =
        stop_.empty() ? std::string::npos : text.find(stop_, before - std::min(before, stop_.size() - 1));
    if (at != std::string::npos) text.resize(at);
    if (alone()) show(text, at != std::string::npos);
    return at == std::string::npos;
  }
  void finish() {
    if (alone()) {
      show(drawn_[0], true);
      return print("\n");
    }
    for (std::size_t n = 0; n < drawn_.size(); ++n) print((n > 0 ? "\n---\n" : "") + prompts_[n] + drawn_[n]);
    print("\n");
  }

 private:
  bool alone() const { return prompts_.size() == 1; }
  /// What may still become the stop text, or lacks bytes of a character, waits.
  void show(const std::string& text, bool all) {
    const std::size_t hold = all || stop_.empty() ? 0 : std::min(text.size(), stop_.size() - 1);
    const std::size_t end = text.size() - hold;
    if (end > shown_) print(stream_.push(std::string_view(text).substr(shown_, end - shown_))), shown_ = end;
    if (all) print(stream_.finish());
  }

  const Tokenizer& tokenizer_;
  std::string stop_;
  std::vector<std::string> prompts_, drawn_;
  std::size_t shown_ = 0;
  Utf8Stream stream_;
};

}  // namespace

int generate_command(const GenerateCommand& c) {
  if (c.run.empty()) throw OptionError("generate: give a run directory, or a folder of Hugging Face's");
  if (c.samples < 1) throw OptionError(fmt::format("--samples is {}, it must be at least 1", c.samples));
  const bool is_run = fs::exists(c.run + "/config.toml");
  Subject s = is_run ? of_run(c) : of_folder(c);
  const std::vector<std::string> texts = prompts_of(c);
  std::vector<std::vector<Index>> prompts;
  for (const std::string& text : texts) prompts.push_back(s.tokenizer.encode(text));
  GenerateOptions options = c.options;
  options.context = c.context > 0 ? std::min(c.context, s.context > 0 ? s.context : c.context) : s.context;
  std::fprintf(stderr, "generate: %s, %s, %lld tokens of context\n", s.source.c_str(), s.tokenizer.name().c_str(),
               static_cast<long long>(options.context));
  Printer printer(s.tokenizer, c, texts);
  generate(s.model, prompts, options, [&](Index sample, Index id) { return printer.add(sample, id); });
  printer.finish();
  return 0;
}

}  // namespace trireme
