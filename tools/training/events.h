// EventFile: what a run shows in TensorBoard, written natively: TFRecords (tensorflow/core/lib/io/record_writer) of
// Event messages (tensorflow/core/util/event.proto).
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/onnx/protobuf.h"

namespace trireme {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  /// Seconds that events are dated by.
  using Seconds = std::function<double()>;
  /// A new file events.out.tfevents.<seconds>.<host>.<pid>.<number> in the directory. resumed: the first step that will
  /// be written again; TensorBoard then forgets what earlier files say of it and of later steps. simulated: a clock for
  /// the events in the wall clock's place; the file is then <seconds>.virtual, without host and process. Throws Error
  /// when the file cannot be made.
  explicit EventFile(const std::string& directory, std::optional<std::int64_t> resumed = {}, Seconds simulated = {});
  /// Writes what is left, as far as that is possible.
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // Tags: "train/loss" is shown in the group train. Steps: optimizer steps done. Events are kept in memory until
  // flush().
  /// TensorBoard keeps an f32.
  void scalar(const std::string& tag, std::int64_t step, double value);
  /// png: the bytes of a PNG file.
  void image(const std::string& tag, std::int64_t step, std::span<const std::byte> png, std::int64_t height,
             std::int64_t width, std::int64_t channels);
  /// Finite values in 64 buckets of equal width; the others are left out.
  void histogram(const std::string& tag, std::int64_t step, std::span<const double> values);

  /// What TensorBoard's HParams tab lists (tensorboard/plugins/hparams/plugin_data.proto): the settings of the session
  /// that begins, as TOML values by name. group: its name there.
  void hyper_parameters(const std::map<std::string, std::string>& settings, const std::string& group);
  /// Its end: SUCCESS, or FAILURE.
  void end_session(bool good);

  /// Throws Error with path and reason.
  void flush();
  /// Flushes when ten seconds have passed since the last time.
  void tick();
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using Clock = std::chrono::steady_clock;
  double now() const;
  void plugin(const std::string& tag, const Protobuf& data);
  void summary(std::int64_t step, const Protobuf& value);
  void write(Protobuf event);

  Seconds simulated_;
  std::string path_, pending_;
  std::unique_ptr<std::FILE, Close> file_;
  Clock::time_point flushed_ = Clock::now();
};

}  // namespace trireme
