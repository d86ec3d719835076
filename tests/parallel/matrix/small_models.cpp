#include "tests/parallel/matrix/small_models.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "framework/layers/init.h"
#include "framework/layers/on.h"
#include "framework/ops/moves.h"
#include "framework/tensor/batch.h"
#include "framework/tensor/create.h"
#include "models/registry/models.h"
#include "models/text/bert.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"
#include "models/vision/resnet.h"
#include "models/vision/unet.h"
#include "models/vision/vit.h"
#include "models/volumes/msd.h"
#include "models/volumes/unet3d.h"

namespace trireme::test {
namespace {

constexpr Index rows = 7, classes = 5, tokens = 10, vocabulary = 17;

/// The same layers with fewer channels: each extent of a weight is divided, or replaced where the table has it.
/// Layers read their sizes from their tensors.
Module narrowed(Module model, Index divisor, const std::map<Index, Index>& table) {
  model.visit(StateVisitor([&](const NamedState& leaf) {
    Shape shape;
    for (const Index extent : leaf.tensor->shape()) {
      const auto given = table.find(extent);
      shape.push_back(given != table.end() ? given->second : extent % divisor == 0 ? extent / divisor : extent);
    }
    *leaf.tensor = Tensor::full(shape, leaf.name.ends_with("running_var") ? 1 : 0);
  }));
  return model;
}

bool has_batch_norm(Module model) {
  bool found = false;
  model.visit(StateVisitor([&](const NamedState& leaf) { found = found || leaf.kind == StateKind::buffer; }));
  return found;
}

Shape with_rows(const Shape& sample) {
  Shape all{rows};
  for (const Index extent : sample) all.push_back(extent);
  return all;
}

/// Labels from 0 to `most` - 1, spread over all of them.
Tensor labels(const Shape& shape, Index most) {
  const Tensor y = Tensor::empty(shape, DType::i64);
  for (Index i = 0; i < y.numel(); ++i) y.data<std::int64_t>()[i] = (i * 7 + i / 3) % most;
  return y;
}

SmallModel of_images(const std::string& name, const Shape& image, const std::function<Module()>& make,
                     bool dense = false) {
  Shape labelled{rows};
  if (dense)
    for (int axis = 0; axis + 1 < image.rank(); ++axis) labelled.push_back(image[axis]);
  return {.name = name,
          .make =
              [make] {
                Module model = convert(make(), DType::f64);
                set_start(model);
                return model;
              },
          .data = {.x = normal(with_rows(image), 0, 1, 11, DType::f64), .y = labels(labelled, classes)},
          .loss = cross_entropy,
          .batch_norm = has_batch_norm(make())};
}
SmallModel registered(const std::string& name, const Shape& image, Index divisor = 1,
                      const std::map<Index, Index>& table = {}) {
  return of_images(name, image, [=] {
    const ModelOptions options{.input = image, .classes = classes};
    if (divisor == 1) return make_model(name, options);
    const SkipInit undrawn;  // narrowed() reads the shapes alone
    return narrowed(make_model(name, options), divisor, table);
  });
}

/// Of unequal numbers of labels: sample i has i % 4 ignored ones, and sample 2 no label at all.
SmallModel of_tokens(const std::string& name, const std::function<Module()>& make) {
  SmallModel m = of_images(name, {tokens}, make);
  m.data.x = labels({rows, tokens}, vocabulary);
  m.data.y = Tensor::empty({rows, tokens}, DType::i64);
  for (Index i = 0; i < rows * tokens; ++i) {
    const Index row = i / tokens, at = i % tokens;
    m.data.y.data<std::int64_t>()[i] = at < row % 4 || row == 2 ? -100 : (i * 5 + 3) % vocabulary;
  }
  m.loss = cross_entropy_with({.ignore_index = -100});
  return m;
}

}  // namespace

void Records::add(const std::string& what, const Tensor& rows, bool mask) {
  const BatchContext& batch = batch_of(rows);
  if (!on_ || !batch.names_rows_of(rows)) return;
  const std::vector<double> ids = batch.samples.to_vector();
  std::vector<double> all = gathered(rows).to_vector();
  if (mask)
    for (double& x : all) x = x != 0 ? 1 : 0;
  const std::size_t each = ids.empty() ? 0 : all.size() / ids.size();
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * each);
    std::vector<double> row(first, first + static_cast<std::ptrdiff_t>(each));
    const auto [at, added] = seen_.try_emplace({what, batch.step, static_cast<std::int64_t>(ids[i])}, row);
    if (!added && at->second != row) conflict_ = what;
  }
}
std::map<Records::Key, std::vector<double>> Records::take() {
  const std::scoped_lock lock(mutex_);
  conflict_.clear();
  return std::exchange(seen_, {});
}
std::string Records::conflict() const {
  const std::scoped_lock lock(mutex_);
  return conflict_;
}

void set_start(Module& model) {
  std::uint64_t key = 100;
  model.visit(StateVisitor([&](const NamedState& leaf) {
    const Tensor& t = *leaf.tensor;
    ++key;
    if (leaf.kind == StateKind::buffer) return;
    const bool vector = t.rank() < 2, scales = vector && leaf.name.ends_with("weight");
    const double deviation = vector ? 0.2 : 1 / std::sqrt(static_cast<double>(t.numel() / t.dim(0)));
    t.copy_from(normal(t.shape(), scales ? 1 : 0, deviation, key, t.dtype()));
  }));
}

std::vector<SmallModel> small_models() {
  const GptOptions gpt{
      .layers = 2, .heads = 4, .width = 24, .positions = tokens, .vocabulary = vocabulary, .hidden = 36};
  const LlamaOptions grouped{
      .layers = 2, .heads = 4, .kv_heads = 2, .width = 24, .hidden = 36, .positions = tokens, .vocabulary = vocabulary};
  const BertOptions masked{
      .layers = 2, .heads = 4, .width = 24, .positions = tokens, .vocabulary = vocabulary, .hidden = 36};
  const VitOptions patches{.input = {16, 16, 3},
                           .patch = 4,
                           .layers = 2,
                           .heads = 4,
                           .width = 24,
                           .hidden = 36,
                           .classes = classes,
                           .dropout = 0.1};
  GptOptions untied = gpt;
  untied.tied = false;
  std::vector<SmallModel> all{
      registered("mlp", {8, 8, 1}, 16, {{64, 64}}),
      registered("lenet5", {16, 16, 1}),
      registered("mnist_cnn", {10, 10, 1}, 8),
      registered("alexnet", {64, 64, 3}, 16, {{4096, 32}}),
      registered("vgg16", {32, 32, 3}, 16, {{4096, 32}}),
      of_images("resnet20", {16, 16, 3},
                [] {
                  return narrowed(cifar_resnet(20, {.input = {16, 16, 3}, .classes = classes}), 4, {});
                }),
      registered("resnet18", {32, 32, 3}, 16),
      registered("resnet50", {64, 64, 3}, 16),
      registered("mobilenet_v2", {64, 64, 3}),
      of_images(
          "unet", {32, 32, 1},
          [] {
            return unet({.input = {32, 32, 1}, .classes = classes}, 4);
          },
          true),
      of_images(
          "unet3d", {16, 32, 16, 1},
          [] {
            return unet3d({.input = {16, 32, 16, 1}, .classes = classes}, 4);
          },
          true),
      of_images(
          "msd", {12, 12, 1},
          [] {
            return msd({.input = {12, 12, 1}, .classes = classes}, {.depth = 4, .width = 2, .dilations = {1, 2, 3}});
          },
          true),
      of_images("vit", patches.input, [=] { return vit(patches); }),
      of_images("vit_hf", patches.input, [=] { return vit_hf(patches); }),
      of_tokens("gpt2", [=] { return gpt2(gpt); }),
      of_tokens("gpt2_untied", [=] { return gpt2(untied); }),
      of_tokens("llama", [=] { return llama(grouped); }),
      of_tokens("bert", [=] { return bert(masked); }),
  };
  const std::set<std::string> large{"alexnet", "vgg16", "resnet18", "resnet50", "mobilenet_v2", "unet3d"};
  for (SmallModel& m : all) m.large = large.contains(m.name);
  SmallModel& bert = all.back();
  const Tensor lengths = Tensor::empty({rows}, DType::i64), types = labels({rows, tokens}, 2);
  for (Index i = 0; i < rows; ++i) lengths.data<std::int64_t>()[i] = tokens - i % 3;
  bert.data.x = bert.data.x.with("length", lengths).with("token_type_ids", types);
  return all;
}

SmallModel small_model(const std::string& name, const Shape& image, const std::function<Module()>& make,
                       Index labels_of) {
  SmallModel m = of_images(name, image, make);
  m.data.y = labels({rows}, labels_of);
  return m;
}

}  // namespace trireme::test
