#include "parallel/strategies/schedules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>

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

// A V of two chunks per program (Qi et al. 2024, arXiv 2401.10241, ZB-V). Every pass and half takes one unit of time
// for each stage. A program begins the first pass that can begin: forward of the chunk nearer to the loss, backward,
// forward of the other chunk while fewer than 2 * programs are alive, a delayed weight half. With at least 2 * programs
// micro-batches it waits about programs - 1 units in all, else up to twice as long. As many activations are alive as in
// 1F1B's first program.
class Fold {
 public:
  explicit Fold(const PipelineShape& s)
      : shape(s), cells(s.programs), p_(s.programs), m_(s.microbatches), programs_(s.programs) {
    const std::size_t passes = (2 * p_ - 1) * m_;
    forward_.assign(passes, never);
    backward_.assign(passes, never);
    for (int left = 3 * static_cast<int>(passes); left > 0; ++now_)
      for (int r = 0; r < p_; ++r)
        if (programs_[r].free <= now_) left -= begin(r);
  }

  PipelineShape shape;
  std::vector<std::vector<Cell>> cells;  // by program

 private:
  static constexpr int never = std::numeric_limits<int>::max();
  struct State {
    int free = 0, alive = 0;  // the time at which the program has nothing to do; activations of chunks
    int forwards[2] = {}, backwards[2] = {};
    std::deque<Cell> halves = {};
  };

  /// Starts a cell of a program if one can begin.
  bool begin(int r) {
    State& mine = programs_[r];
    const bool turns = r + 1 == p_;
    const int last = turns ? 0 : 1, most = turns ? p_ : 2 * p_;
    const auto run = [&](ActionKind kind, int chunk, int microbatch) {
      cells[r].push_back({kind, chunk, microbatch});
      return mine.free = now_ + (turns ? 2 : 1);
    };
    const auto forward = [&](int chunk) {
      const int k = mine.forwards[chunk], s = stage(r, chunk);
      if (k == m_ || mine.alive == most || (s > 0 && forward_[(s - 1) * m_ + k] > now_)) return false;
      forward_[s * m_ + k] = run(ActionKind::forward, chunk, k);
      ++mine.forwards[chunk];
      ++mine.alive;
      return true;
    };
    const auto backward = [&](int chunk) {
      const int k = mine.backwards[chunk], s = stage(r, chunk);
      if (k == m_ || forward_[s * m_ + k] > now_) return false;
      if (s + 2 < 2 * p_ && backward_[(s + 1) * m_ + k] > now_) return false;
      backward_[s * m_ + k] = run(ActionKind::backward_input, chunk, k);
      ++mine.backwards[chunk];
      mine.halves.push_back({ActionKind::backward_weight, chunk, k});
      return true;
    };
    if (forward(last) || backward(last) || (last > 0 && (backward(0) || forward(0)))) return true;
    if (mine.halves.empty()) return false;
    run(ActionKind::backward_weight, mine.halves.front().chunk, mine.halves.front().microbatch.index);
    mine.halves.pop_front();
    --mine.alive;
    return true;
  }
  int stage(int r, int chunk) const { return chunk == 0 ? r : 2 * p_ - 2 - r; }  // the last program's two count as one

  const int p_, m_;
  int now_ = 0;
  std::vector<State> programs_;
  std::vector<int> forward_, backward_;  // when a pass ends, by stage and micro-batch
};
std::vector<Cell> zb_v(const PipelineShape& s, int program) {
  thread_local std::unique_ptr<Fold> fold;  // kept until the last program is asked for
  if (!fold || fold->shape != s) fold = std::make_unique<Fold>(s);
  std::vector<Cell> cells = fold->cells[program];
  if (program + 1 == s.programs) fold = nullptr;
  return cells;
}

// The same V in DualPipeV's order (DeepSeek-V3, arXiv 2412.19437, and its "cut-in-half" form of 2025,
// github.com/deepseek-ai/DualPipe): between its ramps a program alternates a forward of one chunk and a backward of the
// other, of different micro-batches. With at least 2 * programs micro-batches and equal passes it waits programs - 1
// units, or one more if programs is odd.
std::vector<Cell> dual_pipe_v(const PipelineShape& s, int program) {
  const int later = s.programs - 1 - program, earlier = program + 1;
  std::vector<Cell> cells;
  std::deque<Cell> halves;
  int forwards[2] = {}, backwards[2] = {};
  const auto forward = [&](int chunk) {
    if (forwards[chunk] == s.microbatches) return;
    const int k = forwards[chunk]++;
    if (later > 0 || chunk == 0) cells.push_back({ActionKind::forward, chunk, k});
  };
  const auto weight = [&] {
    if (halves.empty()) return;
    cells.push_back(halves.front());
    halves.pop_front();
  };
  const auto backward = [&](int chunk, bool delays = false) {
    if (backwards[chunk] == s.microbatches) return;
    const int k = backwards[chunk]++;
    if (later == 0 && chunk == 0) return;  // the last program's two chunks are one
    cells.push_back({ActionKind::backward_input, later == 0 ? 0 : chunk, k});
    halves.push_back({ActionKind::backward_weight, later == 0 ? 0 : chunk, k});
    if (!delays) weight();
  };
  const auto repeat = [](int count, auto&& phase) {
    for (int i = 0; i < count; ++i) phase(i);
  };
  repeat(2 * later, [&](int) { forward(0); });
  repeat(earlier, [&](int) { forward(0), forward(1); });
  repeat(later, [&](int) { backward(1, true), weight(), forward(1); });
  repeat(s.microbatches - 2 * s.programs + earlier, [&](int) { forward(0), backward(1), forward(1), backward(0); });
  repeat(later, [&](int) { backward(1), forward(1), backward(0); });
  const int half = earlier / 2;
  repeat(earlier, [&](int i) { backward(1, i > half || (i == half && program % 2 == 1)), backward(0, i >= half); });
  repeat(later, [&](int) { weight(), backward(0, true); });
  while (!halves.empty()) weight();
  return cells;
}

template <auto cells_of>
int alive_in_v(const PipelineShape& s, int program) {
  return most_alive(cells_of(s, program));
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
      {.name = "zb-v", .cells = zb_v, .in_flight = alive_in_v<zb_v>, .folds = true},
      {.name = "dualpipe-v", .cells = dual_pipe_v, .in_flight = alive_in_v<dual_pipe_v>, .folds = true},
  };
  return table;
}

const std::vector<PipelineSchedule>& asynchronous_schedules() {
  static const std::vector<PipelineSchedule> table = {
      {"pipedream", pipedream, alive, false, false, [](const PipelineShape& s) { return s.programs - 1; }, true},
      {"2bw", two_buffers, alive, false, false, [](const PipelineShape&) { return 1; }},
  };
  return table;
}

int stage_of(const PipelineSchedule& schedule, const PipelineShape& s, int program, int chunk) {
  return chunk * s.programs + (schedule.folds && chunk % 2 == 1 ? s.programs - 1 - program : program);
}
int most_alive(const std::vector<Cell>& cells, int chunk) {
  int alive = 0, most = 0;
  for (const Cell& c : cells)
    if (chunk < 0 || c.chunk == chunk) {
      alive += (c.kind == ActionKind::forward) - (c.kind == ActionKind::backward_weight);
      most = std::max(most, alive);
    }
  return most;
}
int program_of(const PipelineSchedule& schedule, const PipelineShape& s, int stage) {
  const int at = stage % s.programs;
  return schedule.folds && stage >= s.programs ? s.programs - 1 - at : at;
}

void check_shape(const PipelineSchedule& schedule, const PipelineShape& s) {
  check(!schedule.one_by_one || s.microbatches == 1, "pipeline",
        "schedule={} updates after each micro-batch, but micro is {}: use micro=1 and a smaller batch", schedule.name,
        s.microbatches);
  check(!schedule.delay || schedule.one_by_one || s.microbatches >= s.programs, "pipeline",
        "schedule={} with {} stages needs at least that many micro-batches, but micro is {}: use micro={}",
        schedule.name, s.programs, s.microbatches, s.programs);
  check(!schedule.folds || s.chunks == 2, "pipeline",
        "schedule={} has 2 chunks per rank, but chunks is {}: use chunks=2", schedule.name, s.chunks);
  check(schedule.interleaves || schedule.folds || s.chunks == 1, "pipeline",
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
