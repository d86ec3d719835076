#include "datasets/core/fingerprint.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "framework/io/file.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t piece_bytes = std::size_t{64} << 10, pieces = 64, most_contents = 256;
constexpr std::size_t most_read = std::size_t{256} << 20, front_bytes = 4096;

/// Files below a folder, by relative path, in byte order.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code wrong;
  fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, wrong), end;
  for (; !wrong && at != end; at.increment(wrong)) {
    std::error_code unknown;
    const bool hidden = at->path().filename().string().starts_with('.') && at->path().filename() != ".zarray";
    if (hidden)
      at.disable_recursion_pending();
    else if (!at->is_directory(unknown))
      names.push_back(at->path().lexically_relative(folder).string());
  }
  check(!wrong, ErrorKind::file, "fingerprint", "{} cannot be listed: {}", folder, [&] { return wrong.message(); });
  std::ranges::sort(names);
  return names;
}

}  // namespace

void Fingerprint::add(std::span<const std::byte> bytes) { crc_ = crc32(bytes, crc_); }

void Fingerprint::add(std::string_view text) {
  const std::uint64_t size = text.size();  // with the size, different lists of texts cannot give equal bytes
  add(std::as_bytes(std::span(&size, 1)));
  add(std::as_bytes(std::span(text)));
}

void Fingerprint::add_file(const std::string& name, const std::string& path) {
  std::error_code wrong;
  const std::uint64_t size = fs::file_size(path, wrong);
  check(!wrong, ErrorKind::file, "fingerprint", "{}: its size is not known: {}", path, [&] { return wrong.message(); });
  add(name);
  add(std::as_bytes(std::span(&size, 1)));
  ++files_;
  bytes_ += size;
}

void Fingerprint::add_content(const std::string& path) {
  const FileReader file(path);
  std::vector<std::byte> buffer(std::min(file.size(), piece_bytes));
  const auto read = [&](std::size_t at, std::size_t most = piece_bytes) {
    const auto part = std::span(buffer).first(std::min({buffer.size(), file.size() - at, most}));
    file.read(at, part);
    add(part);
    read_ += part.size();
  };
  if (read_ >= most_read)
    read(0, front_bytes);
  else if (file.size() <= pieces * piece_bytes)
    for (std::size_t at = 0; at < file.size(); at += piece_bytes) read(at);
  else
    for (std::size_t i = 0; i < pieces; ++i) read((file.size() - piece_bytes) / (pieces - 1) * i);
}

void Fingerprint::add_path(const std::string& name, const std::string& path, bool times) {
  std::error_code unknown;
  const bool is_folder = fs::is_directory(path, unknown);
  const std::vector<std::string> files = is_folder ? files_below(path) : std::vector<std::string>{""};
  add(name);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string file = is_folder ? path + "/" + files[i] : path;
    add_file(files[i], file);
    if (times) {
      const auto changed = fs::last_write_time(file, unknown).time_since_epoch().count();
      add(std::as_bytes(std::span(&changed, 1)));
    }
    const std::size_t step = (files.size() + most_contents - 1) / most_contents;
    if (i % step == 0) add_content(file);
  }
}

std::string Fingerprint::text() const {
  const std::string sum = fmt::format("checksum {:08x}", crc_);
  return files_ == 0 ? sum : fmt::format("{} file{} of {} bytes, {}", files_, files_ == 1 ? "" : "s", bytes_, sum);
}

}  // namespace trireme
