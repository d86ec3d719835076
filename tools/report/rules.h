// Rules: the twelve ways to fool the masses when reporting the performance of deep learning (T. Hoefler, 2018). For
// each: the measure that a study's page takes against it, and whether this study satisfies the measure.
#pragma once
#include <string>
#include <vector>

#include "tools/report/study_data.h"

namespace trireme {

struct Rule {
  const char* way = "";     ///< to fool the masses; page.html has what it does against each
  std::string broken = {};  ///< why the measure does not hold here; "": it holds
  std::string told = {};    ///< details: what was left out, what was found
};
/// All twelve rules, in the order of the paper.
std::vector<Rule> rules_of(const StudyData&);
/// What the study did not vary, measure or know; one sentence each.
std::vector<std::string> limits_of(const StudyData&);

}  // namespace trireme
