// Dataset: samples by id (PyTorch's map-style Dataset): pictures as bytes, which stay u8 until the loader's last
// moment, or tensors of any kind (datasets/core/tensors.h).
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

/// What a read may depend on beside the sample: random augmentation is a function of (seed, epoch, id), the same on one
/// rank and on many.
struct AugmentKey {
  std::uint64_t seed = 0;  ///< LoaderOptions::seed
  Index epoch = 0;         ///< from 0
};

/// Samples that could not be used, where the dataset was asked to go on (ImagesOptions::on_bad).
struct BadSamples {
  Index count = 0;    ///< reads that another sample answered
  std::string first;  ///< why, for the first of them
};

class TensorSource;  // datasets/core/tensors.h

/// What a data set does; a format derives from it. Errors of read() name the sample and its file.
class DatasetSource {
 public:
  virtual ~DatasetSource() = default;
  virtual std::string name() const = 0;  ///< in messages: "mnist", a folder, a file
  virtual Index size() const = 0;        ///< samples
  virtual Shape shape() const = 0;       ///< of one sample, channels last: [28, 28, 1]
  virtual Index classes() const = 0;     ///< labels lie in [0, classes)
  virtual PixelScale scale() const = 0;  ///< by which a Loader makes floats of pixels
  /// In order of their labels; none where classes are only numbers.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// What the samples are made of (Fingerprint::text()): equal wherever the files are stored, and different where other
  /// files, or other numbers, make other samples. Empty: not known. Reads some of large files, and asks for the size of
  /// each. Throws Error where a file is gone.
  virtual std::string fingerprint() const { return {}; }
  /// Writes sample id's pixels (shape().numel() bytes, row-major) and returns its label. Called from several threads.
  virtual std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& = {}) const = 0;
  virtual BadSamples bad() const { return {}; }  ///< of the reads so far
  /// How many transforms its pictures go through (datasets/images/transforms.h): others count on from there, so that no
  /// two of them draw the same random numbers.
  virtual Index transforms() const { return 0; }
  /// Itself, where samples are tensors (datasets/core/tensors.h), which read() does not give; null: they are pictures.
  virtual const TensorSource* tensors() const { return nullptr; }

 protected:
  /// What read() may be asked for: throws Error for an id outside [0, size()) and for pixels of another size.
  void check_read(Index id, std::span<const std::uint8_t> pixels) const;
};

/// A data set by value: copies share it.
class Dataset {
 public:
  Dataset() = default;  ///< none
  /// Takes what a format's function made: return std::make_unique<MySource>(...).
  template <std::derived_from<DatasetSource> Source>
  Dataset(std::unique_ptr<Source> source) : source_(std::move(source)) {}  // NOLINT: implicit
  explicit operator bool() const { return source_ != nullptr; }            ///< whether there is a data set
  const DatasetSource* operator->() const { return source_.get(); }        ///< null: there is none
  const DatasetSource& operator*() const { return *source_; }              ///< there must be one

 private:
  std::shared_ptr<const DatasetSource> source_;
};

/// A data set made of another: whatever a derived class does not override is the other's.
class DatasetWrapper : public DatasetSource {
 public:
  /// Throws Error, beginning with op, when there is no data set, or one of tensors.
  DatasetWrapper(Dataset data, std::string_view op);
  std::string name() const override { return data_->name(); }  ///< the other's, as all that follow
  Index size() const override { return data_->size(); }
  Shape shape() const override { return data_->shape(); }
  Index classes() const override { return data_->classes(); }
  PixelScale scale() const override { return data_->scale(); }  ///< of the other's pixels
  std::vector<std::string> class_names() const override { return data_->class_names(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    return data_->read(id, pixels, draw);
  }
  BadSamples bad() const override { return data_->bad(); }
  Index transforms() const override { return data_->transforms(); }

 protected:
  Dataset data_;  ///< the other data set; never none
};

/// The first n samples of another data set. Throws Error unless n lies in [0, data->size()].
Dataset head(Dataset data, Index n);
/// The same pictures, of which a Loader makes floats by another scale: torchvision's Normalize(mean, std), with which a
/// list of transforms ends. Throws Error for numbers that are not finite, a std of 0, and when there are neither one
/// nor as many as channels.
Dataset with_scale(Dataset data, PixelScale scale);

}  // namespace trireme
