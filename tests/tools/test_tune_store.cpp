// The store of a search: processes that are killed at random moments lose nothing, and nothing is counted twice.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "kernels/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/study/lease.h"
#include "tools/study/ledger.h"
#include "tools/study/store.h"
#include "tools/study/tune_result.h"

namespace test_tune_store {

using namespace trireme;
using namespace trireme::test;

namespace {

Question question(const std::string& algorithm, int trials, int epochs) {
  Question q =
      parse_tune("[tune]\nlease = 3600\n[space]\n\"optim.lr\" = {type = \"log\", low = 1e-4, high = 1.0}\n", "s");
  q.options.algorithm = algorithm;
  q.options.objective = "test_top1";
  q.options.trials = trials;
  q.options.epochs = epochs;
  q.options.ranks = 1;
  return q;
}
std::string hash_of(const Point&) { return std::string(64, 'a'); }
double value_of(const TrialState& t, std::int64_t epoch) { return 1 / t.point[0] + static_cast<double>(epoch); }

void nap(double ms) { std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(1000 * ms))); }

/// A worker whose trials take milliseconds. While one has a trial nobody else who lives may have it: `busy_ID` says
/// who.
int work(const std::string& folder, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  StudyStore store(folder);
  const std::string me = own_identity();
  for (;;) {
    const Taken taken = store.take(me, hash_of);
    if (taken.kind == Taken::Kind::done) return 0;
    if (taken.kind == Taken::Kind::wait) {
      nap(2);
      continue;
    }
    const TrialState& t = taken.lease.trial;
    const std::string busy = folder + "/busy_" + std::to_string(t.id);
    if (const std::string other = slurp(busy); !other.empty() && !has_ended(other)) return 3;
    spill(busy, me);
    if (random() % 10 == 0) {
      std::filesystem::remove(busy);
      if (!store.end(taken.lease, {Outcome::Kind::interrupted, "", 0.1})) return 4;
      continue;
    }
    std::vector<std::pair<std::int64_t, double>> values;
    for (std::int64_t e = 1; e <= t.target; ++e) {
      nap(static_cast<double>(random() % 3));
      values.emplace_back(e, value_of(t, e));
      if (!store.report(taken.lease, values)) return 5;
    }
    std::filesystem::remove(busy);
    if (!store.end(taken.lease, {Outcome::Kind::reached, "", 0.2})) return 6;
  }
}

/// Of each trial a start and an end by turns, and the ledger says the same.
void check_books(const std::string& folder) {
  StudyStore store(folder);
  store.write_ledger();
  const auto events = store.events();
  const LedgerReader ledger(folder);
  CHECK(ledger.faults().empty());
  REQUIRE(ledger.entries().size() == events.size());
  std::map<int, bool> open;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TrialEvent& e = events[i];
    CHECK(e.number == static_cast<std::int64_t>(i) + 1);
    CHECK(ledger.entries()[i].status == e.status);
    CHECK(ledger.entries()[i].run ==
          "trials/" + std::string(4 - std::to_string(e.trial).size(), '0') + std::to_string(e.trial));
    CHECK(open[e.trial] == (e.status != "started"));
    open[e.trial] = e.status == "started";
  }
  for (const auto& [trial, is_open] : open) CHECK_FALSE(is_open);
  CHECK(open_runs(ledger.entries()).empty());
}

}  // namespace

TEST_CASE("workers that are killed at random moments lose no trial and count none twice", "[tune]") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  for (const char* algorithm : {"random", "asha"}) {
    const Temporary folder;
    StudyStore::create(folder.path(), question(algorithm, 12, 9), "");
    std::mt19937_64 random(seed);
    std::vector<pid_t> alive;
    int started = 0, killed = 0;
    const auto start = [&] {
      const pid_t child = ::fork();
      if (child == 0) {
        int status = 9;
        try {
          status = work(folder.path(), seed + static_cast<std::uint64_t>(started));
        } catch (const std::exception& e) { std::fprintf(stderr, "worker: %s\n", e.what()); }
        ::_exit(status);
      }
      ++started;
      alive.push_back(child);
    };
    for (int i = 0; i < 4; ++i) start();
    std::vector<int> wrong;
    while (!alive.empty()) {
      nap(static_cast<double>(random() % 20));
      if (killed < 12) {
        const std::size_t one = random() % alive.size();
        ::kill(alive[one], SIGKILL);
      }
      int status = 0;
      for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        std::erase(alive, ended);
        if (WIFSIGNALED(status)) {
          ++killed;
          start();
        } else if (WEXITSTATUS(status) != 0)
          wrong.push_back(WEXITSTATUS(status));
      }
    }
    CHECK(wrong.empty());
    CHECK(killed > 0);
    StudyStore store(folder.path());
    const auto trials = store.trials();
    REQUIRE(trials.size() == 12);
    std::size_t reports = 0;
    for (const TrialRow& t : trials) {
      CHECK((t.status == TrialStatus::finished || t.status == TrialStatus::paused));
      REQUIRE(std::ssize(t.scores) == t.target);
      for (std::int64_t e = 1; e <= t.target; ++e)
        CHECK(t.scores[static_cast<std::size_t>(e - 1)] == std::pair(e, value_of(t, e)));
      reports += t.scores.size();
    }
    CHECK(store.reports().size() == reports);
    check_books(folder.path());
    const auto search = make_algorithm(store.question().options, store.question().space);
    for (const TrialRow& t : trials) search->observe(t);
    CHECK(search->suggest().kind == Suggestion::Kind::done);
  }
}

TEST_CASE("a trial whose worker is silent is another's, once, and the first cannot end it any more", "[tune]") {
  const Temporary folder;
  Question q = question("random", 2, 3);
  q.options.lease = 0.05;
  StudyStore::create(folder.path(), q, "epochs = 3\n");
  StudyStore first(folder.path()), second(folder.path()), third(folder.path());
  const std::string far = "elsewhere pid 3 [boot pid:[1] 5]", here = own_identity();
  CHECK_FALSE(has_ended(far));
  CHECK_FALSE(has_ended(here));
  const Taken a = first.take(far, hash_of), b = second.take(here, hash_of);
  REQUIRE((a.kind == Taken::Kind::run && b.kind == Taken::Kind::run && a.lease.trial.id == 1 && b.lease.trial.id == 2));
  CHECK(third.take(here, hash_of).kind == Taken::Kind::wait);  // sees their beats for the first time
  CHECK(first.report(a.lease, {{1, 0.5}}));
  nap(60);
  CHECK(first.beat(a.lease));
  CHECK(second.beat(b.lease));
  CHECK(third.take(here, hash_of).kind == Taken::Kind::wait);  // both have beaten since
  nap(60);
  CHECK(second.beat(b.lease));
  const Taken c = third.take(here, hash_of);
  REQUIRE(c.kind == Taken::Kind::run);
  CHECK(c.lease.trial.id == 1);
  CHECK(c.lease.trial.scores == std::vector<std::pair<std::int64_t, double>>{{1, 0.5}});
  CHECK_FALSE(first.beat(a.lease));
  CHECK_FALSE(first.report(a.lease, {{1, 9}, {2, 9}}));
  CHECK_FALSE(first.end(a.lease, {Outcome::Kind::reached, "", 1}));
  CHECK(third.end(c.lease, {Outcome::Kind::killed, "by signal 9", 1}));  // it waits again
  CHECK(second.beat(b.lease));
  const Taken d = third.take(here, hash_of);
  CHECK((d.kind == Taken::Kind::run && d.lease.trial.id == 1));
  CHECK(third.report(d.lease, {{1, 0.5}, {2, 0.6}, {3, 0.7}}));
  CHECK(third.end(d.lease, {Outcome::Kind::reached, "", 1}));
  CHECK_FALSE(third.end(d.lease, {Outcome::Kind::reached, "", 1}));
  CHECK(second.end(b.lease, {Outcome::Kind::failed, "a loss of NaN", 1}));
  CHECK(second.take(here, hash_of).kind == Taken::Kind::done);
  CHECK(first.reports().size() == 3);
  CHECK(first.trials()[0].attempts == 3);
  CHECK(first.trials()[1].why == "a loss of NaN");
  check_books(folder.path());
  first.want_trials(4);  // more are asked for
  const Taken e = second.take(here, hash_of);
  CHECK((e.kind == Taken::Kind::run && e.lease.trial.id == 3));
  second.give_up("objective f1 is never reported");
  second.give_up("another reason");
  CHECK(first.error() == "objective f1 is never reported");
  CHECK(third.take(here, hash_of).kind == Taken::Kind::done);
  CHECK(first.settings() == "epochs = 3\n");
}

TEST_CASE("a trial that is killed too often has failed, and an edited ledger is not written on", "[tune]") {
  const Temporary folder;
  Question q = question("random", 1, 1);
  q.options.retries = 2;
  StudyStore::create(folder.path(), q, "");
  StudyStore store(folder.path());
  for (int i = 0; i < 3; ++i) {
    const Taken t = store.take(own_identity(), hash_of);
    REQUIRE(t.kind == Taken::Kind::run);
    CHECK(store.end(t.lease, {Outcome::Kind::killed, "ended by signal 9", 1}));
  }
  CHECK(store.trials()[0].status == TrialStatus::failed);
  check_books(folder.path());
  store.forgive(false);  // nothing has ever been reported
  const std::string path = folder / ledger_file, text = slurp(path);
  spill(path, "x" + text);
  CHECK_ERROR(store.take(own_identity(), hash_of), data, "ledger.jsonl");
  spill(path, text);
  std::filesystem::remove(folder / store_file);
  CHECK_ERROR(StudyStore(folder.path()), file, "study.db");
  spill(folder / store_file, std::string(5000, 'x'));
  CHECK_ERROR(StudyStore(folder.path()), data, "study.db");
}

TEST_CASE("study.db, the ledger and what trials wrote are compared", "[tune]") {
  const Temporary folder;
  StudyStore::create(folder.path(), question("random", 1, 1), "");
  const auto faults = [&] { return fmt::format("{}", fmt::join(tune_result(folder.path()).faults, "\n")); };
  StudyStore store(folder.path());
  const Taken t = store.take(own_identity(), hash_of);
  const std::string metrics = trial_directory(folder.path(), 1) + "/metrics.jsonl";
  std::filesystem::create_directories(trial_directory(folder.path(), 1));
  const auto spill_metrics = [&](double value) {
    spill(metrics, fmt::format("{{\"kind\": \"eval\", \"epoch\": 1, \"test_top1\": {}}}\n", value));
  };
  spill_metrics(41.5);
  CHECK(store.report(t.lease, {{1, 41.5}}));
  CHECK(store.end(t.lease, {Outcome::Kind::reached, "", 1}));
  CHECK(faults().empty());
  spill_metrics(97.5);
  CHECK_THAT(faults(), mentions("trial 1", 41.5, 97.5));
  spill_metrics(41.5);
  std::filesystem::create_directories(trial_directory(folder.path(), 2));
  CHECK_THAT(faults(), mentions("trials/0002"));
  std::filesystem::remove(trial_directory(folder.path(), 2));
  for (const char* file : {ledger_file, ledger_head_file}) std::filesystem::remove(folder / file);
  CHECK_THAT(faults(), mentions(ledger_file, 2, 0));
}

TEST_CASE("trials that diverged are not tried again unasked", "[tune]") {
  const Temporary folder;
  StudyStore::create(folder.path(), question("random", 2, 1), "");
  StudyStore store(folder.path());
  for (const std::string& why : {std::string(diverged) + "loss is nan", std::string("no such file")})
    CHECK(store.end(store.take(own_identity(), hash_of).lease, {Outcome::Kind::failed, why, 1}));
  const auto waiting = [&] { return std::ranges::count(store.trials(), TrialStatus::waiting, &TrialRow::status); };
  store.forgive(false);
  CHECK(waiting() == 1);
  CHECK(store.trials()[0].status == TrialStatus::failed);
  store.forgive(true);
  CHECK(waiting() == 2);
}

TEST_CASE("a process is known to have ended only where it can be known", "[tune]") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const std::string mine = own_identity();
  const auto open = mine.rfind(" ["), pid = mine.rfind(" pid ", open);
  const auto of = [&](int process, const std::string& in) {
    return mine.substr(0, pid + 5) + std::to_string(process) + in;
  };
  CHECK(shown_identity(mine) == mine.substr(0, open));
  CHECK_FALSE(has_ended(mine));
  CHECK(has_ended(
      of(::getpid(), mine.substr(open, mine.rfind(' ') - open + 1) + "1]")));  // an earlier process of this number
  CHECK_FALSE(has_ended(of(child, " [another boot]")));
  CHECK_FALSE(has_ended("nobody"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(has_ended(of(child, mine.substr(open))));
}

}  // namespace test_tune_store
