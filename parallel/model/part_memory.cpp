#include "parallel/model/part_memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/ops/loss_share.h"
#include "framework/tensor/memory_tracker.h"
#include "framework/tensor/storage.h"
#include "kernels/core/named_range.h"
#include "parallel/plan/liveness.h"

namespace trireme {
namespace {

constexpr std::array kinds{MemoryKind::activations, MemoryKind::halos, MemoryKind::packed, MemoryKind::offloaded};
/// Bytes by kind.
using Bytes = PartCost::Bytes;

Bytes operator-(Bytes a, const Bytes& b) {
  for (std::size_t k = 0; k < a.size(); ++k) a[k] -= b[k];
  return a;
}
Bytes operator+(Bytes a, const Bytes& b) {
  for (std::size_t k = 0; k < a.size(); ++k) a[k] += b[k];
  return a;
}
void raise_to(Bytes& a, const Bytes& b) {
  for (std::size_t k = 0; k < a.size(); ++k) a[k] = std::max(a[k], b[k]);
}

/// Position of a part: its program in the plan, and its segment, numbered over all programs.
struct Place {
  int program = -1, segment = -1;
  bool operator==(const Place&) const = default;
};
/// By part. Parts that the plan does not have (split layers add them) belong to their neighbours.
std::vector<Place> places_of(const std::vector<PartInfo>& parts, const Plan* plan) {
  std::vector<Place> all(parts.size());
  if (!plan) return all;
  std::map<std::string, Place> known;
  int number = 0;
  for (int r = 0; r < std::ssize(plan->programs); ++r) {
    const Liveness live(plan->programs[static_cast<std::size_t>(r)]);
    for (const Segment& s : live.segments) {
      ++number;
      for (int p = s.first; p < s.end; ++p)
        if (plan->program_of(p) == r) known[plan->parts[static_cast<std::size_t>(p)].name] = {r, number};
    }
  }
  Place before;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto at = known.find(parts[p].name);
    all[p] = before = at != known.end() ? at->second : before;
  }
  for (std::size_t p = parts.size(); p-- > 1;)
    if (all[p - 1] == Place{}) all[p - 1] = all[p];
  return all;
}

/// Tensors passed from a segment to the next one, without history; leaves if they have gradients.
struct Handed {
  Tensor x;
  Stashed stashed;
};

class SegmentRun {
 public:
  /// Parts [first, end) of the chain. brought: inputs come by messages, so gradients are always sent back.
  SegmentRun(const Chain& chain, Parameters& parameters, std::vector<PartInfo>& parts, const DryRunOptions& o,
             const MemoryTracker& tracker, int first, int end, bool brought)
      : chain_(chain),
        parameters_(parameters),
        o_(o),
        tracker_(tracker),
        first_(first),
        end_(end),
        brought_(brought),
        parts_(parts) {
    const auto n = static_cast<std::size_t>(end - first);
    for (auto* all : {&top_, &behind_, &forward_, &backward_, &input_, &weight_, &deferred_}) all->assign(n, Bytes{});
    unsaved_.assign(n, 0);
  }
  Handed run(const Handed& given) {
    const Handed next = pass(given, false);
    pass(given, true);
    report();
    return next;
  }

 private:
  std::size_t at(int part) const { return static_cast<std::size_t>(part - first_); }
  Bytes now() const {
    Bytes all;
    for (std::size_t k = 0; k < kinds.size(); ++k) all[k] = tracker_.now(kinds[k]);
    return all;
  }
  Bytes peak() const {
    Bytes all;
    for (std::size_t k = 0; k < kinds.size(); ++k) all[k] = tracker_.peak(kinds[k]);
    return all;
  }
  Handed pass(const Handed& given, bool halves);
  void forward(Tensor& x, Stashed& stashed);
  Tensor loss(const Tensor& prediction) const;
  void passed(int next);
  void weights_passed(int next);
  void report();
  /// Bytes kept by earlier parts of the segment.
  Bytes kept_before(int part) const { return part == first_ ? start_ : behind_[at(part - 1)]; }

  const Chain& chain_;
  Parameters& parameters_;
  const DryRunOptions& o_;
  MemoryTracker tracker_;
  const int first_, end_;
  const bool brought_;
  std::vector<PartInfo>& parts_;
  bool halves_ = false;
  int current_ = 0;          // part whose backward is running
  Bytes start_{}, level_{};  // bytes at the start of the segment; after the last part's deferred half
  Deferred deferred_halves_;
  // By part of the segment: maximum bytes and bytes kept after it, as totals; then bytes of each pass.
  std::vector<Bytes> top_, behind_, forward_, backward_, input_, weight_, deferred_;
  std::vector<Index> unsaved_;
};

Tensor SegmentRun::loss(const Tensor& prediction) const {
  StepContext now = StepContext::current();
  now.ignored = 0;
  now.in_loss = true;
  const StepScope scope(std::move(now));
  const NamedRange range("loss");
  if (o_.loss.cross_entropy() && chain_.head())
    return scale(prediction, ops::share_of_row("cross_entropy", o_.labels, o_.labels, *o_.loss.cross_entropy()));
  return o_.loss(prediction, o_.labels);
}

/// Replaces x by the output of the last part, or the loss.
void SegmentRun::forward(Tensor& x, Stashed& stashed) {
  const NamedRange phase("forward");
  struct Carried {  // memory block of x since the part that created it
    std::weak_ptr<detail::Storage> block;
    int maker = -1;
    Index bytes = 0;
  } carried{x.impl()->block};
  const LmHead* head = o_.loss && o_.loss.cross_entropy() ? chain_.head() : nullptr;
  for (int p = first_; p < end_; ++p) {
    tracker_.reset_peaks();
    if (head && p + 1 == chain_.size()) {
      LabelLossOptions sum = *o_.loss.cross_entropy();
      sum.reduction = Reduction::sum;
      x = head->loss(x, o_.labels, sum);
    } else {
      x = chain_.run(p, std::move(x), stashed);
    }
    if (p + 1 == chain_.size() && o_.loss) x = loss(x);
    top_[at(p)] = peak();
    behind_[at(p)] = now();
    if (const auto& block = x.impl()->block; carried.block.lock() != block) {
      if (carried.block.expired())  // no part keeps it
        for (int q = carried.maker; q >= 0 && q < p; ++q) {
          behind_[at(q)][0] -= carried.bytes;
          unsaved_[at(q)] = carried.bytes;
        }
      carried = {block, p, static_cast<Index>(block->bytes)};
    }
    const auto& node = x.impl()->node;
    if (p + 1 < end_ && node && !node->leaf)
      on_grad(x, [this, p](const Tensor&) {
        passed(p);
        return Tensor();
      });
  }
}

/// Called when backward of the current part has ended and that of `next` begins.
void SegmentRun::passed(int next) {
  if (next >= current_) return;
  raise_to(top_[at(current_)], peak());
  tracker_.reset_peaks();
  if (halves_) deferred_halves_.push([this, next] { weights_passed(next); });
  current_ = next;
}

void SegmentRun::weights_passed(int next) {
  const Bytes left = now();
  weight_[at(current_)] = peak() - left;
  deferred_[at(current_)] = level_ - left;
  level_ = left;
  current_ = next;
  tracker_.reset_peaks();
}

Handed SegmentRun::pass(const Handed& given, bool halves) {
  halves_ = halves;
  if (!o_.plan || o_.plan->microbatches == 1)
    parameters_.clear_grads();  // otherwise backward may need room to
                                // accumulate
  const bool cut = first_ > 0, ends = end_ == chain_.size();
  const auto leaf = [&](const Tensor& t) {
    if (!cut) return t;
    Tensor in = t.detach();
    in.impl()->batch = t.impl()->batch;
    in.impl()->block = std::make_shared<detail::Storage>(static_cast<std::size_t>(t.numel()) * size_of(t.dtype()),
                                                         t.device());  // tensor received by a message
    in.impl()->offset = 0;
    return in.require_grad(is_float(t.dtype()) && (brought_ || t.requires_grad()));
  };
  Tensor in = leaf(given.x);
  Stashed stashed;
  stashed.fields = given.stashed.fields;
  for (const auto& [name, t] : given.stashed) stashed.emplace(name, leaf(t));
  Stashed leaves = stashed;
  start_ = now();
  Tensor x = in;
  std::fill(unsaved_.begin(), unsaved_.end(), 0);
  forward(x, stashed);
  if (!halves)
    for (int p = first_; p < end_; ++p) forward_[at(p)] = top_[at(p)] - kept_before(p);
  Handed next;
  if (!halves && !ends) {
    const auto hand = [](const Tensor& t) {
      Tensor on = t.detach();
      on.impl()->batch = t.impl()->batch;
      return on.require_grad(is_float(t.dtype()) && t.requires_grad());
    };
    next.x = hand(x);
    next.stashed.fields = stashed.fields;
    for (const auto& [name, t] : stashed) next.stashed.emplace(name, hand(t));
  }
  std::vector<Tensor> roots{std::move(x)}, seeds;
  for (const auto& [name, t] : stashed)
    if (const auto was = leaves.find(name); was == leaves.end() || was->second.id() != t.id()) roots.push_back(t);
  stashed.clear();
  std::erase_if(roots, [](const Tensor& t) { return !t.requires_grad(); });
  const Bytes before = now();
  for (const Tensor& root : roots) seeds.push_back(Tensor::full(root.shape(), 1, root.dtype(), root.device()));
  const Bytes arrived = now() - before;  // bytes received over a cut are counted elsewhere
  current_ = end_ - 1;
  for (Bytes& top : top_) top = {};
  tracker_.reset_peaks();
  {
    const NamedRange phase("backward");
    if (!roots.empty()) backward(roots, seeds, {.defer_weights = halves ? &deferred_halves_ : nullptr});
  }
  raise_to(top_[at(current_)], peak());
  auto& of_pass = halves ? input_ : backward_;
  for (int p = first_; p < end_; ++p)
    if (top_[at(p)] != Bytes{}) of_pass[at(p)] = top_[at(p)] - kept_before(p) - arrived;
  if (!halves) return next;
  roots.clear();
  seeds.clear();
  leaves.emplace("", in);
  for (const auto& [name, t] : leaves)
    if (cut && t.requires_grad()) detail::release_grad(t);  // it is sent to the stage before
  in = {};
  leaves.clear();
  current_ = end_ - 1;
  level_ = now();
  tracker_.reset_peaks();
  const NamedRange phase("backward");
  deferred_halves_.run();
  weights_passed(first_);
  Bytes later{};
  for (int p = end_ - 1; p >= first_; --p) {
    if (input_[at(p)] != Bytes{}) input_[at(p)] = input_[at(p)] - later;
    later = later + deferred_[at(p)];
  }
  return next;
}

void SegmentRun::report() {
  for (int p = first_; p < end_; ++p) {
    PartCost& cost = parts_[static_cast<std::size_t>(p)].cost;
    const Bytes kept = behind_[at(p)] - kept_before(p);
    cost.saved = kept[0] + kept[3];
    cost.halo = kept[1];
    cost.offloaded = kept[3];
    cost.unsaved = unsaved_[at(p)];
    cost.forward_bytes = forward_[at(p)];
    cost.backward_bytes = backward_[at(p)];
    cost.backward_input_bytes = input_[at(p)];
    cost.backward_weight_bytes = weight_[at(p)];
    cost.deferred_bytes = deferred_[at(p)];
  }
}

}  // namespace

void count_memory(const Chain& chain, Parameters& parameters, std::vector<PartInfo>& parts, const Tensor& x,
                  const DryRunOptions& o) {
  const GradMode on(true);
  const MemoryTracker tracker;
  const MemoryScope memory(tracker);
  const std::vector<Place> places = places_of(parts, o.plan);
  const auto place = [&](int part) { return places[static_cast<std::size_t>(part)]; };
  Handed handed{x, {}};
  for (int first = 0, end = 0; first < chain.size(); first = end) {
    while (end < chain.size() && place(end) == place(first)) ++end;
    const bool brought = first > 0 && place(first).program != place(first - 1).program;
    handed = SegmentRun(chain, parameters, parts, o, tracker, first, end, brought).run(handed);
  }
}

namespace {
/// Calls f(bytes of a, same bytes of b) for all bytes of two costs.
template <class F>
void each_bytes(PartCost& a, const PartCost& b, F f) {
  for (Index PartCost::*bytes :
       {&PartCost::saved, &PartCost::output, &PartCost::halo, &PartCost::unsaved, &PartCost::offloaded})
    f(a.*bytes, b.*bytes);
  for (Bytes PartCost::*pass : {&PartCost::forward_bytes, &PartCost::backward_bytes, &PartCost::backward_input_bytes,
                                &PartCost::backward_weight_bytes, &PartCost::deferred_bytes})
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) f((a.*pass)[kind], (b.*pass)[kind]);
}
}  // namespace

void raise_bytes(PartCost& to, const PartCost& found) {
  each_bytes(to, found, [](Index& a, Index b) { a = std::max(a, b); });
}

void move_bytes(PartCost& a, const PartCost& b, double share) {
  each_bytes(a, b, [share](Index& from, Index to) {
    from = std::max<Index>(0, std::llround(static_cast<double>(from) + share * static_cast<double>(to - from)));
  });
}

PartCost joined(const PartCost& a, const PartCost& b) {
  PartCost c = b;
  c.forward += a.forward;
  c.backward_input += a.backward_input;
  c.backward_weight += a.backward_weight;
  c.saved += a.saved;
  c.halo += a.halo;
  c.offloaded += a.offloaded;
  const Bytes kept{a.saved - a.offloaded, a.halo, 0, a.offloaded};
  raise_to(c.forward_bytes = kept + c.forward_bytes, a.forward_bytes);
  raise_to(c.backward_bytes = kept + c.backward_bytes, a.backward_bytes);
  raise_to(c.backward_input_bytes = kept + c.backward_input_bytes, a.backward_input_bytes + c.deferred_bytes);
  raise_to(c.backward_weight_bytes = a.deferred_bytes + c.backward_weight_bytes, a.backward_weight_bytes);
  c.deferred_bytes = c.deferred_bytes + a.deferred_bytes;
  return c;
}

}  // namespace trireme
