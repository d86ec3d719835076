// Cluster files: what they say is read, and every way to spoil a key of one is a line that names file, line and key.
#include "tools/training/cluster_file.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "framework/io/options.h"
#include "tests/support/catch.h"

namespace test_cluster_file {

using namespace trireme;

namespace {

struct Key {
  std::string section, name, value;
  bool required = false, text = false;
  std::string below = "", above = "";  // values out of range; empty: there are none
};
/// Of a cluster that has everything.
const std::vector<Key> keys = {
    {"", "name", "\"two kinds\"", false, true},
    {"", "placement", "\"cyclic\"", false, true, "\"round\""},
    {"", "jitter", "0.25", false, false, "-0.1", "3.5"},
    {"", "seed", "7", false, false, "-1"},
    {"", "flops", "2e12", false, false, "0", "1e30"},
    {"", "memory_bandwidth", "1e12", false, false, "0", "1e30"},
    {"", "overlaps", "false"},
    {"", "source", "\"data sheet\"", false, true, "\"hearsay\""},
    {"[[nodes]]", "count", "4", false, false, "0", "20000000"},
    {"[[nodes]]", "devices", "8", true, false, "0", "20000000"},
    {"[[nodes]]", "speed", "1.5", false, false, "0.0", "1e7"},
    {"[[nodes]]", "memory", "80e9", false, false, "-1", "1e19"},
    {"[[nodes]]", "source", "\"measured\"", false, true, "\"guess\""},
    {"[collectives]", "doubling", "1000", false, false, "-1"},
    {"[collectives]", "halving", "0", false, false, "-1"},
    {"[links.inside]", "latency", "2e-6", true, false, "-1e-6", "1e4"},
    {"[links.inside]", "bandwidth", "300e9", true, false, "-1.0", "1e19"},
    {"[links.inside]", "efficiency", "0.75", false, false, "0.0", "1.5"},
    {"[links.inside]", "oversubscription", "2", false, false, "0.5", "1e7"},
    {"[links.inside]", "source", "\"assumed\"", false, true, "\"guess\""},
    {"[links.between]", "latency", "0.5", true, false, "-1", "2000"},
    {"[links.between]", "bandwidth", "inf", true, false, "0"},
};
const std::string source = "there/cluster.toml";

/// The file with key `at` changed, and the line on which a fault of that key stands: its own, or, without the key, its
/// section's.
struct Written {
  std::string text;
  int line = 0;
};
Written written(std::size_t at, const std::string& name, const std::string& value) {
  Written w;
  std::string section;
  int lines = 0, section_line = 1;
  const auto add = [&](const std::string& line) {
    w.text += line + "\n";
    ++lines;
  };
  add("# a cluster");
  for (std::size_t k = 0; k < keys.size(); ++k) {
    if (keys[k].section != section) {
      add(section = keys[k].section);
      section_line = lines;
    }
    if (k != at)
      add(keys[k].name + " = " + keys[k].value);
    else if (!name.empty()) {
      add(name + " = " + value);
      w.line = lines;
    } else
      w.line = section_line;
  }
  return w;
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_cluster(text, source);
  } catch (const OptionError& e) { return e.what(); }
  return "";
}
void check_refused(const Written& w, const std::string& key) {
  const std::string what = refusal(w.text);
  INFO(w.text << "\n" << what);
  CHECK(what.starts_with(source + ":" + std::to_string(w.line) + ": "));
  CHECK(what.find(key) != what.npos);
  CHECK(what.find('\n') == what.npos);
}

}  // namespace

TEST_CASE("what is no TOML is refused in one line") {
  for (const char* text : {"jitter = t\n", "jitter = tru\n\n", "name = \"a\n", "[[nodes]\n", "\n\n= 1\r\n"}) {
    const std::string what = refusal(text);
    INFO(text << "\n" << what);
    CHECK(what.starts_with(source + ":"));
    CHECK(what.find('\n') == what.npos);
  }
}

TEST_CASE("a cluster file is read") {
  const Cluster all = parse_cluster(written(keys.size(), "", "").text, source);
  CHECK(all == Cluster{.nodes = {{4, 8, 1.5, 80e9, Source::measured}},
                       .cyclic = true,
                       .inside = {2e-6, 300e9, 0.75, 2, Source::assumed, {}, {1000, 0}},
                       .between = {0.5, 0, 1, 1, Source::datasheet, {}, {1000, 0}},
                       .jitter = 0.25,
                       .seed = 7,
                       .flops = 2e12,
                       .memory_bandwidth = 1e12,
                       .name = "two kinds",
                       .overlaps = false});
  Cluster one;
  one.inside.sizes = one.between.sizes = mpich_sizes;
  CHECK(parse_cluster("[[nodes]]\ndevices = 1\n", source) == one);
  const Cluster two = parse_cluster(
      "links.between = { latency = 1, bandwidth = 2 }\n[[nodes]]\ndevices = 1\n[[nodes]]\n"
      "devices = 1\nspeed = 2\n",
      source);
  CHECK(two.devices() == 2);
  CHECK(two.speed_of(1) == 2);
  CHECK(parse_cluster(cluster_toml(all), source) == all);
  // By its path.
  const auto path = std::filesystem::temp_directory_path() / "trireme_test_cluster.toml";
  std::ofstream(path) << "[[nodes]]\ndevices = 1\n";
  CHECK(read_cluster(path.string()) == one);
  std::filesystem::remove(path);
  CHECK_ERROR(read_cluster(path.string()), file, path.string());
}

TEST_CASE("ranks fill nodes one after the other, or are dealt to them in turn") {
  Cluster c{.nodes = {{.count = 2, .devices = 1, .speed = 3}, {.count = 1, .devices = 3}, {.count = 2, .devices = 2}},
            .inside = {},
            .between = {}};
  const auto nodes = [&] {
    std::vector<int> all;
    for (int r = 0; r < c.devices(); ++r) all.push_back(c.node_of(r));
    return all;
  };
  CHECK(nodes() == std::vector<int>{0, 1, 2, 2, 2, 3, 3, 4, 4});
  CHECK(c.speed_of(2) == 1);
  c.cyclic = true;
  CHECK(nodes() == std::vector<int>{0, 1, 2, 3, 4, 2, 3, 4, 2});
  CHECK(c.speed_of(1) == 3);
  CHECK(c.speed_of(5) == 1);
  CHECK_ERROR(c.node_of(9), usage, "cluster", 9);
  CHECK_ERROR(c.node_of(-1), usage, -1, 9);
  // As many servers as workers, beside them.
  const Cluster pairs{.nodes = {{.count = 3, .devices = 2}}, .cyclic = true, .inside = {1, 1}, .between = {2, 2}};
  for (int worker = 0; worker < 3; ++worker)
    for (int server = 3; server < 6; ++server)
      CHECK(pairs.link(std::array{worker, server}) == (server == worker + 3 ? pairs.inside : pairs.between));
}

TEST_CASE("the guide's cluster files are valid") {
  std::ifstream in(TRIREME_ROOT "/tools/docs/guides/predicting.md");
  const std::string guide(std::istreambuf_iterator<char>(in), {});
  int clusters = 0;
  for (auto begin = guide.find("```toml\n"); begin != guide.npos; begin = guide.find("```toml\n", begin + 1)) {
    const auto text = guide.substr(begin + 8, guide.find("\n```", begin) - begin - 7);
    if (text.find("[[nodes]]") == text.npos) continue;
    const Cluster cluster = parse_cluster(text, source);
    CHECK(cluster.devices() > 1);
    CHECK(cluster.between.latency > 0);
    ++clusters;
  }
  CHECK(clusters > 0);
}

TEST_CASE("a cluster file's keys are refused when they are unknown, missing, of another type or out of range") {
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const Key& key = keys[k];
    check_refused(written(k, key.name + "s", key.value), key.name + "s");
    for (const char* other : {"true", "[]", "1979-05-27"})
      if (key.name != "overlaps" || other[0] != 't') check_refused(written(k, key.name, other), key.name);
    check_refused(written(k, key.name, key.text ? "1" : "\"1\""), key.name);
    check_refused(written(k, key.name, "\n"), "");  // no TOML
    if (!key.below.empty()) check_refused(written(k, key.name, key.below), key.name);
    if (!key.above.empty()) check_refused(written(k, key.name, key.above), key.name);
    if (!key.text) check_refused(written(k, key.name, "nan"), key.name);
    const Written without = written(k, "", "");
    if (key.required)
      check_refused(without, key.name + " is missing");
    else
      CHECK(refusal(without.text).empty());
  }
}

TEST_CASE("a cluster file's tables are refused when they are unknown, missing or no tables") {
  const std::string node = "[[nodes]]\ndevices = 2\n", link = "latency = 0\nbandwidth = 1\n";
  for (const auto& [text, line, key] : std::vector<std::tuple<std::string, int, std::string>>{
           {"", 1, "nodes is missing"},
           {"nodes = []\n", 1, "nodes must be a list of tables"},
           {"\nnodes = 3\n", 2, "nodes must be a list of tables"},
           {"[nodes]\ndevices = 1\n", 1, "nodes must be a list of tables"},
           {"nodes = [1]\n", 1, "nodes must be a list of tables"},
           {node, 1, "links.inside is missing"},
           {"[[nodes]]\ndevices = 1\ncount = 2\n", 1, "links.between is missing"},
           {"[links.inside]\n" + link + "[links.between]\n" + link + "[[nodes]]\ndevices = 8000\ncount = 8000\n", 7,
            "64000000 devices"},
           {node + "[links.outside]\n" + link, 3, "links.outside"},
           {node + "[links]\ninside = 3\n", 4, "links.inside must be a table"},
           {"links = 3\n" + node, 1, "links must be a table"},
           {node + "[link.inside]\n" + link, 3, "link"},
           {"[[nodes]]\ndevices = 1\n[nodes.more]\n", 3, "nodes.more"}}) {
    const std::string what = refusal(text);
    INFO(text << "\n" << what);
    CHECK(what.starts_with(source + ":" + std::to_string(line) + ": "));
    CHECK(what.find(key) != what.npos);
    CHECK(what.find('\n') == what.npos);
  }
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  CHECK(refusal(deep + " = 1\n").find(":1: a key has more than") != std::string::npos);
}

}  // namespace test_cluster_file
