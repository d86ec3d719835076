// main() of every test program. A test case without an assertion fails: one that has nothing to do here says so by
// SUCCEED("why"). Exit status 77 (meson: SKIP) when all passed but something was missing, such as an oracle; standard
// error says what.
#define CATCH_CONFIG_RUNNER
#include <link.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/oracle.h"

/// The path of the library under test, as the dynamic loader found it.
static std::string loaded_library() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        const std::string name = info->dlpi_name;
        if (name.find("/libtrireme.so") != name.npos) *static_cast<std::string*>(found) = name;
        return 0;
      },
      &path);
  return path;
}

int main(int argc, char** argv) {
  const char* sanitized = std::getenv("TRIREME_SANITIZED");
  if (const std::string path = loaded_library(); sanitized && path != sanitized) {
    std::cerr << "the library under test is " << path << ", not " << sanitized << ", which has the sanitizers\n";
    return 1;
  }
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  auto& warnings = session.configData().warnings;
  warnings = static_cast<Catch::WarnAbout::What>(warnings | Catch::WarnAbout::NoAssertions);
  const int failed = session.run();
  for (auto& what : trireme::test::missing()) std::cerr << "SKIPPED: " << what << "\n";
  return failed == 0 && !trireme::test::missing().empty() ? 77 : failed;
}
