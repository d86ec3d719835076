#include "parallel/comm/world/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "parallel/comm/fnv.h"
#include "parallel/comm/transport/call.h"

namespace trireme {
namespace {

/// Of rank `root`, on every rank.
std::string broadcast(Communicator& comm, const std::string& mine, int root, Index length) {
  const Tensor bytes = Tensor::empty({length}, DType::u8);
  if (comm.rank() == root) std::memcpy(bytes.view().data, mine.data(), mine.size());
  comm.broadcast(bytes, root).wait();
  return {static_cast<const char*>(bytes.view().data), static_cast<std::size_t>(length)};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

std::string quoted(const std::vector<std::string>& lines, std::size_t at) {
  return at < lines.size() ? fmt::format("'{}'", lines[at]) : "nothing there";
}

}  // namespace

void compare_ranks(Communicator& comm, const std::string& op, std::uint64_t hash,
                   const std::function<std::string()>& text) {
  if (comm.size() == 1) return;
  const auto number = static_cast<std::int64_t>(hash);
  const auto hashes = gather_numbers(comm, {&number, 1});
  std::vector<int> odd;  // ranks that are not as rank 0
  for (int r = 1; r < comm.size(); ++r)
    if (hashes[static_cast<std::size_t>(r)] != hashes[0]) odd.push_back(r);
  if (odd.empty()) return;

  const std::string mine = text();
  const auto length = std::ssize(mine);
  const auto lengths = gather_numbers(comm, {&length, 1});
  const auto first = lines_of(broadcast(comm, mine, 0, lengths[0]));
  const auto other = lines_of(broadcast(comm, mine, odd[0], lengths[static_cast<std::size_t>(odd[0])]));
  std::size_t at = 0;
  while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
  std::string more;
  if (odd.size() > 1) {
    const std::vector<int> rest(odd.begin() + 1, odd.end());
    more = fmt::format("; rank{} {} differ{} from rank 0, too", rest.size() > 1 ? "s" : "", fmt::join(rest, ", "),
                       rest.size() > 1 ? "" : "s");
  }
  fail(op, "the ranks are not about to do the same: rank 0 has {}, rank {} has {}{}", quoted(first, at), odd[0],
       quoted(other, at), more);
}

void compare_ranks(Communicator& comm, const std::string& op, const std::string& text) {
  Fnv fnv;
  fnv.add(text);
  compare_ranks(comm, op, fnv.value(), [&] { return text; });
}

std::pair<Index, int> min_loc(Communicator& comm, Index mine) {
  const Tensor least = Tensor::empty({1}, DType::i64);
  auto& value = *least.data<std::int64_t>();
  value = mine * comm.size() + comm.rank();
  comm.all_reduce(least, ReduceOp::min).wait();
  return {value / comm.size(), static_cast<int>(value % comm.size())};
}

}  // namespace trireme
