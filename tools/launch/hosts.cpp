#include "tools/launch/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "framework/io/file.h"
#include "framework/io/lines.h"
#include "framework/io/options.h"

namespace trireme {

namespace {

int slots_in(const std::string& text, const std::string& source) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1)
    throw OptionError(fmt::format("{}: '{:.100}' is no number of slots, expected at least 1", source, text));
  return slots;
}

void add(std::vector<Host>& hosts, Host host, const std::string& source) {
  const bool plain =
      !host.name.empty() && host.name.find_first_of(" \t/,=") == std::string::npos && host.name[0] != '-';
  if (!plain) throw OptionError(fmt::format("{}: '{:.100}' is no host name", source, host.name));
  if (std::ranges::find(hosts, host.name, &Host::name) != hosts.end())
    throw OptionError(fmt::format("{}: host {} is there twice; remove one", source, host.name));
  hosts.push_back(std::move(host));
}

Host host_of(const std::string& word, const std::string& source) {
  const auto colon = word.rfind(':');
  if (colon == word.npos) return {word, 1};
  return {word.substr(0, colon), slots_in(word.substr(colon + 1), source)};
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& list) {
  std::vector<Host> hosts;
  std::string word;
  for (std::istringstream in(list); std::getline(in, word, ',');) add(hosts, host_of(word, "hosts"), "hosts");
  if (hosts.empty()) throw OptionError("hosts: the list is empty, expected for example a:4,b:4");
  return hosts;
}

std::vector<Host> read_host_file(const std::string& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& line : text_lines(read_text(path, most))) {
    const std::string source = fmt::format("{}:{}", path, ++number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    words >> slots >> more;
    if (!more.empty() || (!slots.empty() && !slots.starts_with("slots=")))
      throw OptionError(fmt::format("{}: '{:.100}', expected a host and its slots: a slots=4", source, line));
    Host host = host_of(name, source);
    if (!slots.empty()) host.slots = slots_in(slots.substr(6), source);
    add(hosts, std::move(host), source);
  }
  if (hosts.empty()) throw OptionError(path + " names no host; give one host per line");
  return hosts;
}

int slots_of(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const Host& host) { return sum + host.slots; });
}

std::vector<Host> first_slots(std::vector<Host> hosts, int ranks) {
  std::vector<Host> first;
  for (Host& host : hosts) {
    if (ranks == 0) break;
    host.slots = std::min(host.slots, ranks);
    ranks -= host.slots;
    first.push_back(std::move(host));
  }
  return first;
}

std::string to_string(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

}  // namespace trireme
