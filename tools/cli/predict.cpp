// trireme predict: from image files to the likeliest classes.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "datasets/core/pixels.h"
#include "datasets/images/image.h"
#include "datasets/images/images.h"
#include "framework/autograd/step_context.h"
#include "framework/io/file.h"
#include "framework/layers/inference.h"
#include "tools/cli/commands.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

/// Image files named one by one, without labels.
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
  check(in.good(), "predict", "{} cannot be read: give a file with the name of one class per line", path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// What a model sees of an image file, and what its answers are called.
struct Subject {
  ModelOptions options;
  PixelScale scale;
  Dataset photos;                  ///< the files, decoded and cropped; none for small pictures, which are only resized
  std::vector<std::string> names;  ///< of classes; may be empty
};

Subject photographs(const TrainerOptions& config, const PredictOptions& o, std::vector<std::string> names) {
  Subject s;
  const Index size = config.data.image_size > 0 ? config.data.image_size : ImagesOptions{}.size;
  s.options = {.input = {size, size, 3}, .classes = model_row(config.model).usual.classes};
  s.names = std::move(names);
  if (!s.names.empty()) s.options.classes = std::ssize(s.names);
  s.photos = Images(std::make_unique<Files>(o.images), {.size = size});
  s.scale = s.photos->scale();
  return s;
}

Subject subject(TrainerOptions& config, const PredictOptions& o) {
  std::vector<std::string> names;
  const std::string stored = o.run + "/" + class_file;
  if (!o.labels.empty())
    names = read_lines(o.labels);
  else if (!o.run.empty() && std::filesystem::exists(stored))
    names = read_lines(stored);
  if (o.run.empty()) {
    config.model = o.model;
    check(!o.model.empty() && !o.weights.empty(), "predict", "give --run DIR, or --model NAME and --weights FILE");
    const Shape& in = model_row(o.model).usual.input;
    check(in[0] == 224, "predict", "{} takes {}, no photographs; train it and give its --run DIR", o.model, in);
    return photographs(config, o, std::move(names));
  }
  if (std::filesystem::exists(stored)) return photographs(config, o, std::move(names));
  const Dataset data = make_dataset(config, "test");
  return {.options = {.input = data->shape(), .classes = data->classes()},
          .scale = data->scale(),
          .photos = {},
          .names = std::move(names)};
}

/// A model of grey images sees a colour photograph as one, and its answer means little.
void tell_of_colour(const std::string& path, const Shape& in) {
  const Tensor image = read_image(path, 3);
  const auto v = image.view().span<const std::uint8_t>();
  for (std::size_t i = 0; i < v.size(); i += 3)
    if (v[i] != v[i + 1] || v[i] != v[i + 2]) {
      std::fprintf(stderr, "predict: %s is in colour; this model knows grey images of %d x %d, and sees it as one\n",
                   path.c_str(), static_cast<int>(in[0]), static_cast<int>(in[1]));
      return;
    }
}

std::vector<std::uint8_t> pixels_of(const Subject& s, const std::string& path, Index id) {
  const Shape& in = s.options.input;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(in.numel()));
  if (s.photos) {
    s.photos->read(id, pixels);
  } else {
    if (in[2] == 1) tell_of_colour(path, in);
    const Tensor image = resize(read_image(path, static_cast<int>(in[2])), in[0], in[1]);
    std::ranges::copy(image.view().span<const std::uint8_t>(), pixels.begin());
  }
  return pixels;
}

std::string answer(const std::vector<double>& p, const Subject& s, int top) {
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
  std::string line;
  for (int k = 0; k < std::min<int>(top, static_cast<int>(p.size())); ++k)
    line += fmt::format("\t{}\t{:.4f}", s.names.empty() ? std::to_string(order[k]) : s.names[order[k]], p[order[k]]);
  return line;
}

}  // namespace

int predict(const PredictOptions& options) {
  if (options.top < 1) throw OptionError(fmt::format("--topk is {}, it must be at least 1", options.top));
  TrainerOptions config = options.run.empty() ? TrainerOptions{} : run_config(options.run);
  const Subject s = subject(config, options);
  const Device device = make_device(config);
  Module model = make_model(config, s.options, device);
  Parameters parameters(model);
  load_weights(parameters, options.run, options.weights);
  const Inference inference;
  const Shape& in = s.options.input;
  const DType dtype = make_dtype(config), host = dtype == DType::f16 ? DType::f32 : dtype;
  const PixelConverter convert = pixel_converter(s.scale, in, host);
  for (std::size_t i = 0; i < options.images.size(); ++i) {
    std::vector<std::uint8_t> pixels = pixels_of(s, options.images[i], static_cast<Index>(i));
    if (options.invert)
      for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(255 - value);
    const Tensor x = Tensor::empty({1, in[0], in[1], in[2]}, host);
    convert(pixels, x.data<std::byte>());
    const Tensor p = softmax(model(x.to(device).to(dtype)).to(DType::f32));
    fmt::print("{}{}\n", options.images[i], answer(p.to_vector(), s, options.top));
  }
  return 0;
}

}  // namespace trireme
