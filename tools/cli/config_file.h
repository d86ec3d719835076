// Reads settings by name from the command line, TOML files, recipes and run directories. All functions throw
// OptionError for files that cannot be read and for unknown settings. The message has file and line.
#pragma once
#include <string>
#include <vector>

#include "tools/training/trainer_options.h"

namespace trireme {

/// Old names of renamed settings: an error with the new name in a user's file, accepted in a run directory.
enum class OldNames : std::uint8_t { refused, read };

/// Sets one setting from text, as on the command line. name: full ("optim.lr") or short ("ranks").
void set(TrainerOptions&, const std::string& name, const std::string& text);
/// Throws OptionError for an unknown or old name.
void check_setting_name(const std::string& name);
/// Applies a TOML file of at most 1 MiB.
void load_config(TrainerOptions&, const std::string& path, OldNames = OldNames::refused);
/// Applies TOML text. source: its name in messages. others: top-level tables that are ignored. Keys have at most 32
/// parts (a.b.c has three), since the TOML parser recurses.
void parse_config(TrainerOptions&, const std::string& toml, const std::string& source, OldNames = OldNames::refused,
                  const std::vector<std::string>& others = {});

/// Path of a settings file. name: a path, or the name of an installed recipe ("imagenet_resnet50").
std::string find_config(const std::string& name);
/// Throws OptionError if the settings' model is the name of a recipe.
void check_model_name(const TrainerOptions&);

/// Settings that a run was started with. Throws Error if `run` is not a run directory.
TrainerOptions run_config(const std::string& run);
/// Settings with which `train --resume` starts: the run's config.toml, or without one the settings in its newest
/// checkpoint. Settings of a single start (run.max_steps, run.fault) are removed. Throws Error for a directory without
/// checkpoints.
TrainerOptions resume_config(const std::string& run);

}  // namespace trireme
