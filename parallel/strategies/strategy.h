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

/// Relation to the serial run, tested per strategy: exact; delayed by some steps; statistical.
enum class Claim : std::uint8_t { exact, delayed, statistical };
/// The ranks whose rows batch norm's statistics cover: this rank, a group of ranks, or all. Only global, the default,
/// equals the serial run (with the same micro-batches). With local and group the running statistics of ranks differ
/// after a forward. They are averaged over the ranks in every step, so that all ranks evaluate and save the same model;
/// the variance between ranks is not included.
enum class NormScope : std::uint8_t { local, group, global };

std::string to_string(NormScope);             ///< "local", "group", "global"
NormScope norm_scope_of(const std::string&);  ///< from that text; throws Error for another

/// The place of a strategy among those it is composed with. The list is in the order in which they rewrite a plan.
enum class StrategyOrder : std::uint8_t {
  layers,        ///< tensor
  stages,        ///< pipeline
  microbatches,  ///< accumulate
  images,        ///< spatial
  rows,          ///< data_parallel, one_weird_trick
  servers,       ///< parameter_server
  updates,       ///< zero, central_storage
  codecs,        ///< compress
  averages,      ///< local_sgd, easgd, gossip, and custom strategies from a function (parallel/strategies/custom.h)
  as_written     ///< a custom strategy: it stays between those that are written before it and after it
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
  /// The weakest claim of the steps; statistical for a model with batch norms and a scope other than global.
  Claim claim(bool batch_norms = true) const;
  std::string name() const { return in_words(false); }  ///< "pipeline | data_parallel"
  /// As name(), with all options: "pipeline(micro=4, schedule=1f1b, ...) | ..."
  std::string text() const { return in_words(true); }
  /// The text of Step::batch_norm(), for that many ranks that share the batch.
  std::string batch_norm(int ranks, int microbatches) const;
  std::optional<NormScope> norm_scope;  ///< none: global
  /// The scope of batch norms: norm_scope, or global.
  NormScope scope() const { return norm_scope.value_or(NormScope::global); }
  int norm_group = 1;        ///< ranks per group under NormScope::group
  bool wants_costs = false;  ///< whether its rewrite needs the parts' costs
  SplitOptions split;        ///< how Step splits the model's layers before it makes the plan
  // Both, sorted by StrategyOrder: "a | b" and "b | a" are the same. Steps of equal order, and those on two sides of a
  // custom strategy, keep the order in which they are written. Split options add up (SplitOptions::add). Of two norm
  // scopes that are named the larger one holds.
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

/// Options of data_parallel() (torch's DistributedDataParallel), and of its buckets elsewhere.
struct DataParallelOptions {
  std::string axis = "data";                 ///< mesh axis whose ranks share the global batch
  Index first_bucket = 1 << 18;              ///< elements; small, so that communication starts early
  Index bucket = 1 << 22;                    ///< elements of each other bucket
  bool overlap = true;                       ///< false: reduce after the whole backward (same numbers)
  std::optional<NormScope> norm_scope = {};  ///< none: global
  int norm_group = 1;                        ///< ranks per group under NormScope::group; must divide the axis
};
std::string to_string(const DataParallelOptions&);  ///< "axis=data, first_bucket=262144, ..."
/// Synchronous data parallelism: each rank takes a slice of the global batch; gradients are summed in flat
/// buckets, cut from the end of the block because backward meets the last parameters first (Li et al.,
/// PyTorch Distributed, arXiv 2006.15704).
Strategy data_parallel(DataParallelOptions = {});

/// The optimizer's work shared by the ranks that share the batch (ZeRO, Rajbhandari et al., arXiv 1910.02054), behind
/// data_parallel (which it brings along if it is not there). stage 1: each rank updates its shard of every bucket, and
/// holds optimizer state for that only; 2: it also keeps only its shard of the gradients, once they are reduced; 3: and
/// of the weights, gathered for each part's forward and backward. Exact. Optimizers that look at whole tensors (LARS)
/// throw Error where a shard cuts one.
Strategy zero(int stage = 1);

/// Parameters kept in one place, behind data_parallel (which it brings along): rank 0 of those that share the batch
/// alone holds the optimizer's state and updates, and gives the weights to the others, which only compute with them
/// (tf.distribute's CentralStorage; a parameter server of one, synchronous). With OptimizerOptions::store the place is
/// the host's memory, and devices hold copies. Exact. The sum of the gradients goes by all-reduce.
Strategy central_storage();

/// Options of parameter_server().
struct ParameterServerOptions {
  int servers = 1;              ///< the last so many ranks along the axis, at least 1; the others are workers
  std::string mode = "sync";    ///< when a server updates: "sync", "async" or "ssp"
  Index staleness = -1;         ///< of ssp, at least 0: steps that a worker may be ahead of the slowest; -1: not given
  std::string shard = "bytes";  ///< what a server has: "bytes": an even slice of all weights; "layer": whole parts
  int backup = 0;               ///< of sync: workers whose gradients an update does not wait for; below the workers
  int groups = 0;               ///< of neighbouring workers, equally many, with a server of their own each; 0: none
  std::string axis = "data";    ///< mesh axis of servers and workers
};
/// Parameter servers (Li et al., OSDI 2014): each of them keeps a share of the weights and their optimizer state, which
/// workers push gradients for and pull. Servers have no rows of the batch. shard=layer: neighbouring parts, each share
/// as near to even as whole parts make it.
/// - sync: one update by the gradients of all workers. Exact.
/// - async (Downpour: Dean et al., NIPS 2012): an update by each gradient, as it comes; who sent it goes on with the
///   weights behind it. Equals a serial loop that applies the same gradients in the order of their arrival.
/// - ssp (Ho et al., NIPS 2013): as async, but a worker begins a step only when no other is more than `staleness` steps
///   behind. ssp(0) equals sync for plain SGD and workers with as many rows each, but for the order of sums.
/// - sync with backup=b of W workers (Chen et al., arXiv 1604.00981): one update by the first W - b gradients of a
///   step, which is over then. Later ones are dropped: their rows count for nothing. Who comes late gets the newest
///   weights and goes on with the step that is open; the rows of steps that it leaves out count for nothing, either,
///   and Step returns its last loss there. Each server decides for its own share.
/// - groups=g (servers in two levels): the g ranks in front of the servers are those of groups. Each sums the gradients
///   of all workers of its group, sends the sum to the servers, and gives their weights to its workers, so that servers
///   exchange messages with g ranks and not with all workers. The mode is the servers': for them a group is one worker;
///   within a group all workers wait for each other.
///
/// Tickets (Plan::tickets, where the caller wants them and all ranks lie along the axis): but for sync without backup
/// the first server hands out shares of the global batches, W of each (W - b with backup), and each counts once: what
/// is dropped is handed out again. It decides for all servers whose gradients an update takes, and sends them word.
/// ssp does not wait for workers for which no ticket is left.
///
/// Learning rate. The same one means the same in each mode: all workers' gradients together, once each, move plain
/// SGD's weights as far as one step of sync does. Gradients are means over each worker's own rows but in sync, where
/// they are shares of the global batch's mean. async and ssp divide them by the number of workers, backup by W - b,
/// with no regard to how many rows each worker has. Downpour as published does not divide: that is the lr times W here.
/// Adam and others that normalise gradients undo the division: in async and ssp they make W whole steps where sync
/// makes one, as momentum counts W small ones. A server's schedule of lr counts steps of all workers together: W
/// updates are one in async and ssp.
///
/// Throws Error for options that contradict each other, and when applied for as many servers as ranks or more, for as
/// many backups as workers or more, for groups that are not equally large, for more servers than parts with weights
/// (layer), and for a plan that has stages or sums gradients already.
Strategy parameter_server(ParameterServerOptions = {});

/// Gradient accumulation (Huang et al., GPipe, arXiv 1811.06965, on one stage): the rank's rows in `micro`
/// micro-batches, one after another, then one update. Batch norm normalises each micro-batch by itself; its running
/// statistics move once, by those of all.
Strategy accumulate(int micro);

/// Gradients that travel encoded: every all_reduce of gradients in the plan (data_parallel's, which it brings along if
/// nothing is reduced yet) gets a codec: bf16, f16, topk, dgc, randomk, chunks, qsgd, onebit or powersgd, with options
/// of its own, by name (parallel/strategies/codecs/codecs.h: what each does, and its paper). residual=0: no error
/// feedback. from: the step, from 0, until which gradients go as they are. Slices that are reduced are encoded one by
/// one; ranks that are alone along the axis encode nothing. Exact where nothing is left out (ratio=1). Throws Error for
/// a codec or an option that does not exist, for values that cannot be, and where zero shares updates out.
Strategy compress(const std::string& codec, const std::map<std::string, double>& options = {});

struct PipelineSchedule;
/// Options of pipeline().
struct PipelineOptions {
  int micro = 4;                  ///< micro-batches
  std::string schedule = "1f1b";  ///< its name in parallel/strategies/schedules.h
  int chunks = 1;                 ///< segments of parts per rank; interleaved: at least 2
  /// "auto": by the parts' costs; "even": equally many parts each; or the layers that stages begin at: "3, 5".
  std::string partition = "auto";
  std::string axis = "pipe";  ///< mesh axis of the stages
  Index memory = 0;           ///< bytes that a rank may hold, for partition=auto; 0: any number
  double bandwidth = 1e10;    ///< bytes per second between neighbours, for partition=auto
};
/// Layer pipelining (GPipe: Huang et al., arXiv 1811.06965; 1F1B: Narayanan et al., PipeDream, arXiv 1806.03377, with
/// the flush of arXiv 2006.09503; interleaved: arXiv 2104.04473; zb-h1: Qi et al., arXiv 2401.10241): each rank of the
/// axis holds one stage of neighbouring parts (or several, interleaved), and micro-batches flow through them. Exact:
/// equals accumulate(micro) on one rank, batch norm included. Throws Error when there are fewer parts than stages, and
/// for options that do not fit each other.
///
/// Schedules pipedream and 2bw end no step with empty stages: backwards go on while the next step's forwards come in,
/// by the weights of their own forward, of which a rank keeps versions. With f_t the loss of step t, counted from 0 or
/// from the last flush, and w(t) = w(0) where t is below 0:
/// - 2bw (Narayanan et al., arXiv 2006.09503), micro at least as many as stages: w(t+1) = w(t) - lr grad f_t(w(t-1)).
///   Two versions on each rank.
/// - pipedream (Harlap et al., arXiv 1806.03377; Narayanan et al., SOSP 2019), micro=1: w(t+1) = w(t) - lr grad
///   f_t(w_0(t-p+1), ..., w_{p-1}(t)) for the weights w_s of stage s of p, of which the rank keeps p-s versions.
/// A step's loss is that of its own batch; its update follows within the next p-1 steps, or with Step::flush().
/// Other optimizers take these gradients likewise. On one rank they equal accumulate(micro). Batch norm is local. A
/// layer of the caller's that computes with a view of a weight (reshape) gets an Error in backward.
Strategy pipeline(PipelineOptions = {});
/// The same by a schedule of the caller's own (parallel/strategies/schedules.h) instead of the one that is named.
Strategy pipeline(PipelineOptions, const PipelineSchedule&);

/// Of the axes over which the plan sums gradients, those along which ranks have different rows of the batch: not those
/// that cut images. "data+replica"; empty: none.
std::string batch_axis(const Plan&, const SplitOptions&);

/// Sums every gradient over an axis more: the plan's reductions, if it has some, go over both (Mesh: "data+h"). Buckets
/// are cut if the plan has none, or if the options ask for others. Parts whose weights are divided over the axis have
/// nothing to sum.
Plan reduce_over(Plan plan, const DataParallelOptions&);

/// Images cut over the mesh axes named, of "h", "w" and "d" (Dryden et al., arXiv 1903.06681): each rank has its rows
/// of every activation, and copies of the weights, whose gradients are summed over these axes.
Strategy spatial(const std::vector<std::string>& axes = {"h", "w", "d"});
/// Weights cut over an axis (Shoeybi et al., Megatron-LM, arXiv 1909.08053): SplitOptions::tensor. Layers take turns,
/// unless Strategy::split names them.
Strategy tensor(const std::string& axis = "tensor");
/// Data-parallel convolutions and, over the same ranks, fully connected layers cut by their outputs, which see the rows
/// of all (Krizhevsky 2014, arXiv 1404.5997): no gradient of theirs is summed.
Strategy one_weird_trick(DataParallelOptions = {});

/// Options of local_sgd().
struct LocalSgdOptions {
  int every = 4;              ///< steps between averages
  double outer_lr = 1;        ///< of the step on what the workers moved by; 1 without momentum: the mean of weights
  double outer_momentum = 0;  ///< of that step, in [0, 1)
  int from_epoch = 0;         ///< before it, gradients are averaged in every step (post-local SGD)
  std::string axis = "data";  ///< mesh axis of the workers
};
std::string to_string(const LocalSgdOptions&);  ///< "every=4, outer_lr=1, ..."
/// Local SGD (Stich, arXiv 1805.09767; post-local: Lin et al., arXiv 1808.07217; outer momentum: Wang et al., arXiv
/// 1910.00643): each worker trains on its own rows; every few steps weights become their mean, each worker counting by
/// its rows of the last step, and then the outer step is made. A worker is the ranks along the other axes: two of these
/// on two axes average at two periods. every=1 equals data_parallel for SGD without momentum. Batch norm is local.
Strategy local_sgd(LocalSgdOptions = {});
/// Elastic averaging SGD, synchronous (Zhang et al., arXiv 1412.6651): every few steps each worker's weights and a
/// center, alike on all, draw each other by a = learning rate times rho; rho 0: a = 0.9 / workers. The sum of all
/// weights and the center is left as it was. Throws Error from the step where workers times a is above 1.
Strategy easgd(int every = 4, double rho = 0, const std::string& axis = "data");

/// Options of gossip().
struct GossipOptions {
  /// "ring", "torus" (the most nearly square grid), "exponential" (one other rank per step, 1, 2, 4, ... places away:
  /// Ying et al., arXiv 2110.13363), "random" (pairs drawn in each step), "complete", "star" (round rank 0).
  std::string graph = "ring";
  /// "sync"; "push_sum": along directed edges, nobody waiting for an answer; "async": by pairs, each when it suits it.
  std::string mode = "sync";
  int global_every = 0;       ///< steps between means of all weights (Chen et al., arXiv 2105.09080); 0: never
  std::uint64_t seed = 0;     ///< of random pairs
  std::string axis = "data";  ///< mesh axis of the workers
};
std::string to_string(const GossipOptions&);  ///< "graph=ring, mode=sync, global_every=0, ..."
/// Gossip (Lian et al., arXiv 1705.09056): each worker updates its weights by its own rows, then mixes them with those
/// of its neighbours in the graph, all with equal parts (star: as many parts as workers, one of each other). Mixing is
/// doubly stochastic, so the mean of all weights is left as it was. A complete graph equals data_parallel for SGD
/// without momentum. Batch norm is local.
/// mode=push_sum (Stochastic Gradient Push: Assran et al., arXiv 1811.10792): edges are directed, and each worker's
/// column of the mixing matrix adds up to 1, not each row. A worker keeps x and the weight w that x has, both as state
/// of the plan (w: 1 at first); the model has z = x / w, its gradients at z update x (momentum and weight decay are
/// those of z), then the worker keeps an equal part of x and w with each of those it sends one to. The sum of all x
/// moves by that of the updates, the sum of all w stays the number of workers. ring: to the next; exponential: as
/// above; torus: to all four; random: to one drawn in each step, who may get many or none, for any number of workers; w
/// halves with each step in which a worker gets nothing, and updates of z then count 1 / w times. complete, star and
/// global_every throw Error.
/// mode=async (AD-PSGD: Lian et al., arXiv 1710.06952): workers go at their own pace. Behind each update an even one
/// sends its weights to an odd one (random: any; ring: a neighbour), drawn in each step, and gets that one's; both move
/// by half of the difference, the even one behind its next update, the odd one behind the one that it is computing. An
/// odd worker answers before each forward and backward pass of a micro-batch and waits for nobody; an even one waits
/// for the answer of the step before at most. Step::flush() ends all exchanges, for which all workers wait (at most
/// TRIREME_TIMEOUT); then the mean of all weights is what updates alone have made of it. What comes out depends on the
/// order in which messages arrive, which checkpoints hold (StepResume::replay). A worker is one rank, or one along the
/// stages of a pipeline. Other graphs, a ring of an odd number and global_every throw Error.
Strategy gossip(GossipOptions = {});

/// Slices that cover a segment of the flat block, last first, but for parts whose weights are divided over the options'
/// axis. A bucket takes whole parts until it is full; one that comes out more than twice too large is cut.
std::vector<Slice> cut_buckets(const std::vector<PartInfo>& parts, Slice whole, const DataParallelOptions&);

/// Options of a strategy as text: "(overlap=false, bucket=65536)".
class StrategyOptions {
 public:
  /// values: by name; under "" the one that was given without a name.
  StrategyOptions(std::string strategy, std::map<std::string, std::string> values)
      : strategy_(std::move(strategy)), values_(std::move(values)) {}
  /// Sets the members of those that were given, once. unnamed: the option that a value without a name means: "zero(1)".
  /// Throws Error for an option that the table does not have (with those it has), and for a value that does not fit.
  void read(const std::vector<Option>& table, const std::string& unnamed = "");
  /// Takes the text of one option out, for who needs it to know the table; it may be given without its name.
  std::string take(const std::string& name, const std::string& otherwise);

 private:
  std::string strategy_;
  std::map<std::string, std::string> values_;  // under "": what was given without a name
};

/// compress() from its options as text: codec, and those of the codec.
Strategy compress(StrategyOptions&);

/// One row per strategy: its name, and how to make it from options; the tests and the command line walk it.
struct StrategyRow {
  std::string name;                                 ///< in parse_strategy(): "data_parallel"
  std::function<Strategy(StrategyOptions&)> parse;  ///< reads its options; throws Error for a value out of range
  std::string axis = {};                            ///< mesh axis of its ranks; empty: it runs on one rank
  int least = 1;                                    ///< minimum number of ranks along the axis
  std::vector<StrategyClaim> claims = {};           ///< further claims that verify measures, besides Strategy::claim()
};
/// Every strategy of the library, in the order of strategy.cpp's table.
const std::vector<StrategyRow>& strategies();
/// "data_parallel", "serial", "data_parallel(overlap=false)", "a | b"; own: custom strategies in addition to the
/// library's. Throws Error with the list of names for another name.
Strategy parse_strategy(const std::string& text, const std::vector<StrategyRow>& own = {});

/// A claim, and the text of the strategies under which it can be measured.
struct ClaimedText {
  StrategyClaim claim;   ///< the claim
  std::string name;      ///< name of the strategy that claims it: "gossip"
  std::string strategy;  ///< "local_sgd(every=1) | ..."
};
/// The claims of the strategies in a text, each with the options of StrategyClaim::with. For a limit, all strategies
/// take their first limit; it is omitted if one of them has none and is not exact.
std::vector<ClaimedText> claims_of(const std::string& text, const std::vector<StrategyRow>& own = {});

}  // namespace trireme
