// Runs a search on this host: as many workers as trials at once, each a process of its own, started again where one
// dies; or a Slurm job array of them.
#pragma once
#include <string>

#include "tools/tune/tune_file.h"

namespace trireme {

/// Makes the folder, or goes on with it. question: complete(). Throws OptionError for a folder with another question;
/// trials may become more.
void keep_search(const std::string& directory, const TuneQuestion& question, const TrainerOptions& settings);
/// More trials than so far. Throws OptionError for fewer than there are, and where there cannot be more (a grid).
void add_trials(const std::string& directory, std::int64_t trials);

/// Runs until nothing is left, printing a line for each end of a trial, whoever's, and the table at the end. parallel:
/// trials at once here; 0: as the search says. retry: failed trials, too. Returns 0; 1: every trial failed; 85: asked
/// to stop. adopt_orphans() was called before. Throws Error with the reason of a search that was given up.
int run_search(const std::string& directory, int parallel, bool retry);

/// The text of a batch script for Slurm (sbatch): a job array of so many workers. program: path of trireme.
std::string slurm_script(const std::string& directory, const TuneOptions&, int workers, const std::string& program);

}  // namespace trireme
