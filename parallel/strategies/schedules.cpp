#include "parallel/strategies/schedules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/core/rows.h"

namespace trireme {
namespace {

using Cells = std::vector<Cell>;
constexpr ActionKind F = ActionKind::forward, B = ActionKind::backward, I = ActionKind::backward_input,
                     W = ActionKind::backward_weight;

/// All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965).
Cells gpipe(const PipelineShape& s, int) {
  Cells cells;
  for (ActionKind kind : {F, B})
    for (int k = 0; k < s.microbatches; ++k) cells.push_back({kind, 0, k});
  return cells;
}

/// One forward, one backward, once the stages behind have filled (Narayanan et al. 2021, arXiv 2104.04473, 2.2.1).
Cells one_f_one_b(const PipelineShape& s, int program) {
  Cells cells;
  const int warm_up = std::min(s.microbatches, s.programs - program - 1);
  for (int f = 0; f < warm_up; ++f) cells.push_back({F, 0, f});
  for (int f = warm_up, b = 0; b < s.microbatches; ++f, ++b) {
    if (f < s.microbatches) cells.push_back({F, 0, f});
    cells.push_back({B, 0, b});
  }
  return cells;
}

/// The same over several chunks per program (ibid., 2.2.2): `programs` micro-batches go through one chunk, then through
/// the next.
int interleaved_warm_up(const PipelineShape& s, int program) {
  return std::min(s.microbatches * s.chunks, 2 * (s.programs - program - 1) + (s.chunks - 1) * s.programs);
}
Cells interleaved(const PipelineShape& s, int program) {
  const int all = s.microbatches * s.chunks, round = s.programs * s.chunks, warm_up = interleaved_warm_up(s, program);
  auto cell = [&](ActionKind kind, int i) {
    const int chunk = i % round / s.programs;
    return Cell{kind, kind == F ? chunk : s.chunks - 1 - chunk, i / round * s.programs + i % s.programs};
  };
  Cells cells;
  for (int f = 0; f < warm_up; ++f) cells.push_back(cell(F, f));
  for (int f = warm_up, b = 0; b < all; ++f, ++b) {
    if (f < all) cells.push_back(cell(F, f));
    cells.push_back(cell(B, b));
  }
  return cells;
}

/// 1F1B whose backwards by weights wait for what would be a bubble (Qi et al. 2024, arXiv 2401.10241, ZB-H1): program r
/// holds r of them back, so that no more micro-batches are alive than under 1F1B's first program.
Cells zb_h1(const PipelineShape& s, int program) {
  Cells cells;
  const int warm_up = std::min(s.microbatches, s.programs - program - 1);
  int f = 0, i = 0, w = 0;
  while (f < warm_up) cells.push_back({F, 0, f++});
  while (i < s.microbatches) {
    if (f < s.microbatches) cells.push_back({F, 0, f++});
    cells.push_back({I, 0, i++});
    if (i - w > program) cells.push_back({W, 0, w++});
  }
  while (w < s.microbatches) cells.push_back({W, 0, w++});
  return cells;
}

}  // namespace

const std::vector<PipelineSchedule>& schedules() {
  static const std::vector<PipelineSchedule> table = {
      {"gpipe", gpipe, [](const PipelineShape& s, int) { return s.microbatches; }},
      {"1f1b", one_f_one_b,
       [](const PipelineShape& s, int program) { return std::min(s.microbatches, s.programs - program); }},
      {"interleaved", interleaved,
       [](const PipelineShape& s, int program) {
         return std::min(s.microbatches * s.chunks, interleaved_warm_up(s, program) + 1);
       },
       true},
      {"zb-h1", zb_h1, [](const PipelineShape& s, int) { return std::min(s.microbatches, s.programs); }},
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

const PipelineSchedule& find_schedule(const std::string& name, const PipelineShape& s) {
  const PipelineSchedule& row = find_row(schedules(), name, "pipeline", "schedule: ");
  check_shape(row, s);
  return row;
}

}  // namespace trireme
