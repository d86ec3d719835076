#include "tools/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/io/json.h"

namespace trireme {

static std::string_view name_of(Verdict v) {
  return v == Verdict::ok ? "ok" : v == Verdict::warning ? "warning" : "fault";
}

std::string to_text(const std::vector<Finding>& findings) {
  std::vector<Finding> sorted = findings;
  std::ranges::stable_sort(sorted, {}, &Finding::verdict);
  std::string text;
  for (const Finding& f : sorted) {
    text += fmt::format("{:<8} {:<16} {}{}\n", name_of(f.verdict), f.name,
                        f.rank > 0 ? fmt::format("rank {}: ", f.rank) : "", f.what);
    if (!f.remedy.empty()) text += fmt::format("{:<8} {:<16} -> {}\n", "", "", f.remedy);
  }
  const auto faults = std::ranges::count(findings, Verdict::fault, &Finding::verdict),
             warnings = std::ranges::count(findings, Verdict::warning, &Finding::verdict);
  return text + fmt::format("{} check{}, {} warning{}, {} fault{}\n", findings.size(), findings.size() == 1 ? "" : "s",
                            warnings, warnings == 1 ? "" : "s", faults, faults == 1 ? "" : "s");
}

std::string to_json(const std::vector<Finding>& findings) {
  Json all = Json::array();
  for (const Finding& f : findings)
    all.push_back(
        {{"name", f.name}, {"verdict", name_of(f.verdict)}, {"what", f.what}, {"remedy", f.remedy}, {"rank", f.rank}});
  return json_text(all, NotUtf8::replaced, 1) + "\n";
}

}  // namespace trireme
