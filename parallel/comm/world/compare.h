// Comparing what ranks are about to do: texts with a setting per line. Only hashes travel while all is well.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace trireme {

/// A collective call. Throws Error on every rank, with the first line in which a rank's text differs from rank 0's, as
/// both have it, unless all ranks have given equal hashes. text is called where hashes differ. Ranks are named by their
/// number in the communicator.
void compare_ranks(Communicator&, const std::string& op, std::uint64_t hash, const std::function<std::string()>& text);
void compare_ranks(Communicator&, const std::string& op, const std::string& text);

/// Rank root's text, on every rank. A collective call.
std::string broadcast_text(Communicator&, const std::string& mine, int root);

/// Every rank's text, by rank. A collective call.
std::vector<std::string> gather_texts(Communicator&, const std::string& mine);

/// The smallest of the ranks' numbers, and the first rank that has it (MPI_MINLOC). A collective call.
std::pair<Index, int> min_loc(Communicator&, Index mine);

}  // namespace trireme
