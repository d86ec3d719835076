// The clusters that ship: each is found by its bare name, is complete, and runs a step.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "framework/io/options.h"
#include "parallel/analysis/simulate.h"
#include "parallel/strategies/strategy.h"
#include "tests/support/catch.h"
#include "tools/training/cluster_file.h"

namespace test_clusters {

using namespace trireme;

TEST_CASE("clusters that ship are found by bare names, say where their numbers are from, and run a step") {
  const std::vector<std::string> names = cluster_names();
  CHECK(names == std::vector<std::string>{"aws_p4d", "dgx_a100", "dgx_h100", "gigabit_ethernet", "summit", "tpu_v3"});
  for (const std::string& name : names) {
    CAPTURE(name);
    const std::string path = find_cluster(name);
    CHECK(std::filesystem::path(path).filename() == name + ".toml");
    const Cluster c = read_cluster(name);
    CHECK(c == read_cluster(path));
    CHECK(!c.name.empty());
    CHECK(c.devices() > 1);
    CHECK(c.nodes.front().memory > 0);
    for (const Link& link : {c.inside, c.between}) CHECK((link.latency > 0 && link.bandwidth > 0));
    // Every line with a number says where it is from, or stands below one that does.
    std::ifstream in(path);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    CHECK(text.find("assumed") != text.npos);
    CHECK(text.starts_with("# "));
    // 25e6 weights in 16 parts, 100 samples a rank of 24e9 operations each, on all of its devices, and on two of one
    // node.
    for (const int ranks : {2, c.devices()}) {
      std::vector<PartInfo> parts;
      const double each = 100 * 24e9 / 3 / 16 / c.flops;
      for (Index i = 0; i < 16; ++i)
        parts.push_back({.name = std::to_string(i),
                         .slice = {i * 1'600'000, (i + 1) * 1'600'000},
                         .cost = {.forward = each, .backward_input = each, .backward_weight = each}});
      const Plan plan = data_parallel()(serial(std::move(parts), 16 * 1'600'000, 0, {{"data", ranks}}));
      const Simulation s = simulate(plan, {.cluster = c});
      CHECK(s.folded);
      CHECK(s.makespan > 48 * each);
      CHECK(s.makespan < (ranks == 2 ? 1.5 : 100) * 48 * each);
    }
  }
}

TEST_CASE("a cluster of another name is refused with those that there are; a path is one") {
  CHECK_ERROR(read_cluster("dgx_a10"), usage, "parallel.cluster", "dgx_a10", "dgx_a100");
  CHECK_ERROR(read_cluster("dgx_a10"), usage, "dgx_a100", "aws_p4d", "dgx_h100", "gigabit_ethernet", "summit",
              "tpu_v3");
  CHECK_THROWS_AS(read_cluster("mine"), OptionError);
  CHECK(find_cluster("mine.toml") == "mine.toml");
  CHECK(find_cluster("there/mine") == "there/mine");
  // A file of that name comes first.
  const auto here = std::filesystem::current_path();
  const auto folder = std::filesystem::temp_directory_path() / "trireme_test_clusters";
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  std::ofstream("summit") << "[[nodes]]\ndevices = 1\n";
  CHECK(read_cluster("summit") == parse_cluster("[[nodes]]\ndevices = 1\n", "here"));
  std::filesystem::current_path(here);
  std::filesystem::remove_all(folder);
}

}  // namespace test_clusters
