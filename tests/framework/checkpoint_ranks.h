// Ranks that are threads, each with a part of a model's state, that write a checkpoint together and read it again.
#pragma once
#include <algorithm>
#include <barrier>
#include <filesystem>
#include <random>
#include <thread>

#include "framework/io/checkpoint.h"
#include "framework/layers/layers.h"

namespace trireme::test {

using Random = std::mt19937_64;
inline Index between(Random& random, Index first, Index last) {
  return first + static_cast<Index>(random() % static_cast<std::uint64_t>(last - first + 1));
}

struct Sizes {
  Index in = 3, filters = 4, kernel = 3, out = 5;
};

/// A model with every kind of state, of which no two numbers are the same; before fill(), -1.
struct SavedState {
  Sequential model;
  Parameters parameters;
  Optimizer optimizer;

  explicit SavedState(const Sizes& s = {})
      : model{Conv2d(s.in, s.filters, s.kernel), BatchNorm(s.filters),
              Linear(s.filters, s.out, {.layout = FileLayout::transposed})},
        parameters(model),
        optimizer(parameters, Adam{}) {
    visit([](float& v) { v = -1; });
  }
  void visit(const std::function<void(float&)>& f) {
    for (auto& e : parameters.entries())
      for (float& v : e.tensor.view().span<float>()) f(v);
    for (auto& b : parameters.buffers())
      for (float& v : b.tensor.view().span<float>()) f(v);
    for (auto& [name, flat] : optimizer.state())
      for (float& v : flat.blocks()[0].view().span<float>()) f(v);
  }
  void fill(int step) {
    float next = static_cast<float>(step);
    visit([&](float& v) { v = next += 0.25f; });
    optimizer.set_steps(step);
  }
  std::string save(const std::string& run, int step, const SaveOptions& options = {}) {
    return save_checkpoint(run, parameters, optimizer, {.step = step, .batch = 7, .config = "a = 1\n"}, options);
  }
};

/// Texts between ranks that are threads.
class Texts {
 public:
  explicit Texts(int ranks) : texts_(static_cast<std::size_t>(ranks)), barrier_(ranks) {}
  std::vector<std::string> all_gather(int rank, const std::string& mine) {
    texts_[static_cast<std::size_t>(rank)] = mine;
    bytes += mine.size();
    barrier_.arrive_and_wait();
    auto all = texts_;
    barrier_.arrive_and_wait();
    return all;
  }
  std::atomic<std::size_t> bytes = 0;

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

/// Ranks that hold and write slices of the flat block and buffers by lot; each slice is written by one.
inline std::vector<CheckpointShard> cut(const SavedState& state, int ranks, Random& random, Texts& texts) {
  std::vector<CheckpointShard> all(static_cast<std::size_t>(ranks));
  const auto deal = [&](auto member) {  // to ranks in any order, in one to three slices each
    std::vector<Index> cuts{0, state.parameters.size()};
    for (int i = 1; i < ranks * 2; ++i) cuts.push_back(between(random, 0, state.parameters.size()));
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] < cuts[i + 1])
        (all[static_cast<std::size_t>(between(random, 0, ranks - 1))].*member).push_back({cuts[i], cuts[i + 1]});
  };
  deal(&CheckpointShard::writes);
  deal(&CheckpointShard::writes_state);
  const std::size_t buffers = state.parameters.buffers().size();
  std::vector<int> writers;
  for (std::size_t b = 0; b < buffers; ++b) writers.push_back(static_cast<int>(between(random, 0, ranks - 1)));
  for (int r = 0; r < ranks; ++r) {
    CheckpointShard& s = all[static_cast<std::size_t>(r)];
    s.rank = r;
    s.ranks = ranks;
    s.layout = "ranks=" + std::to_string(ranks);
    const bool more = between(random, 0, 3) == 0;  // holds all, as a replica does, and writes its part
    s.holds = more ? std::vector<Slice>{{0, state.parameters.size()}} : s.writes;
    for (std::size_t b = 0; b < buffers; ++b) {
      s.writes_buffers.push_back(writers[b] == r);
      s.holds_buffers.push_back(more || writers[b] == r);
    }
    s.all_gather = [r, &texts](const std::string& mine) { return texts.all_gather(r, mine); };
  }
  return all;
}

/// body(rank) on each, as threads; what each threw, by rank.
inline std::vector<std::string> on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) { errors[static_cast<std::size_t>(r)] = e.what(); }
    });
  threads.clear();
  return errors;
}

/// One of several ranks that saves: it holds the state of its slices only.
struct Group {
  Texts texts;
  std::vector<std::unique_ptr<SavedState>> states;
  std::vector<CheckpointShard> shards;

  Group(int ranks, std::uint64_t seed, const Sizes& sizes = {}, int step = 0) : texts(ranks) {
    Random random(seed);
    for (int r = 0; r < ranks; ++r) states.push_back(std::make_unique<SavedState>(sizes));
    shards = cut(*states[0], ranks, random, texts);
    if (step > 0) fill(step);
    for (int r = 0; r < ranks; ++r) state(r).optimizer.keep(shard(r).writes_state);
  }
  void fill(int step) {
    for (int r = 0; r < ranks(); ++r) {
      state(r).optimizer.keep({{0, state(r).parameters.size()}});
      state(r).fill(step);
      state(r).optimizer.keep(shard(r).writes_state);
    }
  }
  int ranks() const { return static_cast<int>(states.size()); }
  SavedState& state(int r) { return *states[static_cast<std::size_t>(r)]; }
  const CheckpointShard& shard(int r) const { return shards[static_cast<std::size_t>(r)]; }
  /// What each rank threw.
  std::vector<std::string> save(const std::string& run, int step, int keep = 3) {
    return on_threads(ranks(),
                      [&](int r) { state(r).save(r == 0 ? run : "", step, {.keep_last = keep, .shard = shard(r)}); });
  }
  std::vector<std::string> load(const std::string& directory) {
    return on_threads(
        ranks(), [&](int r) { (void)load_checkpoint(directory, state(r).parameters, &state(r).optimizer, shard(r)); });
  }
};

inline bool none(const std::vector<std::string>& errors) {
  return std::ranges::all_of(errors, [](const std::string& e) { return e.empty(); });
}

/// What a rank has where it should, and what it left alone: "" if all is as in `whole`.
inline std::string difference(SavedState& got, const CheckpointShard& shard, SavedState& whole) {
  const auto holds = [](const std::vector<Slice>& slices, Index at) {
    return std::ranges::any_of(slices, [&](const Slice& s) { return s.begin <= at && at < s.end; });
  };
  const auto values = got.parameters.values().to_vector(), expected = whole.parameters.values().to_vector();
  for (auto& e : got.parameters.entries())
    for (Index i = e.slice.begin; i < e.slice.end; ++i)
      if (values[static_cast<std::size_t>(i)] != (holds(shard.holds, i) ? expected[static_cast<std::size_t>(i)] : -1))
        return fmt::format("element {} of {}", i - e.slice.begin, e.name);
  for (std::size_t b = 0; b < shard.holds_buffers.size(); ++b) {
    const auto mine = got.parameters.buffers()[b].tensor.to_vector();
    const auto all = whole.parameters.buffers()[b].tensor.to_vector();
    if (shard.holds_buffers[b] ? mine != all : mine[0] != -1) return got.parameters.buffers()[b].name;
  }
  for (std::size_t k = 0; k < whole.optimizer.state().size(); ++k) {
    const auto mine = got.optimizer.state()[k].second.to_vector(), all = whole.optimizer.state()[k].second.to_vector();
    std::size_t at = 0;
    for (const Slice& s : got.optimizer.kept())
      for (Index i = s.begin; i < s.end; ++i, ++at) {
        const auto in = [&](const Parameters::Entry& e) { return e.slice.begin <= i && i < e.slice.end; };
        if (std::ranges::any_of(got.parameters.entries(), in) && mine[at] != all[static_cast<std::size_t>(i)])
          return fmt::format("element {} of {}", i, whole.optimizer.state()[k].first);
      }
  }
  return got.optimizer.steps() == whole.optimizer.steps() ? "" : "the steps";
}

inline std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  for (auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme::test
