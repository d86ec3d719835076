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
  std::string what;         ///< what the check found
  std::string remedy = {};  ///< what to do; empty if all is well
  int rank = 0;             ///< a rank on the host with this finding
};

/// Checks this process's machine.
std::vector<Finding> check_host();
/// Checks the directory for runs. Creates it if it is missing, and removes its test files again.
std::vector<Finding> check_disk(const std::string& directory);
/// Checks how this process was started, and what differs between ranks: binary, libraries, processors, clocks,
/// environment, unresolved host names. A collective call; rank 0 gets the findings of all ranks.
std::vector<Finding> check_job(World&);

/// A table, worst finding last; or a JSON array of objects with Finding's members.
std::string to_text(const std::vector<Finding>&);
std::string to_json(const std::vector<Finding>&);

}  // namespace trireme
