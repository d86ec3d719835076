// Texts that tests read where they are there: tinyshakespeare and the King James Bible.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace trireme::test {

/// tinyshakespeare, from $TRIREME_DATA or beside the project; empty, and noted as missing: it is not there.
inline std::string tinyshakespeare() {
  const char* data = std::getenv("TRIREME_DATA");
  for (const std::filesystem::path& folder : {std::filesystem::path(data ? data : ""), root() / "../shared/data"})
    if (const auto file = folder / "tinyshakespeare/input.txt"; std::filesystem::exists(file))
      return slurp(file.string());
  note_missing(
      "tinyshakespeare (data/tinyshakespeare/input.txt of karpathy/char-rnn): $TRIREME_DATA/tinyshakespeare/input.txt");
  return "";
}

/// The King James Bible of Debian's bible-kjv; empty, and noted as missing: it is not installed.
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
