// Reports of studies made up at random: no speed-up without the accuracy at the same ranks, few runs are named, and
// what does not hold (the ledger, a configuration) is in the document; the page is whole; runs are compared by pairs.
#include "tools/report/report_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "framework/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/report/compare.h"
#include "tools/report/rules.h"
#include "tools/study/store.h"

namespace test_report {

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

/// What does not nest, or is no XML; "": all is well. Scripts and styles are skipped if they are CDATA or plain.
std::string xml_fault(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < page.size(); ++at) {
    const auto c = static_cast<unsigned char>(page[at]);
    if (c < 32 && c != '\n' && c != '\t') return fmt::format("a control character at {}", at);
    if (c == '&') return "an entity";
    if (page.compare(at, 9, "<![CDATA[") == 0) at = page.find("]]>", at);
    if (page[at] != '<' || page.compare(at, 9, "<!DOCTYPE") == 0) continue;
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

/// The document inside of a page.
Json inside(const std::string& page) {
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const std::size_t at = page.find(begin) + begin.size();
  return parse_json(page.substr(at, page.find("</script>", at) - at));
}

/// Cells with speed-ups but without accuracy; and speed-ups in all.
std::pair<int, int> speedups(const Json& study) {
  int without = 0, with = 0;
  for (const Json& c : study["cells"])
    for (const char* key : {"step_speedup", "time_speedup", "device_speedup"}) {
      const bool shown = c[key]["value"].is_number() && std::isfinite(c[key]["value"].get<double>());
      with += shown;
      without += shown && !(c["accuracy"]["value"].is_number() && c["accuracy"]["value"].get<double>() > 0);
    }
  return {without, with};
}

Json json_at(const std::string& path) { return json_of(read_study_data(path)); }

void remove_accuracy(const std::string& run) {
  std::string text = slurp(run + "/metrics.jsonl");
  for (std::size_t at; (at = text.find("test_top1")) != text.npos;) text.replace(at, 9, "test_gone");
  spill(run + "/metrics.jsonl", text);
}

}  // namespace

TEST_CASE("documents of made-up studies are whole, and have no speed-up without accuracy") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 12; ++i) {
    const Temporary there;
    const MadeUp made = make_up(there.path(), random);
    for (const std::string& run : made.finished)
      if (random() % 8 == 0) remove_accuracy(there / run);
    const StudyData study = read_study_data(there.path());
    const Json j = json_of(study);
    const std::string page = report_page(j);
    CHECK(xml_fault(page) == "");
    CHECK(inside(page) == parse_json(json_text(j, NotUtf8::replaced)));
    CHECK(page.find("src=") == page.npos);
    CHECK(speedups(j).first == 0);
    int least = 1000;
    for (const CellData& c : study.cells) least = std::min(least, c.result.finished);
    const std::string limits = json_text(j["limits"]);
    const bool few = limits.find("single run") != limits.npos || limits.find("fewer than five.") != limits.npos ||
                     limits.find("no finished run") != limits.npos;
    CHECK(few == (least < 5));
    CHECK(j["synthetic"] == (made.settings.data.name == "synthetic"));
    const std::string less = fmt::format(" the first {} training samples only", made.settings.data.limit);
    CHECK((j["reduction"].get<std::string>().find(less) != less.npos) == (made.settings.data.limit > 0));
    CHECK(j["question"]["weak"] == made.options.weak);
    CHECK(j["question"]["target"] == made.options.target);
    CHECK(j["rules"].size() == 12);
    CHECK(j["ledger"]["head"] == study.result.ledger_head);
    CHECK((json_text(j["not_finished"]).find("& <broke>") != std::string::npos) == (study.result.totals.failed > 0));
    CHECK(j["rows"].size() == made.cells.size() * static_cast<std::size_t>(made.options.seeds));
    std::size_t finished = 0;
    for (const Json& row : j["rows"]) {
      finished += row["status"] == "finished";
      CHECK(row["to_target"].is_null() == (made.options.target == 0));
      if (row["status"] == "finished") CHECK(row["environment"]["processors"] == "made <up> & more");
    }
    CHECK(finished == made.finished.size());
    for (const Json& c : j["cells"]) {
      const int runs = c["finished"].get<int>();
      if (c["withheld"] != "" || runs == 0 || runs > 5) continue;
      CHECK(c["accuracy"]["level"].get<double>() == Approx(1 - std::pow(2.0, 1 - runs)));
      CHECK(c["step"]["level"] == c["accuracy"]["level"]);
    }
    const std::string table = report_csv(j);
    CHECK(count(table, "\n") == j["rows"].size() + 1);
    CHECK(table.starts_with("run,cell,strategy,scaling,mesh,ranks,batch,seed,status,why,"));
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
    const Json j = json_of(after);
    CHECK_THAT(json_text(j["cells"]), mentions(run + " has no accuracy on the held-out set"));
    CHECK(speedups(j).second < speedups(json_of(before)).second);
    const bool baseline = run.starts_with("runs/serial");
    if (baseline) CHECK(speedups(j).second == 0);
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

TEST_CASE("an edited ledger and another configuration are named, and nothing is joined over hashes") {
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 4; ++i) {
    const Temporary there;
    const MadeUp made = make_up(there.path(), random, true);
    const Json told = json_at(there.path())["warnings"];  // what is made up has no study.db
    CHECK((told.size() == 1 && told[0].get<std::string>().find(store_file) == 0));
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
    CHECK_THAT(json_text(json_of(study)["warnings"]), mentions("its settings differ from the study's"));
    CHECK(rules_of(study)[7].told.find(run) != std::string::npos);
    spill(config, kept);
    std::string ledger = slurp(there / ledger_file);
    const std::size_t line = ledger.find("\"seconds\":4");
    ledger.replace(line, 11, "\"seconds\":3");
    spill(there / ledger_file, ledger);
    const StudyData edited = read_study_data(there.path());
    CHECK(rules_of(edited)[2].broken.find("it was edited") != std::string::npos);
    CHECK_THAT(json_text(json_of(edited)["warnings"]), mentions("it was edited"));
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

  REQUIRE(made.finished.size() > 1);
  for (const std::string& run : made.finished) spill(there / (run + "/data.json"), "{}");
  CHECK(read().result.faults.empty());
  spill(there / (made.finished.back() + "/data.json"), "[]");
  CHECK_THAT(fmt::format("{}", fmt::join(read().result.faults, "\n")), mentions("data.json", made.finished.back()));
  spill(there / (made.finished.back() + "/data.json"), "{}");

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

  CHECK(json_of(read())["cells"][0]["after_failure"] == 0);
  LedgerWriter ledger(there.path());
  LedgerEntry e = read().ledger.front();
  for (const char* status : {"started", "failed", "started", "finished"}) {
    e.status = status;
    e.why = status == std::string("started") ? read_study(there.path()).asked_by() : "";
    e.seconds = 4;
    ledger.append(e);
  }
  int after_failure = 0;
  for (const CellData& c : read().cells) after_failure += c.result.after_failure;
  CHECK(after_failure > 0);
  CHECK(json_of(read())["rows"].dump().find("\"failures\":1") != std::string::npos);
  CHECK_THAT(table_of(study_result(there.path())), mentions("1 after a failure"));
}

TEST_CASE("a quotient of medians has an interval from the extremes, and a law's share is found again") {
  const Median m = ratio({8, {6, 9, 0.9}}, {4, {3, 5, 0.8}});
  CHECK(m.value == 2);
  CHECK(m.interval.low == Approx(1.2));
  CHECK(m.interval.high == 3);
  CHECK(m.interval.coverage == Approx(0.72));  // both medians are inside, independently
  CHECK(std::isnan(ratio({never, {1, never, 1}}, {1, {1, 1, 1}}).value));
  CHECK(ratio({8, {6, 9, 1}}, {4, {3, never, 1}}).interval.low == 0);
}

TEST_CASE("a serial share is given only where the law fits") {
  std::mt19937_64 random(22);
  const Temporary there;
  const MadeUp made = make_up(there.path(), random, true);
  const auto with_rates = [&](const std::function<double(int)>& rate) {  // images per second on some ranks
    for (const PlannedCell& c : made.cells)
      for (std::int64_t s = 1; s <= made.options.seeds; ++s)
        spill(there / (run_of(c, s) + "/metrics.jsonl"),
              json_text(Json{{"kind", "eval"}, {"step", 1}, {"test_top1", 95}, {"images_per_s", rate(c.ranks)}}));
    return json_at(there.path())["families"];
  };
  for (const Json& f : with_rates([](int p) { return 100 / (0.1 + 0.9 / p); }))
    if (f["weak"] == false) CHECK(f["serial_share"]["value"].get<double>() == Approx(0.1));
  for (const auto& rate : {+[](int p) { return 100.0 / p; }, +[](int p) { return 100.0 * p * p; }})
    for (const Json& f : with_rates(rate)) CHECK(std::isnan(f["serial_share"]["value"].get<double>()));
}

TEST_CASE("runs have their curves, settings and last values; equal names get paths") {
  std::vector<RunData> runs(3);
  for (int i = 0; i < 3; ++i) {
    RunData& run = runs[static_cast<std::size_t>(i)];
    run.name = i < 2 ? "same" : "a < b & \"c\"";
    run.path = fmt::format("path {}", i);
    run.settings = {{"model", "\"mlp\""}, {"optim.lr", "0.5"}, {"data.name", i == 2 ? "\"synthetic\"" : "\"mnist\""}};
    run.warnings = {"</script><b>"};
    for (int s = 1; s <= 2000; ++s) run.train["loss"].emplace_back(s, s);
    run.test["test_top1"] = {{10, 90}, {20, 80}};
    run.test["test_loss"] = {{10, 1}, {20, 2}};
  }
  const Json j = json_of(runs);
  CHECK(j["title"] == "3 runs");
  CHECK(j["synthetic"] == true);
  CHECK(j["rows"][0]["name"] == "path 0");
  CHECK(j["rows"][2]["name"] == runs[2].name);
  CHECK(j["rows"][2]["synthetic"] == true);
  CHECK(j["rows"][1]["synthetic"] == false);
  CHECK(j["rows"][0]["settings"]["optim.lr"] == 0.5);
  CHECK(j["rows"][0]["settings"]["model"] == "mlp");
  CHECK(j["defaults"]["model"] == "mnist_cnn");
  CHECK(j["rows"][0]["last"] == Json{{"best_top1", 90}, {"step", 20}, {"test_loss", 2}, {"test_top1", 80}});
  const Json& curve = j["rows"][0]["curves"]["train"]["loss"];
  REQUIRE(curve.size() == 400);
  double sum = 0;
  for (const Json& p : curve) sum += p[1].get<double>();
  CHECK(sum / 400 == Approx(1000.5));
  CHECK(j["warnings"][0] == "path 0: </script><b>");
  const std::string page = report_page(j);
  CHECK(xml_fault(page) == "");
  CHECK(inside(page) == parse_json(json_text(j)));
  CHECK(count(page, "</script>") == 2);
  const std::string table = report_csv(j);
  CHECK(table.starts_with("name,status,data,last.best_top1,last.step,last.test_loss,last.test_top1,path,"));
  CHECK(table.find("\n\"a < b & \"\"c\"\"\",") != table.npos);
  const Temporary there;
  CHECK_ERROR(write_report(j, there / "x.txt"), usage, "x.txt", ".csv");
  write_report(j, there / "x.csv");
  CHECK(slurp(there / "x.csv") == table);
  write_report(j, there / "x.json");
  CHECK(parse_json(slurp(there / "x.json")) == parse_json(json_text(j)));
}

TEST_CASE("pairs are compared by all sign flips") {
  for (int n = 2; n <= 12; ++n) {  // all of one sign: only two flips are as far
    std::vector<double> d;
    for (int i = 1; i <= n; ++i) d.push_back(i);
    const PairedDifference r = paired_difference(d);
    CHECK(r.p == Approx(std::pow(2.0, 1 - n)));
    if (n < 6) {  // from the least to the most
      CHECK(r.low == 1);
      CHECK(r.high == n);
      CHECK(r.level == Approx(1 - std::pow(2.0, 1 - n)));
    }
    CHECK((n < 6 || (r.level >= 0.95 && r.level < 0.97)));
    CHECK(paired_difference(std::vector<double>(static_cast<std::size_t>(n), 0)).p == 1);
  }
  // scipy.stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf) of SciPy 1.17
  CHECK(paired_difference({0.3, -0.1, 0.5, 0.2, 0.4, -0.2, 0.1}).p == Approx(0.171875));
  CHECK(paired_difference({1.5, -2.25, 0.5, 3, -0.75, 1, 2.5, -0.125, 0.25}).p == Approx(0.28125));
  std::mt19937_64 random(23);  // the interval holds the centre as often as its level says
  std::uniform_real_distribution<double> any(-1, 1);
  int held = 0;
  for (int i = 0; i < 4000; ++i) {
    std::vector<double> d(7);
    for (double& v : d) v = 3 + any(random);
    const PairedDifference r = paired_difference(d);
    held += r.low <= 3 && r.high >= 3;
    CHECK(r.level == Approx(1 - 6.0 / 128));
  }
  CHECK(held / 4000.0 == Approx(1 - 6.0 / 128).margin(0.014));  // four standard deviations
  CHECK(paired_difference(std::vector<double>(30, 1.0)).p < 1e-5);
  CHECK_ERROR(paired_difference({1}), usage, 1);
}

}  // namespace test_report
