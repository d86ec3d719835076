// libFuzzer entry for the reader of a study's ledger; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/file.cpp framework/io/json.cpp
// sources: tools/study/sha256.cpp tools/study/ledger.cpp
// libraries: -ldeflate
// Where it finds no fault each line is an entry, behind the one before. Inputs begin with the bytes of a head up to a
// zero; a line "=TEXT" stands for one with TEXT as its body and the hash that belongs to it.
#include <cstdlib>
#include <sstream>

#include "tools/study/ledger.h"
#include "tools/study/sha256.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace trireme;
  const std::string all(reinterpret_cast<const char*>(data), size);
  const auto zero = all.find('\0');
  std::string text, hash;
  std::istringstream in(zero == all.npos ? all : all.substr(zero + 1));
  std::size_t lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    if (line.starts_with('=')) {
      line.erase(0, 1);
      if (const auto at = line.find("PREVIOUS"); at != line.npos) line.replace(at, 8, hash);
      hash = sha256(line);
      line += ",\"hash\":\"" + hash + "\"}";
    }
    text += line + "\n";
  }
  std::optional<std::string> head;
  if (zero != all.npos) head = zero == 0 ? std::to_string(lines) + " " + hash + "\n" : all.substr(0, zero);
  const LedgerReader read(text, head);
  bool good = !read.faults().empty() || read.entries().size() == lines;
  for (const std::string& fault : read.faults()) good = good && fault.starts_with("ledger.");
  if (read.faults().empty())
    for (std::size_t i = 0; i < lines; ++i)
      good = good && read.entries()[i].previous == (i == 0 ? "" : read.entries()[i - 1].hash);
  if (!good) std::abort();
  (void)totals_of(read.entries());
  (void)open_runs(read.entries());
  return 0;
}
