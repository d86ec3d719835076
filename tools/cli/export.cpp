// trireme export: a run's model, or one by name and weights, as a file for other programs.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "datasets/images/images.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/onnx/onnx.h"
#include "models/text/pretrained.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// Descriptions of the model's inputs and outputs.
struct Interface {
  ModelOptions options;
  std::optional<PixelScale> scale = {};  ///< of photographs, or of the run's data set
  std::string classes = {};              ///< a name per line, if known
};

Interface interface_of(const TrainerOptions& config, const std::string& run) {
  const std::string stored = run + "/" + class_file;
  if (!run.empty() && model_row(config.model).text) return {.options = text_run_options(config, run)};
  if (!run.empty() && !fs::exists(stored)) {
    const Dataset data = make_dataset(config, "test");
    return {.options = {.input = data->shape(), .classes = data->classes()}, .scale = data->scale()};
  }
  Interface i{.options = model_row(config.model).usual};
  if (!model_row(config.model).text && (!run.empty() || i.options.input[0] == 224)) i.scale = ImagesOptions{}.scale;
  if (run.empty()) return i;
  i.classes = read_text(stored, std::size_t{1} << 26);
  i.options.classes = std::count(i.classes.begin(), i.classes.end(), '\n');
  return i;
}

/// Writes the model for Hugging Face's from_pretrained(), with its tokenizer if that is a Hugging Face tokenizer.
void write_pretrained(const TrainerOptions& config, ModelOptions options, const Parameters& parameters,
                      const ExportOptions& o) {
  const ModelRow& row = model_row(config.model);
  check(bool(row.config), "export", "Hugging Face has no model like {}; export it with --onnx FILE", config.model);
  options.arch = config.arch;
  save_pretrained(o.pretrained, parameters, row.config(options));
  const std::string kept = o.run + "/" + tokenizer_file;
  if (o.run.empty() || !fs::exists(kept)) return;
  const std::string tokenizer = read_text(kept, std::size_t{1} << 30);
  if (parse_json(tokenizer).contains("model")) replace_file(o.pretrained + "/tokenizer.json", tokenizer);
}

}  // namespace

int export_command(const ExportOptions& o) {
  check(!o.run.empty() || (!o.model.empty() && !o.weights.empty()), "export",
        "no model is given; give a run directory, or --model NAME and --weights FILE");
  TrainerOptions config = o.run.empty() ? TrainerOptions{} : run_config(o.run);
  if (o.run.empty()) config.model = o.model;
  check_model_name(config);
  if (config.dtype == "bf16" || config.dtype == "f16")
    config.dtype = "f32";  // weights are f32 in mixed-precision
                           // runs, too
  if (o.onnx.empty() && o.pretrained.empty())
    throw OptionError(
        "export: no file to write is given; use --onnx FILE, or --pretrained FOLDER for Hugging Face's programs");
  const Interface i = interface_of(config, o.run);
  Module model = make_model(config, i.options);
  Parameters parameters(model);
  const std::string source = load_weights(parameters, o.run, o.weights);
  OnnxOptions options{.metadata = {{"model", config.model}, {"weights", source}}};
  if (i.scale) {
    options.metadata["pixels"] = "(value / 255 - mean) / std, by channel";
    options.metadata["mean"] = fmt::format("{}", fmt::join(i.scale->mean, " "));
    options.metadata["std"] = fmt::format("{}", fmt::join(i.scale->std, " "));
  }
  if (!i.classes.empty()) options.metadata["classes"] = i.classes;
  if (model_row(config.model).text) options.input = DType::i64;
  if (!o.pretrained.empty()) {
    write_pretrained(config, i.options, parameters, o);
    fmt::print("pretrained:    {}\n", o.pretrained);
  }
  if (!o.onnx.empty()) {
    export_onnx(model, parameters, i.options.input, o.onnx, options);
    fmt::print("onnx:          {} ({} bytes)\n", o.onnx, fs::file_size(o.onnx));
  }
  fmt::print("weights:       {}\n", source);
  return 0;
}

}  // namespace trireme
