// The banner: the description that a run prints before it trains.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "datasets/core/dataset.h"
#include "parallel/comm/world/world.h"
#include "parallel/runtime/step.h"
#include "tools/training/console.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// Everything that the banner names.
struct Banner {
  const TrainerOptions& options;
  World& world;
  Step& step;
  const Dataset &train, &test, &validation;  ///< validation may be empty
  const Strategy& strategy;
  Device device;
  std::string cpus = {};                  ///< to which this rank is bound; empty: to none
  std::string staged = {};                ///< why messages go through the host; empty: they go directly
  std::string optimizer = {};             ///< description of the optimizer
  Index batches = 0;                      ///< global batches per epoch
  std::vector<std::string> redrawn = {};  ///< tensors without a match in options.weights, drawn at random
  std::string resuming = {};              ///< position from which the run resumes; empty: a new run
  std::string directory = {};             ///< run directory
};
/// Prints the banner.
void tell(const Banner&, Console&);
/// The same data as JSON, with versions and processors: {"ranks": 4, "hosts": "a b", ...}. A collective call.
nlohmann::json environment(const Banner&);

}  // namespace trireme
