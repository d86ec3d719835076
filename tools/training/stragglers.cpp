#include "tools/training/stragglers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "framework/io/json.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/compare.h"

namespace trireme {

static std::int64_t waited() {
  const FlightRecorder* recorder = FlightRecorder::current();
  return recorder ? recorder->waited() : 0;
}

void Stragglers::begin() { waited_ = waited(); }

void Stragglers::report(const EpochMetrics& epoch, World& world, Console& console) const {
  if (world.size() == 1) return;
  struct Rank {
    std::size_t rank;
    double own, waits;  // milliseconds per step
    std::string host;
  };
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const double steps = static_cast<double>(epoch.steps), waits = static_cast<double>(waited() - waited_) / 1e3;
  const double mean = epoch.steps > 0 ? waits / steps : 0;
  const auto all = gather_texts(world.comm(), json_text({epoch.steps, epoch.step_mean - mean, mean, host.data()}));
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (const Json one = parse_json(all[r]); one[0] > 0) ranks.push_back({r, one[1], one[2], one[3]});
  if (ranks.empty()) return;
  const auto [least, most] = std::ranges::minmax_element(ranks, {}, &Rank::own);
  const auto idlest = std::ranges::max_element(ranks, {}, &Rank::waits);
  const std::string line = fmt::format(
      "ranks     own work {:.3g} to {:.3g} ms a step, most on rank {} ({}); longest waits for others {:.3g} ms, on "
      "rank {} ({})",
      std::max(0.0, least->own), std::max(0.0, most->own), most->rank, most->host, idlest->waits, idlest->rank,
      idlest->host);
  const bool matters = most->own > 1.25 * least->own && most->own > 10;
  matters ? console.log(line) : console.copy(line);
}

}  // namespace trireme
