#include "parallel/strategies/schedules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/core/rows.h"

namespace trireme {
namespace {

/// Parameters of a schedule. All schedules run forwards ahead, then alternate one backward and one forward.
struct Rule {
  int (*ahead)(const PipelineShape&, int program);  // number of forwards that run ahead; at most all
  bool halves = false;  // delays the weight half of a backward, until `program` of them wait, to fill bubbles
};
// All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965).
constexpr Rule gpipe{[](const PipelineShape& s, int) { return s.microbatches; }};
// Forwards until the later stages are filled (Narayanan et al. 2021, arXiv 2104.04473, 2.2.1).
constexpr Rule one_f_one_b{[](const PipelineShape& s, int program) { return s.programs - program - 1; }};
// 1F1B over several chunks (ibid., 2.2.2): `programs` micro-batches go through one chunk, then through the next.
constexpr Rule interleaved{
    [](const PipelineShape& s, int program) { return 2 * (s.programs - program - 1) + (s.chunks - 1) * s.programs; }};
// 1F1B that fills bubbles (Qi et al. 2024, arXiv 2401.10241, ZB-H1): program r delays r halves, so that no more
// micro-batches are alive than in 1F1B's first program.
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

// A schedule with a delay runs 1F1B without an end: a forward of this step, then the backward of the micro-batch that
// entered as many forwards ago as there are later stages. At the beginning of a step this micro-batch belongs to an
// earlier step. A version is counted from the newest at that place of the list.

// Every micro-batch is a step (Harlap et al., arXiv 1806.03377). Forward reads the newest weights. Backward reads the
// same weights, which updates of micro-batches in flight have replaced by then.
std::vector<Cell> pipedream(const PipelineShape& s, int program) {
  const int behind = s.programs - program - 1;
  const MicroBatch oldest{0, behind};
  return {{ActionKind::forward}, {ActionKind::backward, 0, oldest, behind}, {ActionKind::update, 0, oldest}};
}
// All micro-batches of a step read the weights before the last step's update (Narayanan et al., arXiv 2006.09503).
std::vector<Cell> two_buffers(const PipelineShape& s, int program) {
  const int behind = s.programs - program - 1;
  std::vector<Cell> cells;
  for (int k = 0; k < s.microbatches; ++k) {
    cells.push_back({ActionKind::forward, 0, k, k < behind ? 0 : 1});
    cells.push_back({ActionKind::backward, 0, MicroBatch::at(k - behind, s.microbatches), 1});
    if (k + 1 == (behind > 0 ? behind : s.microbatches))
      cells.push_back({ActionKind::update, 0, MicroBatch::at(behind > 0 ? -1 : 0, s.microbatches)});
  }
  return cells;
}

template <const Rule& rule>
int in_flight(const PipelineShape& s, int program) {
  return std::min(s.microbatches * s.chunks, rule.ahead(s, program) + 1 + (rule.halves ? program : 0));
}

int alive(const PipelineShape& s, int program) { return s.programs - program; }

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

const std::vector<PipelineSchedule>& asynchronous_schedules() {
  static const std::vector<PipelineSchedule> table = {
      {"pipedream", pipedream, alive, false, [](const PipelineShape& s) { return s.programs - 1; }, true},
      {"2bw", two_buffers, alive, false, [](const PipelineShape&) { return 1; }},
  };
  return table;
}

void check_shape(const PipelineSchedule& schedule, const PipelineShape& s) {
  check(!schedule.one_by_one || s.microbatches == 1, "pipeline",
        "schedule={} updates after each micro-batch, but micro is {}: use micro=1 and a smaller batch", schedule.name,
        s.microbatches);
  check(!schedule.delay || schedule.one_by_one || s.microbatches >= s.programs, "pipeline",
        "schedule={} with {} stages needs at least that many micro-batches, but micro is {}: use micro={}",
        schedule.name, s.programs, s.microbatches, s.programs);
  check(schedule.interleaves || s.chunks == 1, "pipeline",
        "chunks={} needs schedule=interleaved, but schedule is {}: leave chunks out, or use schedule=interleaved",
        s.chunks, schedule.name);
  check(!schedule.interleaves || s.chunks > 1, "pipeline",
        "schedule={} needs at least 2 chunks per rank, but chunks is {}: add chunks=2", schedule.name, s.chunks);
  check(!schedule.interleaves || s.microbatches % s.programs == 0, "pipeline",
        "schedule={} needs a multiple of the {} stages as micro-batches, but micro is {}: use micro={}", schedule.name,
        s.programs, s.microbatches, (s.microbatches + s.programs - 1) / s.programs * s.programs);
}

const PipelineSchedule& find_schedule(const std::string& name) {
  static const std::vector<PipelineSchedule> all = [] {
    std::vector<PipelineSchedule> rows = schedules();
    rows.insert(rows.end(), asynchronous_schedules().begin(), asynchronous_schedules().end());
    return rows;
  }();
  return find_row(all, name, "pipeline", "schedule: ");
}

}  // namespace trireme
