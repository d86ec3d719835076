#include "parallel/runtime/non_finite.h"

#include <cctype>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/layers.h"
#include "parallel/comm/world/compare.h"
#include "parallel/runtime/settings.h"

namespace trireme {
namespace {

bool finite(const Tensor& t) {
  if (!is_float(t.dtype())) return true;
  for (double v : t.to_vector())
    if (!std::isfinite(v)) return false;
  return true;
}

/// Tensors in the order in which a fault travels, and the first of them that has it. The list is the same on
/// every rank.
struct Trail {
  std::vector<std::string> places;
  std::int64_t first = -1;
  void add(std::string place, bool good) {
    if (!good && first < 0) first = static_cast<std::int64_t>(places.size());
    places.push_back(std::move(place));
  }
};

/// "max_pool" for MaxPool; "layer" for a type that is not the library's own.
std::string kind_of(const Module& m) {
  constexpr std::string_view own = "trireme::";
  const std::string type = demangled(m.type().name());
  if (!type.starts_with(own) || type.find("::", own.size()) != type.npos) return "layer";
  std::string kind;
  for (const char c : type.substr(own.size())) {
    if (std::isupper(c) && !kind.empty()) kind += '_';
    kind += static_cast<char>(std::tolower(c));
  }
  return kind;
}

/// run: the layer's forward.
Tensor follow(Module layer, const std::string& prefix, const std::string& title, Trail& trail,
              const std::function<Tensor()>& run) {
  layer.visit(StateVisitor(
      [&](const NamedState& leaf) {
        if (leaf.use != StateKind::buffer)
          trail.add(fmt::format("parameter '{}' (an earlier update made it so)", leaf.name), finite(*leaf.tensor));
      },
      {}, prefix));
  const Tensor y = run();
  trail.add("the output of " + title, finite(y));
  return y;
}

}  // namespace

std::string first_non_finite(const Module& model, const Tensor& x, Communicator* comm) {
  NoGrad off;
  Trail trail;
  trail.add("the input batch", finite(x));
  BatchContext batch = StepContext::current().batch;
  batch.calls = {};  // each layer draws its first mask again
  Tensor at = x.with_batch(std::move(batch));
  Stashed stashed;
  if (auto* row = model.as<Sequential>())
    for (std::size_t i = 0; i < row->size(); ++i)
      at = follow((*row)[i], row->name(i) + ".", fmt::format("layer {} ({} '{}')", i, kind_of((*row)[i]), row->name(i)),
                  trail, [&] { return row->run_layer(i, at, stashed); });
  else
    at = follow(model, "", "the model", trail, [&] { return model(at); });
  if (trail.first < 0) trail.first = static_cast<std::int64_t>(trail.places.size());
  trail.places.push_back("");
  if (!comm) return trail.places[static_cast<std::size_t>(trail.first)];
  const auto [first, rank] = min_loc(*comm, trail.first);
  auto place = trail.places[static_cast<std::size_t>(first)];
  return place.empty() ? place : fmt::format("{}, on rank {}", place, rank);
}

}  // namespace trireme
