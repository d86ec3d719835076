#include "tools/study/lease.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// Start time of a process in clock ticks since boot; empty: it has ended, or is a zombie.
std::string start_of(int process) {
  std::ifstream in(fmt::format("/proc/{}/stat", process));
  std::string text, word;
  std::getline(in, text);
  const auto behind = text.rfind(") ");  // end of the program's name, which may contain any character
  if (behind == text.npos || text[behind + 2] == 'Z') return "";
  std::size_t at = behind + 2;
  for (int field = 3; field < 22; ++field) at = text.find(' ', at) + 1;
  return text.substr(at, text.find(' ', at) - at);
}

/// Identity of this boot of the machine, and of the PID namespace.
std::string place() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  std::error_code none;
  return fmt::format("{} {}", boot.empty() ? "unknown" : boot, fs::read_symlink("/proc/self/ns/pid", none).string());
}

}  // namespace

std::string own_identity() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{} pid {} [{} {}]", host, ::getpid(), place(), start_of(::getpid()));
}

std::string shown_identity(const std::string& identity) { return identity.substr(0, identity.rfind(" [")); }

std::string own_program() {
  constexpr const char* deleted = " (deleted)";  // mark of proc(5)
  std::string path = fs::read_symlink("/proc/self/exe").string();
  if (path.ends_with(deleted) && !fs::exists(path)) path.resize(path.size() - std::string(deleted).size());
  return path;
}

bool has_ended(const std::string& identity) {
  const auto open = identity.rfind(" ["), pid = identity.rfind(" pid ", open);
  if (open == identity.npos || pid == identity.npos) return false;
  const std::string here = place();
  if (here.starts_with("unknown") || identity.substr(open + 2, here.size()) != here) return false;
  const std::string start = identity.substr(open + 3 + here.size());
  return start_of(std::atoi(identity.c_str() + pid + 5)) + "]" != start;
}

}  // namespace trireme
