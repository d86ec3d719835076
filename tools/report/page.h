// What the pages of runs and of studies are made of: the frame, cards, tables, numbers as text.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tools/report/run_data.h"

namespace trireme {

/// Across every picture of what was trained on made-up samples.
inline constexpr const char* synthetic_stamp = "SYNTHETIC DATA";

/// The whole page, which an XML parser takes, too. title: as text; body: HTML.
std::string html_page(const std::string& title, const std::string& body);
/// A box. more: further classes, each behind a blank.
std::string card(const std::string& inner, const char* more = "");
std::string cards(const std::string& several);  ///< side by side where there is room; nothing for none
/// Rows of cells that are HTML; the first, which there must be, is the head.
std::string html_table(const std::vector<std::vector<std::string>>& rows);
/// Three or four digits; "–" where it is not finite.
std::string number(double, const char* unit = "");
/// A setting or a word of the environment without its quotes; "–": there is none.
std::string told(const std::map<std::string, std::string>& all, const std::string& key);
/// What a run was trained on: in run directories of before it was noted, the setting.
std::string data_of(const RunData&);
bool is_synthetic(const RunData&);
/// Null: there are none.
const Points* find(const std::map<std::string, Points>& all, const std::string& key);
double last_of(const RunData&, const std::string& key);  ///< of the evaluations' lines; NaN: there is none
/// Of as many points as a line shows, each the mean of its neighbours.
Points thinned(const Points&);

}  // namespace trireme
