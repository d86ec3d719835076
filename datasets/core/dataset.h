// Dataset: samples by id (PyTorch's map-style Dataset): pictures as u8 pixels, which the Loader converts last, or
// tensors of any kind (datasets/core/tensors.h).
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

/// How u8 pixels become floats: (value / 255 - mean[c]) / std[c] (torchvision's ToTensor and Normalize).
struct PixelScale {
  std::vector<float> mean{0},  ///< of pixels / 255: a number per channel, or one for all
      std{1};                  ///< standard deviation of pixels / 255: a number per channel, or one for all
};

/// The key of random augmentation, which is a function of (seed, epoch, id): equal for any number of ranks.
struct AugmentKey {
  std::uint64_t seed = 0;  ///< LoaderOptions::seed
  Index epoch = 0;         ///< from 0
};

/// Unreadable samples that were replaced (ImagesOptions::on_bad).
struct BadSamples {
  Index count = 0;    ///< number of reads that returned another sample
  std::string first;  ///< error of the first one
};

class TensorSource;  // datasets/core/tensors.h

/// The interface of data sets; a format derives from it. Errors of read() name the sample and its file.
class DatasetSource {
 public:
  virtual ~DatasetSource() = default;
  virtual std::string name() const = 0;  ///< for messages: "mnist", a folder, a file
  virtual Index size() const = 0;        ///< number of samples
  virtual Shape shape() const = 0;       ///< shape of one sample, channels last: [28, 28, 1]
  virtual Index classes() const = 0;     ///< labels are in [0, classes)
  virtual PixelScale scale() const = 0;  ///< with which a Loader converts pixels to floats
  /// Class names in label order; empty if classes have no names.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// A text that identifies the data (Fingerprint::text()). It does not depend on the location of the files, and
  /// differs if files or options give other samples. Empty: unknown. Reads parts of large files and the size of each
  /// file. Throws Error if a file is missing.
  virtual std::string fingerprint() const { return {}; }
  /// Writes sample id's pixels (shape().numel() bytes, row-major) and returns its label. Several threads call it.
  virtual std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& = {}) const = 0;
  virtual BadSamples bad() const { return {}; }  ///< replacements in all reads so far
  /// Number of transforms that its pictures go through (datasets/images/transforms.h). Further transforms are numbered
  /// from there, so that each draws different random numbers.
  virtual Index transforms() const { return 0; }
  /// This object if samples are tensors (datasets/core/tensors.h), which read() cannot return; null: samples are
  /// pictures.
  virtual const TensorSource* tensors() const { return nullptr; }

 protected:
  /// Checks the arguments of read(): throws Error for an id outside [0, size()) and for pixels of another size.
  void check_read(Index id, std::span<const std::uint8_t> pixels) const;
};

/// A data set as a value; copies share the source.
class Dataset {
 public:
  Dataset() = default;  ///< no data set
  /// Takes a source: return std::make_unique<MySource>(...).
  template <std::derived_from<DatasetSource> Source>
  Dataset(std::unique_ptr<Source> source) : source_(std::move(source)) {}  // NOLINT: implicit
  explicit operator bool() const { return source_ != nullptr; }            ///< whether there is a data set
  const DatasetSource* operator->() const { return source_.get(); }        ///< the source; null: no data set
  const DatasetSource& operator*() const { return *source_; }              ///< the source, which must exist

 private:
  std::shared_ptr<const DatasetSource> source_;
};

/// Base of a data set that modifies another one: forwards all functions that a derived class does not override.
class DatasetWrapper : public DatasetSource {
 public:
  /// Throws Error of op for a missing data set, or one of tensors.
  DatasetWrapper(Dataset data, std::string_view op);
  std::string name() const override { return data_->name(); }  ///< forwarded, like all functions below
  Index size() const override { return data_->size(); }
  Shape shape() const override { return data_->shape(); }
  Index classes() const override { return data_->classes(); }
  PixelScale scale() const override { return data_->scale(); }  ///< forwarded
  std::vector<std::string> class_names() const override { return data_->class_names(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    return data_->read(id, pixels, draw);
  }
  BadSamples bad() const override { return data_->bad(); }
  Index transforms() const override { return data_->transforms(); }

 protected:
  Dataset data_;  ///< the other data set
};

/// The samples of these ids, in that order; pictures and tensors. Throws Error for an id outside [0, data->size()).
Dataset subset(Dataset data, std::vector<Index> ids);
/// The first n samples of another data set. Throws Error unless n is in [0, data->size()].
Dataset head(Dataset data, Index n);
/// The same pictures with another scale for their conversion to floats (torchvision's Normalize(mean, std) at the end
/// of a list of transforms). Throws Error for numbers that are not finite, a std of 0, and a count that is neither 1
/// nor the number of channels.
Dataset with_scale(Dataset data, PixelScale scale);

}  // namespace trireme
