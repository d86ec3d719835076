// Functions for a tensor and its fields, the named tensors that Tensor::with() attached to it.
#pragma once
#include <vector>

#include "framework/tensor/storage.h"

namespace trireme {

/// f(t), with f applied to each field of t too; undefined if t is undefined.
template <class F>
Tensor map_fields(const Tensor& t, F&& f) {
  if (!t) return t;
  Tensor y = f(t);
  for (const auto& [name, field] : t.fields()) y = y.with(name, f(field));
  return y;
}
/// join(parts), with each field joined too, for the names of the first part. Needs at least one part. Throws Error if a
/// part lacks a field.
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

/// Whether `field`, a field of `of`, has one row for each of its rows: the same number, and a batch if `of` has one
/// (from a Loader, for example).
inline bool has_rows_of(const Tensor& field, const Tensor::Impl& of) {
  return field.rank() > 0 && field.dim(0) == of.shape[0] && (!of.batch || field.batch());
}
/// The same tensor, and its fields that have one row for each of its rows, as rows of this batch.
inline Tensor in_batch(const Tensor& rows, const BatchPtr& batch) {
  const auto given = [&](const Tensor& t) {
    Tensor y = t.with_shard_spec(t.impl()->shard_spec);
    y.impl()->batch = batch;
    return y;
  };
  Tensor y = given(rows);
  if (rows.impl()->fields)
    y.impl()->fields =
        detail::each_field(*rows.impl(), [&](const Tensor& t) { return has_rows_of(t, *rows.impl()) ? given(t) : t; });
  return y;
}
/// All fields of a tensor; null: none.
using Fields = std::shared_ptr<const std::map<std::string, Tensor>>;
inline Fields fields_beside(const Tensor& t) { return t ? t.impl()->fields : nullptr; }
/// The field of this name; undefined if there is none.
inline Tensor field_of(const Tensor& t, const std::string& name) {
  const auto at = t.fields().find(name);
  return at == t.fields().end() ? Tensor() : at->second;
}
/// y with these fields added, except names that it already has: passes the fields of a batch to later layers.
inline Tensor with_fields(Tensor y, const Fields& fields) {
  if (!fields || !y || y.impl()->fields == fields) return y;
  Tensor with = y.with_shard_spec(y.impl()->shard_spec);
  with.impl()->batch = y.impl()->batch;
  with.impl()->fields = fields;
  if (!y.fields().empty()) {
    auto all = y.fields();
    all.insert(fields->begin(), fields->end());
    with.impl()->fields = std::make_shared<const std::map<std::string, Tensor>>(std::move(all));
  }
  return with;
}

/// The fields of a batch as later layers get them: as x has them, if a layer has only divided them over ranks.
inline Fields as_divided(Fields fields, const Tensor& x) {
  if (!fields || !x.impl()->fields || x.impl()->fields == fields) return fields;
  auto all = *fields;
  bool any = false;
  for (auto& [name, field] : all)
    if (const Tensor own = field_of(x, name);
        own && own.impl()->block == field.impl()->block && own.shard_spec() != field.shard_spec()) {
      field = own;
      any = true;
    }
  return any ? std::make_shared<const std::map<std::string, Tensor>>(std::move(all)) : fields;
}

}  // namespace trireme
