// MobileNetV2 beside torchvision's, U-Net beside one written in PyTorch: names, shapes, logits, gradients.
#include "models/vision/mobilenet.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "framework/optim/parameters.h"
#include "models/vision/unet.h"
#include "tests/models/formula.h"
#include "tests/support/catch.h"
#include "tests/support/distance.h"
#include "tests/support/oracle.h"

namespace test_mobilenet {

using namespace trireme;
using namespace trireme::test;

namespace {

/// [N, C, spatial...] to [N, spatial..., C], and back.
Tensor channels_last(const Tensor& t) {
  Shape order{0};
  for (int i = 2; i < t.rank(); ++i) order.push_back(i);
  order.push_back(1);
  return permute(t, order);
}
Tensor channels_first(const Tensor& t) {
  Shape order{0, t.rank() - 1};
  for (int i = 1; i < t.rank() - 1; ++i) order.push_back(i);
  return permute(t, order);
}

}  // namespace

TEST_CASE("mobilenet_v2 is torchvision's, and unet PyTorch's: names, outputs, and gradients in training") {
  Oracle torch;
  struct Row {
    std::string name;
    Module model;
    Shape input;  // PyTorch's
  };
  const std::vector<Row> rows{{"mobilenet", mobilenet_v2({.input = {64, 64, 3}, .classes = 10}), {4, 3, 64, 64}},
                              {"unet2", unet({.input = {32, 48, 3}, .classes = 2}, 4), {2, 3, 32, 48}},
                              {"unet3", unet({.input = {16, 32, 16, 1}, .classes = 3}, 2), {2, 1, 16, 32, 16}}};
  for (const Row& row : rows) torch.note(row.name + ".txt", list(row.model));
  if (!torch.run("torch_mobilenet.py")) return;
  for (const Row& row : rows) {
    INFO(row.name);
    Module model = row.model;
    convert(model, DType::f64);
    load_formula(model);
    Parameters parameters(model);
    const Tensor x = channels_last(formula(row.input, 99)).to(DType::f64);
    {
      const NoGrad off;
      const StepScope evaluation(StepContext{.batch = {.training = false}});
      const Tensor y = model(x);
      CHECK(distance((y.rank() > 2 ? channels_first(y) : y).to_vector(), torch.get(row.name + ".eval")) < 1e-11);
    }
    if (row.name == "mobilenet") (*(*model.as<Sequential>())[2].as<Sequential>())[0].as<Dropout>()->p = 0;
    const Tensor y = model(x);
    CHECK(distance((y.rank() > 2 ? channels_first(y) : y).to_vector(), torch.get(row.name + ".train")) < 1e-11);
    sum(square(y)).backward();
    std::vector<double> norms;
    for (const auto& e : parameters.entries()) norms.push_back(norm(e.tensor.grad().reshape({-1}), {0}).item());
    CHECK(distance(norms, torch.get(row.name + ".grads")) < 1e-9);
  }
  Module whole = mobilenet_v2();
  CHECK(Parameters(whole).count() == 3'504'872);
  Module net = unet();
  CHECK(Parameters(net).count() == 7'763'041);
}

}  // namespace test_mobilenet
