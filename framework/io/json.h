// JSON values and text. Parsing and writing are compiled once, here, since nlohmann's header adds 1.5 s of compile time
// to each file.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace trireme {

using Json = nlohmann::json;

/// The value of a JSON text (RFC 8259), or a discarded value (Json::is_discarded()) if it is not valid. Values nested
/// deeper than `depth` are left out.
Json parse_json(std::string_view text, int depth = 64);

/// The member of this name, or `otherwise` if it is missing or has another type. For files that others may have edited:
/// Json::value() throws an exception that is no Error.
template <class T>
T value_or(const Json& json, const char* name, T otherwise) {
  const auto at = json.find(name);
  if (at == json.end()) return otherwise;
  const bool fits = std::is_same_v<T, bool>          ? at->is_boolean()
                    : std::is_same_v<T, std::string> ? at->is_string()
                    : std::is_integral_v<T>          ? at->is_number_integer()
                                                     : at->is_number();
  return fits ? at->template get<T>() : std::move(otherwise);
}

/// Treatment of strings that are not UTF-8.
enum class NotUtf8 { fails, replaced };
/// A value as JSON text: on one line, or indented by `indent` spaces per level. Throws nlohmann::json::exception for a
/// string that is not UTF-8, with NotUtf8::fails.
std::string json_text(const Json&, NotUtf8 = NotUtf8::fails, int indent = -1, bool ascii = false);

}  // namespace trireme
