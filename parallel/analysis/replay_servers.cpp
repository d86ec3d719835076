#include "parallel/analysis/replay_servers.h"
#include "parallel/async/channel_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "parallel/analysis/verifier.h"
#include "parallel/comm/fnv.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/action_kind.h"
#include "parallel/plan/codec.h"

namespace trireme {
namespace {

constexpr double rate = 0.05;

std::uint64_t hash_of(const Tensor& t) {
  Fnv fnv;
  for (const double v : t.to_vector()) fnv.add(std::bit_cast<std::uint64_t>(v));
  return fnv.value();
}

/// Records of a rank, as hashes. A worker records in each step its weights of every server's share, then its gradients
/// of them times the server's factor. A server records in each update the weights before, the gradient, and the weights
/// after.
struct Notes {
  std::vector<std::uint64_t> hashes;
  double off = 0;  ///< relative difference of updates from updates by plain SGD
  Tensor before, taken;
};
thread_local Notes* notes = nullptr;  // of this rank's run

const ActionRow note_weights{.name = "note_weights", .start = [](ActionContext& now) {
                               notes->hashes.push_back(hash_of(now.values()));
                               return Work();
                             }};
const ActionRow note_gradients{.name = "note_gradients", .start = [](ActionContext& now) {
                                 const Tensor gradients = now.gradients();
                                 notes->hashes.push_back(hash_of(gradients * now.argument("scale")));
                                 return Work();
                               }};
const ActionRow note_taken{.name = "note_taken", .start = [](ActionContext& now) {
                             notes->before = now.values().clone();
                             notes->taken = now.gradients().clone();
                             notes->hashes.push_back(hash_of(notes->before));
                             notes->hashes.push_back(hash_of(notes->taken));
                             return Work();
                           }};
const ActionRow note_updated{.name = "note_updated", .start = [](ActionContext& now) {
                               notes->hashes.push_back(hash_of(now.values()));
                               const auto got = now.values().to_vector(), before = notes->before.to_vector(),
                                          taken = notes->taken.to_vector();
                               double most = 0, size = 1e-300;
                               for (std::size_t i = 0; i < got.size(); ++i) {
                                 most = larger(most, std::abs(got[i] - (before[i] - rate * taken[i])));
                                 size = std::max(size, std::abs(got[i]));
                               }
                               notes->off = larger(notes->off, most / size);
                               return Work();
                             }};

ActionId first(const Program& program, ActionKind kind) {
  return static_cast<ActionId>(std::ranges::find(program.actions, kind, &Action::kind) - program.actions.begin());
}

/// The share of a server, and its factor for gradients.
struct Share {
  Slice slice;
  double scale;
};
std::vector<Share> shares_of(const Plan& plan) {
  std::vector<Share> all;
  for (const Program& p : plan.programs)
    for (const Action& a : p.actions)
      if (sums_messages(a) && a.payload == OperandKind::gradients)
        all.push_back({a.slice, find_argument(a, "scale").value_or(1)});
  return all;
}

Plan noted(Plan plan) {
  const auto shares = shares_of(plan);
  for (Program& p : plan.programs) {
    if (p.serves()) {
      const ActionId update = first(p, ActionKind::update);
      const Action& a = p.actions.at(static_cast<std::size_t>(update));
      const Action taken{.kind = note_taken, .slice = a.slice, .phase = a.phase},
          updated{.kind = note_updated, .slice = a.slice, .phase = a.phase};
      insert(p, update + 1, updated);
      insert(p, update, taken);
      continue;
    }
    const ActionId send = first(p, ActionKind::send);
    for (auto share = shares.rbegin(); share != shares.rend(); ++share)
      insert(p, send, {.kind = note_gradients, .slice = share->slice, .arguments = {{"scale", share->scale}}});
    for (auto share = shares.rbegin(); share != shares.rend(); ++share)
      insert(p, 0, {.kind = note_weights, .slice = share->slice});
  }
  return plan;
}

/// Gathers all ranks' hashes on every rank.
std::vector<std::vector<std::uint64_t>> gathered(Communicator& comm, const std::vector<std::uint64_t>& mine) {
  std::vector<std::vector<std::uint64_t>> all;
  for (int r = 0; r < comm.size(); ++r) {
    const Tensor size = Tensor::full({1}, static_cast<double>(mine.size()), DType::i64);
    comm.broadcast(size, r).wait();
    const Tensor hashes = Tensor::zeros({size.data<std::int64_t>()[0]}, DType::i64);
    if (r == comm.rank())
      for (std::size_t i = 0; i < mine.size(); ++i)
        hashes.data<std::int64_t>()[i] = std::bit_cast<std::int64_t>(mine[i]);
    if (hashes.numel() > 0) comm.broadcast(hashes, r).wait();
    all.emplace_back();
    for (Index i = 0; i < hashes.numel(); ++i)
      all.back().push_back(std::bit_cast<std::uint64_t>(hashes.data<std::int64_t>()[i]));
  }
  return all;
}

/// The serial loop over one server's updates.
class Loop {
 public:
  Loop(const std::vector<std::vector<std::uint64_t>>& hashes, int workers, int servers, int server, std::int64_t bound)
      : hashes_(hashes), workers_(workers), servers_(servers), server_(server), bound_(bound) {}

  /// The first difference from a serial loop, as text; empty: none.
  std::string fault() {
    const auto& updates = hashes_[static_cast<std::size_t>(workers_ + server_)];
    std::vector<int> applied(static_cast<std::size_t>(workers_));
    versions_ = {{updates.empty() ? 0 : updates[0], applied}};
    for (std::size_t u = 0; 3 * u + 2 < updates.size(); ++u) {
      if (updates[3 * u] != versions_.back().hash)
        return fmt::format("update {} does not start from the weights before it", u);
      int by = 0;
      while (by < workers_ && gradient(by, applied[static_cast<std::size_t>(by)]) != updates[3 * u + 1]) ++by;
      if (by == workers_) return fmt::format("update {} does not use any worker's next gradient", u);
      const int step = applied[static_cast<std::size_t>(by)]++;
      if (std::string text = began(by, step, u); !text.empty()) return text;
      versions_.push_back({updates[3 * u + 2], applied});
    }
    return "";
  }
  std::int64_t updates() const { return std::ssize(versions_) - 1; }
  std::int64_t most_delay = 0, most_ahead = 0;  ///< in updates; in steps

 private:
  struct Version {
    std::uint64_t hash;
    std::vector<int> applied;  // number of gradients of each worker that were applied
  };
  std::uint64_t gradient(int worker, int step) const { return noted(worker, step, servers_ + server_); }
  std::uint64_t noted(int worker, int step, int at) const {
    const auto& all = hashes_[static_cast<std::size_t>(worker)];
    const auto i = static_cast<std::size_t>(2 * servers_ * step + at);
    return i < all.size() ? all[i] : 0;
  }
  /// Checks the weights with which the worker began the step whose gradient update u applies.
  std::string began(int worker, int step, std::size_t u) {
    const std::uint64_t hash = noted(worker, step, server_);
    for (std::size_t v = 0; v < versions_.size(); ++v) {
      const auto& applied = versions_[v].applied;
      if (versions_[v].hash != hash || applied[static_cast<std::size_t>(worker)] != step) continue;
      most_delay = std::max(most_delay, static_cast<std::int64_t>(u - v));
      const std::int64_t ahead = step - *std::ranges::min_element(applied);
      most_ahead = std::max(most_ahead, ahead);
      if (ahead <= bound_) return "";
      return fmt::format("worker {} began step {} {} steps ahead of the slowest, {} are allowed", worker, step, ahead,
                         bound_);
    }
    return fmt::format("worker {} began step {} with weights that its server did not have at that time", worker, step);
  }

  const std::vector<std::vector<std::uint64_t>>& hashes_;
  int workers_, servers_, server_;
  std::int64_t bound_;
  std::vector<Version> versions_;
};

}  // namespace

ClaimResult replay_servers(const Subject& subject, Mesh& mesh, const Strategy& strategy, const VerifyOptions& options) {
  Notes mine;
  notes = &mine;
  Verifier verifier(subject, mesh, strategy | Strategy("noted", Claim::delayed, noted), options);
  const Plan& plan = verifier.run().plan();
  const std::string axis = plan.reduced_axis();
  if (plan.size(axis) != mesh.world().size()) return {"", "only if all ranks are on one axis", true};
  for (int step = 0; step < options.steps; ++step) (void)verifier.feed(step);
  const auto hashes = gathered(mesh.comm(axis), mine.hashes);
  const int servers = static_cast<int>(shares_of(plan).size()), workers = plan.size(axis) - servers;
  const Tensor off = Tensor::full({1}, mine.off, DType::f64);
  mesh.world().comm().all_reduce(off, ReduceOp::max).wait();
  std::int64_t updates = 0, delay = 0, ahead = 0;
  for (int s = 0; s < servers; ++s) {
    Loop loop(hashes, workers, servers, s, plan.consistency_along(axis).bound);
    if (const std::string text = loop.fault(); !text.empty()) return {"", fmt::format("server {}: {}", s, text), false};
    updates += loop.updates();
    delay = std::max(delay, loop.most_delay);
    ahead = std::max(ahead, loop.most_ahead);
  }
  const std::int64_t all = std::int64_t{options.steps} * workers * servers;
  return {"",
          fmt::format("{} of {} gradients applied as by a serial loop, within {:.2g}, at most {} updates behind, {} "
                      "steps ahead",
                      updates, all, off.item(), delay, ahead),
          updates == all && off.item() <= options.tolerance};
}

}  // namespace trireme
