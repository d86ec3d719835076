#include "tools/training/events.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "kernels/core/error.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view prefix = "events.out.tfevents.";

std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
  return table;
}

/// CRC masked as in TFRecords, because the CRC of data that contain CRCs is weak (record_writer).
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t c = crc32c(bytes);
  return (c >> 15 | c << 17) + 0xa282ead8u;
}
template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> 8 * i);
  return bytes;
}

/// TensorBoard reads the files of a directory in the order of their names. A new file gets a later second than all
/// others.
std::int64_t later_than_all(const std::string& directory, std::int64_t now) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) now = std::max<std::int64_t>(now, std::atoll(name.c_str() + prefix.size()) + 1);
  }
  return now;
}
std::string host_and_process() {
  static std::atomic<int> number{0};
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  return fmt::format("{}.{}.{}", host, getpid(), number++);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = crc_table();
  std::uint32_t c = ~0u;
  for (char byte : bytes) c = table[(c ^ static_cast<unsigned char>(byte)) & 0xff] ^ c >> 8;
  return ~c;
}

EventFile::EventFile(const std::string& directory, std::optional<std::int64_t> resumed, Seconds simulated)
    : simulated_(std::move(simulated)) {
  const std::int64_t seconds = later_than_all(directory, static_cast<std::int64_t>(now()));
  path_ = fmt::format("{}/{}{:010}.{}", directory, prefix, seconds, simulated_ ? "virtual" : host_and_process());
  file_.reset(std::fopen(path_.c_str(), "wbx"));
  check(file_ != nullptr, ErrorKind::file, "events", "cannot create {}: {}", path_,
        [&] { return std::strerror(errno); });
  write(Protobuf().text(3, "brain.Event:2"));
  if (resumed) write(Protobuf().integer(2, *resumed).message(7, Protobuf().integer(1, 1)));  // SessionLog { START }
  flush();
}
EventFile::~EventFile() {
  if (!pending_.empty()) std::fwrite(pending_.data(), 1, pending_.size(), file_.get());
}

double EventFile::now() const {
  if (simulated_) return simulated_();
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event: wall_time 1, step 2, file_version 3, summary 5 { value 1 }, session_log 7.
void EventFile::write(Protobuf event) {
  const std::string& data = event.real(1, now()).bytes();
  const std::string length = little_endian(std::uint64_t{data.size()});
  pending_ += length + little_endian(masked_crc(length)) + data + little_endian(masked_crc(data));
  tick();
}
void EventFile::summary(std::int64_t step, const Protobuf& value) {
  write(Protobuf().integer(2, step).message(5, Protobuf().message(1, value)));
}
void EventFile::tick() {
  if (Clock::now() - flushed_ >= std::chrono::seconds(10)) flush();
}
void EventFile::flush() {
  flushed_ = Clock::now();
  const bool ok = std::fwrite(pending_.data(), 1, pending_.size(), file_.get()) == pending_.size();
  check(ok && std::fflush(file_.get()) == 0, ErrorKind::file, "events", "cannot write {}: {}", path_,
        [&] { return std::strerror(errno); });
  pending_.clear();
}

// Summary.Value: tag 1, simple_value 2, image 4, histo 5.
void EventFile::scalar(const std::string& tag, std::int64_t step, double value) {
  summary(step, Protobuf().text(1, tag).number(2, static_cast<float>(value)));
}
// Summary.Image: height 1, width 2, colorspace 3 (1 grey, 3 RGB), encoded_image_string 4.
void EventFile::image(const std::string& tag, std::int64_t step, std::span<const std::byte> png, std::int64_t height,
                      std::int64_t width, std::int64_t channels) {
  const std::string_view bytes(reinterpret_cast<const char*>(png.data()), png.size());
  summary(step, Protobuf().text(1, tag).message(
                    4, Protobuf().integer(1, height).integer(2, width).integer(3, channels).text(4, bytes)));
}
// Value: metadata 9 { plugin_data 1 { plugin_name 1, content 2 } }, tensor 8 { dtype 1 (f32), shape 2, float_val 5 }.
void EventFile::plugin(const std::string& tag, const Protobuf& data) {
  const Protobuf content = Protobuf().text(1, "hparams").text(2, Protobuf().integer(1, 0).bytes() + data.bytes());
  const Protobuf shape = Protobuf().message(2, Protobuf().integer(1, 1));
  const std::string zero(4, '\0');
  write(Protobuf().message(
      5, Protobuf().message(1, Protobuf()
                                   .text(1, tag)
                                   .message(8, Protobuf().integer(1, 1).message(2, shape).text(5, zero))
                                   .message(9, Protobuf().message(1, content)))));
}
// HParamsPluginData: experiment 2 { hparam_infos 4 { name 1, type 4 (1 string, 2 bool, 3 float64) }, metric_infos 5 {
// name 1 { tag 2 } } }, session_start_info 3 { hparams 1 (map), group_name 4, start_time_secs 5 }. Value of Struct:
// number_value 2, string_value 3, bool_value 4.
void EventFile::hyper_parameters(const std::map<std::string, std::string>& settings, const std::string& group) {
  Protobuf experiment, session;
  for (const auto& [name, value] : settings) {
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    const bool is_bool = value == "true" || value == "false", is_number = !value.empty() && *end == 0;
    const bool quoted = value.size() > 1 && value.front() == '"';
    Protobuf v;
    if (is_bool)
      v.integer(4, value == "true");
    else if (is_number)
      v.real(2, number);
    else
      v.text(3, quoted ? value.substr(1, value.size() - 2) : value);
    experiment.message(4, Protobuf().text(1, name).integer(4, is_bool ? 2 : is_number ? 3 : 1));
    session.message(1, Protobuf().text(1, name).message(2, v));
  }
  for (const char* tag : {"test/top1", "test/loss", "train/loss"})
    experiment.message(5, Protobuf().message(1, Protobuf().text(2, tag)));
  plugin("_hparams_/experiment", Protobuf().message(2, experiment));
  plugin("_hparams_/session_start_info", Protobuf().message(3, session.text(4, group).real(5, now())));
}
void EventFile::end_session(bool good) {
  plugin("_hparams_/session_end_info", Protobuf().message(4, Protobuf().integer(1, good ? 1 : 2).real(2, now())));
}
// HistogramProto: min 1, max 2, num 3, sum 4, sum_squares 5, bucket_limit 6 (right edges), bucket 7.
void EventFile::histogram(const std::string& tag, std::int64_t step, std::span<const double> values) {
  double low = INFINITY, high = -INFINITY, num = 0, sum = 0, squares = 0;
  for (double v : values)
    if (std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
      num += 1;
      sum += v;
      squares += v * v;
    }
  if (num == 0) return;
  const std::size_t buckets = high > low ? 64 : 1;
  const double width = (high - low) / static_cast<double>(buckets);
  std::vector<double> limits(buckets, high), counts(buckets);
  for (std::size_t i = 0; i + 1 < buckets; ++i) limits[i] = low + width * static_cast<double>(i + 1);
  for (double v : values)
    if (std::isfinite(v)) ++counts[width > 0 ? std::min(static_cast<std::size_t>((v - low) / width), buckets - 1) : 0];
  summary(step, Protobuf().text(1, tag).message(5, Protobuf()
                                                       .real(1, low)
                                                       .real(2, high)
                                                       .real(3, num)
                                                       .real(4, sum)
                                                       .real(5, squares)
                                                       .reals(6, limits)
                                                       .reals(7, counts)));
}

}  // namespace trireme
