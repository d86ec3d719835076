// Comparing the settings of ranks, as texts with a setting per line. Ranks exchange only hashes unless these differ.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace trireme {

/// Throws Error on every rank unless all ranks pass equal hashes. The message has the first line in which a rank's text
/// differs from rank 0's, with both versions; ranks are numbered as in the communicator. text is called only if hashes
/// differ. A collective call.
void compare_ranks(Communicator&, const std::string& op, std::uint64_t hash, const std::function<std::string()>& text);
/// As above, with the hash of text.
void compare_ranks(Communicator&, const std::string& op, const std::string& text);

/// Rank root's text, on every rank. A collective call.
std::string broadcast_text(Communicator&, const std::string& mine, int root);

/// Every rank's text, by rank. A collective call.
std::vector<std::string> gather_texts(Communicator&, const std::string& mine);

/// The smallest of the ranks' numbers, and the first rank that has it (MPI_MINLOC). A collective call.
std::pair<Index, int> min_loc(Communicator&, Index mine);

}  // namespace trireme
