#include "tools/report/study_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel/analysis/chart.h"
#include "tools/report/page.h"
#include "tools/report/rules.h"
#include "tools/report/study_charts.h"

namespace trireme {
namespace {

using Row = std::vector<std::string>;

std::string note(const std::string& html, const char* more = "") {
  return fmt::format("<p class=\"note{}\">{}</p>\n", more, html);
}
std::string digits(double v, int after, const char* unit = "") {
  return std::isnan(v) ? "–" : std::isinf(v) ? "never" : fmt::format("{:.{}f}{}", v, after, unit);
}
/// "3.30 [3.16, 4.05]"; for a single run without the interval.
std::string with_interval(const Median& m, int after, int runs) {
  if (std::isnan(m.value)) return "–";
  if (runs < 2 || std::isinf(m.value)) return digits(m.value, after);
  return fmt::format("{} [{}, {}]", digits(m.value, after), digits(m.interval.low, after),
                     digits(m.interval.high, after));
}
/// A speed-up with its interval. An infinite end is unbounded.
std::string speedup(const CellData& c, const Median& m) {
  if (!c.withheld.empty()) return "<span class=\"bad\">not shown</span>";
  if (std::isnan(m.value)) return "–";
  if (m.interval.low == 1 && m.interval.high == 1) return "1 (base)";
  if (c.result.finished < 2) return digits(m.value, 2);
  return fmt::format("{:.2f} [{}, {}]", m.value, digits(m.interval.low, 2),
                     std::isinf(m.interval.high) ? "∞" : digits(m.interval.high, 2));
}
std::string runs_text(const StudyData& study, const CellData& c) {
  const int asked = study.result.question.options.seeds;
  std::string text = c.result.finished == 0                     ? "none"
                     : c.result.finished == 1                   ? "single run"
                     : c.result.finished == asked && asked >= 5 ? fmt::format("{}", asked)
                                                                : fmt::format("{} runs", c.result.finished);
  if (c.result.finished < asked) text += fmt::format(" of {}", asked);
  if (c.result.after_failure > 0) text += fmt::format(", {} after a failure", c.result.after_failure);
  if (c.result.failed > 0) text += fmt::format(", <span class=\"bad\">{} failed</span>", c.result.failed);
  return text;
}
Row begin_of(const StudyData& study, const CellData& c) {
  return {html_text(name_of(c.cell())),
          c.cell().is_serial() ? "both"
          : c.result.weak      ? "weak"
                               : "strong",
          ranks_text(study, c.cell().ranks), fmt::format("{} / {}", c.batch, c.local_batch), runs_text(study, c)};
}
bool stands_once(const CellData& c) { return c.result.weak == (c.cell().scaling == "weak"); }

std::string fact(const std::string& what, const char* name) {
  return fmt::format("<div class=\"fact\"><b>{}</b><span>{}</span></div>\n", html_text(what), name);
}

std::string headline(const StudyData& study) {
  const StudyOptions& o = study.result.question.options;
  const LedgerTotals& t = study.result.totals;
  std::string text;
  if (study.has_target()) {
    const CellData* best = nullptr;
    for (const CellData& c : study.cells)
      if (std::isfinite(c.time.value) && (!best || c.time.value < best->time.value)) best = &c;
    text += fact(best ? fmt::format("{} by {} on {} rank{}", seconds_text(best->time.value), name_of(best->cell()),
                                    best->cell().ranks, best->cell().ranks == 1 ? "" : "s")
                      : "never",
                 "best median time to target");
    if (study.serial_by_time)
      text += fact(seconds_text(study.cells[*study.serial_by_time].time.value), "best serial run, time to target");
    text += fact(fmt::format("{:g} %", o.target), "target, held-out accuracy");
  } else {
    text += fact("no target", "time to accuracy was not asked for");
  }
  int least = o.seeds, most = 0;
  for (const CellData& c : study.cells) {
    least = std::min(least, c.result.finished);
    most = std::max(most, c.result.finished);
  }
  const std::string runs = most == 1       ? "single run"
                           : least == most ? std::to_string(least)
                                           : fmt::format("{} to {}", least, most);
  text += fact(runs, least < 5 ? "finished runs of a cell, fewer than five" : "finished runs of a cell");
  text += fact(study.facts && !study.facts->input.empty() ? study.facts->input : "not known", "input of a sample");
  text += fact(study.setting("data.batch"),
               o.weak && !o.strong ? "batch per rank" : "batch of all ranks (strong), per rank (weak)");
  std::set<std::string> devices;
  for (const CellData& c : study.cells)
    for (const RunData& run : c.runs)
      devices.insert(told(run.environment, "processors") + ", " + told(run.environment, "device"));
  text += fact(devices.empty() ? "not known" : *devices.begin() + (devices.size() > 1 ? " and others" : ""), "device");
  text += fact(fmt::format("{} tried, {} failed, {:.2f} h", t.started, t.failed, t.device_seconds / 3600),
               "runs, all that were started, and their device-hours");
  return fmt::format("<div class=\"facts\">\n{}</div>\n", text);
}

std::string time_section(const StudyData& study) {
  std::vector<Row> rows;
  if (study.has_target())
    rows.push_back({"strategy", "scaling", "ranks", "batch, all / a rank", "runs",
                    "seconds to target, median [interval]", "reached it", "olympic mean",
                    "accuracy at the end, %, median [interval]", "speed-up of the time over the best serial run",
                    "over the best single-device run"});
  else
    rows.push_back({"strategy", "scaling", "ranks", "batch, all / a rank", "runs", "ms per step, median [interval]",
                    "accuracy at the end, %, median [interval]", "speed-up of samples/s over the best serial run",
                    "over the best single-device run"});
  for (const CellData& c : study.cells) {
    if (!stands_once(c)) continue;
    Row row = begin_of(study, c);
    const int runs = c.result.finished + c.result.failed;
    const Median ms{1e3 * c.step.value,
                    {1e3 * c.step.interval.low, 1e3 * c.step.interval.high, c.step.interval.coverage}};
    if (study.has_target()) {
      row.push_back(with_interval(c.time, c.time.value < 1 ? 3 : 2, runs));
      row.push_back(fmt::format("{} of {}", c.result.reached, runs));
      row.push_back(digits(c.olympic_time, c.olympic_time < 1 ? 3 : 2));
    } else {
      row.push_back(with_interval(ms, 2, runs));
    }
    row.push_back(with_interval(c.accuracy, 2, c.result.finished));
    row.push_back(speedup(c, study.has_target() ? c.time_speedup : c.step_speedup));
    row.push_back(speedup(c, c.device_speedup));
    rows.push_back(std::move(row));
  }
  std::string text = study.has_target() ? "<h2>Time to accuracy</h2>\n" + time_picture(study)
                                        : "<h2>No target: speed next to accuracy</h2>\n";
  text += card(html_table(rows) + note("The clock starts with the process, before data is opened, and stops at the "
                                       "evaluation that first reaches the target; "
                                       "evaluations, checkpoints and earlier attempts of a run are counted. Runs that "
                                       "failed are counted as never. The "
                                       "interval is that of the median by order statistics, 95 % from six runs on; of "
                                       "five it spans all of them (93.8 %)."));
  return text;
}

std::string withheld_cards(const StudyData& study, bool weak) {
  std::set<std::string> said;
  std::string text;
  for (const CellData& c : study.cells)
    if (c.result.weak == weak && !c.withheld.empty() && c.has_finished() && said.insert(c.withheld).second)
      text += card(
          fmt::format(
              "<b>Speed-ups are left out</b>: {}. A speed-up is shown only with the accuracy at every number of ranks.",
              html_text(c.withheld)),
          " warn");
  return text;
}

std::string scaling_section(const StudyData& study, bool weak) {
  const StudyOptions& o = study.result.question.options;
  const std::string head = weak ? "<h2>Weak scaling: the batch per rank is fixed</h2>\n"
                                : "<h2>Strong scaling: the batch of all ranks is fixed</h2>\n";
  if (weak ? !o.weak : !o.strong)
    return head +
           card(fmt::format("<b>{} scaling is missing.</b> The study did not ask for it.", weak ? "Weak" : "Strong"),
                " warn");
  std::vector<Row> rows{{"strategy", "scaling", "ranks", "batch, all / a rank", "runs",
                         "ms per step, median [interval]", "samples/s", "speed-up over the best serial run",
                         "efficiency, %", "accuracy at the end, %", "waiting for data, %",
                         "GFLOP/s, " + html_text(study.setting("dtype"))}};
  for (const CellData& c : study.cells) {
    if (c.result.weak != weak) continue;
    const Median ms{1e3 * c.step.value, {1e3 * c.step.interval.low, 1e3 * c.step.interval.high, 0}};
    const double rate = static_cast<double>(c.batch) / c.step.value;
    Row row = begin_of(study, c);
    row.insert(
        row.end(),
        {with_interval(ms, 2, c.result.finished), digits(rate, 0), speedup(c, c.step_speedup),
         c.withheld.empty() ? digits(100 * c.step_speedup.value / c.cell().ranks, 0) : "–",
         with_interval(c.accuracy, 2, c.result.finished), digits(100 * c.wait_share, 1),
         study.facts && study.facts->forward_flops > 0 ? digits(3e-9 * study.facts->forward_flops * rate, 2) : "–"});
    rows.push_back(std::move(row));
  }
  std::string shares;
  for (const Family& f : study.families)
    if (f.weak == weak && std::isfinite(f.serial_share.value))
      shares +=
          fmt::format("{}{}: {:.0f} %", shares.empty() ? "" : ", ", html_text(f.name), 100 * f.serial_share.value);
  std::string why =
      "A step is whole: data, both passes, communication, update. Operations: two per multiplication and addition of "
      "convolutions and products, one per "
      "result of others, times three for training.";
  if (study.serial_by_speed && study.cells[*study.serial_by_speed].cell().name == "serial-all_cores")
    why += fmt::format(
        " The best serial run has the threads of all cores, a rank of the others {}: the ideal line and the efficiency "
        "count ranks, not cores, and the cores limit the speed-up, whatever the strategy.",
        html_text(study.setting("parallel.threads")));
  if (!shares.empty())
    why += fmt::format(" Serial share by {}, fitted to the measured medians: {}.",
                       weak ? "Gustafson's law" : "Amdahl's law", shares);
  return head + withheld_cards(study, weak) + scaling_pictures(study, weak) + card(html_table(rows) + note(why));
}

std::string accuracy_section(const StudyData& study) {
  std::vector<Row> rows{{"strategy", "scaling", "ranks", "batch, all / a rank", "runs", "last, %, median [interval]",
                         "best, %, median", "epochs to target, median [interval]"}};
  std::vector<const CellData*> by_batch;
  for (const CellData& c : study.cells)
    if (stands_once(c)) by_batch.push_back(&c);
  std::ranges::stable_sort(by_batch, {}, [](const CellData* c) { return c->batch; });
  for (const CellData* c : by_batch) {
    Row row = begin_of(study, *c);
    row.insert(row.end(),
               {with_interval(c->accuracy, 2, c->result.finished), digits(c->best.value, 2),
                study.has_target() ? with_interval(c->epochs, 1, c->result.finished + c->result.failed) : "no target"});
    rows.push_back(std::move(row));
  }
  return "<h2>Accuracy, and epochs to the target at each batch</h2>\n" +
         cards(accuracy_pictures(study) + batch_picture(study)) + card(html_table(rows));
}

std::string ledger_section(const StudyData& study) {
  const LedgerTotals& t = study.result.totals;
  std::string text = fmt::format(
      "<p>{} runs were started, {} finished, {} failed, {} were interrupted; {:.2f} device-hours in all.</p>\n",
      t.started, t.finished, t.failed, t.interrupted, t.device_seconds / 3600);
  if (!study.result.ledger_head.empty())
    text += note(fmt::format("Last hash of the ledger: <code>{}</code>", html_text(study.result.ledger_head)));
  std::vector<Row> rows{{"run", "how it ended", "why"}};
  for (const LedgerEntry& e : study.ledger)
    if (e.status == "failed" || e.status == "interrupted")
      rows.push_back({html_text(e.run), html_text(e.status), html_text(e.why)});
  for (const LedgerEntry& e : open_runs(study.ledger))
    rows.push_back({html_text(e.run), "no end recorded", "it is running, or was killed with the study"});
  if (rows.size() > 1) text += html_table(rows);
  std::string faults;
  for (const std::string& fault : study.result.faults) faults += html_text(fault) + "\n";
  return "<h2>All runs</h2>\n" +
         (faults.empty() ? "" : card("<b>What does not hold</b><pre>" + faults + "</pre>", " warn")) + card(text);
}

std::string machine_section(const StudyData& study) {
  std::vector<Row> rows{{"property of the runs", "value"}};
  for (const char* key : {"hosts", "processors", "device", "library", "MPI", "transport", "version"}) {
    std::set<std::string> all;
    for (const CellData& c : study.cells)
      for (const RunData& run : c.runs) all.insert(told(run.environment, key));
    std::string text;
    for (const std::string& each : all) text += (text.empty() ? "" : "; ") + each;
    if (!all.empty())
      rows.push_back({key, html_text(text) + (all.size() > 1 && key != std::string_view("transport")
                                                  ? " <span class=\"bad\">(they differ)</span>"
                                                  : "")});
  }
  if (study.facts)
    rows.push_back({"data", fmt::format("{} training and {} test samples of {}", study.facts->train_samples,
                                        study.facts->test_samples, html_text(study.facts->input))});
  if (study.facts && study.facts->parameters > 0)
    rows.push_back({"parameters of the model", std::to_string(study.facts->parameters)});
  for (const char* key : {"model", "epochs", "dtype", "data.name", "data.limit", "data.image_size", "data.augment",
                          "optim.name", "optim.lr", "optim.schedule", "parallel.threads"})
    rows.push_back({fmt::format("<code>{}</code>", key), html_text(study.setting(key))});
  std::vector<Row> hashes{{"cell", "configuration hash, of speed and accuracy"}};
  for (const CellData& c : study.cells)
    if (stands_once(c))
      hashes.push_back({html_text(c.cell().name), fmt::format("<code>{:.16}</code>", html_text(c.cell().config_hash))});
  return "<h2>Machine and configuration</h2>\n" + cards(card(html_table(rows)) + card(html_table(hashes)));
}

std::string rules_section(const StudyData& study) {
  std::vector<Row> rows{{"", "way to fool the masses", "what this page does against it", "this study"}};
  int number = 0;
  for (const Rule& r : rules_of(study)) {
    std::string state = r.broken.empty() ? "<b class=\"ok\">kept.</b>"
                                         : fmt::format("<b class=\"bad\">cannot be kept</b>: {}.", html_text(r.broken));
    if (!r.told.empty()) state += " " + html_text(r.told);
    rows.push_back({std::to_string(++number), html_text(r.way), html_text(r.measure), state});
  }
  return "<h2>Twelve ways to fool the masses, and what is done against each</h2>\n" +
         card(html_table(rows) + note("The ways are those of T. Hoefler, Twelve ways to fool the masses when reporting "
                                      "performance of deep learning workloads, 2018."));
}

}  // namespace

std::string study_page(const StudyData& study) {
  std::string limits;
  for (const std::string& limit : limits_of(study)) limits += "<li>" + html_text(limit) + "</li>\n";
  std::string body =
      fmt::format("<p class=\"sub\">{}: {} epochs{}, {} seed{} from {}, study of {}</p>\n", html_text(study.path),
                  html_text(study.setting("epochs")), html_text(study.reduction()), study.result.question.options.seeds,
                  study.result.question.options.seeds == 1 ? "" : "s", study.result.question.first_seed,
                  study.ledger.empty() ? "no run yet" : html_text(study.ledger.front().time.substr(0, 10)));
  if (study.is_synthetic())
    body += "<p class=\"stamp\">SYNTHETIC DATA: neither accuracy nor the time to it has a meaning.</p>\n";
  if (!study.result.faults.empty())
    body +=
        card(fmt::format("<b>{} check{} of this directory do{} not hold</b>; see All runs.", study.result.faults.size(),
                         study.result.faults.size() == 1 ? "" : "s", study.result.faults.size() == 1 ? "es" : ""),
             " warn");
  body += headline(study) + time_section(study) + scaling_section(study, false) + scaling_section(study, true) +
          accuracy_section(study) + ledger_section(study) + machine_section(study) + "<h2>Limits</h2>\n" +
          card("<ul>" + limits + "</ul>") + rules_section(study);
  return html_page(fmt::format("{} on {}: scaling study", study.setting("model"), study.setting("data.name")), body);
}

}  // namespace trireme
