// Writes in place that backward needs to know of: many of them, beside each other, and to blocks that are replaced.
#include <algorithm>
#include <random>

#include "framework/autograd/tape.h"
#include "framework/layers/layers.h"
#include "framework/ops/ops.h"
#include "framework/optim/parameters.h"
#include "tests/support/catch.h"

namespace test_writes {

using namespace trireme;
using detail::Writes;
using test::contains;

TEST_CASE("a tensor that was written to before the forward is told from those that were written to since") {
  const Index entries = 1500, width = 3;  // of a flat block, each with a gap behind it
  const Tensor block = Tensor::zeros({entries * width}), two = Tensor::full({2}, 1);
  const auto entry = [&](Index i) { return block.view_rows(i * width, i * width + 2); };
  const auto write_all_but = [&](Index kept) {
    for (int round = 0; round < 3; ++round)
      for (Index i = 0; i < entries; ++i)
        if (i != kept) entry(i).copy_from(two);
  };
  for (const Index kept : {Index{0}, entries / 2, entries - 1}) {
    write_all_but(-1);
    Tensor x = entry(kept);
    x.require_grad();
    const Tensor y = sum(square(x)), z = sum(square(x));
    write_all_but(kept);
    CHECK_NOTHROW(y.backward());
    entry(kept).copy_from(two);
    CHECK_ERROR(z.backward(), usage, "square", "[2]");
  }
}

TEST_CASE("what Writes answers is what a list of all writes says") {
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t size = 64;
  Writes writes;
  std::vector<std::uint64_t> last(size, 0), before{Writes::latest()};
  for (int i = 0; i < 4000; ++i) {
    const std::size_t begin = below(size), end = begin + below(below(40) == 0 ? size + 1 - begin : 4);
    writes.add(begin, std::min(end, size), size);
    for (std::size_t b = begin; b < std::min(end, size); ++b) last[b] = Writes::latest();
    before.push_back(Writes::latest());
    const std::uint64_t since = before[before.size() - 1 - below(std::min<std::size_t>(before.size(), 200))];
    const std::size_t from = below(size), to = from + below(size + 1 - from);
    const bool expected = std::any_of(last.begin() + static_cast<Index>(from), last.begin() + static_cast<Index>(to),
                                      [&](auto n) { return n > since; });
    REQUIRE(writes.touched(since, from, to) == expected);
  }
}

TEST_CASE("more partial writes than are kept: none goes unnoticed, and rows written in order cost nobody else") {
  const std::size_t size = 1 << 20;
  Writes writes;
  writes.add(0, 8, size);
  const std::uint64_t start = Writes::latest();
  for (std::size_t row = 1; row < 50'000; ++row) {
    const std::uint64_t since = Writes::latest();
    writes.add(8 * row + 16, 8 * row + 24, size);
    REQUIRE(writes.touched(since, 8 * row + 23, 8 * row + 30));
    REQUIRE_FALSE(writes.touched(start, 0, 16));
  }
  CHECK(writes.touched(start, 8 * 700, 8 * 700 + 1));
  std::mt19937 random(6);
  std::vector<std::pair<std::size_t, std::uint64_t>> done;  // places, and the last write before
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t place = random() % (size / 4) * 4;
    done.push_back({place, Writes::latest()});
    writes.add(place, place + 1, size);
    const auto& [earlier, since] = done[random() % done.size()];
    REQUIRE(writes.touched(since, earlier, earlier + 1));
  }
}

TEST_CASE("a write to a weight that has moved into Parameters since the forward is found out") {
  const Tensor input = Tensor::full({1, 2}, 1);
  for (const bool touched : {false, true}) {
    Sequential model{Linear(2, 2)};
    for (int i = 0; i < 100; ++i) model[0].as<Linear>()->weight.copy_from(Tensor::full({2, 2}, i));
    const Tensor x = input.clone().require_grad();
    const Tensor y = sum(model(x));
    Parameters p(model);
    if (touched) p.find("0.weight")->tensor.copy_from(Tensor::zeros({2, 2}));
    if (touched)
      CHECK_ERROR(y.backward(), usage, "linear", "[2, 2]");
    else
      CHECK_NOTHROW(y.backward());
  }
}

}  // namespace test_writes
