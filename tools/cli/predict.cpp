// trireme predict: the most probable classes of image files.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "datasets/core/pixels.h"
#include "datasets/images/crop.h"
#include "datasets/images/image.h"
#include "datasets/images/images.h"
#include "framework/autograd/step_context.h"
#include "framework/io/file.h"
#include "framework/io/foreign/npy.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "framework/layers/inference.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

/// Image files given one by one, without labels.
class Files final : public EncodedSource {
 public:
  explicit Files(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  std::string name() const override { return "predict"; }
  Index size() const override { return std::ssize(paths_); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int64_t label(Index) const override { return 0; }
  std::string describe(Index id) const override { return paths_[static_cast<std::size_t>(id)]; }
  void read(Index id, std::vector<std::byte>& bytes) const override { bytes = read_bytes(describe(id)); }

 private:
  std::vector<std::string> paths_, classes_;
};

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream in(path);
  check(in.good() && !std::filesystem::is_directory(path), ErrorKind::file, "predict",
        "{} cannot be read; give a file with one class name per line", path);
  std::vector<std::string> lines = text_lines(std::string(std::istreambuf_iterator(in), {}));
  check(!lines.empty(), ErrorKind::data, "predict", "{} has no names; give a file with one class name per line", path);
  return lines;
}

/// How the model sees an image file, and the names of its classes.
struct PredictionSubject {
  ModelOptions options;
  PixelScale scale;
  std::string resizing;            ///< description of resizing
  Dataset photos;                  ///< the files, decoded and cropped; empty for small pictures, which are only resized
  std::vector<std::string> names;  ///< of classes; may be empty
};

PredictionSubject photographs(const TrainerOptions& config, const PredictOptions& o, std::vector<std::string> names) {
  PredictionSubject s;
  const Index size = config.data.image_size > 0 ? config.data.image_size : ImagesOptions{}.size;
  s.options = {.input = {size, size, 3}, .classes = model_row(config.model).usual.classes};
  s.names = std::move(names);
  if (!s.names.empty()) s.options.classes = std::ssize(s.names);
  const ImagesOptions images{.size = size};
  const double side = static_cast<double>(size), cut = central_crop(size, size, size, images.central).width;
  s.resizing = fmt::format("shorter side to {:.0f}, centre {} x {}", side * side / cut, size, size);
  s.photos = Images(std::make_unique<Files>(o.images), images);
  s.scale = s.photos->scale();
  return s;
}

PredictionSubject subject(TrainerOptions& config, const PredictOptions& o) {
  check(o.run.empty() || !model_row(config.model).text, "predict",
        "{} is a run of {}, a language model; use trireme generate {}", o.run, config.model, o.run);
  std::vector<std::string> names;
  const std::string stored = o.run + "/" + class_file;
  if (!o.labels.empty())
    names = read_lines(o.labels);
  else if (!o.run.empty() && std::filesystem::exists(stored))
    names = read_lines(stored);
  if (o.run.empty()) {
    config.model = o.model;
    if (o.model.empty() || o.weights.empty())
      throw OptionError("predict: no model is given; use --run DIR, or --model NAME and --weights FILE");
    check_model_name(config);
    const Shape& in = model_row(o.model).usual.input;
    check(in[0] == 224, "predict", "{} takes {}, not photographs; train it, and give its --run DIR", o.model, in);
    return photographs(config, o, std::move(names));
  }
  const bool packed = config.data.name == "packed";  // a packed data set has its stored size and scale
  if (!packed && std::filesystem::exists(stored)) return photographs(config, o, std::move(names));
  const Dataset data = make_dataset(config, "test");
  if (packed && data->shape()[2] == 3) {
    config.data.image_size = data->shape()[0];
    PredictionSubject s = photographs(config, o, std::move(names));
    s.scale = data->scale();
    return s;
  }
  return {.options = {.input = data->shape(), .classes = data->classes()},
          .scale = data->scale(),
          .resizing = fmt::format("resized to {} x {}", data->shape()[0], data->shape()[1]),
          .photos = {},
          .names = std::move(names)};
}

bool in_colour(const Tensor& rgb) {
  const auto v = rgb.view().span<const std::uint8_t>();
  for (std::size_t i = 0; i < v.size(); i += 3)
    if (v[i] != v[i + 1] || v[i] != v[i + 2]) return true;
  return false;
}

/// Refuses a picture that differs much from the model's input, since its answer would mean little.
Tensor small_picture(const std::string& path, const Shape& in, bool gray) {
  check(in[2] != 1 || gray || !in_colour(read_image(path, 3)), ErrorKind::data, "predict",
        "{} is in colour, but the model takes grey images of {} x {}; add --gray", path, in[0], in[1]);
  const Tensor image = read_image(path, static_cast<int>(in[2]));
  const double stretch = static_cast<double>(image.dim(0) * in[1]) / static_cast<double>(image.dim(1) * in[0]);
  check(stretch >= 0.5 && stretch <= 2, ErrorKind::data, "predict",
        "{} is {} x {}, but the model takes images of {} x {}; crop it first, so that it is not distorted", path,
        image.dim(0), image.dim(1), in[0], in[1]);
  return resize(image, in[0], in[1]);
}

std::vector<std::uint8_t> pixels_of(const PredictionSubject& s, const PredictOptions& o, std::size_t id) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(s.options.input.numel()));
  if (s.photos)
    s.photos->read(static_cast<Index>(id), pixels);
  else
    std::ranges::copy(small_picture(o.images[id], s.options.input, o.gray).view().span<const std::uint8_t>(),
                      pixels.begin());
  if (o.invert)
    for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(255 - value);
  return pixels;
}

/// Describes how a file is prepared for the model.
std::string preparation(const PredictionSubject& s, const PredictOptions& o) {
  return fmt::format("{}, {}{}, / 255, minus mean {}, over std {}", s.resizing,
                     s.options.input[2] == 1 ? "grey" : "RGB", o.invert ? ", light and dark swapped" : "",
                     fmt::join(s.scale.mean, " "), fmt::join(s.scale.std, " "));
}

/// The line of one image. p: probabilities or logits of all classes, in order.
std::string answer(const std::string& image, const std::vector<double>& p, const PredictionSubject& s,
                   const PredictOptions& o) {
  std::vector<std::size_t> best(p.size());
  std::iota(best.begin(), best.end(), std::size_t{0});
  std::ranges::stable_sort(best, std::greater{}, [&](std::size_t c) { return p[c]; });
  best.resize(std::min(best.size(), static_cast<std::size_t>(o.top)));
  std::string line = image;
  Json top = Json::array();
  for (const std::size_t c : best) {
    line += fmt::format("\t{}\t", s.names.empty() ? std::to_string(c) : s.names[c]);
    line += o.logits ? fmt::format("{:.6g}", p[c]) : fmt::format("{:.4f}", p[c]);
    top.push_back({{"class", c}, {o.logits ? "logit" : "probability", p[c]}});
    if (!s.names.empty()) top.back()["name"] = s.names[c];
  }
  if (!o.json) return line;
  return json_text({{"image", image}, {"top", top}, {o.logits ? "logits" : "probabilities", p}}, NotUtf8::replaced);
}

}  // namespace

int predict(const PredictOptions& options) {
  if (options.top < 1) throw OptionError(fmt::format("--topk is {}, expected at least 1", options.top));
  TrainerOptions config = options.run.empty() ? TrainerOptions{} : run_config(options.run);
  const PredictionSubject s = subject(config, options);
  const Shape& in = s.options.input;
  if (options.gray && in[2] != 1)
    throw OptionError(fmt::format("--gray is for models of grey images, but this model takes {}; leave it out", in));
  check(s.names.empty() || std::ssize(s.names) == s.options.classes, ErrorKind::data, "predict",
        "{} names {} classes, but the model has {}; give one name per class", options.labels, s.names.size(),
        s.options.classes);
  for (const std::string& image : options.images) {
    std::error_code none;
    if (std::filesystem::equivalent(options.npy, image, none))
      throw OptionError(fmt::format("--npy {} is one of the pictures; give another file", options.npy));
  }
  if (!options.npy.empty()) FileWriter(temporary_name(options.npy), 0);  // fails early if the file cannot be written
  const Device device = make_device(config);
  Module model = make_model(config, s.options, device);
  Parameters parameters(model);
  load_weights(parameters, options.run, options.weights);
  const Inference inference;
  const DType dtype = make_dtype(config), host = dtype == DType::f16 ? DType::f32 : dtype;
  const PixelConverter convert = pixel_converter(s.scale, in, host);
  std::vector<float> rows;  // for NumPy
  std::fprintf(stderr, "predict: %s\n", preparation(s, options).c_str());
  for (std::size_t i = 0; i < options.images.size(); ++i) {
    const std::string& image = options.images[i];
    const Tensor x = Tensor::empty({1, in[0], in[1], in[2]}, host);
    convert(pixels_of(s, options, i), x.data<std::byte>());
    const Tensor logits = model(x.to(device).to(dtype)).to(dtype == DType::f64 ? dtype : DType::f32);
    const std::vector<double> p = (options.logits ? logits : softmax(logits)).to_vector();
    check(std::ranges::all_of(p, [](double value) { return std::isfinite(value); }), ErrorKind::numerics, "predict",
          "{}: the model's output is not finite; give weights of a training that did not diverge", image);
    if (options.npy.empty())
      fmt::print("{}\n", answer(image, p, s, options));
    else
      for (const double value : p) rows.push_back(static_cast<float>(value));
  }
  if (!options.npy.empty()) write_npy(options.npy, Tensor::from(rows, {std::ssize(options.images), s.options.classes}));
  return 0;
}

}  // namespace trireme
