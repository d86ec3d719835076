#include "datasets/formats/packed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>

#include "datasets/core/random_stream.h"
#include "framework/io/file.h"
#include "kernels/core/thread.h"

namespace trireme {
namespace {

constexpr std::string_view op = "packed";
constexpr std::string_view magic = "TRIREMEP";
constexpr std::size_t fixed = 72, sum_bytes = 4, page = 4096;
constexpr std::uint32_t version = 1, most_side = 1 << 16;

std::uint64_t little(std::span<const std::byte> bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i)
    value |= std::uint64_t{std::to_integer<std::uint8_t>(bytes[at + static_cast<std::size_t>(i)])} << (8 * i);
  return value;
}
void put(std::vector<std::byte>& to, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}
std::size_t round_up(std::size_t n) { return (n + page - 1) / page * page; }

/// The first 72 bytes, once their sizes are known to fit the file's.
struct Fixed {
  std::uint64_t text, samples, training, height, width, channels, classes;
  std::uint64_t pixels_at() const { return round_up(fixed + text); }
  std::uint64_t pixels() const { return samples * height * width * channels; }
};
Fixed parse_fixed(std::span<const std::byte> file, const std::string& source) {
  const std::uint64_t n = file.size();
  check(n >= fixed + sum_bytes, op, "{}: has {} bytes, a packed file has more", source, n);
  check(std::memcmp(file.data(), magic.data(), magic.size()) == 0, op,
        "{}: is not a packed file (trireme pack writes them)", source);
  const std::uint64_t its = little(file, 8, 4);
  check(its == version, op, "{}: is of version {}, this program reads version {}: pack it anew", source, its,
        version + 0);
  const Fixed f{little(file, 12, 4), little(file, 16, 8), little(file, 24, 8), little(file, 32, 4),
                little(file, 36, 4), little(file, 40, 4), little(file, 44, 4)};
  check(f.height >= 1 && f.width >= 1 && f.height <= most_side && f.width <= most_side &&
            (f.channels == 1 || f.channels == 3),
        op, "{}: damaged: its images are {} x {} x {}", source, f.height, f.width, f.channels);
  const std::uint64_t each = f.height * f.width * f.channels + 4;  // at most 3 x 2^32 and the label
  const std::uint64_t around = f.pixels_at() + sum_bytes;
  check(around <= n && (n - around) % each == 0 && (n - around) / each == f.samples && f.training <= f.samples &&
            f.classes <= f.text,
        op, "{}: damaged or truncated: has {} bytes, {} images of {} x {} x {} and {} bytes of names make another size",
        source, n, f.samples, f.height, f.width, f.channels, f.text);
  return f;
}

PixelScale parse_scale(std::span<const std::byte> file, const Fixed& f, const std::string& source) {
  PixelScale scale{{}, {}};
  for (std::size_t c = 0; c < f.channels; ++c) {
    const auto number = [&](std::size_t i) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(little(file, 48 + 4 * i, 4)));
    };
    scale.mean.push_back(number(c)), scale.std.push_back(number(3 + c));
    check(std::isfinite(scale.mean[c]) && std::isfinite(scale.std[c]) && scale.std[c] > 0, op,
          "{}: damaged: mean {} and std {} of channel {}", source, scale.mean[c], scale.std[c], c);
  }
  return scale;
}

}  // namespace

PackedHeader parse_packed(std::span<const std::byte> file, const std::string& source) {
  const Fixed f = parse_fixed(file, source);
  const auto text_bytes = static_cast<std::size_t>(f.text), pixels_at = static_cast<std::size_t>(f.pixels_at());
  const auto labels = file.subspan(pixels_at + static_cast<std::size_t>(f.pixels()));
  const auto sum = crc32(labels.first(labels.size() - sum_bytes), crc32(file.first(fixed + text_bytes)));
  check(sum == little(labels, labels.size() - sum_bytes, sum_bytes), op, "{}: damaged: its checksum is wrong", source);
  PackedHeader header{static_cast<Index>(f.samples),
                      static_cast<Index>(f.training),
                      static_cast<Index>(f.height),
                      static_cast<Index>(f.width),
                      static_cast<Index>(f.channels),
                      parse_scale(file, f, source),
                      {},
                      {},
                      pixels_at};
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + fixed, text_bytes);
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    check(end != text.npos, op, "{}: damaged: a class name does not end", source);
    header.classes.emplace_back(text.substr(at, end - at));
  }
  check(header.classes.size() == f.classes, op, "{}: damaged: {} class names for {} classes", source,
        header.classes.size(), f.classes);
  for (std::size_t i = 0; i < f.samples; ++i) {
    header.labels.push_back(static_cast<std::uint32_t>(little(labels, 4 * i, 4)));
    check(header.labels[i] < f.classes, op, "{}: damaged: label {} of sample {} is outside [0, {})", source,
          header.labels[i], i, f.classes);
  }
  return header;
}

namespace {

/// A file's bytes as memory, read-only. Another program that cuts the file short while it is mapped ends this one.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(fd >= 0, op, "cannot open {}: {}", path, [&] { return std::strerror(errno); });
    struct stat about {};
    const bool regular = ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    size_ = static_cast<std::size_t>(about.st_size);
    if (regular && size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    check(regular, op, "{} is not a regular file", path);
    check(size_ > 0, op, "{}: is empty", path);
    check(data_ != MAP_FAILED, op, "cannot map {}: {}", path, [&] { return std::strerror(error); });
  }
  ~Mapping() { ::munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = MAP_FAILED;
  std::size_t size_ = 0;
};

class PackedDataset final : public DatasetSource {
 public:
  PackedDataset(const std::string& path, const std::string& split, const PackedOptions& options)
      : path_(path), options_(options), file_(path), header_(parse_packed(file_.bytes(), path)) {
    check(split == "train" || split == "test", op, "split is '{}', it must be train or test", split);
    first_ = split == "train" ? 0 : header_.training;
    size_ = split == "train" ? header_.training : header_.samples - header_.training;
    check(size_ > 0, op, "{}: holds no samples for {}", path, split);
    constexpr Index usual = 224;
    const bool fits = std::min(header_.height, header_.width) >= usual;
    height_ = options.size > 0 ? options.size : fits ? usual : header_.height;
    width_ = options.size > 0 ? options.size : fits ? usual : header_.width;
    check(height_ <= header_.height && width_ <= header_.width, op,
          "{}: holds images of {} x {}, {} x {} cannot be cut out of them: pack larger ones", path, header_.height,
          header_.width, height_, width_);
  }
  std::string name() const override { return path_; }
  Index size() const override { return size_; }
  Shape shape() const override { return {height_, width_, header_.channels}; }
  Index classes() const override { return std::ssize(header_.classes); }
  PixelScale scale() const override { return header_.scale; }
  std::vector<std::string> class_names() const override { return header_.classes; }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check(id >= 0 && id < size(), op, "{}: sample {} is outside [0, {})", path_, id, size());
    check(std::ssize(pixels) == shape().numel(), op, "room for {} pixels, a sample has {}", pixels.size(),
          shape().numel());
    const Index rows = header_.height - height_, columns = header_.width - width_, channels = header_.channels;
    Index top = rows / 2, left = columns / 2;
    bool flip = false;
    if (options_.augment) {
      const Philox random = random_stream(draw.seed, RandomStream::packed_crop, draw.epoch);
      const auto words = random(static_cast<std::uint64_t>(id), 0);
      const auto below = [](Index n, std::uint32_t word) { return static_cast<Index>(std::uint64_t(n) * word >> 32); };
      top = below(rows + 1, words[0]), left = below(columns + 1, words[1]), flip = (words[2] & 1) != 0;
    }
    const auto* image = reinterpret_cast<const std::uint8_t*>(file_.bytes().data()) + header_.pixels_at +
                        (first_ + id) * header_.height * header_.width * channels;
    for (Index y = 0; y < height_; ++y) {
      const std::uint8_t* from = image + ((top + y) * header_.width + left) * channels;
      std::uint8_t* to = pixels.data() + y * width_ * channels;
      std::memcpy(to, from, static_cast<std::size_t>(width_ * channels));
      if (flip) mirror(to, channels);
    }
    return header_.labels[static_cast<std::size_t>(first_ + id)];
  }

 private:
  void mirror(std::uint8_t* row, Index channels) const {
    for (Index a = 0, b = width_ - 1; a < b; ++a, --b)
      std::swap_ranges(row + a * channels, row + (a + 1) * channels, row + b * channels);
  }

  std::string path_;
  PackedOptions options_;
  Mapping file_;
  PackedHeader header_;
  Index first_ = 0, size_ = 0, height_ = 0, width_ = 0;
};

/// Reads samples [first, first + labels.size()) by several threads.
void read_some(const Dataset& data, Index first, std::span<std::uint8_t> pixels, std::span<std::uint32_t> labels,
               int workers) {
  const std::size_t each = static_cast<std::size_t>(data->shape().numel());
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers));
  const auto work = [&](std::size_t mine) {
    try {
      for (std::size_t i = mine; i < labels.size(); i += static_cast<std::size_t>(workers))
        labels[i] =
            static_cast<std::uint32_t>(data->read(first + static_cast<Index>(i), pixels.subspan(i * each, each)));
    } catch (...) { errors[mine] = std::current_exception(); }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < errors.size(); ++i) threads.push_back(start_thread<std::jthread>("pack", work, i));
    work(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::vector<std::byte> packed_beginning(const Dataset& train, const Dataset& test, const std::string& names) {
  const Shape shape = train->shape();
  std::vector<std::byte> begin;
  for (char c : magic) begin.push_back(static_cast<std::byte>(c));
  put(begin, version, 4), put(begin, names.size(), 4);
  put(begin, static_cast<std::uint64_t>(train->size() + test->size()), 8);
  put(begin, static_cast<std::uint64_t>(train->size()), 8);
  for (Index extent : shape) put(begin, static_cast<std::uint64_t>(extent), 4);
  put(begin, static_cast<std::uint64_t>(train->classes()), 4);
  const PixelScale scale = train->scale();
  for (const auto* numbers : {&scale.mean, &scale.std})
    for (std::size_t c = 0; c < 3; ++c) {
      const float number = (*numbers)[std::min(c, numbers->size() - 1)];
      put(begin, std::bit_cast<std::uint32_t>(number), 4);
    }
  for (char c : names) begin.push_back(static_cast<std::byte>(c));
  return begin;
}

/// The classes' names, or else their numbers, each with a line feed.
std::string packed_names(const Dataset& data) {
  std::vector<std::string> names = data->class_names();
  for (Index c = std::ssize(names); c < data->classes(); ++c) names.push_back(std::to_string(c));
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  check(std::count(text.begin(), text.end(), '\n') == data->classes(), "pack", "{}: a class name holds a line feed",
        [&] { return data->name(); });
  return text;
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
  std::vector<std::byte> begin = packed_beginning(train, test, packed_names(train));
  const std::uint32_t sum = crc32(begin);
  begin.resize(round_up(begin.size()));

  const auto each = static_cast<std::size_t>(shape.numel());
  const auto samples = static_cast<std::size_t>(train->size() + test->size());
  replace_file(path, begin.size() + samples * (each + 4) + sum_bytes, [&](FileWriter& file) {
    file.write(begin);
    const Index some = std::clamp<Index>((Index{32} << 20) / shape.numel(), 1, 1024);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(some) * each);
    std::vector<std::uint32_t> labels(samples);
    std::size_t done = 0;
    for (const Dataset* data : {&train, &test})
      for (Index first = 0; first < (*data)->size(); first += some) {
        const auto n = static_cast<std::size_t>(std::min(some, (*data)->size() - first));
        read_some(*data, first, pixels, std::span(labels).subspan(done, n), options.workers);
        file.write(std::as_bytes(std::span(pixels)).first(n * each));
        done += n;
        if (options.progress) options.progress(static_cast<Index>(done));
      }
    std::vector<std::byte> end;
    for (std::uint32_t label : labels) put(end, label, 4);
    put(end, crc32(end, sum), 4);
    file.write(end);
  });
}

Dataset Packed(const std::string& path, const std::string& split, const PackedOptions& options) {
  check(!path.empty(), op, "no file is named: --data.root FILE is what trireme pack wrote");
  return std::make_shared<PackedDataset>(path, split, options);
}

}  // namespace trireme
