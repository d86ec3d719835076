// A long text for tests: the King James Bible.
#pragma once
#include <cstdio>
#include <string>

#include "tests/support/oracle.h"

namespace trireme::test {

/// The King James Bible of Debian's bible-kjv, 4,404,412 bytes of ASCII. Empty and noted as missing if the package is
/// not installed.
inline std::string king_james_bible() {
  std::string text;
  if (FILE* pipe = popen("bible -f gen1:1-rev22:21 2>/dev/null", "r")) {
    char some[65536];
    while (const std::size_t n = fread(some, 1, sizeof some, pipe)) text.append(some, n);
    pclose(pipe);
  }
  if (text.empty()) note_missing("the King James Bible: Debian's bible-kjv and bible-kjv-text (tools/setup --oracles)");
  return text;
}

}  // namespace trireme::test
