// main() of every test program. A test case without an assertion fails: one that has nothing to do here says so by
// SUCCEED("why"). Exit status 77 (meson: SKIP) when all passed but something was missing, such as an oracle; standard
// error says what.
#define CATCH_CONFIG_RUNNER
#include <iostream>

#include "tests/support/catch.h"
#include "tests/support/oracle.h"

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  auto& warnings = session.configData().warnings;
  warnings = static_cast<Catch::WarnAbout::What>(warnings | Catch::WarnAbout::NoAssertions);
  const int failed = session.run();
  for (auto& what : trireme::test::missing()) std::cerr << "SKIPPED: " << what << "\n";
  return failed == 0 && !trireme::test::missing().empty() ? 77 : failed;
}
