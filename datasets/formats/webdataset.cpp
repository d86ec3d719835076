#include "datasets/formats/webdataset.h"

#include <limits>

namespace trireme {
namespace {

constexpr char op[] = "webdataset";

struct Shard {
  std::string path;
  std::size_t size = 0;
};
/// Ours for each image: many millions fit in memory.
struct Place {
  std::uint64_t offset, name;  // name: where it begins in names_
  std::uint32_t size, shard, label;
};

class Shards final : public EncodedSource {
 public:
  Shards(const std::vector<std::string>& paths, Index classes) {
    check(!paths.empty(), op, "no shards given");
    for (const std::string& path : paths) scan(path, classes);
    check(!places_.empty(), op, "{}: its shards hold no sample", paths[0]);
    std::uint32_t largest = 0;
    for (const Place& p : places_) largest = std::max(largest, p.label);
    for (Index i = 0; i < (classes > 0 ? classes : Index{largest} + 1); ++i) classes_.push_back(std::to_string(i));
  }
  std::string name() const override { return "tar"; }
  Index size() const override { return std::ssize(places_); }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::int64_t label(Index id) const override { return place(id).label; }
  std::string describe(Index id) const override {
    const Place& p = place(id);
    return shards_[p.shard].path + ": " + (names_.data() + p.name);
  }
  void read(Index id, std::vector<std::byte>& bytes) const override {
    const Place& p = place(id);
    const Shard& shard = shards_[p.shard];
    const FileReader file(shard.path);  // opened each time: there may be more shards than a process may hold open
    check(file.size() == shard.size, op, "{}: has {} bytes now, {} when it was scanned", shard.path, file.size(),
          shard.size);
    bytes.resize(p.size);
    file.read(p.offset, bytes);
  }

 private:
  const Place& place(Index id) const {
    check(id >= 0 && id < size(), op, "sample {} is outside [0, {})", id, size());
    return places_[static_cast<std::size_t>(id)];
  }
  void scan(const std::string& path, Index classes) {
    const ByteSource source = bytes_of_file(path);
    shards_.push_back({path, source.size});
    scan_shard(source, [&](const ShardSample& sample) {
      const TarMember& image = sample.image;
      if (classes > 0 && sample.label >= classes)
        fail(op, "{}: the label of {} is {}, there are {} classes", path, shown(image.name), sample.label, classes);
      if (image.size > std::numeric_limits<std::uint32_t>::max())
        fail(op, "{}: {} has {} bytes", path, shown(image.name), image.size);
      places_.push_back({image.offset, names_.size(), static_cast<std::uint32_t>(image.size),
                         static_cast<std::uint32_t>(shards_.size() - 1), static_cast<std::uint32_t>(sample.label)});
      names_ += image.name + '\0';
    });
  }

  std::vector<Shard> shards_;
  std::vector<Place> places_;
  std::string names_;
  std::vector<std::string> classes_;
};

}  // namespace

std::shared_ptr<const EncodedSource> WebDataset(const std::vector<std::string>& shards, Index classes) {
  return std::make_shared<Shards>(shards, classes);
}

}  // namespace trireme
