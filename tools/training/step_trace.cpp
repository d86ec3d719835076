#include "tools/training/step_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/options.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/world/clock_offsets.h"
#include "parallel/comm/world/compare.h"
#include "parallel/model/dry_run.h"
#include "parallel/profile/ceilings.h"

namespace trireme {

using Event = FlightRecorder::Event;

StepTrace::StepTrace(const std::string& steps) {
  if (steps.empty()) return;
  const char* const end = steps.data() + steps.size();
  auto at = std::from_chars(steps.data(), end, first_);
  last_ = first_;
  if (at.ec == std::errc() && at.ptr != end && *at.ptr == '-') at = std::from_chars(at.ptr + 1, end, last_);
  if (at.ec != std::errc() || at.ptr != end || first_ < 1 || last_ < first_ || last_ - first_ >= 10000)
    throw OptionError(fmt::format("run.profile is '{}', expected at most 10000 steps, for example 100-110", steps));
}

StepTrace::~StepTrace() {
  if (FlightRecorder* r = FlightRecorder::current()) r->trace(nullptr);
}

void StepTrace::begin(std::int64_t next) {
  on_ = last_ > 0 && next >= first_ && next <= last_;
  if (!on_) return;
  if (!kernels_) {
    kernels_.emplace([this](const LaunchWatch::Call& call) {
      const std::int64_t now = FlightRecorder::nanoseconds();
      operations_ += operations_of(call);
      mine_.events.push_back({Event::kernel, call.op, now - static_cast<std::int64_t>(call.seconds * 1e9), now});
    });
    if (FlightRecorder* r = FlightRecorder::current()) r->trace(&mine_.events);
  }
  mine_.events.push_back({Event::step, fmt::format("step {}", next), FlightRecorder::nanoseconds()});
}

void StepTrace::end() {
  if (!on_) return;
  const std::int64_t now = FlightRecorder::nanoseconds();
  const auto step = std::ranges::find_if(mine_.events.rbegin(), mine_.events.rend(),
                                         [](const Event& e) { return e.kind == Event::step; });
  step->end = now;
  mine_.memory.emplace_back(static_cast<double>(now), static_cast<double>(resident_bytes()) / 1e6);
  if (step->name != fmt::format("step {}", last_)) return;
  on_ = false;
  kernels_.reset();
  if (FlightRecorder* r = FlightRecorder::current()) r->trace(nullptr);
}

StepTrace::Section::Section(StepTrace& trace, Event::Kind kind, const char* name) : trace_(trace) {
  if (!trace_.on_) return;
  trace_.mine_.events.push_back({kind, name, FlightRecorder::nanoseconds()});
  at_ = trace_.mine_.events.size();
}
StepTrace::Section::~Section() {
  if (at_ > 0) trace_.mine_.events[at_ - 1].end = FlightRecorder::nanoseconds();
}

void StepTrace::wrote(double begin, double end) {
  if (last_ > 0) written_.emplace_back(begin * 1e9, end * 1e9);
}

void StepTrace::finish(Mesh& mesh, Device device, DType dtype, const std::string& directory, Console& console) {
  told_ = true;
  kernels_.reset();
  if (FlightRecorder* r = FlightRecorder::current()) r->trace(nullptr);
  World& world = mesh.world();
  const std::vector<double> ahead =
      clocks_ahead(world, [] { return static_cast<double>(FlightRecorder::nanoseconds()) / 1e9; });
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  Json events = Json::array();
  for (const Event& e : mine_.events)
    if (e.end > 0) events.push_back({static_cast<int>(e.kind), e.name, e.begin, e.end});
  const std::int64_t first = mine_.events.empty() ? 0 : mine_.events.front().begin;
  std::erase_if(written_, [&](const auto& w) { return mine_.events.empty() || w.second < static_cast<double>(first); });
  const Json own{{"host", host.data()}, {"events", events}, {"memory", mine_.memory}, {"checkpoints", written_}};
  const auto texts = gather_texts(world.comm(), json_text(own, NotUtf8::replaced));
  mine_ = {};
  const Tensor sums = Tensor::from({operations_, operations_ > 0 ? measure_ceilings(device, dtype).operations : 0});
  world.comm().all_reduce(sums).wait();
  if (!world.main()) return;
  std::vector<RankTrace> ranks;
  int steps = 0;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const Json all = parse_json(texts[r]);
    const double back = ahead[r] * 1e9;
    RankTrace& rank = ranks.emplace_back();
    rank.host = all["host"];
    for (const Json& e : all["events"]) {
      const auto shift = static_cast<std::int64_t>(back);
      rank.events.push_back({static_cast<Event::Kind>(e[0].get<int>()), e[1], e[2].get<std::int64_t>() - shift,
                             e[3].get<std::int64_t>() - shift});
      steps += r == 0 && rank.events.back().kind == Event::step;
    }
    for (const Json& m : all["memory"]) rank.memory.emplace_back(m[0].get<double>() - back, m[1].get<double>());
    for (const Json& w : all["checkpoints"])
      rank.checkpoints.emplace_back(w[0].get<double>() - back, w[1].get<double>() - back);
  }
  if (steps == 0) return console.log(fmt::format("profile   the run had no step from {} to {}", first_, last_));
  const auto shares = time_shares(ranks, mesh.axes());
  const std::string table = time_table(shares, steps);
  replace_file(directory + "/trace.json", trace_text(ranks, mesh.axes()));
  replace_file(directory + "/profile.txt", table);
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t end = table.find('\n', begin);
    console.log(table.substr(begin, end - begin));
    begin = end + 1;
  }
  double seconds = 0;
  for (const TimeShare& share : shares) seconds += share.mean / 1e3 * steps;
  if (const auto total = sums.to_vector(); total[0] > 0 && seconds > 0)
    console.log(fmt::format("products and convolutions: {:.3g} GFLOP/s on all ranks, {:.1f} % of {:.3g} at best",
                            total[0] / seconds / 1e9, 100 * total[0] / seconds / total[1], total[1] / 1e9));
  console.log(fmt::format("trace     {}/trace.json, for ui.perfetto.dev", directory));
}

}  // namespace trireme
