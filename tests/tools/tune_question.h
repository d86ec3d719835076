// Searches that tests ask for.
#pragma once
#include <string>

#include "tools/study/question.h"

namespace trireme::test {

inline constexpr const char* head = "[tune]\nalgorithm = \"random\"\ntrials = 30\nepochs = 9\n";
inline constexpr const char* four = R"(
[space]
optim.lr = {type = "log", low = 1e-4, high = 1.0}
"optim.name" = {type = "choice", values = ["adam", "sgd", "lars"]}
"optim.momentum" = {type = "uniform", low = 0.5, high = 0.99, only_if = {"optim.name" = ["sgd", "lars"]}}
"data.batch" = {type = "log_integer", low = 8, high = 512}
)";

inline Question question(const std::string& algorithm, const std::string& space = four) {
  Question q = parse_tune(head + space, "s.toml");
  q.options.algorithm = algorithm;
  return q;
}

}  // namespace trireme::test
