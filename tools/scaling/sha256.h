// SHA-256 (FIPS 180-4): what the lines of a ledger are chained by, since anybody's tools compute it.
#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// Of the bytes, as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace trireme
