// trireme infer: builds the model for a file of weights and a volume.
#include "tools/cli/infer_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "framework/io/checkpoint.h"
#include "framework/io/weights.h"
#include "models/volumes/msd.h"
#include "parallel/inference/chain_net.h"
#include "parallel/inference/dense_net.h"
#include "parallel/inference/inference_time.h"
#include "parallel/inference/slice_net.h"
#include "tools/cli/config_file.h"
#include "tools/training/from_options.h"

namespace trireme {

std::vector<Index> numbers_of(const std::string& option, const std::string& text, std::size_t most) {
  std::vector<Index> numbers;
  std::stringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const bool whole =
        !word.empty() && word.size() < 10 && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    if (!whole || std::stoll(word) < 1 || numbers.size() == most)
      throw OptionError(
          fmt::format("{} is '{:.80}', expected whole numbers from 1, for example 64 or 16,64,64", option, text));
    numbers.push_back(std::stoll(word));
  }
  if (numbers.empty())
    throw OptionError(fmt::format("{} is empty, expected numbers, for example 64 or 16,64,64", option));
  return numbers;
}

namespace {

/// Number of spatial axes of the filters in a file.
int spatial_axes(const SafetensorsFile& file, const std::string& path) {
  int most = 0;
  for (const NamedTensor& t : file.tensors) most = std::max(most, t.tensor.rank());
  check(most == 4 || most == 5, ErrorKind::data, "infer",
        "{} has no filters with two or three spatial axes; give the weights of a model over volumes", path);
  return most - 2;
}

const Tensor& tensor_of(const SafetensorsFile& file, const std::string& name, const std::string& path) {
  const Tensor* t = file.find(name);
  check(t != nullptr, ErrorKind::data, "infer", "{} has no '{}', so it is of another model; give weights of this model",
        path, name);
  return *t;
}

Module msd_of(const SafetensorsFile& file, const InferCommand& c, ModelOptions o) {
  MsdOptions net;
  const Tensor& first = tensor_of(file, "dense.0.weight", c.weights);
  net.width = first.dim(0);
  check(first.rank() == o.input.rank() + 1 && first.dim(1) == o.input[-1], ErrorKind::data, "infer",
        "the model's first filter is {}, but the volume has {} channels; give a volume with the model's channels",
        first.shape(), o.input[-1]);
  for (net.depth = 0; file.find(fmt::format("dense.{}.weight", net.depth)) != nullptr;) ++net.depth;
  if (!c.dilations.empty()) net.dilations = numbers_of("--dilations", c.dilations, 10000);
  o.classes = tensor_of(file, "final.weight", c.weights).dim(0);
  return msd(o, net);
}

/// A registered model with the number of outputs of the file's last bias.
Module named_model(const SafetensorsFile& file, const InferCommand& c, ModelOptions o) {
  TrainerOptions config;
  config.model = c.model;
  check_model_name(config);
  const ModelRow& row = model_row(c.model);
  check(!row.text, "infer", "{} is a language model; use trireme generate", c.model);
  if (row.sized && !file.tensors.empty()) {
    const Tensor* filter = file.find("encoder1.enc1conv1.weight");
    if (filter) o.arch.width = filter->dim(0);
  }
  Module model = row.make(o);
  const std::vector<NamedState> states = named_tensors(model);
  check(!states.empty(), ErrorKind::data, "infer", "{} has no weights; give a trained model", c.model);
  o.classes = tensor_of(file, states.back().name, c.weights).dim(0);
  return row.make(o);
}

DType dtype_of(const InferCommand& c) {
  if (c.dtype == "f32") return DType::f32;
  if (c.dtype == "f64") return DType::f64;
  throw OptionError(fmt::format("--dtype is '{:.20}', expected f32 or f64", c.dtype));
}

/// whole: [1, spatial..., C]. A 2-D model is applied to each slice of a volume.
std::shared_ptr<const VolumeNet> net_over(const Shape& whole, const SafetensorsFile& file, const InferCommand& c) {
  if (whole.rank() == 5 && spatial_axes(file, c.weights) == 2)
    return std::make_shared<SliceNet>(net_over(whole.without(1), file, c), whole[1]);
  ModelOptions o{.input = whole.without(0), .classes = 2};
  Module model = c.model == "msd" ? msd_of(file, c, o) : named_model(file, c, o);
  {
    Parameters parameters(model);
    import_weights(parameters, file, c.weights);
  }
  const auto* row = model.as<Sequential>();
  const auto* dense = row && row->size() == 2 ? (*row)[0].as<MixedScaleDense>() : nullptr;
  if (!dense) return std::make_shared<ChainNet>(std::move(model), whole, dtype_of(c));
  return std::make_shared<DenseNet>(DenseLayers{dense->weight, dense->bias, dense->dilations, (*row)[1]}, whole,
                                    dtype_of(c));
}

/// The net, or null if the model does not take the volume's extents. Throws Error for wrong weights.
std::shared_ptr<const VolumeNet> net_if_taken(const Shape& whole, const SafetensorsFile& file, const InferCommand& c) {
  try {
    return net_over(whole, file, c);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::data) throw;
    return nullptr;
  }
}

/// Extents rounded up to multiples.
Shape rounded_up(Shape whole, const Extents& multiple) {
  for (int axis = 1; axis < whole.rank() - 1; ++axis) {
    const Index m = multiple[static_cast<std::size_t>(axis - 1)];
    whole[axis] = (whole[axis] + m - 1) / m * m;
  }
  return whole;
}

/// Sets the net. A volume whose extents the model's strides do not divide is padded at both ends.
void set_net(InferenceSubject& s, const SafetensorsFile& file, const InferCommand& c) {
  s.net = net_if_taken(s.whole, file, c);
  Shape padded = s.whole;
  if (!s.net) {
    const auto large = net_if_taken(rounded_up(s.whole, {64, 64, 64}), file, c);
    const int channels = s.whole.rank() - 1;
    if (large && large->output().without(channels) == large->input().without(channels))
      padded = rounded_up(s.whole, large->granularity());
    s.net = net_over(padded, file, c);
  }
  s.result = s.net->output();
  s.before = s.whole;
  for (int axis = 0; axis < padded.rank(); ++axis) {
    s.before[axis] = (padded[axis] - s.whole[axis]) / 2;
    if (padded[axis] != s.whole[axis]) s.result[axis] = s.whole[axis];
  }
}

}  // namespace

void complete_from_run(InferCommand& c) {
  if (!c.run.empty()) {
    const TrainerOptions config = run_config(c.run);
    if (!c.model.empty() && c.model != config.model)
      throw OptionError(
          fmt::format("infer: {} is a run of {}, but --model is {}; leave out --model", c.run, config.model, c.model));
    c.model = config.model;
    if (c.weights.empty()) {
      const auto newest = find_latest(c.run);
      check(newest.has_value(), ErrorKind::file, "infer",
            "{} has no checkpoint; train the run first, or give --weights FILE", c.run);
      c.weights = newest->path + "/model.safetensors";
    }
    if (!c.mean) c.mean = config.data.mean;
    if (!c.std) c.std = config.data.std;
  }
  c.mean = c.mean.value_or(0);
  c.std = c.std.value_or(0);
  if (!std::isfinite(*c.mean)) throw OptionError(fmt::format("--mean is {}, expected a finite number", *c.mean));
  if (!std::isfinite(*c.std) || *c.std < 0)
    throw OptionError(fmt::format("--std is {}, expected a finite number of at least 0", *c.std));
  if (c.model.empty()) c.model = "msd";
}

InferenceSubject inference_subject(const InferCommand& c) {
  InferenceSubject s{.volume = open_volume(c.volume), .whole = {}, .result = {}, .before = {}, .net = {}, .scale = {}};
  const SafetensorsFile file = read_safetensors(c.weights);
  const Shape& v = s.volume.shape();
  s.whole = spatial_axes(file, c.weights) == 3 || v[0] > 1 ? Shape{1, v[0], v[1], v[2], v[3]} : v;
  s.weights = crc32_of_file(c.weights);
  s.scale = voxel_scale(s.volume.type(), *c.mean, *c.std);
  set_net(s, file, c);
  return s;
}

double measured_operations(const InferenceSubject& s, const InferCommand& c) {
  return measured_operations(*net_over(shape_to_measure(*s.net), read_safetensors(c.weights), c));
}

}  // namespace trireme
