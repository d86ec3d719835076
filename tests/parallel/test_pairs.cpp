// Every pair of strategies, "a | b": trains, saves, is loaded under another pair and trained on, and equals the
// serial run in all that a run is made of, or is refused by a strategy. TRIREME_TEST_ALL=1: on every mesh of
// 1, 2, 3, 4 and 8 ranks; else each pair on its smallest.
#include "tests/parallel/pair_setups.h"
#include "tests/parallel/run_segments.h"
#include "tests/support/temporary.h"

namespace test_pairs {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Outcomes of a table: the strategies of the arrangements that are equal, and what differs.
struct Count {
  std::vector<std::string> equal, wrong;
};

/// The serial run with micro-batches that was saved after its first segment, or went on with others from there.
class References {
 public:
  explicit References(const Setup& s) : s_(s) {}
  const TrainedState& first(int microbatches) { return get(microbatches, 0); }
  const TrainedState& second(int microbatches, int then) { return get(microbatches, then); }

 private:
  const TrainedState& get(int microbatches, int then) {
    auto [at, added] = stands_.try_emplace({microbatches, then});
    if (added) {
      if (then > 0) get(microbatches, 0);
      World world;
      const int now = then > 0 ? then : microbatches;
      const Arrangement serial{
          {{"data", 1}}, now > 1 ? "accumulate(micro=" + std::to_string(now) + ")" : "serial", now};
      at->second = train_segment(s_, world, serial,
                                 {.from = then > 0 ? folder(microbatches, 0) : "", .to = folder(microbatches, then)});
    }
    return at->second;
  }
  std::string folder(int microbatches, int then) const {
    return folder_ / (std::to_string(microbatches) + "_" + std::to_string(then));
  }
  const Setup& s_;
  Temporary folder_;
  std::map<std::pair<int, int>, TrainedState> stands_;
};

/// Each arrangement trains, is saved, and goes on under the next of them that is not refused.
Count compare(const Setup& s, const std::vector<Arrangement>& all, double tolerance) {
  References references(s);
  Count count;
  Temporary folder;
  std::string saved;  // by the arrangement before
  const Arrangement* saver = nullptr;
  const auto segment = [&](const Arrangement& how, const RunSegment& what, const TrainedState& reference,
                           const std::string& name) {
    try {
      const TrainedState got = on_ranks(how.ranks(), [&](World& world) { return train_segment(s, world, how, what); });
      const std::string found = difference(got, reference, tolerance);
      if (!found.empty()) count.wrong.push_back(name + ": " + found + " differ");
      return true;
    } catch (const std::exception& e) {
      const std::string text = known_refusal(e.what());
      if (text.empty()) count.wrong.push_back(name + ": " + e.what());
      return false;
    }
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Arrangement& how = all[i];
    const std::string to = folder / std::to_string(i), on = to + "_on";
    const std::size_t wrong = count.wrong.size();
    if (!segment(how, {.from = "", .to = to}, references.first(how.microbatches), how.text())) continue;
    if (saver != nullptr)
      segment(how, {.from = saved, .to = on}, references.second(saver->microbatches, how.microbatches),
              how.text() + ", from a checkpoint of " + saver->text());
    if (count.wrong.size() == wrong) count.equal.push_back(how.strategy);
    std::filesystem::remove_all(on);
    if (saver != nullptr) std::filesystem::remove_all(saved);
    saver = &how;
    saved = to;
  }
  return count;
}

bool in_full() { return std::getenv("TRIREME_TEST_ALL") != nullptr; }

std::vector<Arrangement> table() {
  std::vector<Arrangement> all;
  for (auto& [a, b] : strategy_pairs()) {
    if (!in_full()) all.push_back(smallest(a, b));
    // These divide updates along the axes that gradients are summed over, whatever they are called.
    const bool divides = b.text.starts_with("zero") || b.text == "central_storage";
    if (!in_full() && divides && a.text.starts_with("spatial"))
      all.push_back({{{a.axis, 2}}, all.back().strategy, all.back().microbatches});
    for (int ranks : {1, 2, 3, 4, 8})
      if (in_full())
        for (auto& how : arrangements(a, b, ranks)) all.push_back(how);
  }
  return all;
}

/// None is wrong, and every strategy trains in some pair.
void judge(const Count& count) {
  std::string wrong;
  for (auto& line : count.wrong) wrong += line + "\n";
  CHECK(wrong == "");
  for (const StrategyText& row : strategy_texts()) {
    INFO(row.text);
    CHECK(std::ranges::any_of(count.equal, [&](const std::string& s) { return s.find(row.text) != s.npos; }));
  }
}

}  // namespace

TEST_CASE("every pair of strategies trains, saves and loads as the serial run does, bit by bit") {
  if (threads_only()) return;
  judge(compare(exact(), table(), 0));
}

TEST_CASE("every pair of strategies trains, saves and loads a network with batch norm as accumulation does") {
  if (threads_only()) return;
  judge(compare(normed(), table(), 1e-11));
}

}  // namespace test_pairs
