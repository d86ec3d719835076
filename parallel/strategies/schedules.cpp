#include "parallel/strategies/schedules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/core/rows.h"

namespace trireme {
namespace {

/// What tells the schedules from each other; all run forwards ahead, then a backward behind each forward.
struct Rule {
  int (*ahead)(const PipelineShape&, int program);  // forwards; at most all
  bool halves = false;  // a backward's half by the weights waits until `program` of them do, and fills a bubble
};
// All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965).
constexpr Rule gpipe{[](const PipelineShape& s, int) { return s.microbatches; }};
// Once the stages behind have filled (Narayanan et al. 2021, arXiv 2104.04473, 2.2.1).
constexpr Rule one_f_one_b{[](const PipelineShape& s, int program) { return s.programs - program - 1; }};
// The same over several chunks (ibid., 2.2.2): `programs` micro-batches go through one, then through the next.
constexpr Rule interleaved{
    [](const PipelineShape& s, int program) { return 2 * (s.programs - program - 1) + (s.chunks - 1) * s.programs; }};
// 1F1B that fills bubbles (Qi et al. 2024, arXiv 2401.10241, ZB-H1): program r holds r halves back, so that no more
// micro-batches are alive than under 1F1B's first program.
constexpr Rule zb_h1{one_f_one_b.ahead, true};

template <const Rule& rule>
std::vector<Cell> cells(const PipelineShape& s, int program) {
  const int all = s.microbatches * s.chunks, round = s.programs * s.chunks;
  std::vector<Cell> cells;
  const auto run = [&](ActionKind kind, int& next, int end) {
    for (; next < std::min(end, all); ++next) {
      const int chunk = next % round / s.programs;
      cells.push_back({kind, kind == ActionKind::forward ? chunk : s.chunks - 1 - chunk,
                       next / round * s.programs + next % s.programs});
    }
  };
  int f = 0, b = 0, w = 0;
  run(ActionKind::forward, f, rule.ahead(s, program));
  while (b < all) {
    run(ActionKind::forward, f, f + 1);
    run(rule.halves ? ActionKind::backward_input : ActionKind::backward, b, b + 1);
    if (rule.halves) run(ActionKind::backward_weight, w, b < all ? b - program : all);
  }
  return cells;
}

template <const Rule& rule>
int in_flight(const PipelineShape& s, int program) {
  return std::min(s.microbatches * s.chunks, rule.ahead(s, program) + 1 + (rule.halves ? program : 0));
}

}  // namespace

const std::vector<PipelineSchedule>& schedules() {
  static const std::vector<PipelineSchedule> table = {
      {"gpipe", cells<gpipe>, in_flight<gpipe>},
      {"1f1b", cells<one_f_one_b>, in_flight<one_f_one_b>},
      {"interleaved", cells<interleaved>, in_flight<interleaved>, true},
      {"zb-h1", cells<zb_h1>, in_flight<zb_h1>},
  };
  return table;
}

void check_shape(const PipelineSchedule& schedule, const PipelineShape& s) {
  check(schedule.interleaves || s.chunks == 1, "pipeline", "{} chunks per rank want schedule=interleaved, not {}",
        s.chunks, schedule.name);
  check(!schedule.interleaves || s.chunks > 1, "pipeline", "schedule={} wants at least 2 chunks per rank: add chunks=2",
        schedule.name);
  check(!schedule.interleaves || s.microbatches % s.programs == 0, "pipeline",
        "schedule={} wants micro-batches that divide by the {} stages, not {}: use micro={}", schedule.name, s.programs,
        s.microbatches, (s.microbatches + s.programs - 1) / s.programs * s.programs);
}

const PipelineSchedule& find_schedule(const std::string& name) {
  return find_row(schedules(), name, "pipeline", "schedule: ");
}

}  // namespace trireme
