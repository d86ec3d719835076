#include "tools/training/toml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// End of the TOML string that begins at text[at]: "basic" with escapes or 'literal' on one line, or multi-line with
/// three quotes.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool escapes = quote == '"';
  const std::string fence(3, quote);
  if (text.substr(at, 3) == fence) {
    std::size_t end = at + 3;
    while (end < text.size() && text.substr(end, 3) != fence) end += escapes && text[end] == '\\' ? 2 : 1;
    end = std::min(end + 3, text.size());
    for (int more = 0; more < 2 && end < text.size() && text[end] == quote; ++more)
      ++end;  // quotes before the closing ones
    return end;
  }
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != quote && text[end] != '\n') end += escapes && text[end] == '\\' ? 2 : 1;
  return std::min(end + (end < text.size() && text[end] == quote ? 1 : 0), text.size());
}

/// Refuses keys that nest too deeply, because the TOML parser recurses.
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
      throw OptionError(fmt::format("{}:{}: a key has more than {} parts; use fewer dots", source, line, most));
    if (c == '\n') ++line;
    if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) parts = 1;
    ++at;
  }
}

bool fits(const toml::node& node, const Option& o) {
  return std::visit(
      [&]<class T>(const T*) {
        if constexpr (std::same_as<T, std::string>) return node.is_string() || (node.is_boolean() && !o.bare.empty());
        if constexpr (std::same_as<T, bool>) return node.is_boolean();
        if constexpr (std::same_as<T, double>) return node.is_number();
        if constexpr (std::same_as<T, std::vector<double>>)
          return node.is_array() && std::ranges::all_of(*node.as_array(), [](auto& n) { return n.is_number(); });
        return node.is_integer();
      },
      o.value);
}

/// A value in the notation of the command line.
std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  std::string list;
  for (const toml::node& each : *node.as_array()) list += (list.empty() ? "" : ",") + text_of(each);
  return list;
}

}  // namespace

std::string read_settings(const std::string& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::error_code none;
  check(!fs::is_directory(path, none), ErrorKind::file, "settings", "{} is a folder; give a TOML file", path);
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorKind::file, "settings", "{} cannot be read: {}", path, std::strerror(errno));
  std::string text(most + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > most)
    throw OptionError(fmt::format("{} has more than {} bytes, too many for a file of settings", path, most));
  return text;
}

toml::table parse_toml(const std::string& text, const std::string& source) {
  check_key_depth(text, source);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    std::string what(e.description());  // may quote the end of a line
    std::ranges::replace_if(
        what, [](unsigned char c) { return c < ' '; }, ' ');
    throw OptionError(fmt::format("{}:{}: {}", source, e.source().begin.line, what));
  }
}

std::string place_in(const std::string& source, const toml::node& node) {
  return fmt::format("{}:{}: ", source, node.source().begin.line);
}

std::string option_text(const toml::node& node, const Option& option) {
  if (!fits(node, option)) throw OptionError(fmt::format("{} must be {}", option.name, type_of(option)));
  return text_of(node);
}

}  // namespace trireme
