#include "parallel/search/imagined_models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/layers/init.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/comm/world/norm_ranks.h"
#include "parallel/model/chain.h"
#include "parallel/model/dry_run.h"
#include "parallel/model/part_memory.h"
#include "parallel/search/layer_splits.h"
#include "parallel/split/split.h"

namespace trireme {
namespace {

/// Linear interpolation from a to b at `share`, never below 0.
template <class T>
T between(T a, T b, double share) {
  const double v = std::max(0.0, static_cast<double>(a) + share * (static_cast<double>(b) - static_cast<double>(a)));
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::llround(v));
  else
    return v;
}

constexpr double PartCost::*seconds[] = {&PartCost::forward, &PartCost::backward_input, &PartCost::backward_weight};

}  // namespace

ImaginedModels::ImaginedModels(ImaginedModelOptions o) : o_(std::move(o)) {}

/// Of each part and pass what the ranks have at most: neighbours meet at each message, so that the one with more to
/// compute or to send there sets the time.
static void take_most(std::vector<PartInfo>& parts, const std::vector<PartInfo>& others) {
  for (std::size_t p = 0; p < parts.size(); ++p) {
    PartCost& cost = parts[p].cost;
    for (auto member : seconds) cost.*member = std::max(cost.*member, others[p].cost.*member);
    raise_bytes(cost, others[p].cost);
    for (const auto& [pass, comms] : others[p].comms)
      for (const PlannedCall& c : comms) {
        auto& mine = parts[p].comms[pass];
        const auto same = std::ranges::find_if(
            mine, [&](const PlannedCall& m) { return m.kind == c.kind && m.axis == c.axis && m.move == c.move; });
        if (same == mine.end()) {
          mine.push_back(c);
        } else {
          same->bytes = std::max(same->bytes, c.bytes);
          same->calls = std::max(same->calls, c.calls);
        }
      }
  }
}

RankModel ImaginedModels::imagine(const LayerSplit& split, bool recompute, int data, Index rows) {
  RankModel model = imagine_at(split, recompute, data, rows, 0);
  int most = 1;
  for (const Axis& a : split.axes) most = std::max(most, a.size);
  for (int place = 1; split.strategy.starts_with("spatial") && place < std::min(most, 3); ++place)
    take_most(model.parts, imagine_at(split, recompute, data, rows, place).parts);
  return model;
}

RankModel ImaginedModels::imagine_at(const LayerSplit& split, bool recompute, int data, Index rows, int place) {
  const Strategy strategy = o_.strategy(split.strategy.empty() ? "serial" : split.strategy);
  std::vector<Axis> axes{{"data", data}};
  axes.insert(axes.end(), split.axes.begin(), split.axes.end());
  const bool last_is_slowest = strategy.split.context_mode != ContextMode::ulysses;
  const auto place_on = [&](const Axis& a) {
    if (a.name == strategy.split.context && last_is_slowest) return a.size - 1;
    const int places[] = {0, a.size - 1, 1};
    if (!split.cuts_inputs() || a.name == "data") return 0;
    return split.strategy.starts_with("spatial") ? places[place] : a.size > 2 ? 1 : 0;
  };
  int rank = 0;
  for (const Axis& a : axes) rank = rank * a.size + place_on(a);
  World world;
  Mesh mesh(world, axes, rank);
  const auto [x, labels] = o_.samples(rows);  // written: host code checks ids of tokens
  const SkipInit zeros;
  std::optional<SkipValues> unwritten(std::in_place);
  Module model = o_.model(recompute);
  if (strategy.split.any()) model = trireme::split(model, mesh, strategy.split, x, !strategy.acts_on_updates());
  Parameters parameters(model);
  unwritten.reset();
  const Chain chain(model, o_.keeps_outputs ? Loss() : o_.loss);
  StepContext context = StepContext::current();
  context.batch.samples = Tensor::zeros({rows}, DType::i64);
  context.batch.global_batch = rows * data;
  std::unique_ptr<Communicator> all;
  if (data > 1 && strategy.scope() != NormScope::local) {
    const int together = strategy.scope() == NormScope::global ? data : std::min(data, strategy.norm_group);
    all = mesh.meter().metered(imagined_communicator(0, together), "data");
    if (together > 1) context.norm = std::make_shared<CommunicatorNormRanks>(std::vector{all.get()});
  }
  const Tensor in = x.with_batch(context.batch);
  const StepScope scope(std::move(context));
  std::vector<PartInfo> parts = chain.parts(parameters);
  for (PartInfo& part : parts) part.divided = divided_slices(parameters, part.slice);
  DryRun run = dry_run(chain, parameters, std::move(parts), in,
                       {.meter = &mesh.meter(), .loss = o_.loss, .labels = labels, .rates = o_.rates, .memory = true});
  return {std::move(run.parts), parameters.size(),
          std::make_shared<const std::vector<RankWeight>>(rank_weights(parameters))};
}

const std::optional<RankModel>& ImaginedModels::point(const LayerSplit& split, bool recompute, int data, Index rows) {
  auto [at, fresh] =
      points_.try_emplace(fmt::format("{} {} {} {} {}", split.strategy, to_string(split.axes), recompute, data, rows));
  if (!fresh) return at->second;
  try {
    at->second = imagine(split, recompute, data, rows);
  } catch (const Error& e) { refusal_ = e.what(); }
  return at->second;
}

/// Number of rows of the largest dry run, for a model that stores little per row.
Index ImaginedModels::most_rows() {
  if (most_rows_ > 0) return most_rows_;
  constexpr double much = 64 << 20;  // bytes
  const auto& whole = point({}, false, 2, few);
  double kept = 1;
  if (whole)
    for (const PartInfo& part : whole->parts) kept += static_cast<double>(part.cost.saved);
  return most_rows_ = std::clamp<Index>(static_cast<Index>(much / kept * static_cast<double>(few)), many, 1024);
}

std::optional<ImaginedModels::Line> ImaginedModels::line(const LayerSplit& split, bool recompute, int data,
                                                         Index rows) {
  Index low = few, high = many;
  if (most_rows() > many)
    for (high = 2 * low; high < rows && 2 * high <= most_rows();) {
      low = high;
      high *= 2;
    }
  const auto &a = point(split, recompute, data, low), &b = a ? point(split, recompute, data, high) : a;
  if (!b) return {};
  return Line{*a, *b, low, high};
}

/// Replaces counted seconds by the whole model's measured seconds, times the rank's share of the operations.
void ImaginedModels::charge(RankModel& model, const LayerSplit& split, bool recompute, Index rows) {
  if (!o_.costs) return;
  auto [at, fresh] = costs_.try_emplace(rows);
  if (fresh) at->second = o_.costs(rows);
  const std::vector<PartCost>& costs = at->second;
  if (split.strategy.empty() && !recompute && costs.size() == model.parts.size()) {
    for (std::size_t p = 0; p < costs.size(); ++p)
      for (auto member : seconds) model.parts[p].cost.*member = costs[p].*member;
    return;
  }
  const std::optional<Line> whole = line({}, false, 2, rows);
  check(whole.has_value(), "search", "{}", refusal_);
  const double share = whole->share_of(rows);
  const auto& names = whole->at_few.parts;
  for (PartInfo& part : model.parts) {
    const auto at = std::ranges::find(names, part.name, &PartInfo::name);
    // The parts that split layers add are charged as those beside them: the loss's backward is in the last one.
    const std::size_t p = at != names.end()               ? static_cast<std::size_t>(at - names.begin())
                          : &part == &model.parts.front() ? 0
                                                          : costs.size() - 1;
    const auto counted = [&](auto member) {
      return between(names[p].cost.*member, whole->at_many.parts[p].cost.*member, share);
    };
    double seconds_of_all = 0, counted_of_all = 0;
    for (auto member : seconds) {
      seconds_of_all += costs[p].*member;
      counted_of_all += counted(member);
    }
    for (auto member : seconds) {
      if (at == names.end())
        part.cost.*member *= seconds_of_all / counted_of_all;
      else if (counted(member) > 0)
        part.cost.*member *= costs[p].*member / counted(member);
    }
  }
}

std::optional<RankModel> ImaginedModels::operator()(const LayerSplit& split, bool recompute, Index rows, int data) {
  auto found = line(split, recompute, split.cuts_over_data() ? data : 2, rows);
  if (!found) return {};
  const double share = found->share_of(rows);
  RankModel model = std::move(found->at_few);
  for (std::size_t p = 0; p < model.parts.size(); ++p) {
    PartInfo& part = model.parts[p];
    const PartInfo& other = found->at_many.parts[p];
    for (auto member : seconds) part.cost.*member = between(part.cost.*member, other.cost.*member, share);
    move_bytes(part.cost, other.cost, share);
    for (auto& [pass, comms] : part.comms) {
      if (!split.cuts_over_data() && data == 1)
        std::erase_if(comms, [](const PlannedCall& c) { return c.axis == "data"; });
      const auto others = other.comms.find(pass);
      for (PlannedCall& comm : comms) {
        if (others != other.comms.end()) {
          const auto same = std::ranges::find_if(others->second, [&](const PlannedCall& c) {
            return c.kind == comm.kind && c.axis == comm.axis && c.move == comm.move;
          });
          if (same != others->second.end()) comm.bytes = between(comm.bytes, same->bytes, share);
        }
        if (!split.cuts_over_data() && comm.axis == "data" && comm.kind == CallKind::all_gather)
          comm.bytes = comm.bytes / 2 * data;
      }
    }
  }
  charge(model, split, recompute, rows);
  return model;
}

std::vector<std::pair<std::string, Shape>> ImaginedModels::products() {
  const SkipInit zeros;
  const SkipValues unwritten;
  Module model = o_.model(false);
  std::vector<std::pair<std::string, Shape>> all;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    if (leaf.name.ends_with(".weight") && leaf.tensor->shape().rank() >= 2)
      all.emplace_back(leaf.name.substr(0, leaf.name.size() - 7), leaf.tensor->shape());
  }));
  return all;
}

bool ImaginedModels::can_recompute() {
  const auto &whole = point({}, false, 2, few), &again = point({}, true, 2, few);
  if (!whole || !again) return false;
  const auto kept = [](const RankModel& m) {
    Index bytes = 0;
    for (const PartInfo& part : m.parts) bytes += part.cost.saved;
    return bytes;
  };
  return kept(*again) < kept(*whole);
}

int ImaginedModels::parts() {
  const auto& whole = point({}, false, 2, few);
  return whole ? static_cast<int>(whole->parts.size()) : 1;
}

namespace {

/// Groups layers by name without numbers, and shape.
std::string kind_of(const std::pair<std::string, Shape>& layer) {
  std::string kind = fmt::format("{}", fmt::join(layer.second, " "));
  for (const char c : layer.first) kind += c >= '0' && c <= '9' ? '#' : c;
  return kind;
}

LayerSplit tensor_split(int ranks, const std::vector<std::string>& whole, bool sequence = false) {
  const std::string names = whole.empty() ? "" : fmt::format(" | place({}.*, whole=true)", fmt::join(whole, ".*+"));
  return {(sequence ? "tensor(sequence=true)" : "tensor") + names, {{"tensor", ranks}}};
}

/// Number of calls after which each rank has its share of a sum over the ranks that split layers.
Index scattered_sums(const RankModel& model) {
  Index calls = 0;
  for (const PartInfo& part : model.parts)
    for (const auto& [pass, comms] : part.comms)
      for (const PlannedCall& c : comms)
        if (c.axis == "tensor" && c.move == "scatter") calls += c.calls;
  return calls;
}

/// Seconds of a part on a rank for one micro-batch, with its communication over the link.
double seconds_of(const PartInfo& part, int ranks, const Link& link) {
  double all = part.cost.forward + part.cost.backward_input + part.cost.backward_weight;
  for (const auto& [pass, comms] : part.comms)
    for (const PlannedCall& c : comms)
      if (c.axis == "tensor")
        all += static_cast<double>(c.calls) * 1e-9 *
               static_cast<double>(collective_time(link, c.kind, ranks, c.bytes / std::max<Index>(1, c.calls)));
  return all;
}

}  // namespace

std::vector<LayerSplit> context_splits(ImaginedModels& models, int ranks) {
  const auto work = [](const RankModel& model) {
    double all = 0;
    for (const PartInfo& part : model.parts)
      for (auto member : seconds) all += part.cost.*member;
    return all;
  };
  std::vector<LayerSplit> all;
  for (const char* mode : {"", "mode=ulysses", "mode=ring"}) {
    const std::string named = *mode ? fmt::format("({})", mode) : "", first = *mode ? fmt::format("{}, ", mode) : "";
    const LayerSplit plain{"context" + named, {{"context", ranks}}};
    const auto contiguous = models(plain, false, 2, 1);
    if (!contiguous) continue;
    all.push_back(plain);
    for (const char* cut : {"zigzag", "striped"}) {
      const LayerSplit other{fmt::format("context({}cut={})", first, cut), plain.axes};
      const auto model = models(other, false, 2, 1);
      if (model && work(*model) < (1 - 1e-9) * work(*contiguous)) all.push_back(other);  // sums of seconds are rounded
    }
  }
  return all;
}

std::vector<LayerSplit> tensor_splits(ImaginedModels& models, int ranks, Index rows, const Link& link) {
  const auto layers = models.products();
  std::vector<std::string> whole, kinds;
  for (const auto& layer : layers) {
    whole.push_back(layer.first);
    if (std::ranges::find(kinds, kind_of(layer)) == kinds.end()) kinds.push_back(kind_of(layer));
  }
  std::vector<LayerSplit> all;
  if (models(tensor_split(ranks, {}), false, rows, 1)) {
    whole.clear();
  } else {
    for (const std::string& kind : kinds) {  // adds one kind at a time, as long as the model can be split that way
      std::vector<std::string> fewer;
      for (const auto& layer : layers)
        if (std::ranges::find(whole, layer.first) != whole.end() && kind_of(layer) != kind)
          fewer.push_back(layer.first);
      if (models(tensor_split(ranks, fewer), false, rows, 1)) whole = fewer;
    }
    if (whole.size() == layers.size()) return {};
  }
  all.push_back(tensor_split(ranks, whole));
  // Part by part: split as found, or whole.
  const auto undivided = models({}, false, rows, 1), divided = models(all[0], false, rows, 1);
  LayerChoices choices;
  for (const PartInfo& part : undivided->parts) {
    const auto same = std::ranges::find(divided->parts, part.name, &PartInfo::name);
    choices.parts.push_back({{seconds_of(part, ranks, link), part.slice.size()}});
    if (same != divided->parts.end())
      choices.parts.back().push_back({seconds_of(*same, ranks, link), same->slice.size()});
  }
  for (const LayerAssignment& a : best_assignments(choices, 1)) {
    std::vector<std::string> kept = whole;
    for (const auto& layer : layers)
      for (std::size_t p = 0; p < undivided->parts.size(); ++p)
        if (a.choices[p] == 0 && layer.first.starts_with(undivided->parts[p].name)) kept.push_back(layer.first);
    std::ranges::sort(kept);
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    if (kept.size() < layers.size() && kept.size() != whole.size()) all.push_back(tensor_split(ranks, kept));
  }
  const LayerSplit tokens = tensor_split(ranks, whole, true);
  if (const auto model = models(tokens, false, rows, 1); model && scattered_sums(*model) > scattered_sums(*divided))
    all.push_back(tokens);
  return all;
}

}  // namespace trireme
