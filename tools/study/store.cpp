#include "tools/study/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "framework/io/file.h"
#include "kernels/core/text.h"
#include "tools/study/lease.h"
#include "tools/study/ledger.h"
#include "tools/study/sha256.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr int schema = 2;
constexpr const char* tables = R"(
CREATE TABLE study(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials(id INTEGER PRIMARY KEY, point TEXT NOT NULL, parent INTEGER NOT NULL, from_epoch INTEGER NOT NULL,
  target INTEGER NOT NULL, status TEXT NOT NULL, why TEXT NOT NULL DEFAULT '', worker TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 0, beat INTEGER NOT NULL DEFAULT 0, beat_time REAL, began REAL,
  seconds REAL NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0);
CREATE TABLE reports(trial INTEGER NOT NULL REFERENCES trials(id), epoch INTEGER NOT NULL, value REAL NOT NULL,
  time REAL NOT NULL, PRIMARY KEY(trial, epoch)) WITHOUT ROWID;
CREATE TABLE events(id INTEGER PRIMARY KEY, trial INTEGER NOT NULL REFERENCES trials(id), status TEXT NOT NULL,
  why TEXT NOT NULL, time REAL NOT NULL, seconds REAL NOT NULL, hash TEXT NOT NULL, others REAL NOT NULL,
  results TEXT NOT NULL);
)";

/// Unix time of the last change in a run directory; 0: there is none.
double last_change(const std::string& run) {
  double last = 0;
  std::error_code none;
  for (fs::recursive_directory_iterator it(run, none), end; !none && it != end; it.increment(none))
    if (const auto time = fs::last_write_time(*it, none); !none)
      last = std::max(last,
                      std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch()).count());
  return last;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

TrialStatus status_of(const std::string& text) {
  for (int i = 0; i <= static_cast<int>(TrialStatus::failed); ++i)
    if (const auto status = static_cast<TrialStatus>(i); text == to_string(status)) return status;
  fail(ErrorKind::data, "study", "'{:.40}' is no status of a trial", text);
}

}  // namespace

std::string trial_directory(const std::string& directory, int trial) {
  return fmt::format("{}/trials/{:04}", directory, trial);
}

std::vector<std::string> differences(StudyStore& store, const std::vector<LedgerEntry>& ledger, bool under_way) {
  const auto events = store.events();
  const auto trials = store.trials();
  const Question question = store.question();
  std::vector<std::string> found;
  // A ledger line is written after its event, so the last lines of a running study may be missing.
  if (ledger.size() > events.size() || (!under_way && ledger.size() < events.size()))
    found.push_back(
        fmt::format("{} has {} lines, and {} has {} events", ledger_file, ledger.size(), store_file, events.size()));
  for (std::size_t i = 0; i < std::min(events.size(), ledger.size()); ++i) {
    const int id = events[i].trial;
    const std::string run = question.entry(id, trials.at(static_cast<std::size_t>(id - 1)).point).run;
    if (ledger[i].run == run && ledger[i].status == events[i].status) continue;
    found.push_back(fmt::format("{}:{}: it is of {}, {}; {} has {}, {}", ledger_file, i + 1, ledger[i].run,
                                ledger[i].status, store_file, run, events[i].status));
    break;
  }
  return found;
}

bool StudyStore::exists(const std::string& directory) {
  const std::string path = directory + "/" + store_file;
  if (!fs::is_regular_file(path)) return false;
  Database database(path, false);
  return Query(database, "SELECT 1 FROM sqlite_master WHERE name = 'events'").next();
}

void StudyStore::create(const std::string& directory, const Question& question, const std::string& settings) {
  make_directories(directory);
  replace_file(directory + (question.study ? std::string("/") + study_file : "/space.toml"), to_toml(question));
  replace_file(directory + "/settings.toml", settings);
  Database database(directory + "/" + store_file, true);
  Transaction all(database);
  database.execute(tables);
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"question", to_toml(question)},
                                   {"settings", settings},
                                   {"trials", std::to_string(question.options.trials)},
                                   {"schema", std::to_string(schema)}})
    Query(database, "INSERT INTO study VALUES(?, ?)").bind(key).bind(value).run();
  all.commit();
  sync_directory(directory);
}

StudyStore::StudyStore(const std::string& directory)
    : directory_(directory),
      database_(
          [&] {
            const std::string path = directory + "/" + store_file;
            check(fs::exists(path), ErrorKind::file, "study",
                  "{} has no {}, so it is not the folder of a study or search", directory, store_file);
            check(exists(directory), ErrorKind::data, "study",
                  "{} is not the database of a study or search; give its folder", path);
            return path;
          }(),
          false) {
  check(value_of("schema") == std::to_string(schema), ErrorKind::data, "study",
        "{}/{} was written by another version of trireme; use that version", directory, store_file);
  question_ = parse_question(value_of("question"), directory + "/" + store_file);
}

std::string StudyStore::value_of(const std::string& key) {
  Query q(database_, "SELECT value FROM study WHERE key = ?");
  return q.bind(key).next() ? q.text(0) : "";
}

void StudyStore::set_value(const std::string& key, const std::string& value) {
  Query(database_, "INSERT OR REPLACE INTO study VALUES(?, ?)").bind(key).bind(value).run();
}

Question StudyStore::question() {
  question_.options.trials = trials_wanted();
  return question_;
}

std::string StudyStore::settings() { return value_of("settings"); }

std::int64_t StudyStore::trials_wanted() {
  std::int64_t trials = 0;
  const std::string text = value_of("trials");
  check(parse_number(text, trials), ErrorKind::data, "study", "{} trials are no number", text);
  return trials;
}

void StudyStore::want_trials(std::int64_t trials) {
  if (trials == trials_wanted()) return;
  const std::string before = trials_asked();
  set_value("asked", fmt::format("{}, then {}", before.empty() ? value_of("trials") : before, trials));
  set_value("trials", std::to_string(trials));
}

std::string StudyStore::trials_asked() { return value_of("asked"); }

std::string StudyStore::error() { return value_of("error"); }

void StudyStore::give_up(const std::string& why) {
  Query(database_, "INSERT OR IGNORE INTO study VALUES('error', ?)").bind(why).run();
}

void StudyStore::forgive(bool all) {
  Transaction whole(database_);
  database_.execute("DELETE FROM study WHERE key = 'error'");
  Query(database_,
        "UPDATE trials SET status = 'waiting', deaths = 0 WHERE status = 'failed' AND (? OR (why NOT LIKE ? AND NOT "
        "EXISTS (SELECT 1 FROM reports)))")
      .bind(all ? 1 : 0)
      .bind(std::string(diverged) + "%")
      .run();
  if (question_.study)
    for (const TrialRow& t : trials()) {
      const bool gone = !fs::exists(directory_ + "/" + question_.entry(t.id, t.point).run);
      if (t.status == TrialStatus::failed || (t.status == TrialStatus::finished && gone))
        Query(database_, "UPDATE trials SET status = 'waiting', deaths = 0, attempts = ? WHERE id = ?")
            .bind(gone ? 0 : t.attempts)
            .bind(t.id)
            .run();
    }
  whole.commit();
}

std::vector<TrialRow> StudyStore::trials() {
  std::vector<TrialRow> rows;
  Query q(database_,
          "SELECT id, point, parent, from_epoch, target, status, why, worker, seconds, attempts, deaths FROM trials "
          "ORDER BY id");
  while (q.next()) {
    TrialRow r;
    r.id = static_cast<int>(q.whole(0));
    r.point = question_.space.from_json(q.text(1));
    r.parent = static_cast<int>(q.whole(2));
    r.from_epoch = q.whole(3);
    r.target = q.whole(4);
    r.status = status_of(q.text(5));
    r.why = q.text(6);
    r.worker = q.text(7);
    r.seconds = q.number(8);
    r.attempts = static_cast<int>(q.whole(9));
    r.deaths = static_cast<int>(q.whole(10));
    check(r.id == std::ssize(rows) + 1, ErrorKind::data, "study", "{}: trial {} is missing", database_.path(),
          rows.size() + 1);
    rows.push_back(std::move(r));
  }
  Query reports(database_, "SELECT trial, epoch, value FROM reports ORDER BY trial, epoch");
  while (reports.next())
    if (const auto at = static_cast<std::size_t>(reports.whole(0) - 1); at < rows.size())
      rows[at].scores.emplace_back(reports.whole(1), question_.options.sign() * reports.number(2));
  return rows;
}

std::vector<TrialReport> StudyStore::reports() {
  std::vector<TrialReport> found;
  Query q(database_, "SELECT trial, epoch, value, time FROM reports ORDER BY time, trial, epoch");
  while (q.next()) found.push_back({static_cast<int>(q.whole(0)), q.whole(1), q.number(2), q.number(3)});
  return found;
}

std::vector<TrialEvent> StudyStore::events(std::int64_t after) {
  std::vector<TrialEvent> found;
  Query q(database_, "SELECT id, trial, status, why, time, seconds FROM events WHERE id > ? ORDER BY id");
  for (q.bind(after); q.next();)
    found.push_back({q.whole(0), static_cast<int>(q.whole(1)), q.text(2), q.text(3), q.number(4), q.number(5)});
  return found;
}

std::int64_t StudyStore::note(int trial, const std::string& status, const std::string& why, double seconds,
                              const std::string& hash, const Outcome& outcome) {
  Query(database_,
        "INSERT INTO events(trial, status, why, time, seconds, hash, others, results) VALUES(?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(trial)
      .bind(status)
      .bind(why)
      .bind(now())
      .bind(seconds)
      .bind(hash)
      .bind(outcome.others)
      .bind(outcome.results)
      .run();
  Query last(database_, "SELECT max(id) FROM events");
  last.run();
  return last.whole(0);
}

/// Returns trials of lost workers to the waiting trials.
void StudyStore::release_lost() {
  struct Lost {
    int id;
    std::string worker;
    double seconds;
  };
  std::vector<Lost> lost;
  Query q(database_, "SELECT id, worker, attempt, beat, began, beat_time, point FROM trials WHERE status = 'running'");
  while (q.next()) {
    const int id = static_cast<int>(q.whole(0));
    const Beat is{q.whole(2), q.whole(3), Clock::now()};
    Beat& was = seen_.try_emplace(id, is).first->second;
    if (was.attempt != is.attempt || was.count != is.count) was = is;
    const bool silent = std::chrono::duration<double>(is.since - was.since).count() > question_.options.lease;
    if (!silent && !has_ended(q.text(1))) continue;
    const std::string run = directory_ + "/" + question_.entry(id, question_.space.from_json(q.text(6))).run;
    const double last = std::max(q.number(5), last_change(run));
    lost.push_back({id, q.text(1), std::max(0.0, last - q.number(4))});
  }
  for (const Lost& l : lost) {
    Query(database_, "UPDATE trials SET status = 'waiting', seconds = seconds + ? WHERE id = ?")
        .bind(l.seconds)
        .bind(l.id)
        .run();
    note(l.id, "interrupted",
         fmt::format("its worker, {}, sends no heartbeat; the seconds are up to its last sign",
                     shown_identity(l.worker)),
         l.seconds, "");
    seen_.erase(l.id);
  }
}

int StudyStore::insert(const Suggestion& s) {
  Query count(database_, "SELECT count(*) FROM trials");
  count.run();
  const int id = static_cast<int>(count.whole(0)) + 1;
  Query(database_, "INSERT INTO trials(id, point, parent, from_epoch, target, status) VALUES(?, ?, ?, ?, ?, 'waiting')")
      .bind(id)
      .bind(question_.space.to_json(s.point))
      .bind(s.parent)
      .bind(s.from_epoch)
      .bind(s.target)
      .run();
  if (s.replaces > 0)
    Query(database_, "UPDATE trials SET status = 'stopped', why = ? WHERE id = ?")
        .bind(fmt::format("trial {} took its place", id))
        .bind(s.replaces)
        .run();
  return id;
}

Lease StudyStore::lease(int trial, const std::string& worker, const std::function<std::string(const Point&)>& hash_of) {
  Lease lease{.worker = worker};
  const TrialRow row = trials()[static_cast<std::size_t>(trial - 1)];
  lease.trial = row;
  lease.is_first = row.attempts == 0 && row.parent == 0;
  const std::string why =
      question_.study ? question_.study->asked_by() : fmt::format("on {}; {}", shown_identity(worker), asked_by());
  const std::string hash = question_.entry(trial, lease.trial.point).config_hash;
  lease.attempt = note(trial, "started", why, 0, hash.empty() ? hash_of(lease.trial.point) : hash);
  Query(database_,
        "UPDATE trials SET status = 'running', worker = ?, attempt = ?, beat = 0, began = ?, beat_time = ?, "
        "attempts = attempts + 1 WHERE id = ?")
      .bind(worker)
      .bind(lease.attempt)
      .bind(now())
      .bind(now())
      .bind(trial)
      .run();
  return lease;
}

Taken StudyStore::take(const std::string& worker, const std::function<std::string(const Point&)>& hash_of) {
  Taken taken;
  {
    Transaction all(database_);
    if (!error().empty()) return taken;
    release_lost();
    if (question_.study && Query(database_, "SELECT 1 FROM trials WHERE status = 'running'").next()) {
      all.commit();
      return {.kind = Taken::Kind::wait};
    }
    int id = 0;
    if (Query waits(database_, "SELECT id FROM trials WHERE status = 'waiting' ORDER BY id LIMIT 1"); waits.next())
      id = static_cast<int>(waits.whole(0));
    if (id == 0) {
      const auto algorithm = make_algorithm(question().options, question_.space);
      for (TrialRow& row : trials()) algorithm->observe(std::move(row));
      const Suggestion s = algorithm->suggest();
      if (s.kind == Suggestion::Kind::start) id = insert(s);
      if (s.kind == Suggestion::Kind::go_on) {
        id = s.trial;
        Query(database_, "UPDATE trials SET target = ? WHERE id = ?").bind(s.target).bind(id).run();
      }
      if (s.kind == Suggestion::Kind::wait) taken.kind = Taken::Kind::wait;
    }
    if (id > 0) taken = {Taken::Kind::run, lease(id, worker, hash_of)};
    all.commit();
  }
  write_ledger();
  return taken;
}

bool StudyStore::beat(const Lease& lease) {
  Query(database_,
        "UPDATE trials SET beat = beat + 1, beat_time = ? WHERE id = ? AND attempt = ? AND status = 'running'")
      .bind(now())
      .bind(lease.trial.id)
      .bind(lease.attempt)
      .run();
  return database_.changes() == 1;
}

bool StudyStore::report(const Lease& lease, const std::vector<std::pair<std::int64_t, double>>& values) {
  Transaction all(database_);
  if (!beat(lease)) return false;
  for (const auto& [epoch, value] : values)
    Query(database_,
          "INSERT INTO reports VALUES(?, ?, ?, ?) ON CONFLICT(trial, epoch) DO UPDATE SET value = excluded.value")
        .bind(lease.trial.id)
        .bind(epoch)
        .bind(value)
        .bind(now())
        .run();
  all.commit();
  return true;
}

bool StudyStore::end(const Lease& lease, const Outcome& outcome) {
  using Kind = Outcome::Kind;
  {
    Transaction all(database_);
    if (!beat(lease)) return false;
    Query row(database_, "SELECT deaths FROM trials WHERE id = ?");
    row.bind(lease.trial.id).run();
    const std::int64_t deaths = row.whole(0) + (outcome.kind == Kind::killed ? 1 : 0);
    Kind kind = outcome.kind;
    if (kind == Kind::killed) kind = deaths > question_.options.retries ? Kind::failed : Kind::interrupted;
    const bool whole = lease.trial.target >= question_.options.epochs;
    const TrialStatus status = kind == Kind::reached       ? whole ? TrialStatus::finished : TrialStatus::paused
                               : kind == Kind::interrupted ? TrialStatus::waiting
                               : kind == Kind::stopped     ? TrialStatus::stopped
                                                           : TrialStatus::failed;
    Query(database_,
          "UPDATE trials SET status = ?, why = ?, seconds = seconds + ?, deaths = ?, attempts = attempts - ? WHERE id "
          "= ?")
        .bind(std::string(to_string(status)))
        .bind(outcome.why)
        .bind(outcome.seconds)
        .bind(deaths)
        .bind(outcome.why == planted ? 1 : 0)
        .bind(lease.trial.id)
        .run();
    note(lease.trial.id,
         kind == Kind::interrupted ? "interrupted"
         : kind == Kind::failed    ? "failed"
                                   : "finished",
         outcome.why, outcome.seconds, "", outcome);
    all.commit();
  }
  write_ledger();
  return true;
}

std::vector<LedgerEntry> StudyStore::sound_ledger() {
  const LedgerReader ledger(directory_);
  check(ledger.is_continuable(), ErrorKind::data, "study", "{}/{}", directory_, fmt::join(ledger.faults(), "; "));
  const std::vector<LedgerEntry>& lines = ledger.entries();
  const std::string last = value_of("ledger");  // the hash of the last line that this store has written
  check(last.empty() || std::ranges::find(lines, last, &LedgerEntry::hash) != lines.end(), ErrorKind::data, "study",
        "{}/{} lacks the line with hash {:.12}, which {} has written: lines or the file were removed", directory_,
        ledger_file, last, store_file);
  Query events(database_, "SELECT count(*) FROM events");
  events.run();
  check(std::ssize(lines) <= events.whole(0), ErrorKind::data, "study", "{}/{} has {} lines, and {} knows of {}",
        directory_, ledger_file, lines.size(), store_file, events.whole(0));
  return lines;
}

std::string StudyStore::asked_by() {
  TuneOptions o = question_.options;
  o.trials = 0;  // may grow
  return fmt::format("asked by SHA-256 {}",
                     sha256(to_toml(Question{.options = o, .space = question_.space}) + settings()));
}

void StudyStore::check_ledger() {
  const Transaction alone(database_);  // no other process appends meanwhile
  (void)sound_ledger();
}

void StudyStore::write_ledger() {
  const auto count = [&] {
    Query q(database_, "SELECT count(*) FROM events");
    q.run();
    return q.whole(0);
  };
  if (count() == written_) return;
  Transaction alone(database_);
  const auto have = std::ssize(sound_ledger());
  const std::int64_t events = count();
  if (have < events) append_events(have);
  alone.commit();
  written_ = events;
}

void StudyStore::append_events(std::int64_t have) {
  LedgerWriter writer(directory_);
  Query q(database_,
          "SELECT e.trial, e.status, e.why, e.time, e.seconds, (SELECT s.hash FROM events s WHERE s.trial = e.trial "
          "AND s.hash != '' AND s.id <= e.id ORDER BY s.id DESC LIMIT 1), e.others, e.results, t.point FROM events e "
          "JOIN trials t ON t.id = e.trial WHERE e.id > ? ORDER BY e.id");
  for (q.bind(have); q.next();) {
    LedgerEntry e = question_.entry(static_cast<int>(q.whole(0)), question_.space.from_json(q.text(8)));
    e.time = utc_text(q.number(3));
    e.config_hash = q.text(5);
    e.status = q.text(1);
    e.why = q.text(2);
    e.seconds = q.number(4);
    e.device_seconds = e.seconds * e.ranks;
    e.others = q.number(6);
    e.results = q.text(7);
    set_value("ledger", writer.append(std::move(e)).hash);
  }
}

}  // namespace trireme
