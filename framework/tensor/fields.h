// What is done to a tensor and to all that stand beside it (Tensor::with()) alike.
#pragma once
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// f(t), with f of each tensor beside t beside it; undefined for an undefined t.
template <class F>
Tensor map_fields(const Tensor& t, F&& f) {
  if (!t) return t;
  Tensor y = f(t);
  for (const auto& [name, field] : t.fields()) y = y.with(name, f(field));
  return y;
}
/// join(parts), with join of what each part has under a name beside it, for the names of the first: at least one part.
/// Throws Error where a part lacks a name.
template <class F>
Tensor join_fields(const std::vector<Tensor>& parts, F&& join) {
  Tensor y = join(parts);
  for (const auto& field : parts.front().fields()) {
    std::vector<Tensor> alike;
    for (const Tensor& t : parts) alike.push_back(t.at(field.first));
    y = y.with(field.first, join(alike));
  }
  return y;
}

}  // namespace trireme
