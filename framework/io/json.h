// JSON values as text. Reading and writing them is compiled once, here: each file that did it by itself took a second
// and a half longer to compile.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trireme {

using Json = nlohmann::json;

/// The value that a text says, or a discarded one (Json::is_discarded()) if it is no JSON (RFC 8259). Values nested
/// more deeply than `depth` are left out.
Json parse_json(std::string_view text, int depth = 64);

/// What text does with strings that are not UTF-8.
enum class NotUtf8 { fails, replaced };
/// A value as JSON text: on one line, or with lines indented by `indent` spaces. Throws nlohmann::json::exception where
/// a string is not UTF-8, if that fails.
std::string json_text(const Json&, NotUtf8 = NotUtf8::fails, int indent = -1, bool ascii = false);

}  // namespace trireme
