#include "tools/study/ledger.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"
#include "tools/study/sha256.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_bytes = std::size_t{256} << 20;  // largest ledger that is read
constexpr std::string_view hash_key = ",\"hash\":\"";

std::string body_of(const LedgerEntry& e) {
  const Json json{{"number", e.number},
                  {"time", e.time},
                  {"run", e.run},
                  {"cell", e.cell},
                  {"scaling", e.scaling},
                  {"strategy", e.strategy},
                  {"mesh", e.mesh},
                  {"ranks", e.ranks},
                  {"seed", e.seed},
                  {"status", e.status},
                  {"why", e.why},
                  {"seconds", e.seconds},
                  {"config_hash", e.config_hash},
                  {"device_seconds", e.device_seconds},
                  {"others", e.others},
                  {"results", e.results},
                  {"previous", e.previous}};
  std::string text = json_text(json, NotUtf8::replaced);
  text.pop_back();  // "}"
  return text;
}

/// A whole number that a double represents exactly, as the ledger itself writes them.
std::int64_t whole(const Json& j, const char* key) {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  const Json& number = j.at(key);
  const bool fits = number.is_number_integer() && number.get<double>() < static_cast<double>(most) &&
                    number.get<double>() > static_cast<double>(-most);
  return fits ? number.get<std::int64_t>() : throw std::range_error(key);
}

/// Throws std::exception for missing members and members of another type.
LedgerEntry entry_of(const Json& j) {
  return {.number = whole(j, "number"),
          .time = j.at("time").get<std::string>(),
          .run = j.at("run").get<std::string>(),
          .cell = j.at("cell").get<std::string>(),
          .scaling = j.at("scaling").get<std::string>(),
          .strategy = j.at("strategy").get<std::string>(),
          .mesh = j.at("mesh").get<std::string>(),
          .ranks = static_cast<int>(std::clamp<std::int64_t>(whole(j, "ranks"), 0, 1 << 30)),
          .seed = whole(j, "seed"),
          .config_hash = j.at("config_hash").get<std::string>(),
          .status = j.at("status").get<std::string>(),
          .why = j.at("why").get<std::string>(),
          .seconds = j.at("seconds").get<double>(),
          .device_seconds = j.at("device_seconds").get<double>(),
          .others = value_or(j, "others", -1.0),
          .results = value_or<std::string>(j, "results", ""),
          .previous = j.at("previous").get<std::string>(),
          .hash = j.at("hash").get<std::string>()};
}

/// Short form of a hash for messages.
std::string shown(const std::string& hash) { return hash.empty() ? "none" : hash.substr(0, 12); }

}  // namespace

double unix_seconds(const std::string& time) {
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, end = 0;
  double s = 0;
  const int got = std::sscanf(time.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &y, &mo, &d, &h, &mi, &s, &end);
  const std::chrono::year_month_day day{std::chrono::year(y), std::chrono::month(static_cast<unsigned>(mo)),
                                        std::chrono::day(static_cast<unsigned>(d))};
  check(got == 6 && time.ends_with('Z') && day.ok() && h >= 0 && h < 24 && mi >= 0 && mi < 60 && s >= 0 && s < 61,
        ErrorKind::data, "ledger", "'{:.40}' is no time, expected for example 2026-11-25T17:41:46.123Z", time);
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + h * 3600 + mi * 60 + s;
}

std::string utc_text(double unix_seconds) {
  const auto ms = static_cast<std::int64_t>(std::floor(unix_seconds * 1000 + 0.5));
  const std::int64_t whole = ms >= 0 ? ms / 1000 : -((999 - ms) / 1000);
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(whole)), ms - whole * 1000);
}

LedgerReader::LedgerReader(const std::string& directory) {
  const std::string path = directory + "/" + ledger_file;
  read(fs::exists(path) ? read_text(path, most_bytes) : "");
  const std::string head = directory + "/" + ledger_head_file;
  compare(fs::exists(head) ? std::optional(read_text(head, 4096)) : std::nullopt);
}

LedgerReader::LedgerReader(const std::string& lines, const std::optional<std::string>& head) {
  read(lines);
  compare(head);
}

void LedgerReader::read(const std::string& text) {
  std::int64_t number = 0;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    if (end == text.npos) {
      torn_bytes_ = text.size() - at;
      faults_.push_back(
          fmt::format("{}:{}: the last line is cut short after {} bytes", ledger_file, number + 1, torn_bytes_));
      break;
    }
    read_line(text.substr(at, end - at), ++number);
  }
}

void LedgerReader::read_line(const std::string& line, std::int64_t number) {
  const auto fault = [&](const std::string& what) {
    faults_.push_back(fmt::format("{}:{}: {}", ledger_file, number, what));
  };
  const auto cut = line.rfind(hash_key);
  const Json json = cut == line.npos ? Json() : parse_json(line);
  LedgerEntry e;
  try {
    e = entry_of(json);
  } catch (const std::exception&) {
    seen_.clear();
    return fault("this is no line of a ledger, so it was edited");
  }
  const std::string before = std::exchange(seen_, e.hash);
  const std::int64_t number_before = std::exchange(last_number_, e.number);
  if (line.substr(cut) != fmt::format("{}{}\"}}", hash_key, sha256(line.substr(0, cut))))
    return fault(fmt::format("run {} ({}): its hash does not match its text, so it was edited", e.run, e.status));
  if (e.previous != before)
    fault(
        e.number > number_before + 1
            ? fmt::format("line {} of {} runs on from hash {}, which is not above it: lines {} to {} were removed",
                          e.number, e.run, shown(e.previous), number_before + 1, e.number - 1)
            : fmt::format(
                  "run {} ({}) was written after a line with hash {}, but the line above it has {}: lines were edited "
                  "or moved",
                  e.run, e.status, shown(e.previous), shown(before)));
  else if (e.number != number_before + 1)
    fault(fmt::format("it has number {} after number {}", e.number, number_before));
  entries_.push_back(std::move(e));
}

/// The head is written after its line, so the ledger may be one line ahead of the head, but never behind it.
void LedgerReader::compare(const std::optional<std::string>& head) {
  if (!head) {
    if (entries_.size() > 1) faults_.push_back(fmt::format("{}: it is missing", ledger_head_file));
    return;
  }
  const std::string& text = *head;
  const auto named = [&](const LedgerEntry& e) { return text == fmt::format("{} {}\n", e.number, e.hash); };
  const std::size_t n = entries_.size();
  if ((n > 0 && named(entries_[n - 1])) || (n > 1 && named(entries_[n - 2]))) return;
  const bool damaged = faults_.size() > (torn_bytes_ > 0 ? 1u : 0u);  // an earlier fault explains the difference
  if (!damaged || entries_.empty())
    faults_.push_back(
        fmt::format("{}: {} says that the last line is number {:.80}, which {} lines do not end with: "
                    "lines at the end were removed or written by hand",
                    ledger_file, ledger_head_file, text.substr(0, text.find('\n')), n));
}

std::string results_hash(const std::string& run) {
  std::string all;
  for (const char* file : {"config.toml", "data.json", "environment.json", "metrics.jsonl", "mllog.txt", "result.json"})
    if (const std::string path = run + "/" + file; fs::is_regular_file(path))
      all += fmt::format("{} {}\n", sha256(read_text(path, std::size_t{1} << 30)), file);
  return all.empty() ? "" : sha256(all);
}

LedgerTotals totals_of(const std::vector<LedgerEntry>& entries) {
  LedgerTotals t;
  for (const LedgerEntry& e : entries) {
    t.started += e.status == "started";
    t.finished += e.status == "finished";
    t.failed += e.status == "failed";
    t.interrupted += e.status == "interrupted";
    t.device_seconds += e.device_seconds;
  }
  return t;
}

std::vector<LedgerEntry> open_runs(const std::vector<LedgerEntry>& entries) {
  std::vector<LedgerEntry> open;
  for (const LedgerEntry& e : entries) {
    std::erase_if(open, [&](const LedgerEntry& o) { return o.run == e.run; });
    if (e.status == "started") open.push_back(e);
  }
  return open;
}

LedgerWriter::LedgerWriter(const std::string& directory) : directory_(directory) {
  const LedgerReader read(directory);
  check(read.is_continuable(), ErrorKind::data, "ledger", "{}/{} is not valid, so nothing is added to it: {}",
        directory, ledger_file, [&] { return fmt::format("{}", fmt::join(read.faults(), "; ")); });
  const std::string path = directory + "/" + ledger_file;
  const bool is_new = !fs::exists(path);
  file_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  check(file_ >= 0, ErrorKind::file, "ledger", "cannot write {}: {}", path, [&] { return std::strerror(errno); });
  if (is_new) sync_directory(directory);
  if (read.torn_bytes() > 0) {
    const auto whole = static_cast<off_t>(fs::file_size(path) - read.torn_bytes());
    check(::ftruncate(file_, whole) == 0, ErrorKind::file, "ledger", "cannot cut {}: {}", path,
          [&] { return std::strerror(errno); });
  }
  if (read.entries().empty()) return;
  number_ = read.entries().back().number;
  head_ = read.head();
  // A process that was killed between a line and its head leaves an old head. A second line would then be one too many.
  const std::string head = directory + "/" + ledger_head_file, now = fmt::format("{} {}\n", number_, head_);
  if (!fs::exists(head) || read_text(head, 4096) != now) replace_file(head, now);
}

LedgerWriter::~LedgerWriter() {
  if (file_ >= 0) ::close(file_);
}

LedgerEntry LedgerWriter::append(LedgerEntry e) {
  if (e.time.empty())
    e.time = utc_text(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  e.number = number_ + 1;
  e.previous = head_;
  const std::string body = body_of(e);
  e.hash = sha256(body);
  const std::string line = fmt::format("{}{}{}\"}}\n", body, hash_key, e.hash);
  std::size_t done = 0;
  for (ssize_t part; done < line.size(); done += static_cast<std::size_t>(part))
    if ((part = ::write(file_, line.data() + done, line.size() - done)) <= 0) break;
  check(done == line.size() && ::fsync(file_) == 0, ErrorKind::file, "ledger", "cannot write {}/{}: {}", directory_,
        ledger_file, [&] { return std::strerror(errno); });
  number_ = e.number;
  head_ = e.hash;
  replace_file(directory_ + "/" + ledger_head_file, fmt::format("{} {}\n", number_, head_));
  return e;
}

}  // namespace trireme
