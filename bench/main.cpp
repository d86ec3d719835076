// main() of all programs of bench/: build/bench/NAME is a link to this one, which runs NAME_main().
#include <cstdio>
#include <string>

#include "bench/programs.h"

int main(int argc, char** argv) {
  std::string name = argv[0];
  name.erase(0, name.rfind('/') + 1);
  for (const auto& program : programs)
    if (program.name == name) return program.main(argc, argv);
  std::fprintf(stderr, "%s: bench/ has no program of that name. Start one of its links instead:", name.c_str());
  for (const auto& program : programs) std::fprintf(stderr, " %s", std::string(program.name).c_str());
  std::fprintf(stderr, "\n");
  return 2;
}
