#include "tools/training/machine_file.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "framework/io/json.h"
#include "kernels/core/runtime.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/comm/call.h"
#include "tools/training/from_options.h"
#include "tools/training/toml_file.h"

namespace trireme {
namespace {

/// Calls that transfer data.
constexpr std::array kinds{CallKind::all_reduce, CallKind::reduce,     CallKind::reduce_scatter,
                           CallKind::all_gather, CallKind::gather,     CallKind::scatter,
                           CallKind::broadcast,  CallKind::all_to_all, CallKind::send};

/// Reads the keys of a table. Keys that were not read are unknown, and refused at the end.
class Keys {
 public:
  Keys(const toml::table& table, std::string prefix, const std::string& source)
      : table_(table), prefix_(std::move(prefix)), source_(source) {}

  /// Null if the key is missing.
  const toml::node* find(const char* key) {
    known_.push_back(key);
    return table_.get(key);
  }
  const toml::node& get(const char* key) {
    if (const toml::node* node = find(key)) return *node;
    throw OptionError(fmt::format("{}{}{} is missing", place_in(source_, table_), prefix_, key));
  }
  [[noreturn]] void refuse(const toml::node& at, const char* key, const std::string& wanted) const {
    throw OptionError(fmt::format("{}{}{} must be {}", place_in(source_, at), prefix_, key, wanted));
  }
  double number(const toml::node& node, const char* key, double least = 0) const {
    const auto value = node.value<double>();
    if (!value || !std::isfinite(*value) || *value < least)
      refuse(node, key, fmt::format("a number of at least {}", least));
    return *value;
  }
  Index count(const char* key, Index least) {
    const toml::node& node = get(key);
    const auto value = node.value_exact<std::int64_t>();
    if (!value || *value < least || *value > (Index{1} << 50))
      refuse(node, key, fmt::format("a whole number of at least {}", least));
    return *value;
  }
  std::string text(const char* key) {
    const toml::node& node = get(key);
    const auto value = node.value_exact<std::string>();
    if (!value) refuse(node, key, "text");
    return *value;
  }
  std::vector<double> numbers(const char* key, std::size_t wanted) {
    const toml::node& node = get(key);
    std::vector<double> all;
    if (const toml::array* list = node.as_array())
      for (const toml::node& each : *list) all.push_back(number(each, key));
    if (all.size() != wanted) refuse(node, key, fmt::format("a list of {} numbers", wanted));
    return all;
  }
  std::vector<std::string> texts(const char* key) {
    const toml::node& node = get(key);
    std::vector<std::string> all;
    const toml::array* list = node.as_array();
    if (!list) refuse(node, key, "a list of texts");
    for (const toml::node& each : *list) {
      const auto value = each.value_exact<std::string>();
      if (!value) refuse(each, key, "a list of texts");
      all.push_back(*value);
    }
    return all;
  }
  Measured measured(const char* key) {
    const auto both = numbers(key, 2);
    return {both[0], both[1]};
  }
  /// A list of tables; empty if the key is missing.
  std::vector<const toml::table*> tables(const char* key) {
    std::vector<const toml::table*> all;
    const toml::node* node = find(key);
    if (!node) return all;
    const toml::array* list = node->as_array();
    if (!list) refuse(*node, key, fmt::format("a list of tables: [[{}{}]]", prefix_, key));
    for (const toml::node& each : *list) {
      if (!each.is_table()) refuse(each, key, fmt::format("a list of tables: [[{}{}]]", prefix_, key));
      all.push_back(each.as_table());
    }
    return all;
  }
  void end() const {
    for (auto&& [key, node] : table_)
      if (const std::string name(key.str()); std::ranges::find(known_, name) == known_.end())
        throw OptionError(
            fmt::format("{}there is no '{}{}'{}", place_in(source_, node), prefix_, name, did_you_mean(name, known_)));
  }

 private:
  const toml::table& table_;
  std::string prefix_;
  const std::string& source_;
  std::vector<std::string> known_;
};

void read_calls(Keys& keys, std::vector<MeasuredCall>& calls) {
  const auto name = [](CallKind k) { return name_of(k); };
  const std::string kind = keys.text("kind");
  const auto at = std::ranges::find(kinds, kind, name);
  if (at == kinds.end())
    keys.refuse(keys.get("kind"), "kind",
                fmt::format("one of {}", fmt::join(kinds | std::views::transform(name), ", ")));
  const auto ranks = static_cast<int>(std::min<Index>(keys.count("ranks", 2), 1 << 24));
  const toml::node& list = keys.get("bytes");
  if (!list.as_array()) keys.refuse(list, "bytes", "a list of numbers");
  const std::size_t sizes = list.as_array()->size();
  const auto bytes = keys.numbers("bytes", sizes), seconds = keys.numbers("seconds", sizes);
  for (std::size_t i = 0; i < sizes; ++i) calls.push_back({*at, ranks, static_cast<Index>(bytes[i]), seconds[i]});
  keys.end();
}

ModelProfile::Size read_size(Keys keys, std::size_t parts) {
  ModelProfile::Size size{.rows = keys.count("rows", 1),
                          .forward = keys.measured("step_forward"),
                          .backward = keys.measured("step_backward"),
                          .loss = keys.measured("loss"),
                          .parts = std::vector<PartCost>(parts),
                          .between = keys.measured("between")};
  const auto forward = keys.numbers("forward", parts), input = keys.numbers("input", parts),
             weight = keys.numbers("weight", parts), saved = keys.numbers("saved", parts),
             output = keys.numbers("output", parts);
  for (std::size_t p = 0; p < parts; ++p) {
    PartCost& c = size.parts[p];
    c.forward = forward[p];
    c.backward_input = input[p];
    c.backward_weight = weight[p];
    c.saved = static_cast<Index>(saved[p]);
    c.output = static_cast<Index>(output[p]);
  }
  keys.end();
  return size;
}

ModelProfile read_model(Keys& keys, const std::string& source) {
  ModelProfile m;
  m.model = keys.text("model");
  m.ranks = static_cast<int>(std::min<Index>(keys.count("ranks", 1), 1 << 24));
  m.threads = static_cast<int>(std::min<Index>(keys.count("threads", 1), 1 << 24));
  m.parameters = keys.count("parameters", 0);
  m.optimizer = keys.text("optimizer");
  m.update = keys.measured("update");
  m.names = keys.texts("parts");
  for (const std::string& setting : keys.texts("arch")) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos) keys.refuse(keys.get("arch"), "arch", "a list of texts like \"dtype=f32\"");
    m.arch[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  for (const toml::table* size : keys.tables("sizes"))
    m.sizes.push_back(read_size(Keys(*size, "models.sizes.", source), m.names.size()));
  if (m.sizes.empty()) keys.refuse(keys.get("model"), "sizes", "a list of tables: [[models.sizes]]");
  for (std::size_t i = 1; i < m.sizes.size(); ++i)
    if (m.sizes[i].rows <= m.sizes[i - 1].rows)
      keys.refuse(keys.get("sizes"), "sizes", "in ascending order of their rows");
  keys.end();
  return m;
}

/// The values as texts are joined: fmt::join() of numbers would compile all of fmt's formatting of numbers here.
std::string list_of(const auto& values) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  return fmt::format("[{}]", fmt::join(values | std::views::transform(text), ", "));
}
std::string pair_of(const Measured& m) { return fmt::format("[{}, {}]", m.value, m.spread); }
std::string quoted(const std::string& text) {
  std::string out = json_text(text);  // TOML wants one more character escaped than JSON
  for (std::size_t at; (at = out.find('\x7f')) != out.npos;) out.replace(at, 1, "\\u007f");
  return out;
}

}  // namespace

MachineProfile parse_machine(const std::string& text, const std::string& source) {
  const toml::table file = parse_toml(text, source);
  Keys keys(file, "", source);
  MachineProfile m;
  m.jitter = keys.number(keys.get("jitter"), "jitter");
  m.load = keys.measured("load");
  m.checkpoint = keys.measured("checkpoint");
  m.fresh = keys.measured("fresh");
  m.vector_op = keys.measured("vector_op");
  if (const toml::node* about = keys.find("about")) {
    if (!about->is_table()) keys.refuse(*about, "about", "a table of texts");
    for (auto&& [key, node] : *about->as_table()) {
      const auto value = node.value_exact<std::string>();
      if (!value) keys.refuse(node, "about", "a table of texts");
      m.about[std::string(key.str())] = *value;
    }
  }
  for (const toml::table* call : keys.tables("calls")) {
    Keys each(*call, "calls.", source);
    read_calls(each, m.calls);
  }
  for (const toml::table* model : keys.tables("models")) {
    Keys each(*model, "models.", source);
    m.models.push_back(read_model(each, source));
  }
  keys.end();
  return m;
}

std::map<std::string, std::string> settings_of_model(const TrainerOptions& options) {
  std::map<std::string, std::string> all = read_own_toml(to_toml(options)), usual = read_own_toml(to_toml({}));
  std::erase_if(all, [&](const auto& s) {
    constexpr std::array names{"dtype", "recompute", "recompute_offload", "data.image_size", "data.context"};
    const bool of_volumes = takes_volumes(options) && (s.first == "data.name" || s.first == "data.crop");
    const bool shapes = s.first.starts_with("arch.") || of_volumes || std::ranges::find(names, s.first) != names.end();
    return !shapes || usual[s.first] == s.second;
  });
  return all;
}

const ModelProfile& model_in(const MachineProfile& m, const TrainerOptions& options, int ranks) {
  const auto arch = settings_of_model(options);
  std::string there;
  for (const ModelProfile& p : m.models) {
    if (p.model == options.model && p.arch == arch && (ranks == 0 || p.ranks == ranks)) return p;
    std::string settings;
    for (const auto& [name, value] : p.arch) settings += fmt::format(" --{} {}", name, value);
    there += fmt::format("{}{}{} ({} ranks)", there.empty() ? "" : ", ", p.model, settings, p.ranks);
  }
  std::string wanted;
  for (const auto& [name, value] : arch) wanted += fmt::format(" --{} {}", name, value);
  throw OptionError(fmt::format(
      "the machine file has no profile of {}{}, only of: {}; measure one with trireme bench {}{} --machine FILE",
      options.model, wanted, there.empty() ? "none" : there, options.model, wanted));
}

std::string machine_toml(const MachineProfile& m) {
  std::string text =
      fmt::format("jitter = {}\nload = {}\ncheckpoint = {}\nfresh = {}\nvector_op = {}\n\n[about]\n", m.jitter,
                  pair_of(m.load), pair_of(m.checkpoint), pair_of(m.fresh), pair_of(m.vector_op));
  for (const auto& [key, value] : m.about) text += fmt::format("{} = {}\n", quoted(key), quoted(value));
  for (std::size_t i = 0; i < m.calls.size();) {
    const MeasuredCall& first = m.calls[i];
    std::vector<Index> bytes;
    std::vector<double> seconds;
    for (; i < m.calls.size() && m.calls[i].kind == first.kind && m.calls[i].ranks == first.ranks; ++i) {
      bytes.push_back(m.calls[i].bytes);
      seconds.push_back(m.calls[i].seconds);
    }
    check(std::ranges::find(kinds, first.kind) != kinds.end(), "machine", "{} is no call of a machine file",
          [&] { return name_of(first.kind); });
    text += fmt::format("\n[[calls]]\nkind = \"{}\"\nranks = {}\nbytes = {}\nseconds = {}\n", name_of(first.kind),
                        first.ranks, list_of(bytes), list_of(seconds));
  }
  for (const ModelProfile& p : m.models) {
    std::vector<std::string> names, arch;
    for (const std::string& name : p.names) names.push_back(quoted(name));
    for (const auto& [key, value] : p.arch) arch.push_back(quoted(key + "=" + value));
    text += fmt::format(
        "\n[[models]]\nmodel = {}\nranks = {}\nthreads = {}\nparameters = {}\noptimizer = {}\nupdate = {}\nparts = "
        "{}\narch = {}\n",
        quoted(p.model), p.ranks, p.threads, p.parameters, quoted(p.optimizer), pair_of(p.update), list_of(names),
        list_of(arch));
    for (const ModelProfile::Size& s : p.sizes) {
      text +=
          fmt::format("\n[[models.sizes]]\nrows = {}\nstep_forward = {}\nstep_backward = {}\nloss = {}\nbetween = {}\n",
                      s.rows, pair_of(s.forward), pair_of(s.backward), pair_of(s.loss), pair_of(s.between));
      const auto column = [&](const char* name, auto PartCost::*of) {
        std::vector<std::remove_cvref_t<decltype(s.parts[0].*of)>> values;
        for (const PartCost& c : s.parts) values.push_back(c.*of);
        text += fmt::format("{} = {}\n", name, list_of(values));
      };
      column("forward", &PartCost::forward);
      column("input", &PartCost::backward_input);
      column("weight", &PartCost::backward_weight);
      column("saved", &PartCost::saved);
      column("output", &PartCost::output);
    }
  }
  return text;
}

MachineProfile read_machine(const std::string& path) { return parse_machine(read_settings(path), path); }

double load_per_core() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load / cores() : 0;
}

std::string busy_in_words(double load, double spread) {
  constexpr double most_load = 0.5, most_spread = 0.1;
  std::string text;
  if (load > most_load) text = fmt::format("load average {:.2f} per core (above {:g})", load, most_load);
  if (spread > most_spread)
    text += fmt::format("{}durations spread by {:.1f} % (above {:.0f} %)", text.empty() ? "" : ", ", 100 * spread,
                        100 * most_spread);
  return text;
}

std::string busy_in_words(const MachineProfile& m) {
  const auto at = m.about.find("load_average");
  double load = 0;
  if (at != m.about.end()) (void)parse_number(at->second, load);
  return busy_in_words(load, m.jitter);
}

}  // namespace trireme
