#include <sys/resource.h>

#include <filesystem>
#include <thread>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/layers/layers.h"
#include "framework/optim/parameters.h"
#include "parallel/comm/crash_report.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/world/job_sockets.h"
#include "parallel/comm/world/world.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_flight_recorder {

using namespace trireme;

TEST_CASE("flight recorder: the newest entries, with their times, are kept") {
  CHECK(FlightRecorder::current() == nullptr);
  { const FlightEntry nobody("is told"); }
  FlightRecorder r(3, 8);
  CHECK(FlightRecorder::current() == &r);
  bool elsewhere = true;
  std::thread([&] { elsewhere = FlightRecorder::current() != nullptr; }).join();
  CHECK_FALSE(elsewhere);
  for (int i = 1; i <= 200; ++i) {
    const FlightEntry entry(fmt::format("call {}", i));
    CHECK(r.count() == i);
    CHECK(r.entry(i).ended == 0);
  }
  for (int i = 200 - FlightRecorder::kept + 1; i <= 200; ++i) {
    const auto& e = r.entry(i);
    CHECK(e.number == i);
    CHECK(std::string(e.text.data()) == fmt::format("call {}", i));
    CHECK(e.ended >= e.begun);
  }
  r.end(1);  // no longer kept
  CHECK(r.entry(200 - FlightRecorder::kept + 1).number == 200 - FlightRecorder::kept + 1);
  r.begin(std::string(500, 'x'));
  CHECK(std::string(r.entry(201).text.data()) == std::string(119, 'x'));
  CHECK(r.waits_since() == 0);
  {
    const FlightRecorder::Wait waiting;
    CHECK(r.waits_since() > 0);
  }
  CHECK(r.waits_since() == 0);
}

TEST_CASE("flight recorder: a rank beats with each layer of one long forward or backward") {
  const Module model = Sequential{Linear(4, 4), relu, Linear(4, 4), relu, Linear(4, 1)};
  const FlightRecorder r(0, 1);
  const Parameters parameters(model);  // which want gradients
  const auto before = r.beats();
  const Tensor y = model(Tensor::full({2, 4}, 1.0));
  const auto forward = r.beats();
  CHECK(forward >= before + 3);
  y.backward(Tensor::full(y.shape(), 1));
  CHECK(r.beats() >= forward + 3);
  CHECK(r.count() == 0);  // no call, no action
}

TEST_CASE("a job monitor's host raises its limit of open files, or refuses") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto files = static_cast<rlim_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
  rlimit low = before;
  low.rlim_cur = files + 8;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  ensure_open_files(20);
  rlimit now{};
  CHECK((::getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur >= files + 20));
  CHECK_ERROR(ensure_open_files(std::int64_t{1} << 40), usage, "open files", std::int64_t{1} << 40, before.rlim_max);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("flight recorder: calls of a communicator are entered, and a rank that throws leaves a report") {
  const test::Temporary dir;
  set_crash_directory(dir.path() + "/crash");
  CHECK_THROWS(World::threads(3, [&](World& world) {
    FlightRecorder::current()->set_phase("step", 7);
    world.comm().all_reduce(Tensor::zeros({5})).wait();
    world.comm().barrier();
    fail("te\"st", "on rank {}\n\x01", world.rank());
  }));
  set_crash_directory("");
  for (int rank = 0; rank < 3; ++rank) {
    const Json report = parse_json(read_text(fmt::format("{}/crash/rank_{}.json", dir.path(), rank), 1 << 20));
    REQUIRE(report.is_object());
    CHECK(report["rank"] == rank);
    CHECK(report["ranks"] == 3);
    CHECK(report["phase"] == "step");
    CHECK(report["step"] == 7);
    CHECK(report["resident_bytes"] > 1 << 20);
    const std::string reason = report["reason"];
    CHECK((reason.find("on rank") != reason.npos || reason.find("ended because of") != reason.npos));
    std::vector<std::string> whats;
    for (const Json& entry : report["entries"]) whats.push_back(entry["what"]);
    REQUIRE(whats.size() >= 2);
    CHECK(whats[0] == "all_reduce of 5 f32 (sum)");
    CHECK(whats[1] == "barrier");
    CHECK(report["entries"][0]["ended"] >= report["entries"][0]["begun"]);
  }
}

}  // namespace test_flight_recorder
