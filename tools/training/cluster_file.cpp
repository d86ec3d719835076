#include "tools/training/cluster_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "datasets/formats/data_paths.h"
#include "framework/io/json.h"
#include "kernels/core/suggest.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace {

/// Reads one table: its keys, the required keys, and nested tables or lists.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string prefix, const std::string& source)
      : table_(table), prefix_(std::move(prefix)), source_(source) {}

  /// others(key, node): whether the key is a nested table or list, which it then reads.
  void read(const std::vector<Option>& options,
            const std::function<bool(const std::string&, const toml::node&)>& others) {
    for (auto&& [key, node] : table_) {
      const std::string name = prefix_ + std::string(key.str());
      if (others && others(name, node)) continue;
      try {
        const Option& option = find_option(options, name);
        set_option(option, option_text(node, option));
      } catch (const OptionError& e) { throw OptionError(place_in(source_, node) + e.what()); }
    }
  }
  void require(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (!table_.contains(key))
        throw OptionError(fmt::format("{}{}{} is missing", place_in(source_, table_), prefix_, key));
  }

 private:
  const toml::table& table_;
  std::string prefix_;
  const std::string& source_;
};

const toml::table& as_table(const toml::node& node, const std::string& name, const std::string& source) {
  if (const auto* table = node.as_table()) return *table;
  throw OptionError(fmt::format("{}{} must be a table: [{}]", place_in(source, node), name, name));
}

constexpr const char* sources = "measured, data sheet, assumed";

Source source_named(const std::string& name) {
  return name == to_string(Source::measured)    ? Source::measured
         : name == to_string(Source::datasheet) ? Source::datasheet
                                                : Source::assumed;
}

/// usual: source of numbers that give none.
NodeGroup read_nodes(const toml::table& table, const std::string& source, Source usual) {
  NodeGroup group;
  std::string from = to_string(usual);
  TableReader reader(table, "nodes.", source);
  constexpr double most = 1 << 24;
  reader.read({{"nodes.count", &group.count, "", 1, most},
               {"nodes.devices", &group.devices, "", 1, most},
               {"nodes.speed", &group.speed, "", 1e-6, 1e6},
               {"nodes.memory", &group.memory, "", 0, 1e18},
               {.name = "nodes.source", .value = &from, .choices = sources}},
              {});
  reader.require({"devices"});
  group.source = source_named(from);
  return group;
}

Link read_link(const toml::table& table, const std::string& name, const std::string& source, Source usual) {
  Link link;
  std::string from = to_string(usual);
  TableReader reader(table, name + ".", source);
  reader.read({{name + ".latency", &link.latency, "", 0, 1e3},
               {name + ".bandwidth", &link.bandwidth, "above 0 bytes per second, or inf for free transfers", 1, 1e18},
               {name + ".efficiency", &link.efficiency, "", 1e-6, 1},
               {name + ".oversubscription", &link.oversubscription, "", 1, 1e6},
               {.name = name + ".source", .value = &from, .choices = sources}},
              [&](const std::string& key, const toml::node& node) {  // Link::bandwidth is then 0
                return key == name + ".bandwidth" && node.value_or(0.0) == std::numeric_limits<double>::infinity();
              });
  reader.require({"latency", "bandwidth"});
  link.source = source_named(from);
  return link;
}

/// Default source of the file's numbers. Another name is refused later.
Source usual_source(const toml::table& file) {
  return source_named(file["source"].value_or(to_string(Source::assumed)));
}

/// Paths by name.
std::map<std::string, std::string> shipped_clusters() {
  std::map<std::string, std::string> found;
  std::error_code none;
  for (const std::string& folder : data_folders("clusters"))
    for (const auto& entry : std::filesystem::directory_iterator(folder, none))
      if (entry.path().extension() == ".toml") found.try_emplace(entry.path().stem().string(), entry.path().string());
  return found;
}

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& source) {
  Cluster cluster;
  const toml::table file = parse_toml(text, source);
  Index seed = 0;
  std::string placement = "block", from;
  bool inside = false, between = false;
  CollectiveSizes sizes = mpich_sizes;
  const Source usual = usual_source(file);
  const auto link = [&](const std::string& name, const toml::node& node) {
    const bool is_inside = name == "links.inside";
    if (!is_inside && name != "links.between") return false;
    (is_inside ? cluster.inside : cluster.between) = read_link(as_table(node, name, source), name, source, usual);
    (is_inside ? inside : between) = true;
    return true;
  };
  const auto table = [&](const std::string& name, const toml::node& node) {
    if (name == "links") {
      Link none;  // only for the names of nested tables
      TableReader(as_table(node, name, source), "links.", source)
          .read({{"links.inside", &none.latency}, {"links.between", &none.latency}}, link);
      return true;
    }
    if (name == "collectives") {
      TableReader(as_table(node, name, source), "collectives.", source)
          .read({{"collectives.doubling", &sizes.doubling, "", 0, 1e18},
                 {"collectives.halving", &sizes.halving, "", 0, 1e18}},
                {});
      return true;
    }
    if (name != "nodes") return false;
    const auto* groups = node.as_array();
    if (!groups || !groups->is_homogeneous(toml::node_type::table))
      throw OptionError(fmt::format("{}nodes must be a list of tables: [[nodes]]", place_in(source, node)));
    cluster.nodes.clear();
    for (const toml::node& group : *groups) cluster.nodes.push_back(read_nodes(*group.as_table(), source, usual));
    return true;
  };
  double any = 0;  // value of nested tables, which the callback reads
  TableReader(file, "", source)
      .read({{"name", &cluster.name},
             {.name = "placement", .value = &placement, .choices = "block, cyclic"},
             {"jitter", &cluster.jitter, "", 0, Cluster::most_jitter},
             {"seed", &seed, "", 0},
             {"flops", &cluster.flops, "", 1, 1e24},
             {"memory_bandwidth", &cluster.memory_bandwidth, "", 1, 1e24},
             {"overlaps", &cluster.overlaps},
             {.name = "source", .value = &from, .choices = sources},
             {"nodes", &any},
             {"links", &any},
             {"collectives", &any}},
            table);
  cluster.inside.sizes = cluster.between.sizes = sizes;
  cluster.seed = static_cast<std::uint64_t>(seed);
  cluster.cyclic = placement == "cyclic";
  if (!file.contains("nodes")) throw OptionError(source + ":1: nodes is missing: [[nodes]]");
  Index nodes = 0;
  int devices = 1;
  for (const NodeGroup& g : cluster.nodes) {
    nodes += g.count;
    devices = std::max(devices, g.devices);
  }
  const toml::node& links = file.contains("links") ? *file.get("links") : static_cast<const toml::node&>(file);
  if (devices > 1 && !inside)
    throw OptionError(place_in(source, links) + "links.inside is missing; add it, because a node has several devices");
  if (nodes > 1 && !between)
    throw OptionError(place_in(source, links) + "links.between is missing; add it, because there are several nodes");
  try {
    validate(cluster);
  } catch (const Error& e) { throw OptionError(place_in(source, *file.get("nodes")) + e.what()); }
  return cluster;
}

std::string cluster_toml(const Cluster& c) {
  std::string title = json_text(c.name);  // TOML wants one more character escaped than JSON
  for (std::size_t at; (at = title.find('\x7f')) != title.npos;) title.replace(at, 1, "\\u007f");
  std::string text = fmt::format("name = {}\nflops = {}\njitter = {}\nseed = {}\n", title, c.flops, c.jitter, c.seed);
  if (c.memory_bandwidth > 0) text += fmt::format("memory_bandwidth = {}\n", c.memory_bandwidth);
  if (c.cyclic) text += "placement = \"cyclic\"\n";
  if (!c.overlaps) text += "overlaps = false\n";
  for (const NodeGroup& g : c.nodes)
    text += fmt::format("\n[[nodes]]\ncount = {}\ndevices = {}\nspeed = {}\nmemory = {}\nsource = \"{}\"\n", g.count,
                        g.devices, g.speed, g.memory, to_string(g.source));
  text +=
      fmt::format("\n[collectives]\ndoubling = {}\nhalving = {}\n", c.between.sizes.doubling, c.between.sizes.halving);
  for (const auto& [name, link] : {std::pair{"inside", c.inside}, {"between", c.between}}) {
    check(link.measured.empty(), "cluster", "calls that were measured {} nodes have no place in a cluster file", name);
    text += fmt::format(
        "\n[links.{}]\nlatency = {}\nbandwidth = {}\nefficiency = {}\noversubscription = {}\nsource = \"{}\"\n", name,
        link.latency, link.bandwidth > 0 ? fmt::to_string(link.bandwidth) : "inf", link.efficiency, link.oversubscription, to_string(link.source));
  }
  return text;
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  for (const auto& [name, path] : shipped_clusters()) names.push_back(name);
  return names;
}

std::string find_cluster(const std::string& name) {
  std::error_code none;
  const std::filesystem::path path(name);
  if (std::filesystem::exists(path, none) || path.has_parent_path() || path.has_extension()) return name;
  const auto all = shipped_clusters();
  if (const auto at = all.find(name); at != all.end()) return at->second;
  throw OptionError("parallel.cluster: " + unknown_name(name, cluster_names()));
}

Cluster read_cluster(const std::string& path) {
  const std::string found = find_cluster(path);
  return parse_cluster(read_settings(found), found);
}

}  // namespace trireme
