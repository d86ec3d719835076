#include "datasets/core/tensors.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "datasets/core/cache_file.h"
#include "datasets/core/fingerprint.h"
#include "datasets/core/pixels.h"
#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "framework/tensor/fields.h"
#include "kernels/core/random.h"

namespace trireme {

Sample TensorSource::batch(std::span<const std::int64_t> ids, const AugmentKey& draw) const {
  std::vector<Sample> all;
  for (const Index id : ids) all.push_back(sample(id, draw));
  if (!all.empty()) return stack_samples(all);
  if (size() == 0) fail(name(), "there is no sample");
  const Sample one = stack_samples({sample(0, draw)});  // gives shapes and types
  return {one.x.view_rows(0, 0), one.y ? one.y.view_rows(0, 0) : one.y};
}
Shape TensorSource::shape() const { return size() > 0 ? sample(0, {}).x.shape() : Shape{}; }
std::int64_t TensorSource::read(Index, std::span<std::uint8_t>, const AugmentKey&) const {
  fail(name(), "samples are tensors: sample() gives them");
}
void TensorSource::check_id(Index id) const {
  if (id < 0 || id >= size()) fail(name(), "sample {} is outside [0, {})", id, size());
}
Sample sample_of(const Dataset& data, Index id, const AugmentKey& draw) {
  check(data && data->tensors(), "sample", "there is no data set of tensors");
  return data->tensors()->sample(id, draw);
}

namespace {

class InTensors final : public TensorSource {
 public:
  InTensors(const Tensor& x, const Tensor& y, Index classes) : x_(x), y_(y), classes_(classes) {
    check(x && x.rank() > 0, "tensor_dataset", "x has no rows: it is {}", x ? x.shape() : Shape{});
    check(!y || (y.rank() > 0 && y.dim(0) == x.dim(0)), "tensor_dataset",
          "x is {} and y {}: they must have as many rows", x.shape(), y ? y.shape() : Shape{});
  }
  std::string name() const override { return "tensors"; }
  Index size() const override { return x_.dim(0); }
  Index classes() const override { return classes_; }
  std::string fingerprint() const override {
    Fingerprint all;
    for (const Tensor* t : {&x_, &y_}) {
      if (!*t) continue;
      add(all, *t);
      for (const auto& [name, field] : t->fields()) {
        all.add(name);
        add(all, field);
      }
    }
    return all.text();
  }
  Sample sample(Index id, const AugmentKey&) const override {
    check_id(id);
    const auto one = [&](const Tensor& t) {
      return map_fields(t,
                        [&](const Tensor& all) { return is_rows(all) ? squeeze(all.view_rows(id, id + 1), 0) : all; });
    };
    return {one(x_), one(y_)};
  }
  Sample batch(std::span<const std::int64_t> ids, const AugmentKey&) const override {
    for (const Index id : ids) check_id(id);
    const Tensor rows = Tensor::from(std::vector<Index>(ids.begin(), ids.end()));
    const auto all = [&](const Tensor& t) {
      return map_fields(t, [&](const Tensor& of) { return is_rows(of) ? take(of, rows) : of; });
    };
    return {all(x_), all(y_)};
  }

 private:
  static void add(Fingerprint& all, const Tensor& t) {
    const Tensor dense = t.detach().to(cpu());
    all.add(fmt::format("{} {}", dense.dtype(), dense.shape()));
    all.add({dense.data<std::byte>(), static_cast<std::size_t>(dense.view().bytes())});
  }
  bool is_rows(const Tensor& t) const { return t.rank() > 0 && t.dim(0) == x_.dim(0); }
  Tensor x_, y_;
  Index classes_;
};

class Pictures final : public TensorSource {
 public:
  Pictures(Dataset data, DType dtype) : data_(std::move(data)), dtype_(dtype) {
    check(bool(data_), "as_tensors", "there is no data set");
    check(data_->tensors() == nullptr, "as_tensors", "the samples of {} are tensors already",
          [&] { return data_->name(); });
    shape_ = data_->shape();
    convert_ = pixel_converter(data_->scale(), shape_, dtype);
  }
  std::string name() const override { return data_->name(); }
  Index size() const override { return data_->size(); }
  Shape shape() const override { return shape_; }
  Index classes() const override { return data_->classes(); }
  PixelScale scale() const override { return data_->scale(); }
  std::vector<std::string> class_names() const override { return data_->class_names(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  BadSamples bad() const override { return data_->bad(); }
  Sample sample(Index id, const AugmentKey& draw) const override {
    const Sample one = batch(std::span(&id, 1), draw);
    return {one.x.reshape(shape_), one.y.reshape({})};
  }
  Sample batch(std::span<const std::int64_t> ids, const AugmentKey& draw) const override {
    Shape all{std::ssize(ids)};
    for (const Index extent : shape_) all.push_back(extent);
    const Sample made{Tensor::empty(all, dtype_), Tensor::empty({std::ssize(ids)}, DType::i64)};
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape_.numel()));
    std::byte* to = made.x.data<std::byte>();
    std::int64_t* label = made.y.data<std::int64_t>();
    for (const Index id : ids) {
      check_id(id);
      *label++ = data_->read(id, pixels, draw);
      convert_(pixels, to);
      to += shape_.numel() * size_of(dtype_);
    }
    return made;
  }

 private:
  Dataset data_;
  DType dtype_;
  Shape shape_;
  PixelConverter convert_;
};

class FromFunction final : public TensorSource {
 public:
  FromFunction(Index size, std::function<Sample(Index, const AugmentKey&)> f) : size_(size), sample_(std::move(f)) {
    check(size >= 0 && bool(sample_), "function_dataset", "{} samples of {}", size,
          sample_ ? "a function" : "an empty function");
  }
  std::string name() const override { return "function"; }
  Index size() const override { return size_; }
  Sample sample(Index id, const AugmentKey& draw) const override {
    check_id(id);
    return sample_(id, draw);
  }

 private:
  Index size_;
  std::function<Sample(Index, const AugmentKey&)> sample_;
};

/// Combines several tensor data sets: sample() is of(data sets, id, draw).
class Combined final : public TensorSource {
 public:
  using Of = std::function<Sample(const std::vector<Dataset>&, Index, const AugmentKey&)>;
  /// labels: index of the part whose classes the samples have.
  Combined(const char* name, std::vector<Dataset> parts, Index size, Of of, std::size_t labels)
      : name_(name), parts_(std::move(parts)), size_(size), of_(std::move(of)), labels_(labels) {}
  std::string name() const override { return std::string(name_) + " of " + parts_[0]->name(); }
  Index size() const override { return size_; }
  Index classes() const override { return parts_[labels_]->classes(); }
  std::vector<std::string> class_names() const override { return parts_[labels_]->class_names(); }
  std::string fingerprint() const override {
    Fingerprint all;
    for (const Dataset& d : parts_) {
      const std::string part = d->fingerprint();
      if (part.empty()) return {};
      all.add(part);
    }
    return all.text();
  }
  BadSamples bad() const override {
    BadSamples all;
    for (const Dataset& d : parts_) {
      const BadSamples more = d->bad();
      if (all.count == 0) all.first = more.first;
      all.count += more.count;
    }
    return all;
  }
  Sample sample(Index id, const AugmentKey& draw) const override {
    check_id(id);
    return of_(parts_, id, draw);
  }

 private:
  const char* name_;
  std::vector<Dataset> parts_;
  Index size_;
  Of of_;
  std::size_t labels_;
};
Dataset combined(const char* name, std::vector<Dataset> parts, Index size, Combined::Of of, std::size_t labels = 0) {
  return std::make_unique<Combined>(name, std::move(parts), size, std::move(of), labels);
}
/// Index of the part with the most classes, for parts that keep their own samples.
std::size_t most_classes(const std::vector<Dataset>& parts) {
  const auto most = std::ranges::max_element(parts, {}, [](const Dataset& d) { return d->classes(); });
  return static_cast<std::size_t>(most - parts.begin());
}
void check_tensors(const char* op, const std::vector<Dataset>& parts) {
  check(!parts.empty(), op, "there is no data set");
  for (const Dataset& d : parts) {
    check(bool(d), op, "there is no data set");
    check(d->tensors() != nullptr, op,
          "the samples of {} are pictures, not tensors: as_tensors() makes tensors of them", [&] { return d->name(); });
  }
}

}  // namespace

Dataset TensorDataset(const Tensor& x, const Tensor& y, Index classes) {
  return std::make_unique<InTensors>(x, y, classes);
}
Dataset FunctionDataset(Index size, std::function<Sample(Index id, const AugmentKey& draw)> sample) {
  return std::make_unique<FromFunction>(size, std::move(sample));
}

Dataset as_tensors(Dataset pictures, DType dtype) { return std::make_unique<Pictures>(std::move(pictures), dtype); }

Sample stack_samples(const std::vector<Sample>& all) {
  check(!all.empty(), "stack_samples", "there is no sample");
  const NoGrad off;
  const auto stacked = [&](Tensor Sample::*which) {
    std::vector<Tensor> parts;
    for (const Sample& s : all) {
      const Tensor& t = s.*which;
      check(t.defined() == (all[0].*which).defined() && (!t || t.fields().size() == (all[0].*which).fields().size()),
            ErrorKind::data, "stack_samples", "samples differ in which tensors they have");
      parts.push_back(t);
    }
    return parts[0] ? join_fields(parts, [](const std::vector<Tensor>& some) { return stack(some); }) : Tensor();
  };
  return {stacked(&Sample::x), stacked(&Sample::y)};
}

Collate pad_to_longest(double value) {
  return [value](const std::vector<Sample>& mine, const Collate::All& all) {
    Index longest = 0;
    for (const Sample& s : all()) {
      check(s.x && s.x.rank() > 0, ErrorKind::data, "pad_to_longest", "a sample has no axis to pad");
      longest = std::max(longest, s.x.dim(0));
    }
    std::vector<Sample> padded;
    for (const Sample& s : mine) {
      const Index length = s.x.dim(0);
      const auto longer = [&](const Tensor& t) {
        if (!t || t.rank() == 0 || t.dim(0) != length) return t;
        Shape begin = t.shape(), end = t.shape();
        std::fill(&begin[0], &begin[0] + begin.rank(), 0);
        std::fill(&end[0], &end[0] + end.rank(), 0);
        end[0] = longest - length;
        return pad(t, begin, end, value);
      };
      const Tensor count = Tensor::scalar(static_cast<double>(length), DType::i64);
      padded.push_back({map_fields(s.x, longer).with("length", count), map_fields(s.y, longer)});
    }
    return stack_samples(padded);
  };
}

Dataset map_samples(Dataset data, std::function<Sample(Sample, Index, const AugmentKey&)> change) {
  check_tensors("map_samples", {data});
  check(bool(change), "map_samples", "the function is empty");
  const Index size = data->size();
  return combined("map", {std::move(data)}, size, [change](const auto& of, Index id, const AugmentKey& draw) {
    const auto own = [](const Tensor& t) { return map_fields(t, [](const Tensor& v) { return v.detach().clone(); }); };
    const Sample s = sample_of(of[0], id, draw);
    return change({own(s.x), own(s.y)}, id, draw);  // a copy, which `change` may modify in place
  });
}
namespace {

class PictureSubset final : public DatasetWrapper {
 public:
  PictureSubset(Dataset all, std::vector<Index> ids) : DatasetWrapper(std::move(all), "subset"), ids_(std::move(ids)) {}
  Index size() const override { return std::ssize(ids_); }
  std::string fingerprint() const override {
    const std::string whole = data_->fingerprint();
    std::uint64_t hash = 0;
    for (const Index id : ids_) hash = mix(hash, static_cast<std::uint64_t>(id));
    return whole.empty() ? whole : fmt::format("{}subset of {} samples {:016x}\n", whole, ids_.size(), hash);
  }
  std::int64_t read(Index id, std::span<std::uint8_t> pixels, const AugmentKey& draw) const override {
    check_read(id, pixels);
    return data_->read(ids_[static_cast<std::size_t>(id)], pixels, draw);
  }

 private:
  std::vector<Index> ids_;
};

}  // namespace

Dataset subset(Dataset data, std::vector<Index> ids) {
  check(bool(data), "subset", "there is no dataset");
  for (const Index id : ids)
    check(id >= 0 && id < data->size(), "subset", "sample {} is outside [0, {})", id, data->size());
  if (!data->tensors()) return std::make_unique<PictureSubset>(std::move(data), std::move(ids));
  const auto size = std::ssize(ids);
  return combined("subset", {std::move(data)}, size,
                  [ids = std::move(ids)](const auto& of, Index id, const AugmentKey& draw) {
                    return sample_of(of[0], ids[static_cast<std::size_t>(id)], draw);
                  });
}
Dataset concat_datasets(std::vector<Dataset> parts) {
  check_tensors("concat_datasets", parts);
  Index size = 0;
  for (const Dataset& d : parts) size += d->size();
  const std::size_t labels = most_classes(parts);
  const auto of_part = [](const auto& of, Index id, const AugmentKey& draw) {
    std::size_t k = 0;
    while (id >= of[k]->size()) id -= of[k++]->size();
    return sample_of(of[k], id, draw);
  };
  return combined("concat", std::move(parts), size, of_part, labels);
}
Dataset zip_datasets(Dataset first, std::map<std::string, Dataset> others) {
  std::vector<Dataset> all{std::move(first)};
  std::vector<std::string> names;
  for (auto& [name, d] : others) {
    all.push_back(d);
    names.push_back(name);
  }
  check_tensors("zip_datasets", all);
  const Index size = all[0]->size();
  for (const Dataset& d : all)
    check(d->size() == size, "zip_datasets", "data sets of {} and of {} samples", size, d->size());
  return combined("zip", std::move(all), size, [names](const auto& of, Index id, const AugmentKey& draw) {
    Sample joined = sample_of(of[0], id, draw);
    for (std::size_t k = 0; k < names.size(); ++k) {
      const Sample more = sample_of(of[k + 1], id, draw);
      joined.x = joined.x.with(names[k], more.x);
      if (joined.y && more.y) joined.y = joined.y.with(names[k], more.y);
    }
    return joined;
  });
}
Dataset interleave(std::vector<Dataset> parts) {
  check_tensors("interleave", parts);
  Index longest = 0;
  for (const Dataset& d : parts) {
    check(d->size() > 0, ErrorKind::data, "interleave", "{} is empty", [&] { return d->name(); });
    longest = std::max(longest, d->size());
  }
  const Index count = std::ssize(parts);
  const std::size_t labels = most_classes(parts);
  const auto in_turn = [count](const auto& of, Index id, const AugmentKey& draw) {
    const Dataset& d = of[static_cast<std::size_t>(id % count)];
    return sample_of(d, id / count % d->size(), draw);
  };
  return combined("interleave", std::move(parts), longest * count, in_turn, labels);
}
Dataset cache(Dataset data) {
  check_tensors("cache", {data});
  struct Kept {
    std::mutex mutex;
    std::map<Index, Sample> samples;
  };
  const Index size = data->size();
  return combined("cache", {std::move(data)}, size,
                  [kept = std::make_shared<Kept>()](const auto& of, Index id, const AugmentKey& draw) {
                    {
                      const std::lock_guard lock(kept->mutex);
                      if (const auto at = kept->samples.find(id); at != kept->samples.end()) return at->second;
                    }
                    const Sample s = sample_of(of[0], id, draw);
                    const std::lock_guard lock(kept->mutex);
                    return kept->samples.emplace(id, s).first->second;
                  });
}
Dataset cache(Dataset data, const std::string& path) {
  check_tensors("cache", {data});
  check(data->size() > 0, ErrorKind::data, "cache", "{} is empty", [&] { return data->name(); });
  std::error_code unknown;  // the write below reports errors
  if (!std::filesystem::exists(path, unknown)) write_cache_file(data, path);
  return open_cache_file(std::move(data), path);
}

}  // namespace trireme
