// main() of every test program. Exit status 77 (meson: SKIP) when all passed but an oracle was not installed.
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"
#include "tests/oracle.h"

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  return failed == 0 && trireme::test::oracle_missing() ? 77 : failed;
}
