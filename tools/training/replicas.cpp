#include "tools/training/replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "framework/io/file.h"
#include "framework/tensor/shard_spec.h"
#include "parallel/comm/world/compare.h"

namespace trireme {

namespace {

/// What ranks with the same weights have alike.
std::string held_by(Step& step, const std::vector<Slice>& holds) {
  std::string text;
  for (const Slice& s : holds) text += fmt::format("{}-{} ", s.begin, s.end);
  for (const auto& entry : step.parameters().entries())
    if (const ShardSpec* spec = entry.tensor.shard_spec()) text += fmt::format("{} ", spec->offset());
  return text;
}

std::uint32_t digest_of(Step& step, const std::vector<Slice>& holds) {
  std::uint32_t crc = 0;
  const FlatBuffer& values = step.parameters().values();
  for (const Slice& s : holds)
    for (const Slice& part : values.cut(s)) {
      const Tensor here = values.rows(part.begin, part.end).detach().to(cpu());
      crc = crc32(std::span(here.data<std::byte>(), static_cast<std::size_t>(here.view().bytes())), crc);
    }
  return crc;
}

/// ranks: numbers and hosts.
std::string names(const std::map<std::size_t, std::string>& ranks) {
  std::vector<std::string> each;
  for (const auto& [rank, host] : ranks) each.push_back(fmt::format("{} ({})", rank, host));
  return fmt::format("{} {}", each.size() == 1 ? "rank" : "ranks", fmt::join(each, ", "));
}

}  // namespace

std::uint32_t digest(Step& step) { return digest_of(step, step.checkpoint_shard().holds); }

void compare_replicas(Step& step, World& world, std::int64_t number) {
  const std::vector<Slice> holds = step.checkpoint_shard().holds;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string held = held_by(step, holds);
  const std::string mine =
      fmt::format("{:08x} {:08x} {}", digest_of(step, holds), crc32(std::as_bytes(std::span(held))), host.data());
  std::map<std::string, std::map<std::string, std::map<std::size_t, std::string>>> groups;  // held by, digest, ranks
  const auto all = gather_texts(world.comm(), mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    groups[all[rank].substr(9, 8)][all[rank].substr(0, 8)][rank] = all[rank].substr(18);
  for (const auto& [what, by_digest] : groups) {
    if (by_digest.size() < 2) continue;
    std::size_t most = 0, holders = 0;
    for (const auto& [value, ranks] : by_digest) most = std::max(most, ranks.size()), holders += ranks.size();
    std::map<std::size_t, std::string> wrong;
    for (const auto& [value, ranks] : by_digest)
      if (2 * most <= holders || ranks.size() < most) wrong.insert(ranks.begin(), ranks.end());
    fail(ErrorKind::internal, fmt::format("step {}", number),
         "the weights of {} are not those of the other {} that hold the same: {}", names(wrong),
         holders > wrong.size() ? fmt::format("{} ranks", holders - wrong.size()) : "ranks",
         2 * most <= holders ? "there is no majority that tells who is wrong"
                             : "a fault of memory or of a processor there; go on from the last checkpoint without it");
  }
}

}  // namespace trireme
