// Tar archives, listed in place (POSIX.1-2017 pax interchange format, ustar; GNU tar's long names): the position of
// each file's bytes. Nothing is extracted and no link is followed.
#pragma once
#include <functional>
#include <string>

#include "framework/io/bytes.h"

namespace trireme {

/// A file in an archive.
struct TarMember {
  std::string name;                  ///< path in the archive
  std::size_t offset = 0, size = 0;  ///< position and number of its bytes in the archive
};

/// Calls f for each regular file, in order. Throws Error that names archive and member for a wrong checksum, links,
/// devices and sparse files, absolute names or names with "..", and sizes beyond the archive. Throws Error for an
/// archive without the two zero blocks at its end, since it may be truncated.
void scan_tar(const NamedBytes& archive, const std::function<void(const TarMember&)>& f);

}  // namespace trireme
