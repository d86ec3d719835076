// VGG-16 and AlexNet beside torchvision's: names, shapes, starts, logits.
#include "models/vision/vgg.h"

#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/io/weights.h"
#include "framework/layers/init.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

using namespace trireme;
using trireme::test::contains;

namespace {

/// torch_vgg.py's numbers.
Tensor formula(const Shape& shape, std::uint64_t key) {
  const Tensor t = Tensor::empty(shape);
  const Index n = shape.numel();
  const double scale = shape.rank() > 1 ? std::sqrt(24.0 / static_cast<double>(n / shape[0])) : 0.2;
  float* out = t.data<float>();
  for (Index i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761u + key * 40503u);
    out[i] = static_cast<float>((bits / 4294967296.0 - 0.5) * scale);
  }
  return t;
}

/// "name [extents]" by PyTorch's shapes.
std::string list(Module model) {
  std::string text;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Shape shape = leaf.tensor->shape();
    if (leaf.layout == FileLayout::filter) shape = {shape[0], shape[3], shape[1], shape[2]};
    text += fmt::format("{} {}\n", leaf.name, shape);
  }));
  return text;
}

}  // namespace

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
  SafetensorsFile file;
  for (const StoredTensor& t : stored_weights(parameters)) {
    const Shape& s = t.tensor.shape();
    const Shape shape = t.layout == FileLayout::filter ? Shape{s[0], s[3], s[1], s[2]} : s;
    file.tensors.push_back({t.name, formula(shape, file.tensors.size())});
  }
  import_weights(parameters, file, "the formula");
  const NoGrad no_grad;
  const StepScope evaluation(StepContext{.batch = {.training = false}});
  const std::vector<double> logits = model(permute(formula({2, 3, 224, 224}, 99), {0, 2, 3, 1})).to_vector();
  const std::vector<double> expected = torch.get("logits");
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    difference = std::max(difference, std::abs(logits[i] - expected[i])), size = std::max(size, std::abs(expected[i]));
  CHECK(logits.size() == 2000);
  CHECK(difference < 1e-4 * size);
}

TEST_CASE("vgg16 and alexnet refuse images whose features do not fill the classifier's grid") {
  CHECK_THROWS_WITH(vgg16({.input = {32, 32, 3}}), contains("leave 1 x 1 before the classifier, expected 7 x 7"));
  CHECK_THROWS_WITH(alexnet({.input = {32, 36, 3}}), contains("expected 6 x 6 or a multiple"));
}
