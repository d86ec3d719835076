// Settings by name from the command line, TOML files, recipes and run directories. All functions throw OptionError,
// with file and line where there is one, for what cannot be read or names no setting.
#pragma once
#include <string>
#include <vector>

#include "tools/training/trainer_options.h"

namespace trireme {

/// Settings were renamed: a file that somebody writes is told the new name, a run directory is read as it is.
enum class OldNames : std::uint8_t { refused, read };

/// Sets one from text, as on the command line: "optim.lr" or a short form, "ranks".
void set(TrainerOptions&, const std::string& name, const std::string& text);
/// Throws for what names no setting, and for an old name.
void check_setting_name(const std::string& name);
/// Applies a TOML file of at most a mebibyte.
void load_config(TrainerOptions&, const std::string& path, OldNames = OldNames::refused);
/// Applies TOML text; source names it in messages. Keys have at most 32 parts (a.b.c has three), since the parser of
/// TOML recurses.
/// others: tables at the top that are somebody else's.
void parse_config(TrainerOptions&, const std::string& toml, const std::string& source, OldNames = OldNames::refused,
                  const std::vector<std::string>& others = {});

/// The path of a settings file: as it is, or of a recipe that ships, by its bare name: "imagenet_resnet50".
std::string find_config(const std::string& name);
/// Refuses the name of a recipe where a model's is wanted.
void check_model_name(const TrainerOptions&);

/// The settings that a run was started with. Throws Error when `run` is no run directory.
TrainerOptions run_config(const std::string& run);
/// What the next start of `train --resume` begins with: the run's config.toml, or without one the settings of its
/// newest checkpoint, without what belongs to one start only (run.max_steps, run.fault). Throws Error for a directory
/// without checkpoints.
TrainerOptions resume_config(const std::string& run);

}  // namespace trireme
