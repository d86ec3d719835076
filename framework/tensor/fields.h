// What is done to a tensor and to all that stand beside it (Tensor::with()) alike.
#pragma once
#include <vector>

#include "framework/tensor/storage.h"

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

/// Whether `field`, which stands beside `of`, has a row for each row of it: as many rows and, where a batch (a
/// Loader's, say) gave them to `of`, that batch.
inline bool has_rows_of(const Tensor& field, const Tensor::Impl& of) {
  return field.rank() > 0 && field.dim(0) == of.shape[0] && (!of.batch || field.batch());
}
/// All that stand beside a tensor; null: nothing.
using Fields = std::shared_ptr<const std::map<std::string, Tensor>>;
inline Fields fields_beside(const Tensor& t) { return t ? t.impl()->fields : nullptr; }
/// The tensor of this name beside t; undefined where there is none.
inline Tensor field_of(const Tensor& t, const std::string& name) {
  const auto at = t.fields().find(name);
  return at == t.fields().end() ? Tensor() : at->second;
}
/// y with these beside it, too, but for names that it has itself: what came in with a batch, for the layers behind the
/// first.
inline Tensor with_fields(Tensor y, const Fields& fields) {
  if (!fields || !y || y.impl()->fields == fields) return y;
  auto all = y.fields();
  all.insert(fields->begin(), fields->end());
  Tensor with = y.with_shard_spec(y.impl()->shard_spec);
  with.impl()->batch = y.impl()->batch;
  with.impl()->fields = std::make_shared<const std::map<std::string, Tensor>>(std::move(all));
  return with;
}

}  // namespace trireme
