// Data sets of tensors (features, regression targets, tokens, masks, several inputs) from memory, a file or a function,
// and data sets made from others. Samples are functions of their id, so an epoch is the same on any number of ranks and
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

/// A sample or a batch of samples; each tensor may have named fields (Tensor::with()).
struct Sample {
  Tensor x,  ///< input of the model
      y;     ///< target of the loss; undefined: none
};

/// A data set whose samples are tensors. A custom data set derives from it and implements name(), size() and sample().
class TensorSource : public DatasetSource {
 public:
  const TensorSource* tensors() const override { return this; }
  /// Sample id, without a batch axis. Several threads call it.
  virtual Sample sample(Index id, const AugmentKey& = {}) const = 0;
  /// These samples along a new first axis, on the host. Default: stacks sample(); Error if shapes differ (then use
  /// LoaderOptions::collate).
  virtual Sample batch(std::span<const std::int64_t> ids, const AugmentKey& = {}) const;
  Shape shape() const override;                     ///< shape of the first sample's x
  Index classes() const override { return 0; }      ///< 0: y holds no labels
  PixelScale scale() const override { return {}; }  ///< unused
  /// Throws Error: samples are not pictures.
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey&) const override;

 protected:
  void check_id(Index id) const;  ///< throws Error for an id outside [0, size())
};
/// Sample id of a tensor data set. Throws Error for a data set of pictures.
Sample sample_of(const Dataset&, Index id, const AugmentKey& = {});

/// torch.utils.data.TensorDataset: sample i is row i of x and y, and of their fields with the same number of rows.
/// Other fields are complete in each batch (and in each sample, for data sets made from this one, which stack them). y
/// may be undefined. classes: number of labels; 0: y has no labels. Throws Error if x and y have different numbers of
/// rows.
Dataset TensorDataset(const Tensor& x, const Tensor& y = {}, Index classes = 0);
/// Sample i is sample(i, draw); several threads call the function. Throws Error for an empty function.
Dataset FunctionDataset(Index size, std::function<Sample(Index id, const AugmentKey& draw)> sample);

/// Converts a data set of pictures to tensors, as a Loader would: x [height, width, channels] in dtype (f32, f64, bf16:
/// with the pixel scale; u8: unscaled), and y the label, an i64 scalar. Throws Error for another dtype, a scale that
/// does not match the channels, and samples that are tensors already.
Dataset as_tensors(Dataset pictures, DType dtype = DType::f32);

/// Stacks samples along a new first axis, including fields. Throws Error for no samples, and for different shapes or
/// fields.
Sample stack_samples(const std::vector<Sample>&);
/// Makes a batch from a rank's samples (DataLoader's collate_fn). The function takes these samples; or also all(),
/// which reads the samples of the whole global batch, if ranks must agree on something such as the greatest length.
class Collate {
 public:
  using Samples = std::vector<Sample>;   ///< in batch order
  using All = std::function<Samples()>;  ///< reads the samples of the global batch
  Collate() = default;                   ///< null
  /// From a function of this rank's samples.
  template <class F>
  requires std::is_invocable_r_v<Sample, const F&, const Samples&> Collate(F f)  // NOLINT: implicit
      : collate_([f = std::move(f)](const Samples& mine, const All&) { return f(mine); }) {}
  /// From a function of this rank's samples and of all().
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
/// For sequences: pads x with `value` along its first axis to the longest x of the global batch, and adds a field
/// "length", i64 [rows]. y is padded, too, if its first axis has the same length as x's. If several ranks share a
/// batch, each reads all of it for the lengths.
Collate pad_to_longest(double value = 0);

// Tensor data sets made from others (use as_tensors() for pictures). Sample ids are of the resulting data set.
/// Applies change(sample, id, draw) to each sample.
Dataset map_samples(Dataset, std::function<Sample(Sample, Index id, const AugmentKey& draw)> change);
/// Concatenates data sets.
Dataset concat_datasets(std::vector<Dataset>);
/// Joins sample i of several data sets of equal size. x and y are of the first one; x and y of the others become
/// fields, x under their names.
Dataset zip_datasets(Dataset first, std::map<std::string, Dataset> others);
/// Takes sample i from data set number i mod their count; shorter data sets start again until the longest is complete.
Dataset interleave(std::vector<Dataset>);
/// Keeps each sample in memory after its first read. Apply augmentation after the cache.
Dataset cache(Dataset);
/// Keeps all samples in a safetensors file (datasets/core/cache_file.h), read with AugmentKey{}. Apply augmentation
/// after the cache. If the file is missing, the first process writes it (or several at once). It is then mapped, so
/// later runs and all processes of a host read its pages instead of data. Throws Error for an empty data set, for
/// samples of different shapes, types or fields, and for a file that cannot be written or is damaged.
///
/// Throws Error for a file of another data set: a different name, size, layout, fingerprint(), first or last sample.
/// Other changes in data or in the file's elements are not detected.
Dataset cache(Dataset, const std::string& path);

}  // namespace trireme
