#include "kernels/cuda/plan_folder.h"

#include <cudnn.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace trireme::gpu {
namespace {

/// FNV-1a: the same in every process and on every machine, as std::hash need not be.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

/// The beginning of a key's file: the file's format, and the whole key, since two keys may have equal hashes.
std::string head_of(const PlanKey& key) {
  std::string text = "trireme plan 1\n";
  for (Index n : key.numbers) text += std::to_string(n) + ' ';
  text.back() = '\n';
  return text;
}

/// Parses "way bytes hash\n", followed by the plan with this size and hash; empty if they do not match.
std::optional<KeptPlan> parse(std::string_view text) {
  KeptPlan plan;
  std::size_t bytes = 0;
  std::uint64_t expected = 0;
  auto number = [&](auto& n, char after) {
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    text.remove_prefix(static_cast<std::size_t>(at - text.data()));
    const bool good = error == std::errc{} && text.starts_with(after);
    if (good) text.remove_prefix(1);
    return good;
  };
  if (!number(plan.way, ' ') || !number(bytes, ' ') || !number(expected, '\n')) return std::nullopt;
  if (text.size() != bytes || hash(text) != expected) return std::nullopt;
  plan.json = text;
  return plan;
}

/// Renames the file when it is complete. The temporary name is unique to this writer, among all processes and machines.
void write(const std::string& path, const std::string& text) {
  std::string part = path + ".XXXXXX";
  const int made = mkstemp(part.data());
  if (made < 0) return;
  close(made);
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (!file || error) std::filesystem::remove(part, error);
}

}  // namespace

std::string PlanFolder::usual_path(std::string_view device_name) {
  auto variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v == nullptr ? "" : v);
  };
  std::string folder = variable("TRIREME_PLAN_CACHE");
  if (folder == "off") return "";
  if (folder.empty() && !variable("XDG_CACHE_HOME").empty()) folder = variable("XDG_CACHE_HOME") + "/trireme";
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") + "/.cache/trireme";
  if (folder.empty()) return "";
  std::string name = fmt::format("cudnn-{}-{}", cudnnGetVersion(), device_name);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '/'; }, '-');
  return folder + '/' + name;
}

std::string PlanFolder::file_of(const PlanKey& key) const {
  return fmt::format("{}/{:016x}.plan", path_, hash(head_of(key)));
}

std::optional<KeptPlan> PlanFolder::find(const PlanKey& key) const noexcept {
  if (path_.empty()) return std::nullopt;
  try {
    std::ifstream file(file_of(key), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {}), head = head_of(key);
    return text.starts_with(head) ? parse(std::string_view(text).substr(head.size())) : std::nullopt;
  } catch (...) { return std::nullopt; }
}

void PlanFolder::keep(const PlanKey& key, const KeptPlan& plan) const noexcept {
  if (path_.empty()) return;
  try {
    std::filesystem::create_directories(path_);
    write(file_of(key),
          fmt::format("{}{} {} {}\n{}", head_of(key), plan.way, plan.json.size(), hash(plan.json), plan.json));
  } catch (...) {}
}

}  // namespace trireme::gpu
