// The parser reads untrusted bytes. It depends only on JSON, and the fuzzer links it.
#include "framework/io/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "framework/io/json.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {
/// A name from the file, formatted only when an error is: quoted, escaped and cut, so that a message stays one line.
struct Shown {
  std::string_view text;
};
}  // namespace
}  // namespace trireme

template <>
struct fmt::formatter<trireme::Shown> : fmt::formatter<std::string> {
  auto format(const trireme::Shown& name, fmt::format_context& ctx) const {
    constexpr std::size_t longest = 80;
    auto text =
        trireme::json_text(std::string(name.text.substr(0, longest)), trireme::NotUtf8::replaced, -1, /*ascii=*/true);
    return fmt::formatter<std::string>::format(name.text.size() > longest ? text + "..." : text, ctx);
  }
};

namespace trireme {
namespace {

constexpr char header_op[] = "safetensors";
constexpr std::size_t most_header_bytes = 100'000'000;  // the reference's limit
// Our own limits, far above any real file: they keep memory in proportion to the header.
constexpr std::size_t most_axes = 64, most_metadata = 65'536;

struct FileType {
  std::string_view name;
  std::uint64_t bits;
};
constexpr std::array<FileType, 22> file_types{
    {{"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},        {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64}}};

std::uint64_t bits_of(std::string_view dtype) {
  for (auto& t : file_types)
    if (t.name == dtype) return t.bits;
  return 0;
}

/// SAX events of the header. Depth 1: tensors by name; 2: one tensor's fields, or the metadata; 3: shape or offsets.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(std::int64_t) override { return wrong("a negative number"); }
  bool number_float(double, const std::string&) override { return wrong("a number that is no 64-bit integer"); }
  bool binary(Json::binary_t&) override { return wrong("binary"); }

  bool number_unsigned(std::uint64_t n) override {
    if (!numbers_) return wrong("a number");
    if (field_ == "shape") {
      check(numbers_->size() < most_axes, ErrorKind::data, header_op, "tensor {} has more than {} axes", Shown{key_},
            std::size_t{most_axes});
    } else {
      check(numbers_->size() < 2, ErrorKind::data, header_op, "data_offsets of tensor {} must be two numbers",
            Shown{key_});
    }
    numbers_->push_back(n);
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      check(metadata.size() < most_metadata, ErrorKind::data, header_op, "more than {} entries in __metadata__",
            std::size_t{most_metadata});
      check(metadata.try_emplace(field_, std::move(text)).second, ErrorKind::data, header_op,
            "duplicate key {} in __metadata__", Shown{field_});
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") return wrong("a string");
    check(bits_of(text) != 0, ErrorKind::data, header_op, "tensor {} has unknown dtype {}", Shown{key_}, Shown{text});
    dtype_ = std::move(text);
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ == 0) return ++depth_;
    if (depth_ != 1) return wrong("an object");
    ++depth_;
    in_metadata_ = key_ == "__metadata__";
    check(!(in_metadata_ && met_metadata_), ErrorKind::data, header_op, "duplicate key \"__metadata__\"");
    met_metadata_ |= in_metadata_;
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      key_ = std::move(text);
      return true;
    }
    field_ = std::move(text);
    if (in_metadata_) return true;
    bool known = field_ == "dtype" || field_ == "shape" || field_ == "data_offsets";
    check(known, ErrorKind::data, header_op, "tensor {} has an unknown field {}", Shown{key_}, Shown{field_});
    bool met = field_ == "dtype" ? dtype_.has_value() : field_ == "shape" ? shape_.has_value() : offsets_.has_value();
    check(!met, ErrorKind::data, header_op, "duplicate key \"{}\" in tensor {}", field_, Shown{key_});
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") return wrong("an array");
    ++depth_;
    numbers_ = &(field_ == "shape" ? shape_ : offsets_).emplace();
    return true;
  }
  bool end_array() override {
    --depth_;
    numbers_ = nullptr;
    return true;
  }

  bool end_object() override {
    if (--depth_ != 1) return true;
    if (!in_metadata_) finish_tensor();
    return true;
  }

  bool parse_error(std::size_t at, const std::string&, const Json::exception& e) override {
    // nlohmann's message: "[json.exception...] parse error at ...: syntax error ... - invalid literal; last read:
    // '...'".
    std::string_view what = e.what();
    bool utf8 = what.find("UTF-8") != what.npos;
    if (utf8) fail(ErrorKind::data, header_op, "invalid header: not UTF-8 at byte {}", at);
    fail(ErrorKind::data, header_op, "invalid header: not JSON at byte {} of it", at);
  }

 private:
  bool wrong(std::string_view came) const {
    if (depth_ == 0) fail(ErrorKind::data, header_op, "invalid header: {} where an object was expected", came);
    if (depth_ == 1) fail(ErrorKind::data, header_op, "tensor {} is {}, not an object", Shown{key_}, came);
    if (in_metadata_)
      fail(ErrorKind::data, header_op, "value of {} in __metadata__ is {}, not a string", Shown{field_}, came);
    fail(ErrorKind::data, header_op, "{} of tensor {} holds {}", field_, Shown{key_}, came);
  }

  void finish_tensor() {
    check(dtype_ && shape_ && offsets_, ErrorKind::data, header_op, "tensor {} has no {}", Shown{key_},
          !dtype_   ? "dtype"
          : !shape_ ? "shape"
                    : "data_offsets");
    check(offsets_->size() == 2, ErrorKind::data, header_op, "data_offsets of tensor {} must be two numbers",
          Shown{key_});
    SafetensorsEntry entry{key_, *dtype_, {}, (*offsets_)[0], (*offsets_)[1]};
    entry.shape.reserve(shape_->size());
    for (auto extent : *shape_) {
      check(extent <= std::uint64_t{INT64_MAX}, ErrorKind::data, header_op, "shape of tensor {} overflows",
            Shown{key_});
      entry.shape.push_back(static_cast<std::int64_t>(extent));
    }
    entries.push_back(std::move(entry));
  }

  int depth_ = 0;
  bool in_metadata_ = false, met_metadata_ = false;
  std::string key_, field_;
  std::optional<std::string> dtype_;
  std::optional<std::vector<std::uint64_t>> shape_, offsets_;
  std::vector<std::uint64_t>* numbers_ = nullptr;
};

/// Bytes of a tensor. Axes of extent 0 are excluded from the overflow check: the product of the others must fit too, so
/// that any partial product is safe to compute later.
std::uint64_t header_bytes_of(const SafetensorsEntry& e) {
  std::int64_t n = 1;
  bool empty = false, good = true;
  for (auto extent : e.shape)
    if (extent == 0)
      empty = true;
    else
      good = good && !__builtin_mul_overflow(n, extent, &n);
  std::int64_t bits = 0;
  good = good && !__builtin_mul_overflow(n, static_cast<std::int64_t>(bits_of(e.dtype)), &bits);
  check(good, ErrorKind::data, header_op, "shape of tensor {} overflows", Shown{e.name});
  check(empty || bits % 8 == 0, ErrorKind::data, header_op, "tensor {} of type {} does not end at a whole byte",
        Shown{e.name}, e.dtype);
  return empty ? 0 : static_cast<std::uint64_t>(bits) / 8;
}

void check_unique(const std::vector<SafetensorsEntry>& entries) {
  std::set<std::string_view> names;
  for (auto& e : entries)
    check(names.insert(e.name).second, ErrorKind::data, header_op, "duplicate key {}", Shown{e.name});
}

/// Tensors must cover the data section in order, without holes, overlaps or a tail.
void check_layout(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (auto& e : entries) {
    check(e.begin == at && e.end >= e.begin, ErrorKind::data, header_op,
          "invalid offset for tensor {}: [{}, {}] where {} was expected next", Shown{e.name}, e.begin, e.end, at);
    std::uint64_t bytes = header_bytes_of(e);
    check(e.end - e.begin == bytes, ErrorKind::data, header_op,
          "tensor {}: its shape and type make {} bytes, its offsets {}", Shown{e.name}, bytes, e.end - e.begin);
    at = e.end;
  }
  check(at == data_bytes, ErrorKind::data, header_op,
        "metadata incomplete buffer: the tensors take {} bytes, the file holds {}", at, data_bytes);
}

}  // namespace

std::size_t safetensors_header_size(std::span<const std::byte> bytes, std::size_t file_size) {
  check(file_size >= 8 && bytes.size() >= 8, ErrorKind::data, header_op, "header too small: the file has {} bytes",
        file_size);
  std::uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  check(n <= most_header_bytes, ErrorKind::data, header_op, "header too large: {} bytes, at most {} are allowed", n,
        std::size_t{most_header_bytes});
  check(n <= file_size - 8, ErrorKind::data, header_op, "invalid header length: {} bytes, the file has {}", n,
        file_size);
  return 8 + static_cast<std::size_t>(n);
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> bytes, std::size_t file_size) {
  SafetensorsHeader header;
  header.data_offset = safetensors_header_size(bytes, file_size);
  check(bytes.size() >= header.data_offset, ErrorKind::data, header_op,
        "invalid header length: {} bytes given, {} needed", bytes.size(), header.data_offset);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header.data_offset - 8);
  check(!text.empty() && text[0] == '{', ErrorKind::data, header_op,
        "invalid header start: the first byte is not '{{'");
  // nlohmann takes a zero byte for the end of the text.
  check(text.find('\0') == text.npos, ErrorKind::data, header_op, "invalid header: not JSON, it holds a zero byte");

  HeaderReader reader;
  Json::sax_parse(text.begin(), text.end(), &reader);
  header.entries = std::move(reader.entries);
  header.metadata = std::move(reader.metadata);
  check_unique(header.entries);
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](auto& a, auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  check_layout(header.entries, file_size - header.data_offset);
  return header;
}

std::string encode_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                      const std::map<std::string, std::string>& metadata) try {
  const auto quoted = [](const std::string& text) { return json_text(text); };
  std::string json = metadata.empty() ? "{" : "{\"__metadata__\":" + json_text(metadata) + ",";
  for (const SafetensorsEntry& e : entries)
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", quoted(e.name), e.dtype,
                        fmt::join(e.shape, ","), e.begin, e.end);
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  check(json.size() <= most_header_bytes, header_op, "the names of {} tensors need {} bytes, at most {} are allowed",
        entries.size(), json.size(), std::size_t{most_header_bytes});
  std::string header;
  for (std::size_t i = 0; i < 8; ++i) header += static_cast<char>(json.size() >> (8 * i) & 255);
  return header + json;
} catch (const Json::exception&) { fail(header_op, "a name or metadata text is not UTF-8"); }

}  // namespace trireme
