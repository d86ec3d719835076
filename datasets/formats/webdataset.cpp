#include "datasets/formats/webdataset.h"

#include <limits>
#include <optional>

#include "datasets/core/fingerprint.h"
#include "datasets/formats/data_paths.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

constexpr char webdataset_op[] = "webdataset";
constexpr std::int64_t most_labels = 1 << 20;
constexpr std::size_t longest_label = std::size_t{1} << 20;  // a .json may have more members than the label
constexpr std::size_t most_shards = 1'000'000;

/// Groups a shard's members into samples.
class Grouping {
 public:
  Grouping(const NamedBytes& source, const std::function<void(const ShardSample&)>& f) : source_(source), f_(f) {}

  void add(const TarMember& member) {
    const std::size_t base = member.name.rfind('/') + 1;  // npos + 1 is 0
    const std::string_view file = std::string_view(member.name).substr(base);
    const std::size_t dot = file.find('.');
    if (file.starts_with('.') || file.starts_with("__") || dot == file.npos) return;  // macOS writes "._7.jpg"
    const std::string_view key = std::string_view(member.name).substr(0, base + dot);
    if (key != key_ || !begun_) {
      finish();
      key_ = key;
      first_ = member.name;
      begun_ = true;
    }
    const std::string ending = lower_case(file.substr(dot + 1));
    if (is_image_ending(ending)) {
      if (pictured_) wrong(member.name, "is a second image of its sample");
      image_ = member;
      pictured_ = true;
    } else if (ending == "cls") {
      label_ = agreed(member, parse_number(member, text_of(member)));
    } else if (ending == "json") {
      if (const auto label = parse_json(member, text_of(member))) label_ = agreed(member, *label);
    }
  }

  void finish() {
    if (begun_ && !pictured_) incomplete("is a sample without .jpg, .jpeg or .png");
    if (begun_ && !label_) incomplete("is a sample without label: neither .cls, nor .json with \"label\" or \"cls\"");
    if (begun_) f_({std::move(image_), *label_});
    pictured_ = false;
    label_.reset();
  }

 private:
  [[noreturn]] void wrong(std::string_view member, std::string_view what) const {
    fail(ErrorKind::data, webdataset_op, "{}: {} {}", source_.name, in_quotes(member), what);
  }
  [[noreturn]] void incomplete(std::string_view what) const {
    wrong(key_, fmt::format("{}. The first dot of {} ends the sample's name: replace other dots, and write the members "
                            "of a sample one after another",
                            what, in_quotes(first_)));
  }
  std::string_view text_of(const TarMember& member) const {
    if (member.size > longest_label)
      wrong(member.name, fmt::format("has {} bytes, a label at most {}", member.size, std::size_t{longest_label}));
    return {reinterpret_cast<const char*>(source_.bytes.data()) + member.offset, member.size};
  }
  std::int64_t parse_number(const TarMember& member, std::string_view text) const {
    std::int64_t label = 0;
    if (!trireme::parse_number(trimmed(text, " \t\n\v\f\r"), label))
      wrong(member.name, fmt::format("holds {}, not the number of a class", in_quotes(text.substr(0, 40))));
    return label;
  }
  std::optional<std::int64_t> parse_json(const TarMember& member, std::string_view text) const {
    const auto json = trireme::parse_json(text);
    if (json.is_discarded()) wrong(member.name, "is no JSON");
    for (const char* key : {"label", "cls"})
      if (json.is_object() && json.contains(key)) {
        const auto& label = json[key];
        if (!label.is_number_integer() || (label.is_number_unsigned() && label.get<std::uint64_t>() > INT64_MAX))
          wrong(member.name, fmt::format("has a \"{}\" that is not the number of a class", key));
        return label.get<std::int64_t>();
      }
    return std::nullopt;
  }
  std::int64_t agreed(const TarMember& member, std::int64_t label) const {
    if (label < 0 || label >= most_labels)
      wrong(member.name, fmt::format("says label {}, it must lie in [0, {})", label, std::int64_t{most_labels}));
    if (label_ && *label_ != label)
      wrong(member.name, fmt::format("says label {}, another member of its sample {}", label, *label_));
    return label;
  }

  const NamedBytes& source_;
  const std::function<void(const ShardSample&)>& f_;
  std::string key_, first_;
  bool begun_ = false, pictured_ = false;
  TarMember image_;
  std::optional<std::int64_t> label_;
};

/// Alternatives of one pair of braces: "a,b" or "007..123".
std::vector<std::string> alternatives(const std::string& text, const std::string& pattern) {
  const std::size_t dots = text.find("..");
  if (dots == text.npos) return split_text(text, ',');
  const auto number = [&](std::string_view digits) {
    std::uint64_t value = 0;
    if (!parse_number(digits, value))
      fail(webdataset_op, "shards {}: {{{}}} is no range of numbers, as {{000..146}} is", in_quotes(pattern), text);
    return value;
  };
  const std::string first_text = text.substr(0, dots), last_text = text.substr(dots + 2);
  const std::uint64_t first = number(first_text), last = number(last_text);
  check(
      first <= last && last - first < most_shards, webdataset_op, "shards {}: the range {{{}}} is empty or too long",
      [&] { return in_quotes(pattern); }, text);
  std::vector<std::string> all;
  for (std::uint64_t i = first; i <= last; ++i) all.push_back(fmt::format("{:0{}}", i, first_text.size()));
  return all;
}

/// Appends all names of `begin` followed by `rest` with its braces expanded.
void expand(const std::string& begin, const std::string& rest, const std::string& pattern,
            std::vector<std::string>& all) {
  const std::size_t open = rest.find('{'), close = rest.find('}');
  if (open == rest.npos) {
    check(
        all.size() < most_shards, webdataset_op, "shards {}: over {} names", [&] { return in_quotes(pattern); },
        std::size_t{most_shards});
    return all.push_back(begin + rest);
  }
  for (const std::string& choice : alternatives(rest.substr(open + 1, close - open - 1), pattern))
    expand(begin + rest.substr(0, open) + choice, rest.substr(close + 1), pattern, all);
}

/// Splits at "," and "::" outside of braces.
std::vector<std::string> split(const std::string& pattern) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    depth += (pattern[i] == '{') - (pattern[i] == '}');
    check(depth == 0 || depth == 1, webdataset_op, "shards {}: its braces do not match",
          [&] { return in_quotes(pattern); });
    const bool colons = pattern.compare(i, 2, "::") == 0;
    if (depth == 0 && (pattern[i] == ',' || colons)) {
      i += colons;
      parts.emplace_back();
    } else {
      parts.back() += pattern[i];
    }
  }
  check(depth == 0, webdataset_op, "shards {}: its braces do not match", [&] { return in_quotes(pattern); });
  return parts;
}

struct ShardFile {
  std::string path;
  std::size_t size = 0;
};
/// Compact record of an image, so that many millions fit in memory.
struct Place {
  std::uint64_t offset, name;  // name: offset in names_
  std::uint32_t size, shard, label;
};

class Shards final : public EncodedSource {
 public:
  Shards(const std::vector<std::string>& paths, Index classes) {
    check(!paths.empty(), webdataset_op, "no shards given");
    for (const std::string& path : paths) scan(path, classes);
    check(!places_.empty(), ErrorKind::data, webdataset_op, "{}: its shards hold no sample", paths[0]);
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
  std::string fingerprint() const override {
    Fingerprint all;
    all.add(names_);
    for (const Place& p : places_) {
      const std::uint64_t of[] = {p.offset, p.size, p.shard, p.label};
      all.add(std::as_bytes(std::span(of)));
    }
    const std::size_t step = (shards_.size() + 255) / 256;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      const std::string& path = shards_[i].path;
      all.add_file("", path);
      if (i % step == 0) all.add_content(path);
    }
    return all.text();
  }
  void read(Index id, std::vector<std::byte>& bytes) const override {
    const Place& p = place(id);
    const ShardFile& shard = shards_[p.shard];
    const FileReader file(shard.path);  // opened for each read: there may be more shards than a process may keep open
    check(file.size() == shard.size, ErrorKind::data, webdataset_op, "{}: has {} bytes now, {} when it was scanned",
          shard.path, file.size(), shard.size);
    bytes.resize(p.size);
    file.read(p.offset, bytes);
  }

 private:
  const Place& place(Index id) const {
    check(id >= 0 && id < size(), webdataset_op, "sample {} is outside [0, {})", id, size());
    return places_[static_cast<std::size_t>(id)];
  }
  void scan(const std::string& path, Index classes) {
    FileReader file(path);
    shards_.push_back({path, file.size()});
    scan_shard({path, file.map(/*read_ahead=*/false)}, [&](const ShardSample& sample) {
      const TarMember& image = sample.image;
      if (classes > 0 && sample.label >= classes)
        fail(ErrorKind::data, webdataset_op, "{}: the label of {} is {}, there are {} classes", path,
             in_quotes(image.name), sample.label, classes);
      if (image.size > std::numeric_limits<std::uint32_t>::max())
        fail(ErrorKind::data, webdataset_op, "{}: {} has {} bytes", path, in_quotes(image.name), image.size);
      places_.push_back({image.offset, names_.size(), static_cast<std::uint32_t>(image.size),
                         static_cast<std::uint32_t>(shards_.size() - 1), static_cast<std::uint32_t>(sample.label)});
      names_ += image.name + '\0';
    });
  }

  std::vector<ShardFile> shards_;
  std::vector<Place> places_;
  std::string names_;
  std::vector<std::string> classes_;
};

}  // namespace

void scan_shard(const NamedBytes& shard, const std::function<void(const ShardSample&)>& f) {
  Grouping grouping(shard, f);
  scan_tar(shard, [&](const TarMember& member) { grouping.add(member); });
  grouping.finish();
}

std::vector<std::string> expand_shards(const std::string& pattern, const std::string& root) {
  std::vector<std::string> shards;
  for (const std::string& part : split(pattern)) {
    check(!part.empty(), webdataset_op, "shards {}: a name is empty", [&] { return in_quotes(pattern); });
    expand(root.empty() || part[0] == '/' ? "" : root + "/", part, pattern, shards);
  }
  return shards;
}

std::unique_ptr<const EncodedSource> WebDataset(const std::vector<std::string>& shards, Index classes) {
  return std::make_unique<Shards>(shards, classes);
}

}  // namespace trireme
