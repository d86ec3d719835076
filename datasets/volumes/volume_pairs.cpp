#include "datasets/volumes/volume_pairs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <vector>

#include "datasets/core/fingerprint.h"
#include "datasets/core/tensors.h"
#include "datasets/volumes/crops.h"
#include "datasets/volumes/volume.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr char pairs_op[] = "volumes";

/// Volumes in a folder by name up to the first dot, without partial files.
std::map<std::string, std::string> volumes_in(const std::string& folder) {
  std::error_code wrong;
  std::map<std::string, std::string> found;
  for (fs::directory_iterator i(folder, wrong), end; !wrong && i != end; i.increment(wrong)) {
    const std::string name = i->path().filename();
    if (name.starts_with('.') || name.ends_with(".json") || name.ends_with(".partial")) continue;
    const auto [at, first] = found.emplace(name.substr(0, name.find('.')), i->path());
    check(first, ErrorKind::data, pairs_op, "{} and {} have one name", at->second, [&] { return i->path().string(); });
  }
  check(!wrong, ErrorKind::file, pairs_op, "{} cannot be read: {}", folder, [&] { return wrong.message(); });
  check(!found.empty(), ErrorKind::data, pairs_op, "{} holds no volume", folder);
  return found;
}

struct Pair {
  Volume input, target;
  Index first = 0;  // index of its first corner (training) or sample (test)
  Shape size;       // [D, H, W]
  Shape grid;       // number of test samples along each axis
};
Shape extents_of(const Volume& v) { return v.shape().without(3); }

class PairCrops final : public TensorSource {
 public:
  explicit PairCrops(const VolumePairsOptions& options) : options_(options) {
    check(!options.root.empty(), pairs_op,
          "root must name a folder of train/ and val/ with inputs/ and targets/ in each");
    check(options.samples >= 1, pairs_op, "{} samples, expected 1 or more", options.samples);
    check(options.task == VolumeTask::denoise || options.classes >= 2, pairs_op,
          "{} classes, expected 2 or more: --data.classes says how many labels targets have", options.classes);
    folder_ = options.root + "/train";
    options_.test = options.test || options.validation;
    std::error_code unknown;
    if (options.test) folder_ = options.root + (fs::is_directory(options.root + "/val", unknown) ? "/val" : "/test");
    const auto inputs = volumes_in(folder_ + "/inputs"), targets = volumes_in(folder_ + "/targets");
    for (const auto& [name, target] : targets)
      check(inputs.contains(name), ErrorKind::data, pairs_op, "{} has no input of its name", target);
    const auto held =
        static_cast<Index>(std::floor(static_cast<double>(inputs.size()) * (1 - options.validation_split)));
    Index number = 0;
    for (const auto& [name, input] : inputs) {
      const bool is_held = number++ >= held;
      if (!options.test && is_held != options.validation) continue;
      const auto target = targets.find(name);
      check(target != targets.end(), ErrorKind::data, pairs_op, "{} has no target of its name", input);
      add(open_volume(input), open_volume(target->second));
    }
    check(!pairs_.empty(), ErrorKind::data, pairs_op, "{} has {} volumes, of which validation_split {} leaves none",
          folder_, inputs.size(), options.validation_split);
    scale_ = voxel_scale(pairs_[0].input.type(), options.mean, options.std);
  }
  std::string name() const override { return folder_; }
  Index size() const override { return options_.test ? all_ : options_.samples; }
  Index classes() const override { return options_.task == VolumeTask::segment ? options_.classes : 0; }
  Shape shape() const override { return shape_of(pairs_[0].input); }
  std::string fingerprint() const override {
    Fingerprint all;
    for (const Pair& pair : pairs_)
      for (const Volume* v : {&pair.input, &pair.target}) {
        all.add(fs::path(v->path()).filename().string());
        add_volume(all, v->path());
      }
    return all.text();
  }
  Sample sample(Index id, const AugmentKey& draw) const override {
    check_id(id);
    const auto bits = crop_bits(draw.seed, draw.epoch, id);
    const Index at = options_.test ? id : below(bits[3], all_);
    const auto behind = std::ranges::upper_bound(pairs_, at, {}, &Pair::first);
    const Pair& pair = *std::prev(behind);
    const Box box =
        options_.test ? grid_box(pair, at - pair.first) : random_box(std::span(bits).first<3>(), pair.size, crop_);
    const Tensor x = scale_(read(pair.input, box, DType::f32)).reshape(shape());
    const auto with_counted = [&](const Tensor& y) { return overlap_ ? y.with("counted", counted(box)) : y; };
    if (options_.task == VolumeTask::denoise)
      return {x, with_counted(scale_(read(pair.target, box, DType::f32)).reshape(shape_of(pair.target)))};
    const Tensor y = read(pair.target, box, DType::i64).reshape(options_.crop);
    for (const std::int64_t label : y.view().span<const std::int64_t>())
      check(label >= 0 && label < options_.classes, ErrorKind::data, pairs_op,
            "{}: a label at {} of {} is {}, expected 0 to {}", pair.target.path(), box.at, box.size, label,
            options_.classes - 1);
    return {x, with_counted(y)};
  }

 private:
  /// 1 for voxels of a test crop that no earlier crop along an axis contains.
  Tensor counted(const Box& box) const {
    const Tensor all = Tensor::zeros(crop_);
    const std::span<float> to = all.view().span<float>();
    Shape first = crop_;  // first voxel that counts along each axis
    for (int i = 0; i < 3; ++i) first[i] = (crop_[i] - box.at[i] % crop_[i]) % crop_[i];
    for (Index d = first[0]; d < crop_[0]; ++d)
      for (Index h = first[1]; h < crop_[1]; ++h)
        for (Index w = first[2]; w < crop_[2]; ++w) to[static_cast<std::size_t>((d * crop_[1] + h) * crop_[2] + w)] = 1;
    return all.reshape(options_.crop);
  }
  void add(const Volume& input, const Volume& target) {
    Pair pair{input, target, all_, extents_of(input), {0, 0, 0}};
    check(extents_of(target) == pair.size, ErrorKind::data, pairs_op, "{} is {} and {} {}: a pair is of one [D, H, W]",
          input.path(), pair.size, target.path(), extents_of(target));
    check(options_.task == VolumeTask::denoise || (target.type().is_integer() && target.shape()[3] == 1),
          ErrorKind::data, pairs_op, "{} has {} channels of {}: labels are integers, one per voxel", target.path(),
          target.shape()[3], target.type().name);
    const Pair& first = pairs_.empty() ? pair : pairs_[0];
    check(input.shape()[3] == first.input.shape()[3] && target.shape()[3] == first.target.shape()[3] &&
              &input.type() == &first.input.type(),
          ErrorKind::data, pairs_op, "{} has {} channels of {}, and {} {} of {}: they must agree", input.path(),
          input.shape()[3], input.type().name, first.input.path(), first.input.shape()[3], first.input.type().name);
    crop_ = crop_extents(input.path(), options_.crop, pair.size);
    Index corners = 1;
    for (int i = 0; i < 3; ++i) {
      pair.grid[i] = (pair.size[i] + crop_[i] - 1) / crop_[i];
      overlap_ = overlap_ || (options_.test && pair.size[i] % crop_[i] != 0);
      corners *= options_.test ? pair.grid[i] : pair.size[i] - crop_[i] + 1;
    }
    all_ += corners;
    pairs_.push_back(std::move(pair));
  }
  Shape shape_of(const Volume& v) const {
    Shape shape = options_.crop;
    shape.push_back(v.shape()[3]);
    return shape;
  }
  Box grid_box(const Pair& pair, Index number) const {
    Box box{crop_, crop_};
    for (int i = 3; i-- > 0; number /= pair.grid[i])
      box.at[i] = std::min(number % pair.grid[i] * crop_[i], pair.size[i] - crop_[i]);
    return box;
  }
  static Tensor read(const Volume& v, const Box& box, DType dtype) {
    Box all = box;
    all.at.push_back(0);
    all.size.push_back(v.shape()[3]);
    return v.read(all, dtype);
  }

  VolumePairsOptions options_;
  std::string folder_;
  std::vector<Pair> pairs_;
  Shape crop_;            // [d, h, w]
  bool overlap_ = false;  // whether test samples overlap
  Index all_ = 0;         // corners of crops in all volumes, or test samples
  VoxelScale scale_;
};

}  // namespace

Dataset VolumePairs(const VolumePairsOptions& options) { return std::make_unique<PairCrops>(options); }

}  // namespace trireme
