#include "parallel/inference/tile_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "framework/io/file.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr const char* head = "inference.json";

std::uint32_t crc_of(std::string_view text) { return crc32(std::as_bytes(std::span(text.data(), text.size()))); }

void write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, ErrorKind::file, "infer", "{}: cannot be written: {}", path, [&] { return std::strerror(errno); });
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Distinguishes a file from earlier and later files of the same name; "none" if it is missing.
std::string identity_of(const std::string& path) {
  struct statx at = {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &at) != 0) return "none";
  const bool born = (at.stx_mask & STATX_BTIME) != 0;  // not supported by all file systems
  return fmt::format("{} {} {}", at.stx_ino, born ? at.stx_btime.tv_sec : 0, born ? at.stx_btime.tv_nsec : 0);
}

}  // namespace

Json TileJournal::about(const std::string& folder) {
  const std::string path = folder + "/" + head;
  if (!fs::exists(path)) return parse_json("");
  const Json json = parse_json(read_text(path, std::size_t{1} << 20));
  check(json.is_object(), ErrorKind::data, "infer",
        "{} was not written by an inference; remove the folder {} to start again", path, folder);
  return json;
}

Json TileJournal::begin(const std::string& folder, const Json& about) {
  make_directories(folder);
  const std::string path = folder + "/" + head, mine = temporary_name(path);
  {
    const std::string text = json_text(about, NotUtf8::replaced, 1);
    FileWriter file(mine, text.size());
    file.write(std::as_bytes(std::span(text.data(), text.size())));
    file.finish();
  }
  const int linked = ::link(mine.c_str(), path.c_str()), why = errno;  // the first process wins
  ::unlink(mine.c_str());
  check(linked == 0 || why == EEXIST, ErrorKind::file, "infer", "{}: cannot be made: {}", path,
        [&] { return std::strerror(why); });
  sync_directory(folder);
  return TileJournal::about(folder);
}

void TileJournal::remove(const std::string& folder) {
  std::error_code gone;  // another process may remove it at the same time
  fs::remove_all(folder, gone);
}

TileJournal::TileJournal(std::string folder, const std::string& writer, const std::vector<std::string>& data)
    : folder_(std::move(folder)), path_(folder_ + "/" + writer + ".tiles") {
  const std::string path = folder_ + "/" + head;
  std::string of = fs::exists(path) ? read_text(path, std::size_t{1} << 20) : "";
  for (const std::string& file : data)
    if (!file.empty()) of += "\n" + identity_of(file);
  of_ = crc_of(of);
  read_again();
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  check(fd_ >= 0, ErrorKind::file, "infer", "{}: cannot be written: {}", path_, [&] { return std::strerror(errno); });
  pending_.push_back('\n');  // after a line that a kill may have cut short
}

TileJournal::~TileJournal() { ::close(fd_); }

void TileJournal::read_again() {
  std::error_code gone;  // another process has finished and removed it
  for (const auto& entry : fs::directory_iterator(folder_, gone)) {
    if (entry.path().extension() != ".tiles") continue;
    const std::string text = read_text(entry.path(), std::size_t{1} << 32);
    for (std::size_t at = 0; at < text.size();) {  // pass, tile, checksum of its values, of_, checksum of the line
      const std::size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // cut short
      const std::string line = text.substr(at, end - at);
      at = end + 1;
      int pass = 0, used = 0;
      long long tile = 0;
      unsigned values = 0, of = 0, sum = 0;
      if (std::sscanf(line.c_str(), "%d %lld %x %x%n %x", &pass, &tile, &values, &of, &used, &sum) < 5) continue;
      if (of == of_ && crc_of(std::string_view(line).substr(0, static_cast<std::size_t>(used))) == sum)
        done_[{pass, tile}] = values;
    }
  }
}

void TileJournal::note(int pass, std::int64_t tile, std::uint32_t checksum) {
  const std::string record = fmt::format("{} {} {:08x} {:08x}", pass, tile, checksum, of_);
  pending_ += fmt::format("{} {:08x}\n", record, crc_of(record));
  done_[{pass, tile}] = checksum;
}

void TileJournal::commit(const std::function<void()>& sync, double seconds) {
  const auto now = std::chrono::steady_clock::now();
  if (pending_.size() <= 1 || std::chrono::duration<double>(now - last_).count() < seconds) return;
  sync();
  write_all(fd_, pending_, path_);
  check(::fdatasync(fd_) == 0, ErrorKind::file, "infer", "{}: cannot be written: {}", path_,
        [&] { return std::strerror(errno); });
  pending_.clear();
  last_ = std::chrono::steady_clock::now();
}

}  // namespace trireme
