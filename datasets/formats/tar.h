// Tar archives, listed in place (POSIX.1-2017 pax interchange format, ustar; GNU tar's long names): where each file's
// bytes lie. Nothing is ever extracted and no link is followed.
#pragma once
#include <functional>
#include <string>

#include "framework/io/bytes.h"

namespace trireme {

struct TarMember {
  std::string name;
  std::size_t offset = 0, size = 0;  ///< of its bytes in the archive
};

/// Calls f for each regular file, in order. Throws Error naming the archive and the member for a wrong checksum, links,
/// devices and sparse files, absolute names or such with "..", sizes beyond the archive, and an archive without the two
/// zero blocks that end one: a truncated archive must not pass for a short one.
void scan_tar(const NamedBytes& archive, const std::function<void(const TarMember&)>& f);

}  // namespace trireme
