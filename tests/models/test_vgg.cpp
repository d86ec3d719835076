// VGG-16 and AlexNet beside torchvision's: names, shapes, starts, logits.
#include "models/vision/vgg.h"

#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/io/weights.h"
#include "framework/layers/init.h"
#include "tests/models/formula.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_vgg {

using namespace trireme;
using trireme::test::contains;
using trireme::test::formula;
using trireme::test::list;
using trireme::test::load_formula;

TEST_CASE("vgg16 and alexnet have torchvision's names, starts and logits") {
  test::Oracle torch;
  {
    Module model = vgg16();
    torch.note("vgg16.txt", list(model));
    Index count = 0;
    model.visit(StateVisitor([&](const NamedState& leaf) { count += leaf.tensor->numel(); }));
    CHECK(count == 138'357'544);
    model.visit(StateVisitor([&](const NamedState& leaf) {
      INFO(leaf.name);
      const auto values =
          leaf.tensor->view().span<const float>().first(std::min<std::size_t>(leaf.tensor->numel(), 100'000));
      double squares = 0;
      for (float v : values) squares += v * v;
      const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
      const double expected =
          leaf.tensor->rank() == 1 ? 0
          : leaf.tensor->rank() == 2
              ? 0.01
              : std::sqrt(2.0 / static_cast<double>(Init::fan_of(leaf.tensor->shape(), Init::Fan::out)));
      CHECK(std::abs(deviation - expected) <= 0.05 * expected);
    }));
  }
  Module model = alexnet();
  torch.note("alexnet.txt", list(model));
  Parameters parameters(model);
  CHECK(parameters.count() == 61'100'840);
  if (!torch.run("torch_vgg.py")) return;
  load_formula(model);
  const NoGrad no_grad;
  const StepScope evaluation(StepContext{.batch = {.training = false}});
  const std::vector<double> logits = model(permute(formula({2, 3, 224, 224}, 99), {0, 2, 3, 1})).to_vector();
  const std::vector<double> expected = torch.get("logits");
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::abs(logits[i] - expected[i]));
    size = std::max(size, std::abs(expected[i]));
  }
  CHECK(logits.size() == 2000);
  CHECK(difference < 1e-4 * size);
}

TEST_CASE("alexnet takes images of other sizes, which are pooled to the classifier's grid") {
  const NoGrad no_grad;
  const StepScope evaluation(StepContext{.batch = {.training = false}});
  CHECK(alexnet({.input = {96, 130, 3}, .classes = 7})(Tensor::zeros({2, 96, 130, 3})).shape() == Shape{2, 7});
}

}  // namespace test_vgg
