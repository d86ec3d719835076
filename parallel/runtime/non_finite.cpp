#include "parallel/runtime/non_finite.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "framework/autograd/step_context.h"
#include "framework/autograd/tape.h"
#include "framework/layers/layers.h"
#include "framework/layers/summary.h"
#include "framework/tensor/fields.h"
#include "parallel/comm/world/compare.h"

namespace trireme {
namespace {

bool finite(const Tensor& t) {
  return !is_float(t.dtype()) || std::ranges::all_of(t.to_vector(), [](double v) { return std::isfinite(v); });
}

/// "max_pool" for MaxPool; "layer" for a custom type.
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

}  // namespace

std::string first_non_finite(const Module& model, const Tensor& x, Communicator* comm) {
  NoGrad off;
  // Tensors in the order in which a fault spreads, equal on all ranks, and the first one that has it.
  std::vector<std::string> places;
  Index first = -1;
  const auto see = [&](std::string place, const Tensor& t) {
    if (first < 0 && !finite(t)) first = std::ssize(places);
    places.push_back(std::move(place));
  };
  see("the input batch", x);
  BatchContext batch = StepContext::current().batch;
  batch.calls = {};  // each layer draws its first mask again
  Tensor at = x.with_batch(std::move(batch));
  const auto follow = [&](Module layer, const std::string& prefix, const std::string& title, const auto& forward) {
    const auto leaf = [&](const NamedState& leaf) {
      if (leaf.kind != StateKind::buffer)
        see(fmt::format("parameter '{}' (an earlier update made it so)", leaf.name), *leaf.tensor);
    };
    layer.visit(StateVisitor(leaf, {}, prefix));
    at = forward();
    see("the output of " + title, at);
  };
  Stashed stashed;
  stashed.fields = fields_beside(at);
  if (auto* row = model.as<Sequential>())
    for (std::size_t i = 0; i < row->size(); ++i)
      follow((*row)[i], row->name(i) + ".", fmt::format("layer {} ({} '{}')", i, kind_of((*row)[i]), row->name(i)),
             [&] { return row->run_layer(i, at, stashed); });
  else
    follow(model, "", "the model", [&] { return model(at); });
  int rank = 0;
  if (first < 0) first = std::ssize(places);
  if (comm) std::tie(first, rank) = min_loc(*comm, first);
  if (first == std::ssize(places)) return "";
  return places[first] + (comm ? fmt::format(", on rank {}", rank) : "");
}

}  // namespace trireme
