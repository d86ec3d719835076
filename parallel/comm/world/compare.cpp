#include "parallel/comm/world/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "parallel/comm/call.h"
#include "parallel/comm/fnv.h"

namespace trireme {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string quoted(const std::vector<std::string>& lines, std::size_t at) {
  return at < lines.size() ? fmt::format("'{}'", lines[at]) : "nothing there";
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
  const Index length = std::ssize(mine);
  const auto lengths = gather_numbers(comm, {&length, 1});
  const Tensor own = Tensor::empty({length}, DType::u8);
  const Tensor all = Tensor::empty({std::accumulate(lengths.begin(), lengths.end(), Index{0})}, DType::u8);
  std::ranges::copy(mine, own.view().as<char>());
  comm.all_gatherv(all, own, lengths).wait();
  std::vector<std::string> texts;
  const char* at = all.view().as<const char>();
  for (const Index n : lengths) {
    texts.emplace_back(at, static_cast<std::size_t>(n));
    at += n;
  }
  return texts;
}

std::string broadcast_text(Communicator& comm, const std::string& mine, int root) {
  return gather_texts(comm, comm.rank() == root ? mine : "")[static_cast<std::size_t>(root)];
}

void compare_ranks(Communicator& comm, const std::string& op, std::uint64_t hash,
                   const std::function<std::string()>& text) {
  if (comm.size() == 1) return;
  const auto number = static_cast<std::int64_t>(hash);
  const auto hashes = gather_numbers(comm, {&number, 1});
  std::vector<int> odd;  // ranks that differ from rank 0
  for (int r = 1; r < comm.size(); ++r)
    if (hashes[static_cast<std::size_t>(r)] != hashes[0]) odd.push_back(r);
  if (odd.empty()) return;

  const std::string mine = text();
  const auto first = lines_of(broadcast_text(comm, mine, 0)), other = lines_of(broadcast_text(comm, mine, odd[0]));
  std::size_t at = 0;
  while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
  std::string more;
  if (odd.size() > 1) {
    const std::vector<int> rest(odd.begin() + 1, odd.end());
    more = fmt::format("; rank{} {} differ{} from rank 0, too", rest.size() > 1 ? "s" : "", fmt::join(rest, ", "),
                       rest.size() > 1 ? "" : "s");
  }
  fail(op, "the ranks disagree: rank 0 has {}, rank {} has {}{}", quoted(first, at), odd[0], quoted(other, at), more);
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
