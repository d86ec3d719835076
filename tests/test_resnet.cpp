// ResNets beside torchvision's: names, logits, gradients and running statistics.
#include "models/resnet.h"

#include <cmath>

#include "framework/init.h"
#include "framework/parameters.h"
#include "framework/pass.h"
#include "framework/tape.h"
#include "tests/catch.h"
#include "tests/oracle.h"

using namespace trireme;

namespace {

/// Largest difference over the largest value.
double relative(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = std::max(difference, std::abs(a[i] - b[i])), size = std::max(size, std::abs(b[i]));
  return difference / size;
}

void beside_torchvision(const std::string& name, DType dtype, Index size) {
  constexpr Index batch = 4, classes = 10;
  Module model = make_model(name, {.input = {size, size, 3}, .classes = classes});
  initialize(model, 5);
  convert(model, dtype);
  Parameters parameters(model);
  std::uint64_t key = 100;
  for (auto& e : parameters.entries())  // scales and shifts that tell channels apart
    if (e.tensor.rank() == 1)
      uniform(e.tensor, e.name.ends_with("weight") ? 0.5 : -0.2, e.name.ends_with("weight") ? 1 : 0.2, ++key);
  for (auto& b : parameters.buffers())
    uniform(b.tensor, b.name.ends_with("var") ? 0.5 : -0.2, b.name.ends_with("var") ? 2 : 0.2, ++key);
  const Tensor images = Tensor::empty({batch, size, size, 3}, dtype), labels = Tensor::empty({batch}, DType::i64);
  uniform(images, -1, 1, 1);
  for (Index i = 0; i < batch; ++i) labels.data<std::int64_t>()[i] = (i * 7) % classes;

  test::Oracle torch;
  torch.put("images", images), torch.put("labels", labels);
  for (auto& e : parameters.entries()) torch.put(e.name, e.tensor);
  for (auto& b : parameters.buffers()) torch.put(b.name, b.tensor);
  if (!torch.run("torch_resnet.py", name + " " + std::string(name_of(dtype)))) return;

  const double forward = dtype == DType::f64 ? 1e-10 : 1e-4, backward = dtype == DType::f64 ? 1e-9 : 1e-3;
  {
    NoGrad no_grad;
    PassScope evaluation(Pass{.training = false});
    CHECK(relative(model(images).to_vector(), torch.get("eval")) < forward);
  }
  {
    const Inference folded;  // batch norms within the convolutions
    CHECK(relative(model(images).to_vector(), torch.get("eval")) < forward);
    CHECK(relative(model(images).to_vector(), torch.get("eval")) < forward);  // from what was kept
  }
  const Tensor logits = model(images), loss = cross_entropy(logits, labels);
  loss.backward();
  CHECK(relative(logits.to_vector(), torch.get("train")) < forward);
  CHECK(std::abs(loss.item() - torch.get("loss")[0]) < forward);
  for (auto& e : parameters.entries()) {
    INFO(e.name);
    CHECK(relative(e.tensor.grad().to_vector(), torch.get(e.name + ".grad")) < backward);
  }
  for (auto& b : parameters.buffers()) {
    INFO(b.name);
    CHECK(relative(b.tensor.to_vector(), torch.get(b.name + ".end")) < forward);
  }
}

}  // namespace

TEST_CASE("resnet18 equals torchvision's") {
  for (DType dtype : {DType::f32, DType::f64}) {
    INFO(name_of(dtype));
    beside_torchvision("resnet18", dtype, dtype == DType::f32 ? 64 : 32);
  }
}
TEST_CASE("resnet50 equals torchvision's") { beside_torchvision("resnet50", DType::f64, 32); }

TEST_CASE("resnet50 has the names of torchvision, but for the counters of batches") {
  Parameters parameters(resnet50());
  CHECK(parameters.entries().size() == 161);
  CHECK(parameters.buffers().size() == 106);  // 320 with torchvision's 53 num_batches_tracked
}
