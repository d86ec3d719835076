#include "datasets/volumes/phantoms.h"

#include <algorithm>
#include <vector>

#include "datasets/core/tensors.h"
#include "datasets/volumes/crops.h"

namespace trireme {
namespace {

constexpr std::uint64_t first_of_test = std::uint64_t{1} << 40;

class PhantomCrops final : public TensorSource {
 public:
  explicit PhantomCrops(const PhantomsOptions& options) : options_(options) {
    check(options.phantoms >= 1 && options.samples >= 1, "phantoms", "{} samples of {} phantoms, expected 1 or more",
          options.samples, options.phantoms);
    for (Index i = 0; i < std::min(options.phantoms, options.samples); ++i)
      phantoms_.emplace_back(options.phantom, static_cast<std::uint64_t>(i) + (options.validation ? 2 * first_of_test
                                                                               : options.test     ? first_of_test
                                                                                                  : 0));
    options_.test = options.test || options.validation;
    crop_ = crop_extents("phantoms", options.crop, phantoms_[0].size());
  }
  std::string name() const override { return "phantoms"; }
  Index size() const override { return options_.samples; }
  Index classes() const override { return options_.task == VolumeTask::segment ? options_.phantom.classes : 0; }
  Shape shape() const override {
    Shape shape = options_.crop;
    shape.push_back(1);
    return shape;
  }
  Sample sample(Index id, const AugmentKey& draw) const override {
    check_id(id);
    const auto bits = options_.test ? crop_bits(options_.phantom.seed, 0, id) : crop_bits(draw.seed, draw.epoch, id);
    const Phantom& phantom = phantoms_[static_cast<std::size_t>(id) % phantoms_.size()];
    const Box box = random_box(std::span(bits).first<3>(), phantom.size(), crop_);
    const Tensor x = phantom.image(box).reshape(shape());
    if (options_.task == VolumeTask::denoise) return {x, phantom.clean(box).reshape(shape())};
    return {x, phantom.labels(box).reshape(options_.crop)};
  }

 private:
  PhantomsOptions options_;
  std::vector<Phantom> phantoms_;
  Shape crop_;
};

}  // namespace

Dataset Phantoms(const PhantomsOptions& options) { return std::make_unique<PhantomCrops>(options); }

}  // namespace trireme
