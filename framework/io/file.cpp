#include "framework/io/file.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "framework/io/lines.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr std::size_t piece = std::size_t{1} << 20;

std::string reason() {
  const bool many = errno == EMFILE;
  return std::string(std::strerror(errno)) + (many ? "; raise the limit (ulimit -n)" : "");
}

/// The end of temporary_name(), after the thread's number. Hosts and containers that share a file system may have equal
/// numbers.
const std::string& temporary_end() {
  static const std::string end = [] {
    std::random_device device;
    return fmt::format(".{:016x}.tmp", std::uint64_t{device()} << 32 | device());
  }();
  return end;
}
/// The path that a user gave, if this is a temporary name for it.
std::string named(const std::string& path) {
  if (!path.ends_with(temporary_end())) return path;
  return path.substr(0, path.rfind('.', path.size() - temporary_end().size() - 1));
}

std::string directory_of(const std::string& path) {
  auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

/// Calls f until it is not interrupted by a signal.
template <class F>
auto retry(F f) {
  for (;;)
    if (auto r = f(); r >= 0 || errno != EINTR) return r;
}

/// On a full disk other programs cannot write their files, so a file that does not fit is not begun.
void check_room(int fd, const std::string& path, std::size_t bytes) {
  struct statvfs disk {};
  struct stat file {};
  if (::fstatvfs(fd, &disk) != 0 || ::fstat(fd, &file) != 0 || disk.f_blocks == 0)
    return;  // unknown: a write fails if the disk is full
  const std::size_t has = static_cast<std::size_t>(file.st_blocks) * 512, lacks = bytes - std::min(bytes, has);
  const std::size_t free = static_cast<std::size_t>(disk.f_bavail) * disk.f_frsize;
  check(lacks <= free, ErrorKind::file, "file",
        "{} is to have {} bytes, and {} are free on its disk: make room, or write to another disk", path, bytes, free);
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc) {
  return bytes.empty() ? crc : libdeflate_crc32(crc, bytes.data(), bytes.size());  // which takes null for a beginning
}

FileReader::FileReader(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  fd_ = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  check(fd_ >= 0, ErrorKind::file, "file", "cannot open {}: {}", path, reason);
  struct stat about {};
  bool regular = ::fstat(fd_, &about) == 0 && S_ISREG(about.st_mode);
  if (!regular) ::close(fd_);
  check(regular, ErrorKind::file, "file", "{} is not a regular file", path);
  size_ = static_cast<std::size_t>(about.st_size);
}

FileReader::~FileReader() {
  if (mapping_ != nullptr) ::munmap(mapping_, size_);
  ::close(fd_);
}

std::span<const std::byte> FileReader::map(bool read_ahead, bool copies_on_write) {
  if (mapping_ == nullptr && size_ > 0) {
    void* mapped = copies_on_write ? ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd_, 0)
                                   : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
    check(mapped != MAP_FAILED, ErrorKind::file, "file", "cannot map {}: {}", path_, reason);
    mapping_ = mapped;
    if (!read_ahead) ::madvise(mapping_, size_, MADV_RANDOM);
  }
  return {static_cast<const std::byte*>(mapping_), size_};
}

void FileReader::read(std::size_t offset, std::span<std::byte> to) const {
  check(offset <= size_ && to.size() <= size_ - offset, ErrorKind::file, "file",
        "{} has {} bytes, but {} bytes at offset {} were requested", path_, size_, to.size(), offset);
  while (!to.empty()) {
    ssize_t n =
        retry([&] { return ::pread(fd_, to.data(), std::min(to.size(), piece * 64), static_cast<off_t>(offset)); });
    check(n >= 0, ErrorKind::file, "file", "cannot read {}: {}", path_, reason);
    check(n > 0, ErrorKind::file, "file", "{} was truncated while it was read: {} bytes are missing at offset {}",
          path_, to.size(), offset);
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
}

std::vector<std::byte> read_bytes(const std::string& path) {
  const FileReader file(path);
  std::vector<std::byte> bytes;
  try {
    bytes.resize(file.size());
  } catch (const std::exception&) {
    fail(ErrorKind::out_of_memory, "file", "{} has {} bytes, which do not fit into memory", path, file.size());
  }
  file.read(0, bytes);
  return bytes;
}

std::string read_text(const std::string& path, std::size_t at_most) {
  FileReader file(path);
  check(file.size() <= at_most, ErrorKind::data, "file", "{} has {} bytes, at most {} are expected", path, file.size(),
        at_most);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool each_line(const std::string& path, const std::function<void(std::string_view)>& f) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return false;
  const FileReader file(path);
  std::string buffer(std::min(file.size(), piece), '\0'), line;
  for (std::size_t at = 0; at < file.size();) {
    std::string_view part = std::string_view(buffer).substr(0, file.size() - at);
    file.read(at, std::as_writable_bytes(std::span(buffer)).first(part.size()));
    at += part.size();
    for (std::size_t end = part.find('\n'); end != part.npos; end = part.find('\n')) {
      line.append(part.substr(0, std::min(end, longest - line.size())));
      f(line);
      line.clear();
      part.remove_prefix(end + 1);
    }
    line.append(part.substr(0, longest - line.size()));
  }
  if (!line.empty()) f(line);
  return true;
}

std::vector<std::string> text_lines(std::string_view text) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  std::vector<std::string> lines;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  }
  return lines;
}

std::uint32_t crc32_of_file(const std::string& path) {
  FileReader file(path);
  std::vector<std::byte> buffer(std::min(file.size(), piece));
  std::uint32_t crc = 0;
  for (std::size_t at = 0; at < file.size();) {
    auto part = std::span(buffer).first(std::min(buffer.size(), file.size() - at));
    file.read(at, part);
    crc = crc32(part, crc);
    at += part.size();
  }
  return crc;
}

void reserve_room(int fd, const std::string& path, std::size_t bytes) {
  check_room(fd, path, bytes);
  const int failed = static_cast<int>(retry([&] { return ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)); }));
  check(failed == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL, ErrorKind::file, "file",
        "cannot reserve {} bytes for {}: {}", bytes, path, reason);
}

FileWriter::FileWriter(std::string path, std::size_t total) : path_(std::move(path)), total_(total) {
  fd_ = retry([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666); });
  check(
      fd_ >= 0, ErrorKind::file, "file", "cannot create {} ({} bytes): {}", [&] { return named(path_); }, total_,
      reason);
  if (total_ < piece) return;  // a small file fills no disk
  try {
    check_room(fd_, named(path_), total_);
  } catch (...) {
    ::close(fd_);
    ::unlink(path_.c_str());
    throw;
  }
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!finished_) ::unlink(path_.c_str());
}

void FileWriter::broken(const char* what) const {
  fail(ErrorKind::file, "file", "cannot {} {}: {} ({} of {} bytes were written)", what, named(path_), reason(), size_,
       total_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  crc_ = crc32(bytes, crc_);
  while (!bytes.empty()) {
    ssize_t n = retry([&] { return ::write(fd_, bytes.data(), std::min(bytes.size(), piece * 64)); });
    if (n < 0) broken("write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    size_ += static_cast<std::size_t>(n);
  }
}

void FileWriter::overwrite(std::size_t offset, std::span<const std::byte> bytes) {
  check(offset <= size_ && bytes.size() <= size_ - offset, ErrorKind::file, "file",
        "{} has {} bytes, cannot overwrite {} bytes at offset {}", path_, size_, bytes.size(), offset);
  while (!bytes.empty()) {
    ssize_t n = retry([&] { return ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (n < 0) broken("write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
}

void FileWriter::finish() {
  if (retry([&] { return ::fsync(fd_); }) < 0) broken("fsync");
  // Some file systems (NFS) report a full disk only here. The descriptor is closed in any case.
  int closed = ::close(fd_);
  fd_ = -1;
  if (closed < 0 && errno != EINTR) broken("close");
  finished_ = true;
}

std::string temporary_name(const std::string& path) {
  return fmt::format("{}.{}{}", path, ::gettid(), temporary_end());
}

void sync_directory(const std::string& path) {
  int fd = retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  check(fd >= 0, ErrorKind::file, "file", "cannot open directory {}: {}", path, reason);
  // EINVAL: a file system whose directories need no fsync.
  bool good = retry([&] { return ::fsync(fd); }) == 0 || errno == EINVAL;
  std::string why = reason();
  ::close(fd);
  check(good, ErrorKind::file, "file", "cannot fsync directory {}: {}", path, why);
}

void rename_durably(const std::string& from, const std::string& to) {
  bool renamed = ::rename(from.c_str(), to.c_str()) == 0;
  check(renamed, ErrorKind::file, "file", "cannot rename {} to {}: {}", from, to, reason);
  sync_directory(directory_of(to));
}

void replace_file(const std::string& path, std::size_t bytes, const std::function<void(FileWriter&)>& fill) {
  struct stat there {};
  check(::stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode), ErrorKind::file, "file",
        "{} is no regular file: it is not replaced", path);
  std::string temporary = temporary_name(path);
  FileWriter file(temporary, bytes);
  fill(file);
  file.finish();
  try {
    rename_durably(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void replace_file(const std::string& path, std::string_view text) {
  replace_file(path, text.size(), [&](FileWriter& file) { file.write(std::as_bytes(std::span(text))); });
}

void write_new_file(const std::string& path, std::string_view text) {
  FileWriter file(path, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

void make_directories(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return;
  std::string parent = directory_of(path);
  if (parent != path) make_directories(parent);
  bool made = ::mkdir(path.c_str(), 0777) == 0;
  std::string why = errno == EEXIST ? "it exists and is not a directory" : reason();
  check(made || std::filesystem::is_directory(path, ignored), ErrorKind::file, "file", "cannot create directory {}: {}",
        path, why);
  sync_directory(parent);
}

void check_writable(const std::string& directory, std::size_t bytes) {
  make_directories(directory);
  std::string probe = temporary_name(directory + "/probe");
  FileWriter(probe, 0);
  struct statvfs about {};
  bool examined = ::statvfs(directory.c_str(), &about) == 0;
  check(examined, ErrorKind::file, "file", "cannot examine {}: {}", directory, reason);
  std::size_t free = static_cast<std::size_t>(about.f_bavail) * about.f_frsize;
  check(free >= bytes, ErrorKind::file, "file", "{} has {} bytes free, {} are needed", directory, free, bytes);
}

}  // namespace trireme
