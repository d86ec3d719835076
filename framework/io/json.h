// JSON values as text. Reading and writing them is compiled once, here: each file that did it by itself took a second
// and a half longer to compile.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace trireme {

using Json = nlohmann::json;

/// The value that a text says, or a discarded one (Json::is_discarded()) if it is no JSON (RFC 8259). Values nested
/// more deeply than `depth` are left out.
Json parse_json(std::string_view text, int depth = 64);

/// The member of that name, or `otherwise` if there is none or if it is of another type. For files that others may have
/// changed: Json::value() throws an exception that is no Error.
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

/// What text does with strings that are not UTF-8.
enum class NotUtf8 { fails, replaced };
/// A value as JSON text: on one line, or with lines indented by `indent` spaces. Throws nlohmann::json::exception where
/// a string is not UTF-8, if that fails.
std::string json_text(const Json&, NotUtf8 = NotUtf8::fails, int indent = -1, bool ascii = false);

}  // namespace trireme
