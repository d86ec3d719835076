// What a run tells of itself before it trains.
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

/// All of a run that its banner names.
struct Banner {
  const TrainerOptions& options;
  World& world;
  Step& step;
  const Dataset &train, &test;
  const Strategy& strategy;
  Device device;
  std::string staged = {};                ///< why messages go through the host; empty: they do not
  std::string optimizer = {};             ///< in words
  Index batches = 0;                      ///< of an epoch
  std::vector<std::string> redrawn = {};  ///< tensors that options.weights does not fit
  std::string resuming = {};              ///< where it goes on; empty: it begins
  std::string directory = {};             ///< of the run
};
void tell(const Banner&, Console&);
/// The same for programs, with versions and processors: {"ranks": 4, "hosts": "a b", ...}. A collective call.
nlohmann::json environment(const Banner&);

}  // namespace trireme
