// TensorBoard's event files: read back by hand, and by TensorBoard.
#include "tools/training/events.h"

#include <algorithm>
#include <filesystem>

#include "datasets/images/image.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/protobuf_reader.h"
#include "tests/support/temporary.h"

namespace test_events {

using namespace trireme;
using test::contains;
using test::Fields;

namespace {

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t c = crc32c(bytes);
  return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}
template <class T>
T number_at(const std::string& file, std::size_t at) {
  T value;
  REQUIRE(at + sizeof value <= file.size());
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}
/// The events of a file, every length and checksum verified.
std::vector<std::string> events_of(const std::string& path) {
  const std::string file = test::slurp(path);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = number_at<std::uint64_t>(file, at);
    CHECK(number_at<std::uint32_t>(file, at + 8) == masked(std::string_view(file).substr(at, 8)));
    REQUIRE(at + 16 + length <= file.size());
    events.push_back(file.substr(at + 12, length));
    CHECK(number_at<std::uint32_t>(file, at + 12 + length) == masked(events.back()));
    at += 16 + length;
  }
  return events;
}
Tensor stripes() {
  Tensor image = Tensor::empty({3, 5, 3}, DType::u8);
  for (Index i = 0; i < image.numel(); ++i) image.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(5 * i);
  return image;
}
const std::vector<double> weights{-1, -0.5, 0, 0.25, 3, 3, std::nan(""), INFINITY};

/// A run that reached step 5, and went on from a checkpoint of step 3.
std::vector<std::string> write_runs(const std::string& folder) {
  std::vector<std::string> paths;
  {
    EventFile first(folder);
    for (std::int64_t step = 1; step <= 5; ++step) first.scalar("train/loss", step, 10.0 / static_cast<double>(step));
    first.histogram("weights/0.weight", 2, weights);
    paths.push_back(first.path());
  }
  EventFile second(folder, 4);
  for (std::int64_t step = 4; step <= 6; ++step) second.scalar("train/loss", step, -static_cast<double>(step));
  const auto png = encode_png(stripes());
  second.image("inputs/0", 4, png, 3, 5, 3);
  second.histogram("weights/same", 4, std::vector<double>(7, 0.5));
  second.histogram("weights/none", 4, {});
  paths.push_back(second.path());
  return paths;
}

}  // namespace

TEST_CASE("CRC-32C has the values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(masked("123456789") == 0xc78ab0e5u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("") == 0u);
}

TEST_CASE("event files hold what was written, in whole records") {
  const test::Temporary folder;
  const std::vector<std::string> paths = write_runs(folder.path());
  CHECK(paths[0] < paths[1]);  // TensorBoard reads them by name
  const std::vector<std::string> first = events_of(paths[0]), second = events_of(paths[1]);
  REQUIRE(first.size() == 7);
  CHECK(Fields(first[0]).text(3) == "brain.Event:2");
  CHECK(Fields(first[0]).one(1).real() > 1.5e9);
  CHECK(Fields(first[2]).one(2).number == 2);
  const Fields value = Fields(first[2]).message(5).message(1);
  CHECK(value.text(1) == "train/loss");
  CHECK(value.one(2).single() == 5);

  const Fields histogram = Fields(first[6]).message(5).message(1).message(5);
  CHECK(histogram.one(1).real() == -1);
  CHECK(histogram.one(2).real() == 3);
  CHECK(histogram.one(3).real() == 6);
  CHECK(histogram.one(4).real() == 4.75);
  const std::string limits = histogram.text(6), counts = histogram.text(7);
  REQUIRE(limits.size() == 64 * 8);
  double total = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    total += number_at<double>(counts, 8 * i);
    if (i > 0) CHECK(number_at<double>(limits, 8 * i) > number_at<double>(limits, 8 * (i - 1)));
  }
  CHECK(total == 6);
  CHECK(number_at<double>(counts, 63 * 8) == 2);
  CHECK(number_at<double>(limits, 63 * 8) == 3);

  REQUIRE(second.size() == 7);  // version, session, three scalars, image, one histogram
  CHECK(Fields(second[1]).one(2).number == 4);
  CHECK(Fields(second[1]).message(7).one(1).number == 1);
  const Fields image = Fields(second[5]).message(5).message(1).message(4);
  CHECK(image.one(1).number == 3);
  CHECK(image.one(2).number == 5);
  const std::string png = image.text(4);
  const Tensor decoded = decode_image(std::as_bytes(std::span(png)), 3, "the event");
  CHECK(decoded.to_vector() == stripes().to_vector());
}

TEST_CASE("events reach the file when asked, and a file that cannot be is an error") {
  const test::Temporary folder;
  EventFile events(folder.path());
  CHECK(events_of(events.path()).size() == 1);
  events.scalar("lr", 1, 0.5);
  events.tick();  // too early
  CHECK(events_of(events.path()).size() == 1);
  events.flush();
  CHECK(events_of(events.path()).size() == 2);
  CHECK_THROWS_WITH(EventFile("/proc/self/nothing"), contains("/proc/self/nothing"));
}

TEST_CASE("TensorBoard reads the files, and forgets what a resumed run writes again") {
  test::Oracle oracle;
  write_runs(oracle.folder());
  if (!oracle.run("tensorboard_oracle.py", "", test::Python::oracles)) return;
  CHECK(oracle.get("events") == std::vector<double>{7, 7});
  CHECK(oracle.get("train-loss") == std::vector<double>{1, 10, 2, 5, 3, 10 / 3.f, 4, -4, 5, -5, 6, -6});
  const std::vector<double> same = oracle.get("weights-same");
  CHECK(std::vector<double>(same.begin(), same.begin() + 5) == std::vector<double>{0.5, 0.5, 7, 3.5, 1.75});
  CHECK(oracle.get("weights-0.weight")[2] == 6);
  const std::vector<double> image = oracle.get("inputs-0");
  const auto png = encode_png(stripes());
  REQUIRE(image.size() == 2 + png.size());
  CHECK(std::equal(png.begin(), png.end(), image.begin() + 2,
                   [](std::byte a, double b) { return static_cast<double>(std::to_integer<int>(a)) == b; }));
}

}  // namespace test_events
