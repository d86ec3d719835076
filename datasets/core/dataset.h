// Dataset: samples by id, as bytes. Pixels stay u8 until the loader's last moment.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace trireme {

/// How u8 pixels become floats: (value / 255 - mean[c]) / std[c].
struct PixelScale {
  std::vector<float> mean{0}, std{1};  ///< a number per channel, or one for all
};

/// What a read may depend on beside the sample: random augmentation is a function of (seed, epoch, id), the same on one
/// rank and on many.
struct AugmentKey {
  std::uint64_t seed = 0;
  Index epoch = 0;
};

/// Samples that could not be used, where the dataset was asked to go on (ImagesOptions::on_bad).
struct BadSamples {
  Index count = 0;    ///< reads that another sample answered
  std::string first;  ///< why, for the first of them
};

class DatasetSource {
 public:
  virtual ~DatasetSource() = default;
  virtual std::string name() const = 0;
  virtual Index size() const = 0;
  virtual Shape shape() const = 0;  ///< of one sample, channels last: [28, 28, 1]
  virtual Index classes() const = 0;
  virtual PixelScale scale() const = 0;
  /// In order of their labels; none where classes are only numbers.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Writes sample id's pixels (shape().numel() bytes) and returns its label. Called from several threads.
  virtual std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& = {}) const = 0;
  virtual BadSamples bad() const { return {}; }  ///< of the reads so far
};

/// A dataset by value: copies share it.
class Dataset {
 public:
  Dataset() = default;
  template <std::derived_from<DatasetSource> Source>
  Dataset(std::shared_ptr<Source> source) : source_(std::move(source)) {}  // NOLINT: implicit
  explicit operator bool() const { return source_ != nullptr; }
  const DatasetSource* operator->() const { return source_.get(); }
  const DatasetSource& operator*() const { return *source_; }

 private:
  std::shared_ptr<const DatasetSource> source_;
};

}  // namespace trireme
