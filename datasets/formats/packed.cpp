#include "datasets/formats/packed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "datasets/core/fingerprint.h"
#include "datasets/core/loader.h"
#include "datasets/core/random_stream.h"
#include "framework/io/json.h"
#include "framework/io/safetensors.h"

namespace trireme {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr std::string_view packed_op = "packed", packed_format = "trireme packed 1";

std::string checksum(const Metadata& metadata, std::span<const std::int64_t> labels) {
  std::uint32_t sum = crc32(std::as_bytes(labels));
  for (const auto& [key, value] : metadata)
    if (key != "crc32") sum = crc32(std::as_bytes(std::span(value)), sum);
  return fmt::format("{:08x}", sum);
}

/// The path. Throws if the file has the format before safetensors.
const std::string& not_of_old(const std::string& path) {
  check(!path.empty(), packed_op, "no file is named: --data.root FILE is what trireme pack wrote");
  std::array<std::byte, 8> begin{};
  if (const FileReader file(path); file.size() >= begin.size()) file.read(0, begin);
  check(std::memcmp(begin.data(), "TRIREMEP", begin.size()) != 0, ErrorKind::data, packed_op,
        "{}: has an older format; pack the data set again with trireme pack", path);
  return path;
}

/// The contents of a packed file.
struct Contents {
  Index training = 0, height = 0, width = 0, channels = 0;
  PixelScale scale;
  std::vector<std::string> classes;
  std::vector<std::int64_t> labels;
  const std::uint8_t* pixels = nullptr;  // in the mapped file
};

Contents read_contents(SafetensorsReader& file, const std::string& path) try {
  const Metadata& metadata = file.header().metadata;
  const auto named = metadata.find("format");
  check(named != metadata.end() && named->second == packed_format, ErrorKind::data, packed_op,
        "{}: is not a packed file (trireme pack writes them)", path);
  const auto tensor = [&](std::string_view name, std::string_view dtype, std::size_t rank) -> const SafetensorsEntry& {
    for (const SafetensorsEntry& e : file.header().entries)
      if (e.name == name && e.dtype == dtype && e.shape.size() == rank) return e;
    fail(ErrorKind::data, packed_op, "{}: damaged: it has no {} of type {} and {} axes", path, name, dtype, rank);
  };
  const SafetensorsEntry &pixels = tensor("pixels", "U8", 4), &labels = tensor("labels", "I64", 1);
  const auto about = [&](const char* key) { return parse_json(metadata.at(key)); };
  Contents all{about("train").get<Index>(),
               pixels.shape[1],
               pixels.shape[2],
               pixels.shape[3],
               {about("mean"), about("std")},
               about("classes"),
               {},
               nullptr};
  all.labels.resize(static_cast<std::size_t>(labels.shape[0]));
  std::ranges::copy(file.map(labels), std::as_writable_bytes(std::span(all.labels)).begin());
  all.pixels = reinterpret_cast<const std::uint8_t*>(file.map(pixels).data());
  check(metadata.at("crc32") == checksum(metadata, all.labels), ErrorKind::data, packed_op,
        "{}: damaged: its checksum is wrong", path);
  check(labels.shape[0] == pixels.shape[0] && all.training >= 0 && all.training <= labels.shape[0] && all.height > 0 &&
            all.width > 0 && (all.channels == 1 || all.channels == 3),
        ErrorKind::data, packed_op, "{}: damaged: {} labels, {} training samples, {} images of {} x {} x {}", path,
        labels.shape[0], all.training, pixels.shape[0], all.height, all.width, all.channels);
  for (const std::int64_t label : all.labels)
    check(label >= 0 && std::cmp_less(label, all.classes.size()), ErrorKind::data, packed_op,
          "{}: damaged: label {} is outside [0, {})", path, label, all.classes.size());
  for (std::size_t c = 0; c < all.scale.mean.size(); ++c)
    check(std::isfinite(all.scale.mean[c]) && all.scale.std.at(c) > 0, ErrorKind::data, packed_op,
          "{}: damaged: mean {} and std {}", path, all.scale.mean[c], all.scale.std[c]);
  return all;
} catch (const std::exception& e) {
  if (dynamic_cast<const Error*>(&e) != nullptr) throw;
  fail(ErrorKind::data, packed_op, "{}: damaged: its metadata are not as trireme pack writes them", path);
}

class PackedDataset final : public DatasetSource {
 public:
  PackedDataset(const std::string& path, const std::string& split, const PackedOptions& options)
      : path_(not_of_old(path)), options_(options), file_(path), all_(read_contents(file_, path)) {
    check(split == "train" || split == "test", packed_op, "split is '{}', it must be train or test", split);
    first_ = split == "train" ? 0 : all_.training;
    size_ = split == "train" ? all_.training : std::ssize(all_.labels) - all_.training;
    check(size_ > 0, ErrorKind::data, packed_op, "{}: holds no samples for {}", path, split);
    constexpr Index usual = 224;
    const bool fits = std::min(all_.height, all_.width) >= usual;
    height_ = options.size > 0 ? options.size : fits ? usual : all_.height;
    width_ = options.size > 0 ? options.size : fits ? usual : all_.width;
    check(height_ <= all_.height && width_ <= all_.width, packed_op,
          "{}: holds images of {} x {}, {} x {} cannot be cut out of them: pack larger ones", path, all_.height,
          all_.width, height_, width_);
  }
  std::string name() const override { return path_; }
  Index size() const override { return size_; }
  Shape shape() const override { return {height_, width_, all_.channels}; }
  Index classes() const override { return std::ssize(all_.classes); }
  PixelScale scale() const override { return all_.scale; }
  std::vector<std::string> class_names() const override { return all_.classes; }
  std::string fingerprint() const override {
    Fingerprint all;
    all.add_file("", path_);
    all.add(std::as_bytes(std::span(all_.labels)));
    all.add_content(path_);
    return all.text();
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check_read(id, pixels);
    const Index rows = all_.height - height_, columns = all_.width - width_, channels = all_.channels;
    Index top = rows / 2, left = columns / 2;
    bool flip = false;
    if (options_.augment) {
      const Philox random = random_stream(draw.seed, RandomStream::packed_crop, draw.epoch);
      const auto words = random(static_cast<std::uint64_t>(id), 0);
      const auto below = [](Index n, std::uint32_t word) { return static_cast<Index>(std::uint64_t(n) * word >> 32); };
      top = below(rows + 1, words[0]);
      left = below(columns + 1, words[1]);
      flip = (words[2] & 1) != 0;
    }
    const std::uint8_t* image = all_.pixels + (first_ + id) * all_.height * all_.width * channels;
    for (Index y = 0; y < height_; ++y) {
      const std::uint8_t* from = image + ((top + y) * all_.width + left) * channels;
      std::uint8_t* to = pixels.data() + y * width_ * channels;
      if (!flip) std::memcpy(to, from, static_cast<std::size_t>(width_ * channels));
      for (Index x = 0; flip && x < width_; ++x)
        std::copy_n(from + x * channels, channels, to + (width_ - 1 - x) * channels);
    }
    return all_.labels[static_cast<std::size_t>(first_ + id)];
  }

 private:
  std::string path_;
  PackedOptions options_;
  SafetensorsReader file_;
  Contents all_;
  Index first_ = 0, size_ = 0, height_ = 0, width_ = 0;
};

Metadata describe(const Dataset& train) {
  std::vector<std::string> names = train->class_names();
  for (Index c = std::ssize(names); c < train->classes(); ++c) names.push_back(std::to_string(c));
  const PixelScale scale = train->scale();
  return {{"format", std::string(packed_format)},
          {"train", std::to_string(train->size())},
          {"classes", json_text(names, NotUtf8::replaced)},  // names may be invalid UTF-8
          {"mean", json_text(scale.mean)},
          {"std", json_text(scale.std)},
          {"crc32", "00000000"}};
}

}  // namespace

void pack(const Dataset& train, const Dataset& test, const std::string& path, const PackOptions& options) {
  check(train && test, "pack", "there is no dataset");
  check(options.workers >= 1, "pack", "workers is {}, it must be at least 1", options.workers);
  const Shape shape = train->shape();
  check(
      shape.rank() == 3 && (shape[2] == 1 || shape[2] == 3), "pack",
      "{}: its samples are {}, not images of 1 or 3 channels", [&] { return train->name(); }, shape);
  check(
      test->shape() == shape && test->classes() == train->classes(), "pack",
      "{} has samples of {} in {} classes, {} of {} in {}", [&] { return train->name(); }, shape, train->classes(),
      [&] { return test->name(); }, test->shape(), test->classes());
  const Index samples = train->size() + test->size();
  std::vector<std::int64_t> labels(static_cast<std::size_t>(samples));
  const std::size_t middle = std::as_bytes(std::span(labels)).size();
  const std::size_t end = middle + static_cast<std::size_t>(samples * shape.numel());
  const std::vector<SafetensorsEntry> tensors{{"labels", "I64", {samples}, 0, middle},
                                              {"pixels", "U8", {samples, shape[0], shape[1], shape[2]}, middle, end}};
  Metadata metadata = describe(train);
  const std::string header = encode_safetensors_header(tensors, metadata);
  replace_file(path, header.size() + end, [&](FileWriter& file) {
    file.write(std::as_bytes(std::span(header)));
    file.write(std::as_bytes(std::span(labels)));  // a placeholder: labels are not known yet
    Index done = 0;
    for (const Dataset* data : {&train, &test}) {
      if ((*data)->size() == 0) continue;
      const Index batch = std::clamp<Index>((Index{8} << 20) / shape.numel(), 1, 256);
      for (auto& [x, y] : Loader(
               *data, {.batch = batch, .workers = options.workers, .prefetch = options.workers, .dtype = DType::u8})) {
        file.write(std::as_bytes(x.view().span<std::uint8_t>()));
        std::ranges::copy(y.view().span<std::int64_t>(), labels.begin() + done);
        done += y.numel();
        if (options.progress) options.progress(done);
      }
    }
    metadata["crc32"] = checksum(metadata, labels);
    const std::string whole = encode_safetensors_header(tensors, metadata);
    file.overwrite(0, std::as_bytes(std::span(whole)));
    file.overwrite(header.size(), std::as_bytes(std::span(labels)));
  });
}

Dataset Packed(const std::string& path, const std::string& split, const PackedOptions& options) {
  return std::make_unique<PackedDataset>(path, split, options);
}

}  // namespace trireme
