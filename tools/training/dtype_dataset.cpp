#include "tools/training/dtype_dataset.h"

#include <algorithm>

#include "framework/tensor/fields.h"

namespace trireme {
namespace {

/// A data set of tensors whose floats of x come in the activations' type.
class InDtype final : public TensorSource {
 public:
  InDtype(Dataset data, DType type) : data_(std::move(data)), type_(type) {}
  std::string name() const override { return data_->name(); }
  Index size() const override { return data_->size(); }
  Index classes() const override { return data_->classes(); }
  std::vector<std::string> class_names() const override { return data_->class_names(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  BadSamples bad() const override { return data_->bad(); }
  Sample sample(Index id, const AugmentKey& draw) const override {
    return converted(data_->tensors()->sample(id, draw));
  }
  Sample batch(std::span<const std::int64_t> ids, const AugmentKey& draw) const override {
    return converted(data_->tensors()->batch(ids, draw));
  }
  /// Whether the tensor needs no conversion.
  bool fits(const Tensor& t) const { return !is_float(t.dtype()) || t.dtype() == type_; }

 private:
  Sample converted(Sample s) const {
    return {map_fields(s.x, [&](const Tensor& t) { return fits(t) ? t : t.to(type_); }), s.y};
  }
  Dataset data_;
  DType type_;
};

}  // namespace

Dataset in_dtype(Dataset data, DType type) {
  if (!data->tensors() || data->size() == 0) return data;
  const Sample first = sample_of(data, 0);
  check(first.y.defined(), "trainer", "samples of {} have no target y; add one with map_samples()",
        [&] { return data->name(); });
  auto converted = std::make_unique<InDtype>(data, type);
  const bool all_fit = converted->fits(first.x) &&
                       std::ranges::all_of(first.x.fields(), [&](const auto& f) { return converted->fits(f.second); });
  return all_fit ? data : Dataset(std::move(converted));
}

}  // namespace trireme
