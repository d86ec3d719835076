// Doctor: checks of a machine, or of all hosts of a job, each with a verdict and a remedy.
#pragma once
#include <string>
#include <vector>

#include "parallel/comm/world/world.h"

namespace trireme {

enum class Verdict { ok, warning, fault };  ///< fault: a training would fail, or give wrong results
struct Finding {
  std::string name;  ///< of the check: "shared memory"
  Verdict verdict = Verdict::ok;
  std::string what;         ///< was seen
  std::string remedy = {};  ///< what to do; empty where all is well
  int rank = 0;             ///< of the host that has it
};

/// Of this process's machine.
std::vector<Finding> check_host();
/// Of the directory in which runs are to be written; it is made if it is missing, and files in it are removed again.
std::vector<Finding> check_disk(const std::string& directory);
/// How this process was started, and what the ranks of the world have not alike: binary, libraries, processors, clocks,
/// environment, names of hosts that do not resolve. A collective call; rank 0's findings are of all.
std::vector<Finding> check_job(World&);

/// A table for people, worst last, or a JSON array of objects with the names of Finding's members.
std::string to_text(const std::vector<Finding>&);
std::string to_json(const std::vector<Finding>&);

}  // namespace trireme
