#include "tools/launch/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <system_error>

#include "framework/io/file.h"
#include "framework/io/lines.h"
#include "framework/io/options.h"
#include "parallel/comm/world/job_sockets.h"

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

constexpr std::size_t longest = std::size_t{1} << 20;  // of a host file

/// Reads a pipe to its end. A writer must open it within 1 s and close it within 60 s.
std::string text_of_pipe(const std::string& path) {
  const Descriptor pipe(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  std::array<char, 4096> part{};
  for (bool closed = false; !closed;) {
    const ssize_t count = ::read(pipe.get(), part.data(), part.size());
    if (count < 0 && errno != EAGAIN && errno != EINTR)
      fail(ErrorKind::file, "launch", "cannot read {}: {}", path, std::generic_category().message(errno));
    text.append(part.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    check(text.size() <= longest, ErrorKind::data, "launch", "{} has more than {} bytes, expected host names", path,
          longest);
    if (count > 0) continue;
    const bool no_writer = count == 0 && text.empty();
    check(std::chrono::steady_clock::now() - start < std::chrono::seconds(no_writer ? 1 : 60), ErrorKind::file,
          "launch", "{} is a pipe that {}: start its writer first, or write a file", path,
          no_writer ? "no program writes to" : "its writer did not close within 60 s");
    pollfd state{pipe.get(), POLLIN, 0};
    ::poll(&state, 1, 100);
    closed = count == 0 && (state.revents & (POLLIN | POLLHUP)) == POLLHUP;
  }
  return text;
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
  std::vector<Host> hosts;
  int number = 0;
  std::error_code unknown;
  const bool is_pipe = std::filesystem::is_fifo(path, unknown);
  for (const std::string& line : text_lines(is_pipe ? text_of_pipe(path) : read_text(path, longest))) {
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
