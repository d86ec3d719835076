// A study's ledger: what was appended is read again, and any byte or line of it that is changed, removed, moved or
// added is found and named.
#include "tools/study/ledger.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "kernels/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"
#include "tools/study/sha256.h"

namespace test_ledger {

using namespace trireme;
using namespace trireme::test;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  return lines;
}
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

/// Made up: runs that are started and end, in all ways.
LedgerEntry made_up(std::mt19937_64& random, int i) {
  const char* ends[] = {"finished", "failed", "interrupted"};
  const int run = i / 2;
  LedgerEntry e{.run = "runs/strong-r2-tensor/seed_" + std::to_string(run), .cell = "strong-r2-tensor"};
  e.scaling = "strong";
  e.strategy = "tensor";
  e.mesh = "tensor=2";
  e.ranks = 2;
  e.seed = run;
  e.config_hash = sha256(std::to_string(run % 3));
  e.status = i % 2 == 0 ? "started" : ends[random() % 3];
  if (e.status == "failed") e.why = "a \"loss\" of {nan}\n\\ \xc3\xbc, \"hash\":\"0\"}";
  if (i % 2 == 1) {
    e.seconds = static_cast<double>(random() % 10000) / 7;
    e.device_seconds = 2 * e.seconds;
  }
  return e;
}

struct Written {
  Temporary folder;
  std::vector<LedgerEntry> entries;
  std::string text, head;
  explicit Written(int lines, std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    LedgerWriter writer(folder.path());
    for (int i = 0; i < lines; ++i) entries.push_back(writer.append(made_up(random, i)));
    text = slurp(ledger());
    head = slurp(folder / ledger_head_file);
  }
  std::string ledger() const { return folder / ledger_file; }
  std::vector<std::string> faults_of(const std::string& other) const {
    std::filesystem::remove(ledger());  // some file systems write a file that is emptied to the disk at once
    spill(ledger(), other);
    return LedgerReader(folder.path()).faults();
  }
};

}  // namespace

TEST_CASE("SHA-256 is that of FIPS 180-4's examples, whatever the length") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("a ledger reads as it was written, by several writers one after the other") {
  Temporary folder;
  std::mt19937_64 random(3);
  std::vector<LedgerEntry> written;
  for (int writers = 0; writers < 4; ++writers) {
    LedgerWriter writer(folder.path());
    for (int i = 0; i < 5; ++i) written.push_back(writer.append(made_up(random, writers * 5 + i)));
  }
  const LedgerReader read(folder.path());
  CHECK(read.faults().empty());
  CHECK(read.head() == written.back().hash);
  REQUIRE(read.entries().size() == written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const LedgerEntry &a = read.entries()[i], &b = written[i];
    CHECK(a.number == static_cast<std::int64_t>(i + 1));
    CHECK(a.previous == (i == 0 ? "" : written[i - 1].hash));
    CHECK(std::tie(a.time, a.run, a.cell, a.scaling, a.strategy, a.mesh, a.ranks, a.seed, a.config_hash, a.status) ==
          std::tie(b.time, b.run, b.cell, b.scaling, b.strategy, b.mesh, b.ranks, b.seed, b.config_hash, b.status));
    CHECK(std::tie(a.why, a.seconds, a.device_seconds, a.hash) == std::tie(b.why, b.seconds, b.device_seconds, b.hash));
  }
  CHECK(LedgerReader(folder / "nowhere").entries().empty());
}

TEST_CASE("any byte of a ledger that is another is found, and its line is named") {
  const Written w(7);
  std::mt19937_64 random(5);
  const auto lines = lines_of(w.text);
  std::size_t at = 0;
  for (std::size_t line = 0; line < lines.size(); ++line)
    for (const char c : lines[line]) {
      std::string other = w.text;
      char& byte = other[at++];
      while (byte == c) byte = static_cast<char>(random());
      const auto faults = w.faults_of(other);
      INFO("line " << line + 1 << ", byte " << at - 1 << ": " << int(c) << " to " << int(byte));
      REQUIRE_FALSE(faults.empty());
      // What ends a line makes it one with the next; two lines of one are named by the first.
      CHECK_THAT(faults[0], contains("ledger.jsonl:" + std::to_string(line + 1) + ":"));
    }
  CHECK(w.faults_of(w.text).empty());
}

TEST_CASE("bytes put in or left out of a ledger are found") {
  const Written w(4);
  std::mt19937_64 random(6);
  for (std::size_t at = 0; at <= w.text.size(); ++at) {
    std::string more = w.text, less = w.text;
    INFO("at " << at);
    more.insert(at, 1, " \n\"a0"[random() % 5]);
    CHECK_FALSE(w.faults_of(more).empty());
    if (at == w.text.size()) continue;
    less.erase(at, 1 + random() % (w.text.size() - at));
    CHECK_FALSE(w.faults_of(less).empty());
  }
}

TEST_CASE("lines that are removed, swapped, doubled, or written anew with a hash of their own are found") {
  const Written w(9);
  const auto lines = lines_of(w.text);
  const std::size_t n = lines.size();
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b <= n; ++b) {  // lines [a, b) removed
      auto left = lines;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(a), left.begin() + static_cast<std::ptrdiff_t>(b));
      const auto faults = w.faults_of(joined(left));
      INFO("without lines " << a + 1 << " to " << b);
      REQUIRE_FALSE(faults.empty());
      if (b < n) CHECK_THAT(faults[0], contains("lines " + std::to_string(a + 1) + " to " + std::to_string(b)));
      if (b == n) CHECK_THAT(faults[0], contains("lines at the end were removed"));
    }
    for (std::size_t b = 0; b < n; ++b) {
      auto swapped = lines, doubled = lines;
      std::swap(swapped[a], swapped[b]);
      doubled.insert(doubled.begin() + static_cast<std::ptrdiff_t>(b), lines[a]);
      INFO("lines " << a + 1 << " and " << b + 1);
      CHECK(w.faults_of(joined(swapped)).empty() == (a == b));
      CHECK_FALSE(w.faults_of(joined(doubled)).empty());
    }
    auto forged = lines;  // a better time, and the hash that goes with it
    std::string& line = forged[a];
    const auto key = line.rfind(",\"hash\":");
    std::string body = line.substr(0, key);
    body.replace(body.find("\"ranks\":2"), 9, "\"ranks\":3");
    line = body + ",\"hash\":\"" + sha256(body) + "\"}\n";
    INFO("forged " << a + 1);
    CHECK_FALSE(w.faults_of(joined(forged)).empty());
  }
}

TEST_CASE("a last line cut short is told, and the next writer goes on before it; damage it refuses") {
  const Written w(5);
  const auto lines = lines_of(w.text);
  std::string whole = joined({lines.begin(), lines.end() - 1});
  for (std::size_t size = 1; size < lines.back().size(); ++size) {
    spill(w.ledger(), whole + lines.back().substr(0, size));
    spill(w.folder / ledger_head_file, "4 " + w.entries[3].hash + "\n");
    const LedgerReader read(w.folder.path());
    REQUIRE(read.entries().size() == 4);
    CHECK(read.torn_bytes() == size);
    CHECK(read.is_continuable());
    REQUIRE(read.faults().size() == 1);
    CHECK_THAT(read.faults()[0], contains("ledger.jsonl:5: the last line is cut short"));
  }
  std::mt19937_64 random(8);
  CHECK(LedgerWriter(w.folder.path()).append(made_up(random, 4)).number == 5);
  CHECK(LedgerReader(w.folder.path()).faults().empty());

  // The machine may go down between a line and its head, which is one behind then.
  spill(w.ledger(), w.text);
  spill(w.folder / ledger_head_file, "4 " + w.entries[3].hash + "\n");
  CHECK(LedgerReader(w.folder.path()).faults().empty());
  spill(w.folder / ledger_head_file, "3 " + w.entries[2].hash + "\n");
  CHECK_FALSE(LedgerReader(w.folder.path()).faults().empty());

  std::string edited = w.text;
  edited[edited.find("tensor=2") + 7] = '4';
  spill(w.ledger(), edited);
  CHECK_ERROR(LedgerWriter(w.folder.path()), data, "ledger.jsonl:1", "runs/strong-r2-tensor/seed_0");
  CHECK(slurp(w.ledger()) == edited);
}

TEST_CASE("totals count what was spent, and runs without an end are open") {
  std::vector<LedgerEntry> all;
  LedgerTotals want;
  std::mt19937_64 random(9);
  std::vector<std::string> open;
  for (int i = 0; i < 200; ++i) {
    LedgerEntry e = made_up(random, i);
    if (i % 2 == 1 && random() % 4 == 0) {  // went down
      open.push_back(e.run);
      continue;
    }
    want.started += e.status == "started";
    want.finished += e.status == "finished";
    want.failed += e.status == "failed";
    want.interrupted += e.status == "interrupted";
    want.device_seconds += e.device_seconds;
    all.push_back(e);
  }
  const LedgerTotals got = totals_of(all);
  CHECK(std::tie(got.started, got.finished, got.failed, got.interrupted, got.device_seconds) ==
        std::tie(want.started, want.finished, want.failed, want.interrupted, want.device_seconds));
  std::vector<std::string> found;
  for (const LedgerEntry& e : open_runs(all)) found.push_back(e.run);
  CHECK(found == open);
}

TEST_CASE("times are those of ISO 8601, to the millisecond") {
  CHECK(utc_text(0) == "1970-01-01T00:00:00.000Z");
  CHECK(utc_text(951782400) == "2000-02-29T00:00:00.000Z");
  CHECK(unix_seconds("2000-02-29T00:00:00.000Z") == 951782400);
  std::mt19937_64 random(10);
  for (int i = 0; i < 1000; ++i) {
    const double t = static_cast<double>(random() % 4000000000000) / 1000;
    CHECK(unix_seconds(utc_text(t)) == Approx(t).epsilon(1e-13));
  }
  for (const char* wrong : {"", "2026", "2026-02-30T00:00:00.000Z", "2026-13-01T00:00:00.000Z",
                            "2026-11-25T24:00:00.000Z", "2026-11-25T17:41:46.123", "2026-11-25 17:41:46.123Z"})
    CHECK_ERROR(unix_seconds(wrong), data, "ledger", 2026);
}

}  // namespace test_ledger
