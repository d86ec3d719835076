// Programs at ranges of ranks that messages drive: parameter servers through Step, and which phase an Inbox starts.
#include "tests/parallel/server_plans.h"

#include "parallel/plan/channels.h"
#include "parallel/runtime/step.h"
#include "tests/parallel/plans.h"
#include "tests/parallel/training.h"

using namespace trireme;
using namespace trireme::test;

namespace {

Setup small() {
  return {.model =
              [] {
                return Sequential{flatten, Linear(100, 12), relu, Linear(12, 10)};
              },
          .dtype = DType::f32,
          .samples = 160,
          .batch = 24,
          .steps = 9};
}

}  // namespace

TEST_CASE("synchronous servers give the bits of data_parallel among the workers") {
  for (const bool virtual_time : {false, true})
    for (int workers = 1; workers <= 4; ++workers)
      for (int count = 1; count <= 3; ++count) {
        CAPTURE(virtual_time, workers, count);
        const Outcome want = parallel_run(small(), {{"data", workers}}, data_parallel());
        const Outcome got =
            parallel_run(small(), {{"data", workers + count}}, servers({.servers = count}), virtual_time);
        CHECK(got.losses == want.losses);
        CHECK(got.weights == want.weights);
      }
}
