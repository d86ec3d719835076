// EventFile: writes TensorBoard's event files without TensorFlow: TFRecords (tensorflow/core/lib/io/record_writer) of
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

/// An event file of TensorBoard.
class EventFile {
 public:
  /// A clock in seconds for the time of events.
  using Seconds = std::function<double()>;
  /// A new file events.out.tfevents.<seconds>.<host>.<pid>.<number> in the directory. resumed: the first step that is
  /// written again; TensorBoard then drops this step and later ones of earlier files. simulated: replaces the wall
  /// clock; the file is then named <seconds>.virtual, without host and process. Throws Error if the file cannot be
  /// created.
  explicit EventFile(const std::string& directory, std::optional<std::int64_t> resumed = {}, Seconds simulated = {});
  /// Flushes; ignores errors.
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // Tags: "train/loss" is shown in the group train. Steps: optimizer steps done. Events are kept in memory until
  // flush().
  /// A number, stored as f32.
  void scalar(const std::string& tag, std::int64_t step, double value);
  /// A picture. png: the bytes of a PNG file.
  void image(const std::string& tag, std::int64_t step, std::span<const std::byte> png, std::int64_t height,
             std::int64_t width, std::int64_t channels);
  /// A histogram of the finite values in 64 buckets of equal width.
  void histogram(const std::string& tag, std::int64_t step, std::span<const double> values);

  /// Begins a session in TensorBoard's HParams tab (tensorboard/plugins/hparams/plugin_data.proto) with these settings,
  /// TOML values by name. group: display name.
  void hyper_parameters(const std::map<std::string, std::string>& settings, const std::string& group);
  /// Ends the session with SUCCESS or FAILURE.
  void end_session(bool good);

  /// Writes all events to the file. Throws Error with path and reason.
  void flush();
  /// Flushes if ten seconds have passed since the last flush.
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
