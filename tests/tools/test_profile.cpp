// Where the time of a step goes: every kernel call is in one layer's row and in one kind of work, once.
#include <numeric>

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "framework/ops/ops.h"
#include "kernels/core/kernel.h"
#include "tests/support/catch.h"
#include "tools/cli/profile.h"
#include "tools/training/time_table.h"

namespace test_profile {

using namespace trireme;

namespace {

double seconds_of(const std::vector<Profile::Row>& rows) {
  double sum = 0;
  for (auto& row : rows) {
    INFO(row.name);
    CHECK(row.cost.forward >= 0);
    CHECK(row.cost.backward >= 0);
    sum += row.cost.forward + row.cost.backward;
  }
  return sum;
}

const Profile::Cost& row_of(const Profile& profile, const std::string& name) {
  for (auto& row : profile.layers())
    if (row.name == name) return row.cost;
  FAIL("no row " << name);
  throw;
}

}  // namespace

TEST_CASE("layers and kinds of work add up to the whole, and count each product's operations") {
  Module model = Sequential{Conv2d(3, 8, 3, {.pad = 1, .bias = false}),
                            BatchNorm(8),
                            relu,
                            Conv2d(8, 6, 3, {.stride = 2, .pad = 1}),
                            MaxPool(2),
                            flatten,
                            Linear(6 * 16, 10)};
  initialize(model, 1);
  Parameters parameters(model);
  const Tensor x = Tensor::full({4, 16, 16, 3}, 0.5), labels = Tensor::zeros({4}, DType::i64);
  for (int twice = 0; twice < 2; ++twice) {
    Profile profile(parameters, {.bytes = 1e9, .operations = 1e9});
    cross_entropy(model(x), labels).backward();
    const double whole = profile.seconds();
    REQUIRE(whole > 0);
    CHECK(std::abs(seconds_of(profile.layers()) - whole) < 1e-9 * whole);
    double kinds = 0;
    for (auto& [name, kind] : profile.kinds()) {
      INFO(name);
      CHECK(kind.seconds >= 0);
      CHECK(kind.floor >= kind.bytes / 1e9 * (1 - 1e-9));
      CHECK(kind.floor >= kind.operations / 1e9 * (1 - 1e-9));
      kinds += kind.seconds;
    }
    CHECK(std::abs(kinds - whole) < 1e-9 * whole);
    // Multiplications and additions: outputs x filter, forward and by the weight; the second by its input, too.
    const double first = 2.0 * 4 * 16 * 16 * 8 * 27, second = 2.0 * 4 * 8 * 8 * 6 * 72, last = 2.0 * 4 * 96 * 10;
    CHECK(row_of(profile, "0").operations == 2 * first);
    CHECK(row_of(profile, "3").operations == 3 * second);
    CHECK(row_of(profile, "6").operations == 3 * last);
    CHECK(profile.kinds().at("convolution").operations == 2 * first + 3 * second);
    CHECK(profile.kinds().at("linear").operations == 3 * last);
    for (const char* trained : {"0", "1", "3", "6"}) {
      INFO(trained);
      CHECK(row_of(profile, trained).forward > 0);
      CHECK(row_of(profile, trained).backward > 0);
    }
    // The moments of a batch norm are part of its row, as is what adds to its gradients the second time. Its output is
    // made again in backward from copies of its weights.
    double norm = 0;
    for (auto& row : profile.layers())
      if (row.name == "1" || row.name.starts_with("(batch_norm_")) norm += row.cost.forward + row.cost.backward;
    const Profile::Kind& norms = profile.kinds().at("batch norm");
    CHECK((twice || std::abs(norm - norms.seconds) < 1e-9 * norms.seconds));
  }
}

TEST_CASE("a convolution whose filter is no layer's is told by the filter's shape, forward and backward") {
  Module none = Sequential{Linear(1, 1)};
  initialize(none, 1);
  Parameters parameters(none);
  Tensor x = Tensor::full({2, 9, 9, 3}, 1), w = Tensor::full({5, 3, 3, 3}, 1);
  x.require_grad();
  w.require_grad();
  Profile profile(parameters, {.bytes = 1e9, .operations = 1e9});
  const Tensor y = conv(x, w);
  y.backward(Tensor::full(y.shape(), 1));
  const Profile::Cost& cost = row_of(profile, "(conv) [5, 3, 3, 3]");
  CHECK(cost.forward > 0);
  CHECK(cost.backward > 0);
  CHECK(cost.operations == 3 * 2.0 * 2 * 7 * 7 * 5 * 27);
}

TEST_CASE("kernels of attention and of norms are told as such") {
  int norms = 0, attention = 0;
  for (const CensusRow& row : census()) {
    const std::string op(row.name), kind = kernel_kind(op);
    CAPTURE(op, kind);
    const bool is_norm = op.find("_norm") != op.npos, attends = op.starts_with("attention") || op == "rope";
    norms += is_norm;
    attention += attends;
    CHECK((!is_norm || kind.ends_with("norm")));
    CHECK((!attends || kind == "attention"));
    if (op.find("softmax") != op.npos) CHECK(kind == "softmax");
    if (op.find("linear") == 0 || op == "matmul") CHECK(kind == "linear");
  }
  CHECK(norms > 8);
  CHECK(attention == 3);
}

}  // namespace test_profile
