// The verbs of the trireme binary. Each returns the exit status, or throws what went wrong.
#pragma once
#include <string>
#include <vector>

#include "tools/config.h"

namespace trireme {

struct PredictOptions {
  std::vector<std::string> images;
  int top = 1;
  bool invert = false;
};

std::string version();
int info();
int train_command(int argc, char** argv, const Config&);
/// weights: a safetensors file, or empty for the run's newest checkpoint.
int eval_command(int argc, char** argv, const Config&, const std::string& run, const std::string& weights);
int predict(const std::string& run, const std::string& weights, const PredictOptions&);
/// Weights of another framework to a safetensors file `to` ("": none is written), and a table of them when listing.
int import_command(const std::string& from, const std::string& to, bool listing);
/// The config that a run was started with. Throws Error when run is no run directory.
Config run_config(const std::string& run);

}  // namespace trireme
