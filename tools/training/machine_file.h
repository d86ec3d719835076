// Machine files: measurements of `trireme bench --machine` (parallel/profile/machine_profile.h) in TOML, for
// predictions of runs on similar machines:
//
//   jitter = 0.02              # standard deviation of the logarithm of a computation's time
//   load = [2.1e-5, 0.03]      # seconds per sample of a rank's loader, and half the interquartile range
//   checkpoint = [1.2e-9, 0.1] # seconds per byte
//   fresh = [1e-10, 0.1]       # seconds per byte of memory that is freed and written again
//   vector_op = [2e-10, 0.1]   # seconds per byte of an elementwise operation on vectors, by which weights are mixed
//
//   [about]                    # machine and software of the measurement
//   date = "2026-11-25T18:00:00Z"
//
//   [[calls]]                            # between ranks of this host, each a list parallel to bytes
//   kind = "all_reduce"
//   ranks = 2
//   bytes = [8, 4096]
//   seconds = [3.4e-6, 3.5e-6]
//
//   [[models]]
//   model = "resnet50"
//   ranks = 2                            # that computed at the same time
//   threads = 1
//   parameters = 25557032
//   optimizer = "sgd"
//   update = [1.2e-10, 0.02]             # seconds per parameter
//   parts = ["0-3", "4"]
//   arch = ["dtype=f32"]                 # settings that change the model
//
//   [[models.sizes]]
//   rows = 8
//   step_forward = [0.11, 0.01]          # the whole model's; so step_backward, loss, between
//   forward = [0.08, 0.03]               # by part; so input (the half of backward), weight, saved and output (bytes)
#pragma once
#include <string>

#include "parallel/profile/machine_profile.h"
#include "tools/training/trainer_options.h"

namespace trireme {

/// Reads a machine file. Throws a one-line OptionError with file, line and key for an unreadable file and for missing
/// or invalid values.
MachineProfile read_machine(const std::string& path);
/// As above, from a file's text. source: name in errors.
MachineProfile parse_machine(const std::string& text, const std::string& source);
/// ModelProfile::arch of these settings.
std::map<std::string, std::string> settings_of_model(const TrainerOptions&);
/// The profile of the settings' model, measured with that many ranks at the same time (0: any number). Throws
/// OptionError with the available profiles if there is none.
const ModelProfile& model_in(const MachineProfile&, const TrainerOptions&, int ranks);
/// The text that parse_machine() reads as this profile, bit for bit.
std::string machine_toml(const MachineProfile&);

/// Load average of the last minute over the cores of this host; 0: unknown. Call it before a measurement.
double load_per_core();
/// "load average 1.62 per core (above 0.5), durations spread by 37.0 % (above 10 %)": the bounds above which a machine
/// counts as busy. Empty: it is not. load: before the measurement.
std::string busy_in_words(double load, double spread);
/// The same of the measured machine, whose load profile notes as "load_average".
std::string busy_in_words(const MachineProfile&);

}  // namespace trireme
