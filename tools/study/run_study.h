// Runs a study or search on this host: one worker process per simultaneous trial, restarted if it dies; or a Slurm job
// array of workers.
#pragma once
#include <string>

#include "tools/study/question.h"

namespace trireme {

/// Creates the folder, or continues its study or search. question: of a search after complete(). Throws OptionError for
/// a folder with another question; only the number of a search's trials may increase.
void keep_question(const std::string& directory, const Question& question, const TrainerOptions& settings);
/// Increases the number of a search's trials. Throws OptionError for a smaller number, and for a grid without further
/// points.
void add_trials(const std::string& directory, std::int64_t trials);
/// Prints a line per cell of a scaling study: finished runs, runs that are left, and their expected time; then the
/// results so far.
void print_cells(const std::string& directory, const Question&, const std::vector<PlannedCell>&);

/// Runs until nothing is left. Prints a line when a trial ends, on any host, and the table at the end. Finished trials
/// are kept; interrupted ones resume from their checkpoint. A scaling study repeats failed runs, and runs whose folder
/// is gone. settings: of the training. parallel: simultaneous trials on this host; 0: the question's value. retry: also
/// failed trials of a search. Returns 0; 1: every trial failed, or runs of a scaling study; 85: asked to stop. Call
/// adopt_orphans() before. Throws Error with the reason if a search was given up or the ledger does not verify.
int run_study(const std::string& directory, const TrainerOptions& settings, int parallel, bool retry);

/// A batch script for Slurm (sbatch): a job array of workers. program: path of trireme.
std::string slurm_script(const std::string& directory, const TuneOptions&, int workers, const std::string& program);

}  // namespace trireme
