#include "tools/training/mllog.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "framework/io/json.h"
#include "kernels/core/error.h"

namespace trireme {

MlLog::MlLog(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  check(file >= 0, "mllog", "cannot write {}: {}", path, [&] { return std::strerror(errno); });
  file_.reset(::fdopen(file, "a"));
}

void MlLog::write(std::string_view kind, std::string_view key, const Json& value, Json metadata) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  metadata.update({{"file", "trireme"}, {"lineno", 0}});
  const Json line{{"namespace", ""},    {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
                  {"event_type", kind}, {"key", key},
                  {"value", value},     {"metadata", metadata}};
  std::fprintf(file_.get(), ":::MLLOG %s\n", json_text(line).c_str());
  std::fflush(file_.get());
}

}  // namespace trireme
