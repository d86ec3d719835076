// Rules: the twelve ways to fool the masses when reporting the performance of deep learning (T. Hoefler, 2018), and for
// each what the page of a study does against it, with whether that could be kept for this study.
#pragma once
#include <string>
#include <vector>

#include "tools/report/study_data.h"

namespace trireme {

struct Rule {
  const char* way = "";      ///< to fool
  const char* measure = "";  ///< what the page does, always
  std::string broken = {};   ///< why it cannot be kept here; "": it is kept
  std::string told = {};     ///< what keeping it has come to: what was left out, what was found
};
/// Twelve, in their order.
std::vector<Rule> rules_of(const StudyData&);
/// What was not varied, not measured, or not known, a sentence each.
std::vector<std::string> limits_of(const StudyData&);

}  // namespace trireme
