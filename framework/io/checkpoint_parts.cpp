#include "framework/io/checkpoint_parts.h"

#include <algorithm>
#include <filesystem>

namespace trireme::detail {
namespace fs = std::filesystem;
constexpr char op[] = "checkpoint";

std::vector<std::pair<std::int64_t, std::string>> checkpoints_of(const std::string& root) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    bool digits = name.size() >= 13 && name.size() <= 23 && name.starts_with("step_") &&
                  std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) found.emplace_back(std::stoll(name.substr(5)), it->path().string());
  }
  check(!error || error == std::errc::no_such_file_or_directory, ErrorKind::file, op, "cannot read {}: {}", root,
        [&] { return error.message(); });
  std::sort(found.rbegin(), found.rend());
  return found;
}

void remove_tree(const std::string& path) {
  std::error_code ignored;  // what cannot be removed now is tried again by the next save
  fs::remove_all(path, ignored);
}

void check_whole(const Parameters& p, const Optimizer& o) {
  check(o.kept() == std::vector<Slice>{{0, p.size()}}, op,
        "the optimizer has only the state of a shard: call consolidate() of its StepProbe on every rank first");
}

std::string layout_of(const std::optional<CheckpointShard>& shard) { return shard ? shard->layout : "one rank alone"; }

void add_states(std::vector<StoredTensor>& to, const Parameters& p, const std::optional<CheckpointShard>& shard,
                const std::vector<Slice>& within) {
  if (!shard) return;
  for (const std::string& name : shard->states)
    for (auto& t : stored_state(p, std::string(of_store) + name, p.state(name), {{0, p.size()}}, within))
      to.push_back(std::move(t));
}

std::vector<std::string> together(const GatherTexts& gather, const std::function<std::string()>& body) {
  if (!gather) return {body()};
  std::string mine;
  std::exception_ptr mistake;
  try {
    mine = "." + body();
  } catch (const std::exception& e) {  // a letter for the kind: A for the first
    mine = static_cast<char>('A' + static_cast<int>(current_kind())) + std::string(e.what());
    mistake = std::current_exception();
  }
  auto all = gather(mine);
  if (mistake) std::rethrow_exception(mistake);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const bool good = all[r].starts_with('.');
    check(good, good ? ErrorKind::usage : static_cast<ErrorKind>(all[r][0] - 'A'), op, "rank {}: {}", r,
          [&] { return all[r].substr(1); });
    all[r].erase(0, 1);
  }
  return all;
}

}  // namespace trireme::detail
