// The page of a study, of studies made up at random: no speed-up without the accuracy at the same ranks, what is made
// up is stamped, few runs are named, and what does not hold (the ledger, a configuration) stands on the page.
#include "tools/report/study_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "framework/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/report/rules.h"
#include "tools/report/run_pictures.h"

namespace test_study_page {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

struct MadeUp {
  StudyOptions options;
  TrainerOptions settings;
  std::vector<PlannedCell> cells;
  std::vector<std::string> finished;  // runs
};

void spill_run(const std::string& path, const PlannedCell& cell, std::int64_t seed, double begin,
               std::mt19937_64& random) {
  fs::create_directories(path);
  TrainerOptions c = cell.settings;
  c.seed = seed;
  c.run.dir = path;
  spill(path + "/config.toml", to_toml(c));
  spill(
      path + "/environment.json",
      R"({"ranks": 1, "processors": "made <up> & more", "device": "cpu:0", "hosts": "h", "library": "l", "version": "1"})");
  std::string metrics, ml;
  std::uniform_real_distribution<double> noise(0.8, 1.2);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const double accuracy = 85 + 3 * epoch * noise(random);
    metrics += json_text(Json{{"kind", "eval"},
                              {"epoch", epoch},
                              {"step", 10 * epoch},
                              {"test_top1", accuracy},
                              {"wait_share", 0.01},
                              {"images_per_s", 1000 * noise(random)}}) +
               "\n";
    ml += ":::MLLOG " +
          json_text(Json{{"key", "eval_accuracy"},
                         {"value", accuracy / 100},
                         {"time_ms", 1000 * (begin + epoch * noise(random))},
                         {"metadata", {{"epoch_num", epoch}}}}) +
          "\n";
  }
  spill(path + "/metrics.jsonl", metrics);
  spill(path + "/mllog.txt", ml);
}

MadeUp make_up(const std::string& path, std::mt19937_64& random, bool complete = false) {
  const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  MadeUp made;
  StudyOptions& o = made.options;
  o.ranks = {1, 2};
  if (any(2) == 0) o.ranks.push_back(4);
  o.strategies = {""};
  if (complete || any(2) == 0) o.strategies.emplace_back("pipeline(micro=2)");
  if (any(2) == 0) o.strategies.emplace_back("zero(1)");
  o.seeds = complete ? 2 + any(5) : 1 + any(6);
  o.weak = complete || any(3) > 0;
  o.strong = complete || !o.weak || any(2) == 0;
  o.target = complete || any(3) > 0 ? 90 : 0;
  made.settings.data.name = !complete && any(3) == 0 ? "synthetic" : "mnist";
  made.settings.parallel.threads = any(2);
  if (any(2) == 0) made.settings.data.limit = 1 + any(1000);
  made.cells = cells_of(o, made.settings);
  spill(path + "/" + study_file, to_toml(o, made.settings, made.cells));
  LedgerWriter ledger(path);
  double now = 1.1e9;
  for (const auto& [cell, nth] : order_of(made.cells.size(), o.seeds)) {
    const PlannedCell& c = made.cells[cell];
    const std::int64_t seed = made.settings.seed + nth;
    LedgerEntry e{.time = utc_text(now), .run = run_of(c, seed), .cell = c.name};
    e.scaling = c.scaling;
    e.strategy = c.strategy;
    e.mesh = c.mesh;
    e.ranks = c.ranks;
    e.seed = seed;
    e.config_hash = c.config_hash;
    e.status = "started";
    e.why = read_study(path).asked_by();
    ledger.append(e);
    const int end = complete ? 9 : any(10);
    e.status = end == 0 ? "failed" : end == 1 ? "interrupted" : "finished";
    e.why = end == 0 ? "it \x1b[1mfell\x1b[0m & <broke>" : "";
    e.seconds = 4;
    e.device_seconds = 4.0 * c.ranks;
    e.time = utc_text(now + 4);
    ledger.append(e);
    if (e.status == "finished") {
      spill_run(path + "/" + e.run, c, seed, now, random);
      made.finished.push_back(e.run);
    }
    now += 10;
  }
  return made;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

/// What does not nest, or is no XML; "": all is well.
std::string xml_fault(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < page.size(); ++at) {
    const auto c = static_cast<unsigned char>(page[at]);
    if (c < 32 && c != '\n' && c != '\t') return fmt::format("a control character at {}", at);
    if (c == '&') {
      const std::string name = page.substr(at + 1, page.find(';', at) - at - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot") return "entity " + name;
    }
    if (c != '<' || page.compare(at, 9, "<!DOCTYPE") == 0) continue;
    const std::size_t end = page.find('>', at);
    const std::string tag = page.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find_first_of(" /", 1));
    if (count(tag, "\"") % 2 != 0 || tag.find('<') != tag.npos) return "tag " + tag;
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name)
        return fmt::format("{} closes {}", name, open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : open.back() + " is left open";
}

/// The cells of each row of each table, without tags.
std::vector<std::vector<std::vector<std::string>>> tables_of(const std::string& page) {
  std::vector<std::vector<std::vector<std::string>>> tables;
  bool inside = false;
  for (std::size_t at = 0; at < page.size(); ++at) {
    if (page.compare(at, 6, "<table") == 0) tables.emplace_back();
    if (page.compare(at, 4, "<tr>") == 0) tables.back().emplace_back();
    if (page.compare(at, 4, "<td>") == 0 || page.compare(at, 4, "<th>") == 0) {
      tables.back().back().emplace_back();
      inside = true;
    }
    if (page.compare(at, 5, "</td>") == 0 || page.compare(at, 5, "</th>") == 0) inside = false;
    if (page[at] == '<')
      at = page.find('>', at);
    else if (inside)
      tables.back().back().back() += page[at];
  }
  return tables;
}

bool has_digit(const std::string& text) { return text.find_first_of("0123456789") != text.npos; }

/// Rows with speed-ups of which accuracy is not there; and how many rows have a speed-up over the best serial run.
std::pair<int, int> speedups(const std::string& page) {
  int without = 0, with = 0;
  for (const auto& table : tables_of(page)) {
    std::vector<std::size_t> speed;
    std::size_t accuracy = 0;
    for (std::size_t i = 0; i < table[0].size(); ++i) {
      if (table[0][i].find("speed-up") != std::string::npos || table[0][i].starts_with("over the best"))
        speed.push_back(i);
      if (table[0][i].find("accuracy") != std::string::npos) accuracy = i;
    }
    if (speed.empty()) continue;
    REQUIRE(accuracy > 0);
    for (std::size_t r = 1; r < table.size(); ++r)
      for (const std::size_t i : speed) {
        without += has_digit(table[r][i]) && !has_digit(table[r][accuracy]);
        with += has_digit(table[r][i]);
      }
  }
  return {without, with};
}

std::string page_of(const std::string& path) { return study_page(read_study_data(path)); }

void remove_accuracy(const std::string& run) {
  std::string text = slurp(run + "/metrics.jsonl");
  for (std::size_t at; (at = text.find("test_top1")) != text.npos;) text.replace(at, 9, "test_gone");
  spill(run + "/metrics.jsonl", text);
}

}  // namespace

TEST_CASE("pages of made-up studies are whole, and show no speed-up without accuracy") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 12; ++i) {
    const Temporary there;
    const MadeUp made = make_up(there.path(), random);
    for (const std::string& run : made.finished)
      if (random() % 8 == 0) remove_accuracy(there / run);
    const StudyData study = read_study_data(there.path());
    const std::string page = study_page(study);
    CHECK(xml_fault(page) == "");
    CHECK(speedups(page).first == 0);
    CHECK(page.find("<script") == page.npos);
    int least = 1000;
    for (const CellData& c : study.cells) least = std::min(least, c.result.finished);
    const bool few = page.find("single run") != page.npos || page.find("fewer than five.") != page.npos ||
                     page.find("no finished run") != page.npos;
    CHECK(few == (least < 5));
    const bool made_up = made.settings.data.name == "synthetic";
    CHECK(count(page, ">SYNTHETIC DATA</text>") == (made_up ? count(page, "<svg ") : 0));
    const std::string less = fmt::format(" the first {} training samples only", made.settings.data.limit);
    CHECK(count(page, less) == (made.settings.data.limit > 0 ? 2 : 0));  // in the headline and among the limits
    const bool missing = page.find("scaling is missing") != page.npos;
    CHECK(missing == !(made.options.weak && made.options.strong));
    CHECK(!rules_of(study).empty());
    CHECK((page.find("Time to accuracy</h2>") != page.npos) == (made.options.target > 0));
    CHECK(page.find(study.result.ledger_head) != page.npos);
    CHECK((page.find("&amp; &lt;broke&gt;") != page.npos) == (study.result.totals.failed > 0));
  }
}

TEST_CASE("a run without accuracy takes the speed-ups of its strategy with it, and the baseline's all") {
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 6; ++i) {
    const Temporary there;
    const MadeUp made = make_up(there.path(), random, true);
    const StudyData before = read_study_data(there.path());
    for (const CellData& c : before.cells) CHECK(std::isfinite(c.step_speedup.value));
    const std::string run = made.finished[random() % made.finished.size()];
    remove_accuracy(there / run);
    const StudyData after = read_study_data(there.path());
    const std::string page = study_page(after);
    CHECK(page.find(run + " has no accuracy on the held-out set") != page.npos);
    CHECK(speedups(page).second < speedups(study_page(before)).second);
    const bool baseline = run.starts_with("runs/serial");
    if (baseline) {
      CHECK(speedups(page).second == 0);
      CHECK(page.find("whole steps, waiting") == page.npos);
    }
    for (const Family& f : after.families) {
      const bool hit = std::ranges::any_of(
          f.cells, [&](std::size_t c) { return run.starts_with("runs/" + after.cells[c].cell().name + "/"); });
      for (const std::size_t c : f.cells) {
        CHECK(std::isnan(after.cells[c].step_speedup.value) == (hit || baseline));
        CHECK(std::isnan(after.cells[c].device_speedup.value) >= (hit || baseline));
      }
    }
  }
}

TEST_CASE("an edited ledger and another configuration are named on the page, and nothing is joined over hashes") {
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 4; ++i) {
    const Temporary there;
    const MadeUp made = make_up(there.path(), random, true);
    CHECK(page_of(there.path()).find("not hold") == std::string::npos);
    const std::string run = made.finished[random() % made.finished.size()], config = there / (run + "/config.toml");
    const std::string kept = slurp(config);
    std::string other = kept;
    other.replace(other.find("epochs = 3"), 10, "epochs = 4");
    spill(config, other);
    const StudyData study = read_study_data(there.path());
    for (const CellData& c : study.cells) {
      const bool hit = run.starts_with("runs/" + c.cell().name + "/");
      CHECK(c.result.finished == made.options.seeds - (hit ? 1 : 0));
      CHECK(c.runs.size() == static_cast<std::size_t>(c.result.finished));
    }
    CHECK(study_page(study).find("its settings differ from the study's") != std::string::npos);
    CHECK(rules_of(study)[7].told.find(run) != std::string::npos);
    spill(config, kept);
    std::string ledger = slurp(there / ledger_file);
    const std::size_t line = ledger.find("\"seconds\":4");
    ledger.replace(line, 11, "\"seconds\":3");
    spill(there / ledger_file, ledger);
    const StudyData edited = read_study_data(there.path());
    CHECK(rules_of(edited)[2].broken.find("it was edited") != std::string::npos);
    CHECK(study_page(edited).find("it was edited") != std::string::npos);
  }
}

TEST_CASE("the rules say what cannot be kept") {
  std::mt19937_64 random(20);
  const Temporary there;
  make_up(there.path(), random, true);
  const auto rules = [&] { return rules_of(read_study_data(there.path())); };
  CHECK(rules()[1].broken.find("facts.json") != std::string::npos);
  Json facts{{"train_samples", 60}, {"test_samples", 10},   {"input", "28 x 28 x 1"},
             {"train_sha256", "0"}, {"test_sha256", "1"},   {"shared_samples", 3},
             {"not_compared", ""},  {"forward_flops", 1e6}, {"parameters", 5},
             {"cores", 2},          {"load", 0.1}};
  spill(there / facts_file, json_text(facts));
  CHECK(rules()[1].broken.find("3 of 10 test samples are also training samples") != std::string::npos);
  CHECK(rules()[6].broken.empty());
  facts["shared_samples"] = 0;
  spill(there / facts_file, json_text(facts));
  CHECK(rules()[1].broken.empty());
  const char* changed = "study.toml is not the one that the runs were started with";
  CHECK(rules()[9].broken.find(changed) == std::string::npos);
  const std::string asked = slurp(there / study_file);
  std::string other = asked;
  other.replace(other.find("target = 90"), 11, "target = 89");
  spill(there / study_file, other);
  CHECK(rules()[9].broken.find(changed) != std::string::npos);
  spill(there / study_file, asked);
  spill(there / facts_file, "{");
  CHECK(!rules()[1].broken.empty());
}

TEST_CASE("a study tells what was cut out of it, a serial run with few cores, and runs that failed before") {
  std::mt19937_64 random(21);
  const Temporary there;
  const MadeUp made = make_up(there.path(), random, true);
  const auto read = [&] { return read_study_data(there.path()); };
  CHECK(read().result.faults.empty());
  const std::string asked = slurp(there / study_file);
  std::string less = asked;  // without the first cell, the serial one
  const std::size_t first = less.find("[[cell]]"), second = less.find("[[cell]]", first + 1);
  less.erase(first, second - first);
  spill(there / study_file, less);
  const StudyData cut = read();
  const std::string told = fmt::format("{}", fmt::join(cut.result.faults, "\n"));
  CHECK_THAT(told, mentions("serial", study_file, ledger_file));
  CHECK_THAT(rules_of(cut)[2].broken, mentions("serial"));
  CHECK_THAT(table_of(study_result(there.path())), mentions("serial", study_file));
  spill(there / study_file, asked);

  spill(there / facts_file, R"({"train_samples": 60, "test_samples": 10, "input": "28", "train_sha256": "0",
    "test_sha256": "1", "shared_samples": 0, "not_compared": "", "forward_flops": 1, "parameters": 5, "cores": 4,
    "load": 0.1})");
  const auto with_threads = [&](int threads) {
    for (const std::string& run : made.finished)
      spill(there / (run + "/environment.json"), fmt::format(R"({{"ranks": 1, "threads": {}}})", threads));
    return rules_of(read())[11].broken;
  };
  CHECK(with_threads(4).empty());
  CHECK_THAT(with_threads(1), mentions(1, 4));

  CHECK(count(study_page(read()), " after a failure") == 0);
  LedgerWriter ledger(there.path());
  LedgerEntry e = read().ledger.front();
  for (const char* status : {"started", "failed", "started", "finished"}) {
    e.status = status;
    e.why = status == std::string("started") ? read_study(there.path()).asked_by() : "";
    e.seconds = 4;
    ledger.append(e);
  }
  CHECK(count(study_page(read()), "1 after a failure") > 0);
  CHECK_THAT(table_of(study_result(there.path())), mentions("1 after a failure"));
}

TEST_CASE("a quotient of medians has an interval from the extremes, and a law's share is found again") {
  const Median m = ratio({8, {6, 9, 0.9}}, {4, {3, 5, 0.8}});
  CHECK(m.value == 2);
  CHECK(m.interval.low == Approx(1.2));
  CHECK(m.interval.high == 3);
  CHECK(m.interval.coverage == 0.8);
  CHECK(std::isnan(ratio({never, {1, never, 1}}, {1, {1, 1, 1}}).value));
  CHECK(ratio({8, {6, 9, 1}}, {4, {3, never, 1}}).interval.low == 0);
}

TEST_CASE(
    "runs side by side: no picture of speed over ranks without the accuracy of each, and stamps on made-up data") {
  for (const char* key : {"test_top1", "test_loss"})
    for (const char* data : {"mnist", "synthetic"}) {
      std::vector<RunData> runs(3);
      for (int i = 0; i < 3; ++i) {
        RunData& run = runs[static_cast<std::size_t>(i)];
        run.name = fmt::format("run {}", i);
        run.environment["ranks"] = std::to_string(1 << i);
        run.settings = {{"model", "mlp"}, {"data.name", data}};
        run.test = {{"images_per_s", {{1, 100.0 * (i + 1)}}}, {key, {{1, 3.0 + i}}}};
      }
      const std::string all = scaling_over_ranks(runs);
      CHECK(count(all, "<svg ") == 2);
      CHECK(count(all, ">SYNTHETIC DATA</text>") == (data == std::string("synthetic") ? 2 : 0));
      runs[1].test.erase(key);
      const std::string less = scaling_over_ranks(runs);
      CHECK(count(less, "<svg ") == 0);
      CHECK(less.find("is not known of run 1") != std::string::npos);
    }
}

}  // namespace test_study_page
