#include "tools/training/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tools/training/config.h"

namespace trireme {
namespace {

/// Where the string that begins at text[at] ends, as TOML has them: "basic" with escapes or 'literal', on one line, or
/// between three quotes on several.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool escapes = quote == '"';
  const std::string fence(3, quote);
  if (text.substr(at, 3) == fence) {
    std::size_t end = at + 3;
    while (end < text.size() && text.substr(end, 3) != fence) end += escapes && text[end] == '\\' ? 2 : 1;
    end = std::min(end + 3, text.size());
    for (int more = 0; more < 2 && end < text.size() && text[end] == quote; ++more) ++end;  // quotes before the fence
    return end;
  }
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != quote && text[end] != '\n') end += escapes && text[end] == '\\' ? 2 : 1;
  return std::min(end + (end < text.size() && text[end] == quote ? 1 : 0), text.size());
}

}  // namespace

std::string read_settings(const std::string& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) throw ConfigError(path + " is a folder, not a file of settings");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  std::string text(most + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > most) throw ConfigError(fmt::format("{} has more than {} bytes: no file of settings", path, most));
  return text;
}

void check_key_depth(const std::string& toml, const std::string& source) {
  constexpr int most = 32;
  int parts = 1, line = 1;
  for (std::size_t at = 0; at < toml.size();) {
    const char c = toml[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = end_of_string(toml, at);
      line += static_cast<int>(std::count(toml.begin() + static_cast<std::ptrdiff_t>(at),
                                          toml.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(toml.find('\n', at), toml.size());
      continue;
    }
    if (c == '.' && ++parts > most)
      throw ConfigError(fmt::format("{}:{}: a key of more than {} parts", source, line, most));
    if (c == '\n') ++line;
    if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) parts = 1;
    ++at;
  }
}

}  // namespace trireme
