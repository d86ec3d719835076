// Strategy: a named function from a plan to a plan, with its claim of exactness and its split of the model's layers.
// Strategies are composed with |, which sorts them.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/io/options.h"
#include "parallel/plan/plan.h"
#include "parallel/strategies/claims.h"
#include "parallel/strategies/split_options.h"

namespace trireme {

/// How a run under a strategy relates to the serial run. Tests measure it for each strategy.
enum class Claim : std::uint8_t {
  exact,       ///< the same weights, up to rounding
  delayed,     ///< the weights of a serial loop whose gradients are of weights some updates old
  statistical  ///< another run; only its accuracy is comparable
};
/// The rows over which batch norms compute mean and variance. Only `global`, the default, equals the serial run with
/// the same micro-batches. With `local` and `group`, ranks have different running statistics after a forward. Each step
/// replaces them by their mean over the ranks, so that all ranks evaluate and save the same model. This mean of
/// variances does not include the variance between ranks.
enum class NormScope : std::uint8_t {
  local,  ///< the rows of this rank
  group,  ///< the rows of a group of adjacent ranks
  global  ///< the rows of all ranks that share the batch
};

std::string to_string(NormScope);             ///< "local", "group", "global"
NormScope norm_scope_of(const std::string&);  ///< from that text; throws Error for another

/// The place of a strategy in a composition. Strategies rewrite a plan in the order of this list.
enum class StrategyOrder : std::uint8_t {
  placements,    ///< place, experts
  layers,        ///< tensor
  stages,        ///< pipeline
  microbatches,  ///< accumulate
  images,        ///< spatial
  rows,          ///< data_parallel, one_weird_trick
  servers,       ///< parameter_server
  updates,       ///< zero, central_storage
  codecs,        ///< compress
  averages,      ///< local_sgd, easgd, gossip, and custom strategies from a function (parallel/strategies/custom.h)
  as_written     ///< a custom strategy: stays between the strategies that are written before and after it
};

/// A composition of strategies.
class Strategy {
 public:
  Strategy() = default;  ///< serial: does not change the plan
  /// options: as text, "micro=4, schedule=1f1b"; Step compares it across ranks.
  Strategy(std::string name, Claim claim, std::function<Plan(Plan)> rewrite, std::string options = {},
           StrategyOrder order = StrategyOrder::as_written)
      : steps_{{std::move(name), claim, std::move(rewrite), std::move(options), order}} {}
  /// The plan, rewritten by each step in order; Plan::strategies names them. Throws Error if strategies cannot be
  /// combined.
  Plan operator()(Plan plan) const;
  /// Whether any step divides updates or averages weights, or is a custom strategy. False: the steps only arrange
  /// passes and sum gradients.
  bool acts_on_updates() const;
  /// The weakest claim of the steps; statistical for a model with batch norms and a scope other than global.
  Claim claim(bool batch_norms = true) const;
  std::string name() const { return in_words(false); }  ///< "pipeline | data_parallel"
  /// As name(), with all options: "pipeline(micro=4, schedule=1f1b, ...) | ..."
  std::string text() const { return in_words(true); }
  /// As StepProbe::batch_norm(). ranks: number of ranks that share the batch. microbatches: number per step.
  std::string batch_norm(int ranks, int microbatches) const;
  std::optional<NormScope> norm_scope;  ///< none: global
  /// The scope of batch norms: norm_scope, or global.
  NormScope scope() const { return norm_scope.value_or(NormScope::global); }
  int norm_group = 1;        ///< ranks per group under NormScope::group
  bool wants_costs = false;  ///< whether its rewrite needs the parts' costs
  SplitOptions split;        ///< how Step splits the model's layers before it makes the plan
  // Both strategies, sorted by StrategyOrder: "a | b" equals "b | a". Strategies of equal order keep the written order.
  // A strategy with order as_written stays in place: strategies are sorted before it and after it separately. Split
  // options are merged (SplitOptions::add). If both have a norm scope, the wider one is used.
  friend Strategy operator|(Strategy a, const Strategy& b);

 private:
  struct Rewrite {
    std::string name;
    Claim claim;
    std::function<Plan(Plan)> rewrite;
    std::string options;
    StrategyOrder order;
  };
  std::string in_words(bool with_options) const;
  std::vector<Rewrite> steps_;
};

/// Options of data_parallel() (torch's DistributedDataParallel), and of buckets in other strategies.
struct DataParallelOptions {
  std::string axis = "data";                 ///< mesh axis whose ranks share the global batch
  Index first_bucket = 1 << 18;              ///< elements; small, so that communication starts early
  Index bucket = 1 << 22;                    ///< elements of each other bucket
  bool overlap = true;                       ///< false: reduce after the whole backward, with the same results
  std::optional<NormScope> norm_scope = {};  ///< none: global
  int norm_group = 1;                        ///< ranks per group under NormScope::group; must divide the axis
};
std::string to_string(const DataParallelOptions&);  ///< "axis=data, first_bucket=262144, ..."
/// Synchronous data parallelism: each rank takes a slice of the global batch. Gradients are summed in flat buckets,
/// from the end of the block, because backward reaches the last parameters first (Li et al., PyTorch Distributed, arXiv
/// 2006.15704). Exact.
Strategy data_parallel(DataParallelOptions = {});

/// Options of zero().
struct ZeroOptions {
  /// Mesh axes along which updates are divided, joined by +. The ranks along the other axes that share the batch are
  /// replicas, which sum their shards of the gradients (hybrid sharding: HSDP). Empty: all axes that share the batch.
  std::string axis = {};
  /// Stage 3: number of parts whose weights are gathered while the parts before them compute, at least 0.
  int prefetch = 1;
  /// Stage 3: whether weights are dropped after each forward and gathered again for backward. False: weights stay until
  /// their last use in the step, which sends less and needs more memory.
  bool reshard = true;
};
/// ZeRO (Rajbhandari et al., arXiv 1910.02054; stage 3 as in PyTorch's FSDP: Zhao et al., arXiv 2304.11277): divides
/// the optimizer's work among the ranks that share the batch. Applies data_parallel first if the plan does not have it.
/// Exact.
/// - stage 1: each rank updates its shard of every bucket, and has optimizer state for this shard only. The next step
///   gathers the weights of every bucket, while the passes before their use run.
/// - stage 2: each rank also keeps only its shard of the gradients after their reduction.
/// - stage 3: each rank also keeps only its shard of the weights, which are gathered for each part's forward and
///   backward, in the types of PartInfo::read_as. Weights that the next pass needs, too, are not gathered again.
/// A weight that the ranks have divided already (one_weird_trick) is not divided again. Optimizers with a rate per
/// tensor (LARS, LAMB) sum the squares of each tensor's shards over the ranks.
Strategy zero(int stage = 1, const ZeroOptions& = {});

/// Central storage (tf.distribute's CentralStorage; a single synchronous parameter server). Of the ranks that share the
/// batch, rank 0 has the optimizer state, updates the weights, and broadcasts them. Gradients are summed by all-reduce.
/// Applies data_parallel first if the plan does not have it. With OptimizerOptions::store the weights and the state are
/// in the host's memory, and devices have copies of the weights. Exact.
Strategy central_storage();

/// Options of parameter_server().
struct ParameterServerOptions {
  int servers = 1;              ///< number of servers, at least 1: the last ranks along the axis; the other ranks are
                                ///< workers
  std::string mode = "sync";    ///< when a server updates: "sync", "async" or "ssp"; see parameter_server()
  Index staleness = -1;         ///< ssp: steps that a worker may be ahead of the slowest, at least 0; -1: not given
  std::string shard = "bytes";  ///< share of a server: "bytes": an even slice of all weights; "layer": whole parts
  int backup = 0;               ///< sync: number of workers whose gradients an update does not wait for; below the
                                ///< number of workers
  int groups = 0;               ///< number of equal groups of adjacent workers, each with a group server; 0: none
  std::string axis = "data";    ///< mesh axis of servers and workers
};
/// Parameter servers (Li et al., OSDI 2014). Each server keeps a share of the weights, and the optimizer state of that
/// share. Workers send gradients to the servers and receive weights. Servers train no rows. With shard=layer a share is
/// a sequence of whole parts, and shares are as equal as possible.
///
/// Modes, for W workers:
/// - sync: one update by the gradients of all workers. Exact.
/// - async (Downpour: Dean et al., NIPS 2012): one update by each gradient when it arrives. Its worker continues with
///   the updated weights. Equals a serial loop that applies the same gradients in the order of arrival.
/// - ssp (Ho et al., NIPS 2013): like async, but a worker begins a step only if no other worker is more than
///   `staleness` steps behind. ssp(0) equals sync, except for the order of sums, for plain SGD and workers with equal
///   numbers of rows.
/// - sync with backup=b (Chen et al., arXiv 1604.00981): one update by the first W - b gradients of a step, which ends
///   the step. Later gradients of that step are dropped. A late worker gets the newest weights and continues with the
///   current step; for the steps that it skips, Step returns its previous loss. Rows of dropped gradients and of
///   skipped steps are not trained. Each server decides for its own share.
/// - groups=g (servers on two levels): the g ranks before the servers are group servers. Each sums the gradients of its
///   group's workers, sends the sum to the servers, and passes their weights to its workers. So servers exchange
///   messages with g ranks instead of all workers. For the servers' mode a group is one worker; the workers of a group
///   wait for each other.
///
/// Tickets (Plan::tickets) are shares of global batches, which the first server distributes to workers on request, W
/// per batch (W - b with backup). A Step uses them if StepOptions::tickets is set and all ranks are on the axis, except
/// for sync without backup. Each share is trained once: a dropped share is distributed again. The first server also
/// decides which gradients an update uses, for all servers. ssp does not wait for workers that have no ticket left.
///
/// Learning rate: an equal rate has an equal effect in all modes. Plain SGD moves the weights by all workers'
/// gradients, once each, as far as one step of sync does.
/// - In sync, gradients are shares of the global batch's mean. In other modes they are means over each worker's own
///   rows; async and ssp divide them by W, backup by W - b, without regard to the workers' numbers of rows.
/// - Downpour as published does not divide: use W times its lr here.
/// - Adam and other optimizers that normalise gradients undo the division: async and ssp make W full steps where sync
///   makes one. Momentum counts W small steps.
/// - A server's lr schedule counts steps of all workers together: in async and ssp, W updates are one step.
///
/// Throws Error for contradictory options. When applied to a plan, throws Error:
/// - if no rank is left as a worker, or backup is not below the number of workers;
/// - for groups of unequal size, and with shard=layer for more servers than parts with weights;
/// - for a plan that has stages or sums gradients already.
Strategy parameter_server(ParameterServerOptions = {});

/// Gradient accumulation (Huang et al., GPipe, arXiv 1811.06965, on one stage): divides the rank's rows into `micro`
/// consecutive micro-batches, at least 1, sums their gradients, then updates once. Batch norm normalises each
/// micro-batch separately; its running statistics are updated once, with the statistics of all micro-batches. Without
/// batch norm it equals the serial run on the whole batch.
Strategy accumulate(int micro);

/// Gradient compression: every all_reduce of gradients in the plan gets a codec: bf16, f16, topk, dgc, randomk, chunks,
/// qsgd, onebit or powersgd. parallel/strategies/codecs/codecs.h describes the codecs, their options and papers.
/// Applies data_parallel first if nothing is reduced yet. Common options: residual=0 turns error feedback off; from:
/// first step, from 0, with compression. Each reduced slice is encoded separately. If the axis has one rank, nothing is
/// encoded. Exact if the codec sends all numbers (ratio=1). bf16 and f16 also encode the reduce_scatters of zero.
/// Throws Error for unknown codecs and options, for values out of range, and for other codecs with zero.
Strategy compress(const std::string& codec, const std::map<std::string, double>& options = {});

struct PipelineSchedule;
/// Options of pipeline().
struct PipelineOptions {
  int micro = 4;                  ///< number of micro-batches
  std::string schedule = "1f1b";  ///< name of a schedule (parallel/strategies/schedules.h)
  int chunks = 1;                 ///< stages per rank; 2 with zb-v and dualpipe-v, at least 2 with interleaved, else 1
  /// "auto": by the parts' costs; "even": equal numbers of parts; or the names of layers at which stages begin: "3, 5".
  std::string partition = "auto";
  std::string axis = "pipe";  ///< mesh axis of the stages
  Index memory = 0;           ///< bytes of memory of a rank, for partition=auto; 0: unlimited
  double bandwidth = 1e10;    ///< bytes per second between neighbouring stages, for partition=auto
};
/// Layer pipelining: each rank of the axis has one stage of consecutive parts (several with schedule=interleaved,
/// zb-v and dualpipe-v), and micro-batches flow through the stages. Schedules: GPipe (Huang et al., arXiv 1811.06965),
/// 1F1B (Narayanan et al., PipeDream, arXiv 1806.03377, with the flush of arXiv 2006.09503), interleaved (arXiv
/// 2104.04473), zb-h1 and zb-v (Qi et al., arXiv 2401.10241), dualpipe-v (arXiv 2412.19437). In a V the first rank has
/// the first and the last stage, and so the only copy of weights that these share. Exact: equals accumulate(micro) on
/// one rank, with batch norm. Throws Error for fewer parts than stages, and for contradictory options.
///
/// Schedules pipedream and 2bw do not empty the pipeline between steps: backwards continue while forwards of the next
/// step begin. A backward uses the weight version of its forward, which the rank keeps. Let f_t be the loss of step t,
/// counted from 0 or from the last flush, and w(t) = w(0) for t below 0:
/// - 2bw (Narayanan et al., arXiv 2006.09503), with micro at least the number of stages: w(t+1) = w(t) - lr grad
///   f_t(w(t-1)). Each rank keeps two versions.
/// - pipedream (Harlap et al., arXiv 1806.03377; Narayanan et al., SOSP 2019), with micro=1: w(t+1) = w(t) - lr grad
///   f_t(w_0(t-p+1), ..., w_{p-1}(t)), where stage s of p has weights w_s and keeps p-s versions.
/// A step returns the loss of its own batch. The update by this batch follows within the next p-1 steps, or with
/// Step::flush(). Optimizers other than SGD use the same gradients. On one rank both schedules equal accumulate(micro).
/// Batch norm uses each rank's rows. A custom layer that computes with a view of a weight (reshape) throws Error in
/// backward.
Strategy pipeline(PipelineOptions = {});
/// As above, with a custom schedule (parallel/strategies/schedules.h) instead of the named one.
Strategy pipeline(PipelineOptions, const PipelineSchedule&);

/// The mesh axes over which the plan sums gradients and whose ranks have different rows of the batch, joined by +:
/// "data+replica"; empty: none. Axes that cut images are not among them: their ranks have the same rows.
std::string batch_axis(const Plan&, const SplitOptions&);

/// The plan, with every gradient also summed over the options' axis. Existing reductions then use both axes (Mesh:
/// "data+h"). Cuts buckets if the plan has none, or if the options' bucket sizes or overlap differ from the defaults.
/// Gradients of weights that are divided over the axis are not summed. Throws Error if the axis cannot sum gradients:
/// its ranks have different weights or other stages, or the plan sums over it already.
Plan reduce_over(Plan plan, const DataParallelOptions&);

/// Spatial parallelism (Dryden et al., arXiv 1903.06681): cuts images over the given mesh axes: "h" cuts rows, "w"
/// columns, "d" planes. Each rank has its part of every activation, and a copy of the weights, whose gradients are
/// summed over these axes. Exact.
Strategy spatial(const std::vector<std::string>& axes = {"h", "w", "d"});
/// Context parallelism: cuts texts over an axis; see SplitOptions::context. Gradients are summed over the axis. Exact.
Strategy context(ContextMode = ContextMode::gather, const std::string& axis = "context",
                 ContextCut = ContextCut::contiguous);
std::string to_string(ContextMode);               ///< "gather", "ulysses", "ring"
std::string to_string(ContextCut);                ///< "contiguous", "zigzag", "striped"
ContextMode context_mode_of(const std::string&);  ///< from that text; throws Error for another
ContextCut context_cut_of(const std::string&);    ///< from that text; throws Error for another
/// Tensor parallelism (Shoeybi et al., Megatron-LM, arXiv 1909.08053): divides weights over an axis; see
/// SplitOptions::tensor. A weight's input is found from the flow of data, in a run on an example
/// (StepOptions::profile); without an example, from the order of the weights' names. sequence: SplitOptions::sequence.
/// Exact.
Strategy tensor(const std::string& axis = "tensor", bool sequence = false);
/// Expert parallelism (GShard: Lepikhin et al., arXiv 2006.16668): divides the experts of each MixtureOfExperts over
/// axes whose ranks have different tokens, or the same; see SplitOptions::experts. Exact.
Strategy experts(const std::vector<std::string>& axes = {"data"});
/// Sets how ranks hold some weights; it has priority over the choice of `tensor`:
/// tensor() | place({{"*.gate.weight"}, 0}) | place({{"head.*"}, .whole = true}). A layer's bias is divided like its
/// weight. Exact.
Strategy place(const WeightPlacement&);
/// One weird trick (Krizhevsky 2014, arXiv 1404.5997): convolutions are data parallel. Over the same ranks, fully
/// connected layers are cut by their outputs. These layers process the rows of all ranks, so their gradients are not
/// summed. Exact.
Strategy one_weird_trick(DataParallelOptions = {});

/// Options of local_sgd().
struct LocalSgdOptions {
  int every = 4;  ///< steps between averages
  /// Learning rate of the outer step, whose gradient is the mean change of the workers' weights; 1 without momentum
  /// gives the mean of the weights.
  double outer_lr = 1;
  double outer_momentum = 0;  ///< momentum of the outer step, in [0, 1)
  int from_epoch = 0;         ///< first epoch with local steps; before it, gradients are averaged in every step
                              ///< (post-local SGD)
  std::string axis = "data";  ///< mesh axis of the workers
};
std::string to_string(const LocalSgdOptions&);  ///< "every=4, outer_lr=1, ..."
/// Local SGD (Stich, arXiv 1805.09767; post-local: Lin et al., arXiv 1808.07217; outer momentum: Wang et al., arXiv
/// 1910.00643). Each worker trains on its own rows. After every `every` steps the weights become the mean of the
/// workers' weights, weighted by their numbers of rows in that step; then the outer step follows. A worker consists of
/// the ranks with the same coordinate along the axis. Two local_sgd on two axes average with two periods. every=1
/// equals data_parallel for SGD without momentum. Batch norm uses each rank's rows.
Strategy local_sgd(LocalSgdOptions = {});
/// Elastic averaging SGD, synchronous (Zhang et al., arXiv 1412.6651). All workers hold the same center, one number per
/// weight. After every `every` steps, each worker's weights move towards the center by the share a = learning rate
/// times rho of the difference, and the center moves by the sum of these amounts. rho=0: a = 0.9 / workers. The sum of
/// all weights and the center does not change. Throws Error in a step in which workers times a is above 1.
Strategy easgd(int every = 4, double rho = 0, const std::string& axis = "data");

/// Options of gossip().
struct GossipOptions {
  /// "ring"; "torus" (as near to square as possible); "exponential" (one other rank per step, 1, 2, 4, ... places away:
  /// Ying et al., arXiv 2110.13363); "random" (random pairs in each step); "complete"; "star" (around rank 0).
  std::string graph = "ring";
  /// "sync"; "push_sum": along directed edges, without answers; "async": pairs, without synchronisation.
  std::string mode = "sync";
  int global_every = 0;       ///< steps between averages of all weights (Chen et al., arXiv 2105.09080); 0: never
  std::uint64_t seed = 0;     ///< random seed of pairs
  std::string axis = "data";  ///< mesh axis of the workers
};
std::string to_string(const GossipOptions&);  ///< "graph=ring, mode=sync, global_every=0, ..."
/// Gossip (Lian et al., arXiv 1705.09056): each worker updates its weights on its own rows, then replaces them by the
/// mean of its own weights and those of its neighbours in the graph (star: with a share of 1 / workers for each other
/// worker). The mixing matrix is doubly stochastic, so the mean of all weights does not change. graph=complete equals
/// data_parallel for SGD without momentum. Batch norm uses each rank's rows.
///
/// mode=push_sum (Stochastic Gradient Push: Assran et al., arXiv 1811.10792): edges are directed, and only the columns
/// of the mixing matrix add up to 1. A worker keeps x and its weight w (initially 1) as states of the plan. The model
/// has z = x / w. Gradients at z update x (momentum and weight decay are those of z). Then the worker keeps and sends
/// equal shares of x and w. The sum of all x changes by the updates only; the sum of all w is the number of workers.
/// - Graphs: ring sends to the next worker; exponential as above; torus to all four neighbours; random to one random
///   worker, which may receive several messages or none, for any number of workers. complete, star and global_every
///   throw Error.
/// - In a step in which a worker receives nothing, its w is halved. A small w makes its updates of z larger, by the
///   factor 1 / w.
///
/// mode=async (AD-PSGD: Lian et al., arXiv 1710.06952): workers run at their own pace. After each update an even worker
/// exchanges weights with a random odd one (random: any; ring: a neighbour). Both move by half of the difference, the
/// even worker after its next update, the odd worker after its current one.
/// - An odd worker answers before each forward and backward pass of a micro-batch, and never waits. An even worker
///   waits at most for the answer of its previous step.
/// - Step::flush() completes all exchanges; all workers wait for it, at most TRIREME_TIMEOUT. The mean of all weights
///   is then changed by updates only.
/// - Results depend on the order of messages, which checkpoints store (StepResume::replay).
/// - A worker is one rank, or one along the stages of a pipeline. Other graphs, a ring with an odd number of workers
///   and global_every throw Error.
Strategy gossip(GossipOptions = {});

/// A slice of the gradients that one collective sums.
struct Bucket {
  Slice slice;       ///< of the flat gradient block, elements
  std::string axis;  ///< mesh axes over which they are summed, joined by +
};
/// Buckets that cover the slice `whole` of the flat block, the last elements first. A bucket takes whole parts until it
/// has the options' size; a bucket of more than twice the size is cut. Its axes are the options' axes, except those
/// along which its gradients are not summed (PartInfo::divided); gradients without an axis are in no bucket.
std::vector<Bucket> cut_buckets(const std::vector<PartInfo>& parts, Slice whole, const DataParallelOptions&);

/// Parses the options of a strategy: "(overlap=false, bucket=65536)".
class StrategyOptions {
 public:
  /// values: by name; "": the value that was given without a name.
  StrategyOptions(std::string strategy, std::map<std::string, std::string> values)
      : strategy_(std::move(strategy)), values_(std::move(values)) {}
  /// Sets the members of the options that were given; call once. table: the known options. unnamed: name of the option
  /// that a value without a name sets: "stage" for "zero(1)". Throws Error with the known options for an unknown name,
  /// and for an invalid value.
  void read(const std::vector<Option>& table, const std::string& unnamed = "");
  /// Removes one option and returns its text; `otherwise` if it was not given. For callers that choose the table of
  /// read() by this option. The option may be given without its name.
  std::string take(const std::string& name, const std::string& otherwise);

 private:
  std::string strategy_;
  std::map<std::string, std::string> values_;  // "": the value given without a name
};

/// compress() from text options: codec, and the codec's options.
Strategy compress(StrategyOptions&);

/// A strategy by name, and how to make it from options. Tests and the command line use all rows.
struct StrategyRow {
  std::string name;                                 ///< in parse_strategy(): "data_parallel"
  std::function<Strategy(StrategyOptions&)> parse;  ///< reads its options; throws Error for a value out of range
  std::string axis = {};                            ///< mesh axis of its ranks; empty: it runs on one rank
  int least = 1;                                    ///< minimum number of ranks along the axis
  std::vector<StrategyClaim> claims = {};           ///< further claims that verify measures, besides Strategy::claim()
};
/// Every strategy of the library, in the order of strategy.cpp's table.
const std::vector<StrategyRow>& strategies();
/// Parses "data_parallel", "serial", "data_parallel(overlap=false)", "a | b". own: custom strategies in addition to the
/// library's. Throws Error with the list of names for an unknown name.
Strategy parse_strategy(const std::string& text, const std::vector<StrategyRow>& own = {});

/// A claim, and the text of the strategies under which it can be measured.
struct ClaimedText {
  StrategyClaim claim;   ///< the claim
  std::string name;      ///< name of the strategy that claims it: "gossip"
  std::string strategy;  ///< "local_sgd(every=1) | ..."
};
/// The claims of the strategies in a text, each with the strategies under which to measure it: StrategyClaim::with
/// replaces options of the claiming strategy. For a claim of kind limit, the other strategies also get the options of
/// their first limit; the claim is omitted if one of them has no limit and is not exact.
std::vector<ClaimedText> claims_of(const std::string& text, const std::vector<StrategyRow>& own = {});

}  // namespace trireme
