// SHA-256 (FIPS 180-4), for the hash chain of a ledger. Common tools can verify it.
#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// Digest of the bytes as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace trireme
