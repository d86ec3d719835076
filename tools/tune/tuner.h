// Runs a search on this host: one worker process per simultaneous trial, restarted if it dies; or a Slurm job array of
// workers.
#pragma once
#include <string>

#include "tools/tune/tune_file.h"

namespace trireme {

/// Creates the folder, or continues its search. question: after complete(). Throws OptionError for a folder with
/// another question; only the number of trials may increase.
void keep_search(const std::string& directory, const TuneQuestion& question, const TrainerOptions& settings);
/// Increases the number of trials. Throws OptionError for a smaller number, and for a grid without further points.
void add_trials(const std::string& directory, std::int64_t trials);

/// Runs until nothing is left. Prints a line when a trial ends, on any host, and the table at the end. parallel:
/// simultaneous trials on this host; 0: the search's value. retry: also failed trials. Returns 0; 1: every trial
/// failed; 85: asked to stop. Call adopt_orphans() before. Throws Error with the reason if the search was given up.
int run_search(const std::string& directory, int parallel, bool retry);

/// A batch script for Slurm (sbatch): a job array of workers. program: path of trireme.
std::string slurm_script(const std::string& directory, const TuneOptions&, int workers, const std::string& program);

}  // namespace trireme
