// Checkpoints under everything that can go wrong.
#include "framework/io/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "framework/io/checkpoint_writer.h"
#include "framework/io/file.h"
#include "framework/io/lines.h"
#include "framework/layers/layers.h"
#include "tests/framework/save_faults.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_checkpoint {

using namespace trireme;
using test::contains;
using test::dies_at;
using test::Fault;
using test::shim;
using test::with_fault;

namespace {

/// A small model with every kind of state, all filled with one number.
struct Run {
  Sequential model{Conv2d(3, 4, 3), BatchNorm(4), Linear(4, 5)};
  Parameters parameters{model};
  Optimizer optimizer{parameters, Sgd{.lr = 0.1, .momentum = 0.9}};

  explicit Run(double value = 0) { fill(value); }
  void fill(double value) {
    auto put = [&](const Tensor& t) {
      for (float& v : t.view().span<float>()) v = static_cast<float>(value);
    };
    for (auto& e : parameters.entries()) put(e.tensor);
    for (auto& b : parameters.buffers()) put(b.tensor);
    for (auto& [name, flat] : optimizer.state()) put(flat.blocks()[0]);
    optimizer.set_steps(static_cast<std::int64_t>(value));
  }
  /// The number that all state holds, or NaN when it is a mixture.
  double value() const {
    const float first = parameters.entries()[0].tensor.data<float>()[0];
    bool same = optimizer.steps() == static_cast<std::int64_t>(first);
    auto look = [&](const Tensor& t) {
      for (float v : t.view().span<float>()) same = same && v == first;
    };
    for (auto& e : parameters.entries()) look(e.tensor);
    for (auto& b : parameters.buffers()) look(b.tensor);
    for (auto& e : parameters.entries())
      for (auto& [name, flat] : optimizer.state()) look(flat.rows(e.slice.begin, e.slice.end));
    return same ? first : std::numeric_limits<double>::quiet_NaN();
  }
  std::string save(const std::string& run, std::int64_t step, SaveOptions options = {}) {
    fill(static_cast<double>(step));
    return save_checkpoint(run, parameters, optimizer,
                           {.step = step, .epoch = 2, .batch = 3, .seed = ~0ull, .config = "a = 1\n"}, options);
  }
  LoadedCheckpoint load(const std::string& run) {
    fill(-1);
    auto loaded = load_latest(run, parameters, &optimizer);
    REQUIRE(loaded);
    CHECK(value() == static_cast<double>(loaded->state.step));
    return *loaded;
  }
};

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void flip(const std::string& path, std::uintmax_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(bit / 8);
  const int byte = file.seekg(at).get();
  file.seekp(at).put(static_cast<char>(byte ^ (1 << (bit % 8))));
}

const std::vector<std::string> files{"manifest.json", "model.safetensors", "optimizer.safetensors"};

}  // namespace

TEST_CASE("what is saved comes back, with where the run stood") {
  test::Temporary folder;
  Run run;
  CHECK(!load_latest(folder.path(), run.parameters, &run.optimizer));
  CHECK(!find_latest(folder.path()));
  run.fill(7);
  TrainState state{.step = 7,
                   .epoch = 1,
                   .batch = 42,
                   .samples = 1'234'567'890'123,
                   .seed = 0xffff'ffff'ffff'fff0ull,
                   .partition = "3, 5",
                   .norm_rows = "all rows",
                   .config = "x = \"\u00e9\"\n",
                   .metrics = {{"loss", 0.1}, {"nan", std::nan("")}, {"one", 1.0}}};
  const std::string path = save_checkpoint(folder.path(), run.parameters, run.optimizer, state);
  CHECK(path == folder / "checkpoints/step_00000007");
  CHECK(names_in(path) == files);
  CHECK(test::slurp(folder / "checkpoints/latest") == "step_00000007\n");
  Run other;
  auto loaded = other.load(folder.path());
  CHECK(loaded.path == path);
  CHECK(loaded.note.empty());
  CHECK((loaded.state.epoch == 1 && loaded.state.batch == 42 && loaded.state.seed == state.seed));
  CHECK(loaded.state.config == state.config);
  CHECK(loaded.state.metrics.at("loss") == 0.1);
  CHECK(std::isnan(loaded.state.metrics.at("nan")));
  CHECK(load_checkpoint(path, other.parameters, nullptr).state.step == 7);
  CHECK(verify_checkpoint(path).batch == 42);
  CHECK(verify_checkpoint(path).partition == "3, 5");
  CHECK(verify_checkpoint(path).norm_rows == "all rows");
  CHECK(verify_checkpoint(path).samples == 1'234'567'890'123);

  run.save(folder.path(), 8);  // knows no samples
  const auto newest = find_latest(folder.path());
  REQUIRE(newest.has_value());
  CHECK((newest->path == folder / "checkpoints/step_00000008" && newest->state.step == 8 && !newest->state.samples));
}

TEST_CASE("old checkpoints are removed after the new one is safe; the best stays") {
  test::Temporary folder;
  Run run;
  for (int step = 1; step <= 6; ++step) run.save(folder.path(), step, {.keep_last = 2, .best = step == 2});
  CHECK(names_in(folder / "checkpoints") ==
        std::vector<std::string>{"best", "latest", "step_00000002", "step_00000005", "step_00000006"});
  CHECK(test::slurp(folder / "checkpoints/best") == "step_00000002\n");
  run.save(folder.path(), 6, {.keep_last = 1, .best = true});  // the same step again
  CHECK(names_in(folder / "checkpoints") == std::vector<std::string>{"best", "latest", "step_00000006"});
  CHECK(run.load(folder.path()).state.step == 6);
}

TEST_CASE("checkpoints of steps that a number divides stay") {
  test::Temporary folder;
  Run run;
  for (int step = 1; step <= 11; ++step) run.save(folder.path(), step, {.keep_last = 2, .keep_every = 4});
  CHECK(names_in(folder / "checkpoints") ==
        std::vector<std::string>{"latest", "step_00000004", "step_00000008", "step_00000010", "step_00000011"});
}

TEST_CASE("what is written behind training is what there was when it was asked for") {
  test::Temporary folder;
  Run run;
  std::mt19937 random(1);
  CheckpointShard all{.layout = "one", .holds = {{0, run.parameters.size()}}, .holds_buffers = {true, true}};
  all.writes = all.writes_state = all.holds;
  all.writes_buffers = all.holds_buffers;
  CheckpointWriter writer(nullptr);
  for (int step = 1; step <= 100; ++step) {
    run.fill(step);
    writer.save(folder.path(), run.parameters, run.optimizer, {.step = step}, {.keep_last = 2, .shard = all});
    run.fill(1000 + step);  // training goes on at once
    if (const auto latest = folder / "checkpoints/latest"; std::filesystem::exists(latest)) {  // names what is durable
      const std::string name = test::slurp(latest);
      CHECK_NOTHROW(verify_checkpoint(folder / "checkpoints/" + name.substr(0, name.size() - 1)));
    }
    if (random() % 2 == 0) continue;
    CHECK(writer.wait() == folder / fmt::format("checkpoints/step_{:08}", step));
    run.load(folder.path());
    CHECK(run.value() == step);
  }
  run.fill(NAN);  // of which the next call tells
  writer.save(folder.path(), run.parameters, run.optimizer, {.step = 101}, {.shard = all});
  CHECK_ERROR(writer.save(folder.path(), run.parameters, run.optimizer, {.step = 102}, {.shard = all}), numerics,
              "checkpoint", "0.weight");
  run.load(folder.path());
  CHECK(run.value() == 100);
}

TEST_CASE("values that are not finite are not saved, and named") {
  test::Temporary folder;
  Run run;
  run.save(folder.path(), 1);
  auto refuse = [&](Tensor t, double bad, const std::string& name) {
    run.fill(2);
    t.data<float>()[t.numel() - 1] = static_cast<float>(bad);
    CHECK_ERROR(save_checkpoint(folder.path(), run.parameters, run.optimizer, {.step = 2}), numerics,
                "\"" + name + "\"");
  };
  refuse(run.parameters.entries()[0].tensor, std::nan(""), "0.weight");
  refuse(run.parameters.buffers()[1].tensor, INFINITY, "1.running_var");
  const Tensor momentum = run.optimizer.state()[0].second.blocks()[0];
  refuse(momentum.rows(0, 1), -INFINITY, run.optimizer.state()[0].first + "/0.weight");
  CHECK(run.load(folder.path()).state.step == 1);
}

TEST_CASE("another model or optimizer is refused with names, and nothing changes") {
  test::Temporary folder;
  Run run;
  run.save(folder.path(), 1);
  Sequential model{Conv2d(3, 4, 5), BatchNorm(4), Linear(4, 5), Linear(5, 5)};
  Parameters parameters(model);
  const auto before = parameters.values().to_vector();
  Optimizer sgd(parameters, Sgd{.momentum = 0.9});
  CHECK_ERROR(load_latest(folder.path(), parameters, &sgd), data, 2, "3.weight", "3.bias", "0.weight", "[4, 3, 3, 3]",
              "[4, 3, 5, 5]");
  CHECK(parameters.values().to_vector() == before);
  Optimizer adam(run.parameters, Adam{});
  run.fill(5);
  CHECK_ERROR(load_latest(folder.path(), run.parameters, &adam), usage, "sgd", "adam");
  CHECK(run.value() == 5);
}

TEST_CASE("each of 10,000 flipped bits is detected; the checkpoint before is taken, and the note says so") {
  test::Temporary folder;
  Run run;
  run.save(folder.path(), 1);
  const std::string path = run.save(folder.path(), 2);
  std::mt19937_64 rng(11);
  int undetected = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::string name = path + "/" + files[static_cast<std::size_t>(i) % 3];
    const auto bit = rng() % (8 * std::filesystem::file_size(name));
    flip(name, bit);
    try {
      verify_checkpoint(path);
      ++undetected;
    } catch (const Error&) {}
    if (i < 30) {
      auto loaded = run.load(folder.path());
      CHECK(loaded.state.step == 1);
      CHECK_THAT(loaded.note, contains(name) && contains("resumed from") && contains("step_00000001"));
    }
    flip(name, bit);
  }
  CHECK(undetected == 0);
  CHECK(run.load(folder.path()).state.step == 2);
}

TEST_CASE("truncated, missing, foreign: refused; with nothing else left, an error") {
  test::Temporary folder;
  Run run;
  const std::string path = run.save(folder.path(), 1);
  for (auto& file : files) {
    const std::string name = path + "/" + file, whole = test::slurp(name);
    for (std::size_t n : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
      test::spill(name, whole.substr(0, n));
      run.fill(3);
      CHECK_ERROR(load_latest(folder.path(), run.parameters, &run.optimizer), data, name);
      CHECK(run.value() == 3);
    }
    std::filesystem::remove(name);
    CHECK_ERROR(verify_checkpoint(path), file, name);
    CHECK_ERROR(load_latest(folder.path(), run.parameters, &run.optimizer), file, name);
    for (auto& text :
         {std::string("{}\n"), "{\"a\":" + std::string(1'000'000, '['), std::string(1'000'000, '['), whole + " "}) {
      test::spill(name, text);
      CHECK_THROWS_AS(verify_checkpoint(path), Error);
    }
    test::spill(name, whole);
  }
  CHECK(run.load(folder.path()).state.step == 1);
}

TEST_CASE("leftovers of a crash are passed over and swept away; `latest` may be stale") {
  test::Temporary folder;
  Run run;
  run.save(folder.path(), 1);
  run.save(folder.path(), 2);
  test::spill(folder / "checkpoints/latest", "step_00000001\n");
  std::filesystem::create_directories(folder / "checkpoints/step_00000009.tmp");
  test::spill(folder / "checkpoints/step_00000009.tmp/model.safetensors", "half");
  test::spill(folder / "checkpoints/latest.1.tmp", "step");
  CHECK(run.load(folder.path()).state.step == 2);
  run.save(folder.path(), 3);
  CHECK(names_in(folder / "checkpoints") ==
        std::vector<std::string>{"latest", "step_00000001", "step_00000002", "step_00000003"});
}

TEST_CASE("a crash at every system call of a save leaves the checkpoint before or the new one") {
  for (std::int64_t next : {2, 1}) {  // another step; the same step again
    int calls = 0;
    for (int at = 1;; ++at) {
      test::Temporary folder;
      Run run;
      run.save(folder.path(), 0);
      run.save(folder.path(), 1);
      const bool died = dies_at(at, [&] { run.save(folder.path(), next, {.keep_last = 1}); });
      auto loaded = run.load(folder.path());
      CHECK(loaded.note.empty());
      CHECK((loaded.state.step == 1 || loaded.state.step == next));
      run.save(folder.path(), 3, {.keep_last = 1});
      CHECK(names_in(folder / "checkpoints") == std::vector<std::string>{"latest", "step_00000003"});
      if (!died) break;
      calls = at;
    }
    CHECK(calls > 20);
  }
}

TEST_CASE(
    "an error at every system call of a save is reported, or the checkpoint is there; nothing half-written stays") {
  for (int code : {ENOSPC, EIO, EDQUOT, EROFS}) {
    int refused = 0;
    for (int at = 1;; ++at) {
      test::Temporary folder;
      Run run;
      run.save(folder.path(), 1);
      bool failed = false;
      try {
        with_fault(Fault::error, at, code, [&] { run.save(folder.path(), 2, {.keep_last = 1}); });
      } catch (const Error& e) {
        failed = true;
        CHECK_THAT(e.what(), contains(folder.path()) && contains(std::strerror(code)));
      }
      refused += failed;
      const bool reached = shim.calls >= at;
      auto step = run.load(folder.path()).state.step;
      CHECK((failed ? step == 1 || step == 2 : step == 2));
      for (auto& name : names_in(folder / "checkpoints")) CHECK((!failed || !name.ends_with(".tmp")));
      if (!reached) break;
    }
    CHECK(refused > 15);
  }
}

TEST_CASE("interrupted and short writes are gone on with") {
  test::Temporary folder;
  Run run;
  const std::string plain = run.save(folder / "plain", 4);
  for (Fault fault : {Fault::interrupt, Fault::short_write}) {
    const std::string name = folder / (fault == Fault::interrupt ? "interrupt" : "short");
    std::string path;
    with_fault(fault, 0, 0, [&] { path = run.save(name, 4); });
    for (auto& file : files) CHECK(test::slurp(path + "/" + file) == test::slurp(plain + "/" + file));
  }
}

TEST_CASE("a limit on the file size (EFBIG): path, bytes and reason; the checkpoint before is intact") {
  test::Temporary folder;
  Run run;
  run.save(folder.path(), 1);
  auto* before = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small{700, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    run.save(folder.path(), 2);
  } catch (const Error& e) { message = e.what(); }
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, before);
  CHECK_THAT(message, contains("model.safetensors") && contains("File too large") && contains("700 of "));
  CHECK(names_in(folder / "checkpoints") == std::vector<std::string>{"latest", "step_00000001"});
  CHECK(run.load(folder.path()).state.step == 1);
}

TEST_CASE("a full disk (ENOSPC) and a read-only one") {
  test::Temporary folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    return test::note_missing(std::string("a full disk (mounting a tmpfs needs root): ") + std::strerror(errno));
  }
  Run run;
  std::string message;
  int saved = 0;
  try {
    for (; saved < 100; ++saved) run.save(folder.path(), saved + 1, {.keep_last = 0});
  } catch (const Error& e) { message = e.what(); }
  CHECK(saved > 0);
  CHECK_THAT(message, contains(folder.path()) && contains("No space left on device") && contains("bytes"));
  const auto last = run.load(folder.path()).state.step;
  CHECK(
      (last == saved || last == saved + 1));  // the disk may have filled up at the file `latest`, after the checkpoint
  CHECK_ERROR(check_writable(folder.path(), std::size_t{1} << 30), file, "file", "1073741824");
  ::mount("tmpfs", folder.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k");
  CHECK_ERROR(run.save(folder.path(), 200), file, folder.path(), "Read-only file system");
  CHECK(run.load(folder.path()).state.step == last);
  ::umount(folder.path().c_str());
}

TEST_CASE("lines that a person wrote end as Unix's or Windows', and have no byte order mark") {
  const std::vector<std::string> lines{"one", "", " two ", "\xef\xbb\xbfthree"};
  for (const std::string end : {"\n", "\r\n"})
    for (const std::string mark : {"", "\xef\xbb\xbf"})
      for (const bool ended : {false, true})
        CHECK(text_lines(mark + fmt::format("{}", fmt::join(lines, end)) + (ended ? end : "")) == lines);
  CHECK(text_lines("").empty());
  CHECK(text_lines("\xef\xbb\xbf").empty());
  CHECK(text_lines("\n\r\n") == std::vector<std::string>{"", ""});
}

TEST_CASE("lines of a file, of which long ones are cut") {
  test::Temporary folder;
  std::vector<std::string> lines;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  CHECK(!each_line(folder / "none", keep));
  const std::size_t most = std::size_t{1} << 20;
  const std::string odd("a\0b\r", 4), large(most - 4, 'x');  // the block of 1 MiB ends in a line
  test::spill(folder / "all", odd + "\n\n" + large + "y\n" + std::string(2 * most + 3, 'z') + "\nend");
  CHECK(each_line(folder / "all", keep));
  REQUIRE(lines.size() == 5);
  CHECK((lines[0] == odd && lines[1].empty() && lines[2] == large + "y"));
  CHECK((lines[3] == std::string(most, 'z') && lines[4] == "end"));
  test::spill(folder / "ended", "1\n2\n");
  lines.clear();
  CHECK((each_line(folder / "ended", keep) && lines == std::vector<std::string>{"1", "2"}));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_ERROR(each_line(folder / "pipe", keep), file, folder / "pipe");
  CHECK_ERROR(each_line("/dev/zero", keep), file, "/dev/zero");
}

TEST_CASE("an unwritable directory is named") {
  test::Temporary folder;
  Run run;
  run.save(folder.path(), 1);
  test::spill(folder / "file", "");
  CHECK_ERROR(run.save(folder / "file/run", 2), file, folder / "file");
  const bool root = geteuid() == 0;
  ::chmod((folder / "checkpoints").c_str(), 0555);
  ::chmod(folder.path().c_str(), 0555);
  if (root && seteuid(65534) != 0) test::note_missing("an unwritable directory (root that cannot change its user)");
  if (geteuid() != 0) {
    CHECK_ERROR(run.save(folder.path(), 2), file, folder / "checkpoints", "Permission denied");
    CHECK_ERROR(check_writable(folder.path(), 1), file, "file", "Permission denied");
  }
  if (root && seteuid(0) != 0) FAIL("cannot become root again");
  ::chmod(folder.path().c_str(), 0755);
  ::chmod((folder / "checkpoints").c_str(), 0755);
  CHECK(run.load(folder.path()).state.step == 1);
}

}  // namespace test_checkpoint
