#include "framework/io/foreign/npz.h"

#include <charconv>
#include <optional>

#include "framework/io/foreign/zip.h"

namespace trireme {
namespace {

constexpr char op[] = "npz";

/// The header's Python dict: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }.
class Header {
 public:
  Header(std::string_view text, const std::string& source, const std::string& name)
      : rest_(text), source_(source), name_(name) {
    expect('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      expect(':');
      bool first = false;
      if (key == "descr") {
        first = std::exchange(descr_, read_descr()).empty();
      } else if (key == "fortran_order") {
        first = !std::exchange(columns_, read_bool()).has_value();
      } else if (key == "shape") {
        first = !std::exchange(shape_, read_shape()).has_value();
      }
      if (!first) wrong(fmt::format("key {} twice, or unknown", shown(key)));
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) wrong("more after its dict");
    if (descr_.empty() || !columns_ || !shape_) wrong("no descr, fortran_order or shape");
  }
  std::string_view descr() const { return descr_; }
  bool columns_first() const { return *columns_; }
  const Shape& shape() const { return *shape_; }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail(op, "{}: the header of array {} is damaged: {}", source_, shown(name_), what);
  }
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong(fmt::format("'{}' expected before {}", c, shown(rest_.substr(0, 20))));
  }
  std::string_view quoted() {
    const char quote = take('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t end = rest_.find(quote);
    if (end == rest_.npos) wrong("a text without end");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::string_view read_descr() {
    skip_space();
    if (rest_.starts_with('[') || rest_.starts_with('('))
      fail(op, "{}: array {} is structured; arrays of one element type are read", source_, shown(name_));
    const std::string_view text = quoted();
    if (text.empty()) wrong("descr is empty");
    return text;
  }
  bool read_bool() {
    skip_space();
    for (bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    wrong("fortran_order is neither True nor False");
  }
  Shape read_shape() {
    Shape shape;
    expect('(');
    while (!take(')')) {
      skip_space();
      Index extent = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (error != std::errc()) wrong("an extent is no 64-bit number");
      if (shape.rank() == Shape::max_rank)
        fail(op, "{}: array {} has more than {} axes", source_, shown(name_), int(Shape::max_rank));
      shape.push_back(extent);
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view rest_;
  const std::string& source_;
  const std::string& name_;
  std::string_view descr_;
  std::optional<bool> columns_;
  std::optional<Shape> shape_;
};

/// "<f4" without its byte order.
const ElementType* element_type(std::string_view descr) {
  static constexpr std::pair<std::string_view, std::string_view> kinds[] = {
      {"f8", "f64"}, {"f4", "f32"}, {"f2", "f16"}, {"i8", "i64"}, {"i4", "i32"},
      {"i2", "i16"}, {"i1", "i8"},  {"u1", "u8"},  {"b1", "bool"}};
  for (auto& [numpy, name] : kinds)
    if (descr.substr(1) == numpy && std::string_view("<>|").find(descr[0]) != std::string_view::npos)
      return find_element_type(name);
  return nullptr;
}

void swap_bytes(std::span<std::byte> elements, std::size_t size) {
  for (std::size_t at = 0; at + size <= elements.size(); at += size)
    std::reverse(elements.begin() + static_cast<std::ptrdiff_t>(at),
                 elements.begin() + static_cast<std::ptrdiff_t>(at + size));
}

/// Length of magic, version and header length; the header's own length.
std::pair<std::size_t, std::size_t> header_size(std::span<const std::byte> bytes, const std::string& source,
                                                const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool magic = text.size() >= 10 && text.starts_with("\x93NUMPY") && text[6] >= 1 && text[6] <= 3;
  if (!magic) fail(op, "{}: entry {} is no .npy array: its first bytes are not those of one", source, shown(name));
  const std::size_t prefix = text[6] == 1 ? 10 : 12;
  if (bytes.size() < prefix) fail(op, "{}: array {} is cut off in its header", source, shown(name));
  const std::size_t size = text[6] == 1 ? std::size_t{little_endian<std::uint16_t>(bytes.subspan(8, 2))}
                                        : little_endian<std::uint32_t>(bytes.subspan(8, 4));
  if (size > bytes.size() - prefix) fail(op, "{}: array {} is cut off in its header", source, shown(name));
  return {prefix, size};
}

void read_array(const std::string& name, std::span<std::byte> bytes, const std::string& source, MemoryLimit& memory,
                const RoomFor& room) {
  const auto [prefix, length] = header_size(bytes, source, name);
  const Header header({reinterpret_cast<const char*>(bytes.data()) + prefix, length}, source, name);
  if (header.descr().ends_with('O'))
    fail(op, "{}: array {} holds Python objects, which could run code; save arrays of numbers", source, shown(name));
  FileArray array{name, element_type(header.descr()), header.shape()};
  if (array.type == nullptr)
    fail(op, "{}: array {} has elements of type {}; f2, f4, f8, i1, i2, i4, i8, u1 and b1 are read", source,
         shown(name), shown(header.descr()));
  const std::size_t declared = count_elements(array, op, source) * static_cast<std::size_t>(array.type->size);
  const auto elements = bytes.subspan(prefix + length);
  if (elements.size() != declared)
    fail(op, "{}: array {} declares {} bytes of elements, it holds {}", source, shown(name), declared, elements.size());
  if (header.descr()[0] == '>') swap_bytes(elements, static_cast<std::size_t>(array.type->size));
  memory.take(array.bytes(), op, name);
  gather(array, header.columns_first() ? columns_first(array.shape) : dense(array.shape), elements, room(array), op,
         source);
}

}  // namespace

void read_npz(const ByteSource& source, const RoomFor& room) {
  const ZipReader zip(source, op);
  MemoryLimit memory(source);
  for (const ZipEntry& entry : zip.entries()) {
    std::string name = entry.name;
    if (!name.ends_with(".npy")) fail(op, "{}: entry {} is no .npy array", source.name, shown(name));
    name.resize(name.size() - 4);
    const std::size_t needed = ZipReader::memory(entry);
    memory.take(needed, op, name);
    {
      std::vector<std::byte> bytes = zip.read(entry);
      read_array(name, bytes, source.name, memory, room);
    }
    memory.give_back(needed);
  }
}

}  // namespace trireme
