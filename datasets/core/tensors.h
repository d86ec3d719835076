// Data sets of tensors: features, regression targets, tokens, masks, several inputs; from memory, a file or a function;
// and data sets made of others. Everything goes by sample id, so that an epoch is the same on one rank and on many, and
// can be resumed.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "datasets/core/dataset.h"
#include "datasets/core/mapped.h"
#include "framework/tensor/tensor.h"

namespace trireme {

/// A sample, or a batch of them, as tensors; each may have others beside it (Tensor::with()).
struct Sample {
  Tensor x,  ///< what the model sees
      y;     ///< what the loss compares with; undefined: nothing
};

/// A data set whose samples are tensors; one of a program's own derives from it: name(), size() and sample().
class TensorSource : public DatasetSource {
 public:
  const TensorSource* tensors() const override { return this; }
  /// Sample id, without an axis for the batch. Called from several threads.
  virtual Sample sample(Index id, const AugmentKey& = {}) const = 0;
  /// These samples one behind the other along a new first axis, on the host. By default those of sample(), stacked;
  /// Error where their shapes differ (LoaderOptions::collate).
  virtual Sample batch(std::span<const std::int64_t> ids, const AugmentKey& = {}) const;
  Shape shape() const override;                 ///< of the first sample's x
  Index classes() const override { return 0; }  ///< 0: y holds no labels
  PixelScale scale() const override { return {}; }
  /// Throws Error: samples are no pictures.
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override;

 protected:
  void check_id(Index id) const;  ///< throws Error for an id outside [0, size())
};
/// Sample id of a data set of tensors. Throws Error where they are pictures.
Sample sample_of(const Dataset&, Index id, const AugmentKey& = {});

/// torch.utils.data.TensorDataset: sample i is row i of x and of y, and of those of their fields that have as many
/// rows; other fields are whole in each batch (and, stacked by a data set made of this one, in each sample). y may be
/// undefined. classes: of labels, 0 where y is none. Throws Error for tensors of different numbers of rows.
Dataset TensorDataset(const Tensor& x, const Tensor& y = {}, Index classes = 0);
/// Sample i is sample(i, draw), which may be asked for from several threads. Throws Error for an empty function.
Dataset FunctionDataset(Index size, std::function<Sample(Index id, const AugmentKey& draw)> sample);

/// A data set of pictures as one of tensors, as a Loader would make them: x [height, width, channels] in dtype (f32,
/// f64, bf16, by the pixel scale; u8: as they are), y the label, an i64 scalar. Throws Error for another dtype,
/// for a scale that does not suit the channels, and where samples are tensors already.
Dataset as_tensors(Dataset pictures, DType dtype = DType::f32);

/// Samples stacked along a new first axis, field by field. At least one, of equal shapes and fields, else Error.
Sample stack_samples(const std::vector<Sample>&);
/// Makes a batch of a rank's samples (DataLoader's collate_fn): a function of these; or of these and all(), which reads
/// the samples of the whole global batch, where ranks must agree on something, as on how long the longest is.
class Collate {
 public:
  using Samples = std::vector<Sample>;   ///< in the order of a batch
  using All = std::function<Samples()>;  ///< reads them
  Collate() = default;                   ///< null
  /// Of a rank's samples alone.
  template <class F>
  requires std::is_invocable_r_v<Sample, const F&, const Samples&> Collate(F f)  // NOLINT: implicit
      : collate_([f = std::move(f)](const Samples& mine, const All&) { return f(mine); }) {}
  /// Of these and of all.
  template <class F>
  requires(!std::same_as<F, Collate> && std::is_invocable_r_v<Sample, const F&, const Samples&, const All&>)
      Collate(F f)  // NOLINT: implicit
      : collate_(std::move(f)) {}
  explicit operator bool() const { return bool(collate_); }  ///< not null
  /// The batch of these samples.
  Sample operator()(const Samples& mine, const All& all) const { return collate_(mine, all); }

 private:
  std::function<Sample(const Samples& mine, const All& all)> collate_;
};
/// For sequences: x (and y, where it has an axis and as many elements) are padded with `value` behind their first axis
/// to the longest one's of the global batch, and x gets a field "length", i64 [rows]. Where ranks share a batch, each
/// reads all of it, for the lengths.
Collate pad_to_longest(double value = 0);

// Data sets made of others, all of tensors (as_tensors() of pictures). Ids of their samples are those of the result.
/// change(sample, id, draw) of each sample.
Dataset map_samples(Dataset, std::function<Sample(Sample, Index id, const AugmentKey& draw)> change);
/// The samples of these ids, in that order.
Dataset subset(Dataset, std::vector<Index> ids);
/// All samples of one behind those of the one before.
Dataset concat_datasets(std::vector<Dataset>);
/// Sample i of each, which are of one size: x and y are the first one's, beside which stand the others' x and y as
/// fields, x under their names.
Dataset zip_datasets(Dataset first, std::map<std::string, Dataset> others);
/// Sample i comes from the data set i mod their count, each begun anew when it ends; as long as the longest makes it.
Dataset interleave(std::vector<Dataset>);
/// Keeps each sample after its first read, in memory, as it was read then: augmentation belongs behind it.
Dataset cache(Dataset);
/// Keeps all samples in a file, as they are read without augmentation (AugmentKey{}), which belongs behind it. The file
/// is written once, when there is none, by whoever comes first or by several at once, and is then mapped: later runs,
/// and all processes of a host, read its pages instead of data. It is a safetensors file (datasets/core/cache_file.h).
/// Throws Error for samples of different shapes, types or fields, without any, and for a file that cannot be written or
/// is damaged; also for one that is not of this data set: of another name, size, layout or fingerprint(), or whose
/// first or last sample is another. What else has changed in data since, or in the file's elements, is not noticed.
Dataset cache(Dataset, const std::string& path);

}  // namespace trireme
