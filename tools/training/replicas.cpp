#include "tools/training/replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "framework/io/file.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/core/text.h"
#include "parallel/comm/world/compare.h"
#include "parallel/plan/ties.h"

namespace trireme {

namespace {

/// Text that is equal for ranks with equal weights.
std::string held_by(Step& step, const std::vector<Slice>& holds) {
  std::string text;
  for (const Slice& s : holds) text += fmt::format("{}-{} ", s.begin, s.end);
  for (const auto& entry : step.parameters().entries())
    if (const ShardSpec* spec = entry.tensor.shard_spec()) text += fmt::format("{} ", spec->boxes()[0].at);
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

/// ranks: number and host.
std::string names(const std::map<std::size_t, std::string>& ranks) {
  std::vector<std::string> each;
  for (const auto& [rank, host] : ranks) each.push_back(fmt::format("{} ({})", rank, host));
  return fmt::format("{} {}", each.size() == 1 ? "rank" : "ranks", fmt::join(each, ", "));
}

}  // namespace

std::uint32_t digest(Step& step) { return digest_of(step, step.checkpoint_shard().holds); }

namespace {

/// Hashes of a rank's part of a tensor: of its position and of its bits. Both 0: no part.
struct Held {
  std::uint32_t place = 0, bits = 0;
  bool whole = false;
};

std::uint32_t bits_of(const Tensor& t, std::uint32_t before = 0) {
  const Tensor here = t.detach().to(cpu());
  return crc32(std::span(here.data<std::byte>(), static_cast<std::size_t>(here.view().bytes())), before);
}

/// For each weight, then each running statistic. Weights that stages share are omitted, because transports may round
/// their copies differently (parallel/plan/ties.h).
std::vector<Held> held_tensors(Step& step, const CheckpointShard& shard) {
  const auto tied = step.plan().has_stages() ? tied_slices(step.plan()) : std::vector<Slice>();
  const auto place = [](const Tensor& t, const Slice& part) {
    const ShardSpec* spec = t.shard_spec();
    const std::string text = fmt::format("{} {} {}", part.begin, part.end, spec ? spec->boxes()[0].at : Shape{});
    return crc32(std::as_bytes(std::span(text)));
  };
  const auto undivided = [](const Tensor& t) { return !t.shard_spec() || !t.shard_spec()->divides(); };
  std::vector<Held> all;
  const FlatBuffer& values = step.parameters().values();
  for (const auto& e : step.parameters().entries()) {
    Held& held = all.emplace_back();
    if (overlaps(tied, e.slice)) continue;
    for (const Slice& s : shard.holds) {
      const Slice part{std::max(s.begin, e.slice.begin), std::min(s.end, e.slice.end)};
      if (part.size() <= 0) continue;
      for (const Slice& rows : values.cut(part)) held.bits = bits_of(values.rows(rows.begin, rows.end), held.bits);
      held.place ^= place(e.tensor, part);
      held.whole = part == e.slice && undivided(e.tensor);
    }
  }
  const bool serve = std::ranges::any_of(step.plan().programs, &Program::serves);  // servers have no statistics
  const auto& buffers = step.parameters().buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Tensor& t = buffers[i].tensor;
    Held& held = all.emplace_back();
    if (serve || !shard.holds_buffers[i] || t.numel() == 0) continue;
    held = {place(t, {0, t.numel()}), bits_of(t), undivided(t)};
  }
  return all;
}

/// Whether copies of a whole tensor have different bits on some ranks. A collective call.
bool differ(World& world, const std::vector<Held>& held) {
  const auto n = std::ssize(held);
  const Tensor least = Tensor::full({2 * n}, std::numeric_limits<double>::max(), DType::f64);
  double* const v = least.data<double>();
  for (Index i = 0; i < n; ++i)
    if (const Held& h = held[static_cast<std::size_t>(i)]; h.whole) {
      v[i] = h.bits;
      v[n + i] = -static_cast<double>(h.bits);
    }
  world.comm().all_reduce(least, ReduceOp::min).wait();
  bool any = false;
  for (Index i = 0; i < n; ++i) any = any || (v[i] != std::numeric_limits<double>::max() && v[i] != -v[n + i]);
  return any;
}

}  // namespace

void compare_replicas(Step& step, World& world, std::int64_t number) {
  const CheckpointShard shard = step.checkpoint_shard();
  const std::vector<Held> held = held_tensors(step, shard);
  const std::string mine_held = held_by(step, shard.holds);
  const std::string alike =
      fmt::format("{:08x}{:08x}", crc32(std::as_bytes(std::span(mine_held))), digest_of(step, shard.holds));
  std::map<std::string, std::set<std::string>> digests;  // of ranks with equal slices
  for (const std::string& text : gather_texts(world.comm(), alike)) digests[text.substr(0, 8)].insert(text.substr(8));
  const bool same = std::ranges::all_of(digests, [](const auto& group) { return group.second.size() == 1; });
  if (!differ(world, held) && same) return;

  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string mine = host.data();
  for (const Held& h : held) mine += fmt::format(" {:08x}{:08x}", h.place, h.bits);
  std::vector<std::vector<std::string>> all;
  for (const std::string& text : gather_texts(world.comm(), mine)) all.push_back(split_text(text, ' '));
  const auto& entries = step.parameters().entries();
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::map<std::string, std::map<std::string, std::map<std::size_t, std::string>>> groups;  // position, bits, ranks
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (const std::string& here = all[rank][i + 1]; !here.starts_with("00000000"))
        groups[here.substr(0, 8)][here.substr(8)][rank] = all[rank][0];
    for (const auto& [place, by_bits] : groups) {
      if (by_bits.size() < 2) continue;
      std::size_t most = 0, holders = 0;
      for (const auto& [bits, ranks] : by_bits) {
        most = std::max(most, ranks.size());
        holders += ranks.size();
      }
      std::map<std::size_t, std::string> wrong;
      for (const auto& [bits, ranks] : by_bits)
        if (2 * most <= holders || ranks.size() < most) wrong.insert(ranks.begin(), ranks.end());
      fail(ErrorKind::internal, fmt::format("step {}", number),
           "'{}' of {} differs from the other {} that hold the same weights: {}",
           i < entries.size() ? entries[i].name : step.parameters().buffers()[i - entries.size()].name, names(wrong),
           holders > wrong.size() ? fmt::format("{} ranks", holders - wrong.size()) : "ranks",
           2 * most <= holders
               ? "no majority shows which rank is wrong; resume from the last checkpoint"
               : "memory or processor of that host has a fault; resume from the last checkpoint without it");
    }
  }
  fail(ErrorKind::internal, fmt::format("step {}", number),
       "ranks that hold the same weights differ in weights that stages share; resume from the last checkpoint");
}

}  // namespace trireme
