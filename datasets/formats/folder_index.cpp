#include "datasets/formats/folder_index.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>

#include "framework/io/file.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr std::string_view magic = "trireme folder index 1\n";
constexpr std::int64_t second = 1'000'000'000;

/// File systems note times in ticks; a folder that changed this lately may change again within one.
constexpr std::int64_t settled = 2 * second;

bool is_image(std::string_view name) {
  if (name.starts_with('.')) return false;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  std::string end(name.substr(dot + 1));
  for (char& c : end)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return end == "jpg" || end == "jpeg" || end == "png";
}

std::string crc_line(std::string_view text) { return fmt::format("{:08x}\n", crc32(std::as_bytes(std::span(text)))); }

/// Cuts the text up to a separator off; nothing when there is none.
std::optional<std::string_view> take(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == text.npos) return {};
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at + 1);
  return word;
}
template <class T>
std::optional<T> take_number(std::string_view& text) {
  const auto word = take(text, ' ');
  T value{};
  if (!word) return {};
  const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), value);
  if (error != std::errc() || end != word->data() + word->size() || std::to_string(value) != *word) return {};
  return value;
}

}  // namespace

std::int64_t changed_time(const std::string& path) {
  struct stat about {};
  check(::stat(path.c_str(), &about) == 0, "image folder", "{}: {}", path, [&] { return std::strerror(errno); });
  return std::int64_t{about.st_mtim.tv_sec} * second + about.st_mtim.tv_nsec;
}

FolderFiles list_images(const std::string& parent, const std::string& folder) {
  const std::string path = parent + "/" + folder;
  FolderFiles files{.folder = folder, .changed = changed_time(path), .count = 0, .names = {}};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  if (files.changed > std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - settled) files.changed = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  check(directory != nullptr, "image folder", "cannot list {}: {}", path, [&] { return std::strerror(errno); });
  std::vector<std::string> names;
  // The entry's type comes with its name; links are taken for files, since asking each would cost a call.
  while (const dirent* entry = ::readdir(directory.get()))
    if (entry->d_type != DT_DIR && is_image(entry->d_name)) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  files.count = names.size();
  for (const std::string& name : names) files.names.append(name).push_back('\0');
  return files;
}

std::optional<std::string> index_text(const std::vector<FolderFiles>& folders) {
  std::string text(magic);
  for (const FolderFiles& files : folders) {
    if (files.folder.find('\n') != std::string::npos || files.names.find('\n') != std::string::npos) return {};
    text += fmt::format("{} {} {}\n", files.changed, files.count, files.folder);
    for (char c : files.names) text += c == '\0' ? '\n' : c;
  }
  return text + crc_line(text);
}

std::optional<std::vector<FolderFiles>> parse_index(std::string_view text) {
  constexpr std::size_t end = 9;  // the line of the CRC
  if (!text.starts_with(magic) || text.size() < magic.size() + end) return {};
  const std::string_view sum = text.substr(text.size() - end);
  text.remove_suffix(end);
  if (crc_line(text) != sum) return {};
  text.remove_prefix(magic.size());
  std::vector<FolderFiles> folders;
  while (!text.empty()) {
    const auto changed = take_number<std::int64_t>(text);
    const auto count = changed ? take_number<std::size_t>(text) : std::nullopt;
    const auto folder = count ? take(text, '\n') : std::nullopt;
    if (!folder || folder->empty()) return {};
    FolderFiles files{.folder = std::string(*folder), .changed = *changed, .count = *count, .names = {}};
    for (std::size_t i = 0; i < *count; ++i) {
      const auto name = take(text, '\n');
      if (!name || !is_image(*name) || name->find('/') != name->npos || name->find('\0') != name->npos) return {};
      files.names.append(*name).push_back('\0');
    }
    folders.push_back(std::move(files));
  }
  return folders;
}

}  // namespace trireme
