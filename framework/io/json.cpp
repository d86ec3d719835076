#include "framework/io/json.h"

namespace trireme {

Json parse_json(std::string_view text, int depth) {
  return Json::parse(
      text, [depth](int at, Json::parse_event_t, Json&) { return at < depth; }, /*allow_exceptions=*/false);
}

std::string json_text(const Json& value, NotUtf8 wrong, int indent, bool ascii) {
  return value.dump(indent, ' ', ascii,
                    wrong == NotUtf8::fails ? Json::error_handler_t::strict : Json::error_handler_t::replace);
}

}  // namespace trireme
