// The samples of one shard, and the names of many: what takes text of unknown origin, and what the fuzzer links.
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/formats/webdataset.h"

namespace trireme {
namespace {

constexpr char op[] = "webdataset";
constexpr std::int64_t most_classes = 1 << 20;
constexpr std::size_t longest_label = std::size_t{1} << 20;  // a .json may say more than the label
constexpr std::size_t most_shards = 1'000'000;

class Grouping {
 public:
  Grouping(const ByteSource& source, const std::function<void(const ShardSample&)>& f) : source_(source), f_(f) {}

  void add(const TarMember& member) {
    const std::size_t base = member.name.rfind('/') + 1;  // npos + 1 is 0
    const std::string_view file = std::string_view(member.name).substr(base);
    const std::size_t dot = file.find('.');
    if (file.starts_with('.') || file.starts_with("__") || dot == file.npos) return;  // "._7.jpg" is macOS's
    const std::string_view key = std::string_view(member.name).substr(0, base + dot);
    if (key != key_ || !begun_) {
      finish();
      key_ = key, begun_ = true;
    }
    std::string ending(file.substr(dot + 1));
    std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
    if (ending == "jpg" || ending == "jpeg" || ending == "png") {
      if (pictured_) wrong(member.name, "is a second image of its sample");
      image_ = member, pictured_ = true;
    } else if (ending == "cls") {
      label_ = agreed(member, parse_number(member, text_of(member)));
    } else if (ending == "json") {
      if (const auto label = parse_json(member, text_of(member))) label_ = agreed(member, *label);
    }
  }

  void finish() {
    if (begun_ && !pictured_) wrong(key_, "is a sample without .jpg, .jpeg or .png");
    if (begun_ && !label_) wrong(key_, "is a sample without label: neither .cls, nor .json with \"label\" or \"cls\"");
    if (begun_) f_({std::move(image_), *label_});
    pictured_ = false;
    label_.reset();
  }

 private:
  [[noreturn]] void wrong(std::string_view member, std::string_view what) const {
    fail(op, "{}: {} {}", source_.name, shown(member), what);
  }
  std::string text_of(const TarMember& member) const {
    if (member.size > longest_label)
      wrong(member.name, fmt::format("has {} bytes, a label at most {}", member.size, std::size_t{longest_label}));
    std::string text(member.size, '\0');
    source_.read(member.offset, std::as_writable_bytes(std::span(text)));
    return text;
  }
  std::int64_t parse_number(const TarMember& member, std::string_view text) const {
    const std::string_view all = text;
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
    std::int64_t label = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (error != std::errc() || end != text.data() + text.size())
      wrong(member.name, fmt::format("holds {}, not the number of a class", shown(all.substr(0, 40))));
    return label;
  }
  std::optional<std::int64_t> parse_json(const TarMember& member, const std::string& text) const {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
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
    if (label < 0 || label >= most_classes)
      wrong(member.name, fmt::format("says label {}, it must lie in [0, {})", label, std::int64_t{most_classes}));
    if (label_ && *label_ != label)
      wrong(member.name, fmt::format("says label {}, another member of its sample {}", label, *label_));
    return label;
  }

  const ByteSource& source_;
  const std::function<void(const ShardSample&)>& f_;
  std::string key_;
  bool begun_ = false, pictured_ = false;
  TarMember image_;
  std::optional<std::int64_t> label_;
};

/// What one pair of braces stands for: "a,b" or "007..123".
std::vector<std::string> alternatives(const std::string& text, const std::string& pattern) {
  std::vector<std::string> all;
  const std::size_t dots = text.find("..");
  if (dots == text.npos) {
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t comma = std::min(text.find(',', from), text.size());
      all.push_back(text.substr(from, comma - from));
      from = comma + 1;
    }
    return all;
  }
  const auto number = [&](std::string_view digits) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail(op, "shards {}: {{{}}} is no range of numbers, as {{000..146}} is", shown(pattern), text);
    return value;
  };
  const std::string first_text = text.substr(0, dots), last_text = text.substr(dots + 2);
  const std::uint64_t first = number(first_text), last = number(last_text);
  check(
      first <= last && last - first < most_shards, op, "shards {}: the range {{{}}} is empty or too long",
      [&] { return shown(pattern); }, text);
  for (std::uint64_t i = first; i <= last; ++i) all.push_back(fmt::format("{:0{}}", i, first_text.size()));
  return all;
}

/// The parts between "," and "::" that are in no braces.
std::vector<std::string> split(const std::string& pattern) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    depth += (pattern[i] == '{') - (pattern[i] == '}');
    check(depth == 0 || depth == 1, op, "shards {}: its braces do not match", [&] { return shown(pattern); });
    const bool colons = pattern.compare(i, 2, "::") == 0;
    if (depth == 0 && (pattern[i] == ',' || colons)) {
      i += colons;
      parts.emplace_back();
    } else {
      parts.back() += pattern[i];
    }
  }
  check(depth == 0, op, "shards {}: its braces do not match", [&] { return shown(pattern); });
  return parts;
}

}  // namespace

void scan_shard(const ByteSource& source, const std::function<void(const ShardSample&)>& f) {
  Grouping grouping(source, f);
  scan_tar(source, [&](const TarMember& member) { grouping.add(member); });
  grouping.finish();
}

std::vector<std::string> expand_shards(const std::string& pattern, const std::string& root) {
  std::vector<std::string> shards;
  for (const std::string& part : split(pattern)) {
    check(!part.empty(), op, "shards {}: a name is empty", [&] { return shown(pattern); });
    std::vector<std::string> names{root.empty() || part[0] == '/' ? "" : root + "/"};
    for (std::size_t at = 0; at < part.size();) {
      const bool braces = part[at] == '{';
      const std::size_t end = std::min(part.find(braces ? '}' : '{', at), part.size());
      const auto choices =
          braces ? alternatives(part.substr(at + 1, end - at - 1), pattern) : std::vector{part.substr(at, end - at)};
      check(
          shards.size() + names.size() * choices.size() <= most_shards, op, "shards {}: over {} names",
          [&] { return shown(pattern); }, std::size_t{most_shards});
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& choice : choices) longer.push_back(name + choice);
      names = std::move(longer);
      at = end + (braces ? 1 : 0);
    }
    shards.insert(shards.end(), names.begin(), names.end());
  }
  return shards;
}

}  // namespace trireme
