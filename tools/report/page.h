// Building blocks of the pages of runs, studies and searches: the frame, cards, tables, numbers as text.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

namespace trireme {

/// Stamp on every picture of a run on synthetic samples.
inline constexpr const char* synthetic_stamp = "SYNTHETIC DATA";

/// A complete page, valid as HTML and as XML. title: plain text; body: HTML.
std::string html_page(const std::string& title, const std::string& body);
/// A box. more: further CSS classes, each after a blank.
std::string card(const std::string& inner, const char* more = "");
std::string cards(const std::string& several);  ///< side by side if there is room; "" for no cards
/// A table of cells that contain HTML. The first row is required: it is the head.
std::string html_table(const std::vector<std::vector<std::string>>& rows);
/// Three or four digits; "–" for NaN and infinity.
std::string number(double, const char* unit = "");
/// A value of the settings or the environment without quotes; "–" if it is missing.
std::string told(const std::map<std::string, std::string>& all, const std::string& key);
/// The run's data; for old run directories without a record of the data, the setting data.name.
std::string data_of(const RunData&);
bool is_synthetic(const RunData&);
/// Null if the key is missing.
const Points* find(const std::map<std::string, Points>& all, const std::string& key);
double last_of(const RunData&, const std::string& key);  ///< value of the last evaluation; NaN if there is none
/// At most as many points as a curve shows; each is the mean of neighbouring points.
Points thinned(const Points&);

}  // namespace trireme
