// Strategy: a named function from a plan to a plan, with the exactness it claims. Strategies compose with |.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan.h"

namespace trireme {

/// Relation to the serial run, tested per strategy: exact; delayed by d steps; exact in the limit of a knob; statistical.
enum class Claim : std::uint8_t { exact, delayed, limit, statistical };
/// Whose rows batch norm's statistics cover: this micro-batch, this rank's rows, a group of ranks, or the global batch.
enum class NormScope : std::uint8_t { micro, local, group, global };

class Strategy {
 public:
  Strategy() = default;  ///< serial: leaves the plan as it is
  Strategy(std::string name, Claim claim, std::function<Plan(Plan)> rewrite) : steps_{{std::move(name), claim, std::move(rewrite)}} {}
  Plan operator()(Plan plan) const;
  Claim claim() const;                        ///< the weakest of the parts'
  std::string name() const;                   ///< "pipeline | data_parallel"
  NormScope norm_scope = NormScope::local;
  friend Strategy operator|(Strategy a, const Strategy& b);

 private:
  struct Rewrite {
    std::string name;
    Claim claim;
    std::function<Plan(Plan)> rewrite;
  };
  std::vector<Rewrite> steps_;
};

struct DataParallelOptions {
  std::string axis = "data";
  Index first_bucket = 1 << 18;          ///< elements; small, so that communication starts early
  Index bucket = 1 << 22;                ///< elements of the others
  bool overlap = true;                   ///< false: reduce after the whole backward (same numbers)
  NormScope norm_scope = NormScope::local;
};
/// Synchronous data parallelism: each rank takes a slice of the global batch; gradients are summed in flat buckets, cut from the end
/// of the block because backward meets the last parameters first (Li et al., PyTorch Distributed, arXiv 2006.15704).
Strategy data_parallel(DataParallelOptions = {});

/// One row per strategy: name and default instance; the tests and the command line walk it.
struct StrategyRow { std::string name; std::function<Strategy()> make; };
const std::vector<StrategyRow>& strategies();
/// "data_parallel" or "serial" or "a | b". Throws Error with the list for another name.
Strategy parse_strategy(const std::string& text);

}  // namespace trireme
