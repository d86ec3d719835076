#include "models/registry/models.h"

#include <cstring>

#include "models/vision/lenet5.h"
#include "models/vision/mlp.h"
#include "models/vision/mnist_cnn.h"

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/inference.h"
#include "framework/layers/init.h"
#include "framework/optim/optimizer.h"
#include "framework/tensor/launch.h"
#include "kernels/core/skip_copies.h"
#include "models/vision/resnet.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_models {

using namespace trireme;
using test::contains;

namespace {

constexpr Index batch = 8;
constexpr int steps = 20;

StepContext at_step(int step) {
  StepContext context;
  context.batch.seed = 11;
  context.batch.step = static_cast<std::uint64_t>(step);
  return context;
}

/// The factors a dropout layer multiplies by, for all steps.
std::vector<double> masks(const Module& dropout, const Shape& shape, DType dtype) {
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) {
    StepScope scope(at_step(step));
    for (double v : dropout(Tensor::full(shape, 1, dtype)).to_vector()) all.push_back(v);
  }
  return all;
}

/// f64 shows that the mathematics is PyTorch's. In f32 one rounding may turn a ReLU or a maximum the other way, and
/// PyTorch's own f32 weights end up to 5e-3 off its f64 ones: there the losses are compared, on images where its two
/// runs agree.
void track_torch(DType dtype, bool with_dropout) {
  Sequential model = mnist_cnn();
  Module all = model;
  initialize(all, 3);
  convert(all, dtype);
  Parameters parameters(all);
  Dropout &first = *model[5].as<Dropout>(), &second = *model[9].as<Dropout>();
  if (!with_dropout) {
    first.p = 0;
    second.p = 0;
  }
  Optimizer optimizer(parameters, Sgd{.lr = 0.05, .momentum = 0.9});

  const Tensor images = Tensor::empty({batch, 28, 28, 1}, dtype), labels = Tensor::empty({batch}, DType::i64);
  uniform(images, 0, 1, 2);
  for (Index i = 0; i < batch; ++i) labels.data<std::int64_t>()[i] = (i * 7) % 10;
  test::Oracle torch;
  torch.put("images", images);
  torch.put("labels", labels);
  for (auto& e : parameters.entries()) torch.put(e.name, e.tensor);
  if (with_dropout) {
    torch.put("mask0", masks(model[5], {batch, 12, 12, 64}, dtype));
    torch.put("mask1", masks(model[9], {batch, 128}, dtype));
  }
  if (!torch.run("torch_mnist_cnn.py", std::to_string(steps) + (with_dropout ? " 1" : " 0"))) return;

  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    StepScope scope(at_step(step));
    const Tensor loss = cross_entropy(model(images), labels);
    losses.push_back(loss.item());
    loss.backward();
    optimizer.step();
  }
  INFO("loss " << losses.front() << " to " << losses.back());
  CHECK(losses.back() < losses.front());
  if (dtype == DType::f32) {
    CHECK(test::distance(losses, torch.get("loss_f32")) < 1e-4);
    return;
  }
  CHECK(test::distance(losses, torch.get("loss_f64")) < 1e-10);
  for (auto& e : parameters.entries()) {
    INFO(e.name);
    CHECK(test::distance(e.tensor.to_vector(), torch.get(e.name + ".end")) < 1e-10);
  }
}

}  // namespace

TEST_CASE("twenty training steps of the MNIST CNN track PyTorch") {
  for (DType dtype : {DType::f32, DType::f64})
    for (bool with_dropout : {false, true}) {  // the masks are ours
      INFO(name_of(dtype) << (with_dropout ? ", dropout" : ""));
      track_torch(dtype, with_dropout);
    }
}

TEST_CASE("models have the sizes and names known from elsewhere") {
  CHECK(Parameters(mnist_cnn()).count() == 1'199'882);
  CHECK(Parameters(lenet5()).count() == 61'706);
  CHECK(Parameters(mlp()).count() == 535'818);
  // torchvision.models, weights of 1,000 classes
  CHECK(Parameters(resnet18()).count() == 11'689'512);
  CHECK(Parameters(resnet34()).count() == 21'797'672);
  CHECK(Parameters(resnet50()).count() == 25'557'032);
  CHECK(Parameters(resnet101()).count() == 44'549'160);
  CHECK(Parameters(resnet152()).count() == 60'192'808);
  // He et al. 2015, table 6, with projections: 0.27, 0.46 and 0.85 million
  CHECK(Parameters(cifar_resnet(20)).count() == 272'474);
  CHECK(Parameters(cifar_resnet(32)).count() == 466'906);
  CHECK(Parameters(cifar_resnet(56)).count() == 855'770);
  Parameters p(mnist_cnn());
  std::vector<std::string> names;
  for (auto& e : p.entries()) names.push_back(e.name);
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "7.weight", "7.bias", "10.weight",
                                          "10.bias"});
}

TEST_CASE("every model takes its input and gives a row of classes") {
  for (const ModelRow& row : models()) {
    INFO(row.name);
    const ModelOptions options{.input = {32, 36, 3}, .classes = 7};
    NoGrad guard;
    if (row.text) {
      const ModelOptions small{.input = {5}, .classes = 7, .arch = {.layers = 1, .heads = 2, .width = 8}};
      CHECK(row.make(small)(Tensor::zeros({2, 5}, DType::i64)).shape() == Shape{2, 5, 7});
      continue;
    }
    if (row.name == "msd" || row.name == "unet3d") continue;  // whose rows are positions, in tests of their own,
    if (row.name == "vgg16" || row.name == "alexnet" || row.name.starts_with("vit_")) continue;  // as these
    if (row.usual.input.numel() <= 32 * 32 * 3) {
      const Shape in = row.usual.input;
      CHECK(row.make(row.usual)(Tensor::full({2, in[0], in[1], in[2]}, 0.5)).shape() == Shape{2, 10});
    }
    CHECK(make_model(row.name, options)(Tensor::full({2, 32, 36, 3}, 0.5)).shape() == Shape{2, 7});
  }
}

TEST_CASE("a dry run before the first batch leaves nothing behind in a model") {
  // Tables of rotary embeddings and filters with folded norms are cached: a dry run computes no values.
  struct Case {
    const char* name;
    ModelOptions options;
  };
  const ArchOptions small{.layers = 2, .heads = 2, .width = 32};
  const auto c = GENERATE_COPY(Case{"mnist_cnn", {}}, Case{"resnet20", {.input = {32, 32, 3}}},
                               Case{"mobilenet_v2", {.input = {32, 32, 3}}},
                               Case{"msd", {.input = {16, 16, 1}, .classes = 2, .arch = {.layers = 3}}},
                               Case{"vit_b_16", {.input = {32, 32, 3}, .arch = small}},
                               Case{"gpt2", {.input = {16}, .classes = 32, .arch = small}},
                               Case{"llama", {.input = {16}, .classes = 32, .arch = small}},
                               Case{"bert", {.input = {16}, .classes = 32, .arch = small}});
  INFO(c.name);
  Shape shape{2};
  for (Index extent : c.options.input) shape.push_back(extent);
  Tensor x;
  if (model_row(c.name).text) {
    x = Tensor::empty(shape, DType::i64);
    for (Index i = 0; i < x.numel(); ++i) x.data<std::int64_t>()[i] = i * 7 % 32;
  } else {
    x = Tensor::empty(shape);
    uniform(x, 0, 1, 2);
  }
  const auto outputs = [&](bool dry_first) {
    Module model = make_model(c.name, c.options);
    initialize(model, 3);
    const auto dry_run = [&] {
      if (!dry_first) return;
      const SkipCopies no_copies;
      const auto spoil = [](const LaunchWatch::Call& call) {  // NaN in each result that no kernel computed
        std::memset(call.operands[0].data, 0xff, static_cast<std::size_t>(call.operands[0].bytes()));
      };
      const LaunchWatch dry(spoil, LaunchWatch::Mode::dry);
      model(x);
    };
    const NoGrad no_grad;
    std::vector<double> all;
    {
      const Inference inference;
      dry_run();
      all = model(x).to_vector();
    }
    {
      const StepScope scope(at_step(0));
      dry_run();
    }
    const StepScope scope(at_step(0));
    for (double v : model(x).to_vector()) all.push_back(v);
    return all;
  };
  CHECK(outputs(true) == outputs(false));
}

TEST_CASE("an unknown model gets a suggestion, an impossible one a reason") {
  CHECK_ERROR(model_row("mnist_cn"), usage, "mnist_cn", "mnist_cnn");
  CHECK_ERROR(model_row("transformer"), usage, "model", "lenet5");
  CHECK_ERROR(mnist_cnn({.input = {5, 5, 1}}), usage, "mnist_cnn", 6);
  CHECK_ERROR(lenet5({.input = {28, 28}}), usage, "lenet5", "[height, width, channels]");
}

}  // namespace test_models
