#include "framework/io/foreign/npz.h"

#include <algorithm>

#include "framework/io/foreign/zip.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

constexpr char npz_op[] = "npz";

constexpr std::size_t longest_header = longest_npy_front - 12;

/// The header's Python dict as JSON: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }. Any other text
/// becomes invalid JSON. colons: number of its keys.
std::string to_json(std::string_view dict, int& colons) {
  std::string json;
  char quote = 0;  // end of the current text
  for (char c : dict) {
    if (c == '\\' || (c == '"' && quote == '\'')) return "";
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      json += '"';
    } else if (quote != 0) {
      json += c == quote ? '"' : c;
      if (c == quote) quote = 0;
    } else if (c == ')' || c == '}') {
      if (const std::size_t last = json.find_last_not_of(" \t\r\n"); last != json.npos && json[last] == ',')
        json.resize(last);
      json += c == ')' ? ']' : '}';
    } else if (c != 'L' || json.empty() || json.back() < '0' || json.back() > '9') {  // no 3L of Python 2
      const bool truth = c == 'T' || c == 'F';                                        // True, False
      json += c == '(' ? '[' : truth ? static_cast<char>(c - 'A' + 'a') : c;
      colons += c == ':';
    }
  }
  return json;
}

NpyHeader parse_header(std::string_view text, const std::string& source, const std::string& name) {
  int colons = 0;
  const auto dict = parse_json(to_json(text, colons));
  const auto has = [&](const char* key) { return dict.is_object() && dict.contains(key); };
  if (colons == 3 && has("descr") && dict["descr"].is_array())
    fail(ErrorKind::data, npz_op, "{}: array {} is structured; arrays of one element type are read", source,
         in_quotes(name));
  if (colons != 3 || !has("descr") || !has("fortran_order") || !has("shape") || !dict["descr"].is_string() ||
      dict["descr"] == "" || !dict["fortran_order"].is_boolean() || !dict["shape"].is_array())
    fail(ErrorKind::data, npz_op, "{}: the header of array {} is damaged: {}", source, in_quotes(name),
         in_quotes(text));
  NpyHeader header{dict["descr"], dict["fortran_order"], {}};
  for (const auto& extent : dict["shape"]) {
    if (header.shape.rank() == Shape::max_rank)
      fail(ErrorKind::data, npz_op, "{}: array {} has more than {} axes", source, in_quotes(name),
           int(Shape::max_rank));
    if (!extent.is_number_integer())
      fail(ErrorKind::data, npz_op, "{}: the header of array {} is damaged: an extent is no 64-bit number", source,
           in_quotes(name));
    header.shape.push_back(extent.get<Index>());
  }
  return header;
}

/// "<f4" without its byte order.
const ElementType* element_type(std::string_view descr) {
  static constexpr std::pair<std::string_view, std::string_view> kinds[] = {
      {"f8", "F64"}, {"f4", "F32"}, {"f2", "F16"}, {"i8", "I64"}, {"i4", "I32"},
      {"i2", "I16"}, {"i1", "I8"},  {"u1", "U8"},  {"b1", "BOOL"}};
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
  if (!magic)
    fail(ErrorKind::data, npz_op, "{}: entry {} is no .npy array: its first bytes are not those of one", source,
         in_quotes(name));
  const std::size_t prefix = text[6] == 1 ? 10 : 12;
  if (bytes.size() < prefix)
    fail(ErrorKind::data, npz_op, "{}: array {} is cut off in its header", source, in_quotes(name));
  const std::size_t size = text[6] == 1 ? std::size_t{little_endian<std::uint16_t>(bytes.subspan(8, 2))}
                                        : little_endian<std::uint32_t>(bytes.subspan(8, 4));
  if (size > bytes.size() - prefix)
    fail(ErrorKind::data, npz_op, "{}: array {} is cut off in its header", source, in_quotes(name));
  if (size > longest_header)
    fail(ErrorKind::data, npz_op, "{}: array {} has a header of {} bytes", source, in_quotes(name), size);
  return {prefix, size};
}

NpyHeader read_header(std::span<const std::byte> bytes, const std::string& source, const std::string& name) {
  const auto [prefix, length] = header_size(bytes, source, name);
  NpyHeader header = parse_header({reinterpret_cast<const char*>(bytes.data()) + prefix, length}, source, name);
  header.begin = prefix + length;
  return header;
}

void read_array(const std::string& name, std::span<std::byte> bytes, const std::string& source, MemoryLimit& memory,
                const RoomFor& room) {
  const NpyHeader header = read_header(bytes, source, name);
  if (header.descr.ends_with('O'))
    fail(ErrorKind::data, npz_op, "{}: array {} holds Python objects, which could run code; save arrays of numbers",
         source, in_quotes(name));
  FileArray array{name, element_type(header.descr), header.shape};
  if (array.type == nullptr)
    fail(ErrorKind::data, npz_op,
         "{}: array {} has elements of type {}; f2, f4, f8, i1, i2, i4, i8, u1 and b1 are read", source,
         in_quotes(name), in_quotes(header.descr));
  const std::size_t declared = count_elements(array, npz_op, source) * array.type->size;
  const auto elements = bytes.subspan(header.begin);
  if (elements.size() != declared)
    fail(ErrorKind::data, npz_op, "{}: array {} declares {} bytes of elements, it holds {}", source, in_quotes(name),
         declared, elements.size());
  if (header.descr[0] == '>') swap_bytes(elements, array.type->size);
  memory.take(array.bytes(), npz_op, name);
  gather(array, dense(array.shape, header.columns_first), elements, room(array), npz_op, source);
}

}  // namespace

void read_npy(const NamedBytes& file, const RoomFor& room) {
  MemoryLimit memory(file);
  std::vector<std::byte> bytes(file.bytes.begin(), file.bytes.end());  // bytes are put in order in place
  read_array(file.name, bytes, file.name, memory, room);
}

NpyHeader npy_header(const NamedBytes& front) { return read_header(front.bytes, front.name, front.name); }

NpyLayout npy_layout(const NamedBytes& file) {
  const NpyHeader header = npy_header(file);
  const FileArray array{file.name, element_type(header.descr), header.shape};
  const bool one = header.shape.rank() < 2;
  if (array.type == nullptr || !array.type->as_is || header.descr[0] == '>' || (header.columns_first && !one))
    fail(ErrorKind::data, npz_op, "{}: elements of type {}{} are read by read_npy(), not mapped", file.name,
         in_quotes(header.descr), header.columns_first ? " in Fortran's order" : "");
  const std::size_t bytes = count_elements(array, npz_op, file.name) * array.type->size, begin = header.begin;
  if (file.bytes.size() - begin != bytes)
    fail(ErrorKind::data, npz_op, "{}: the header declares {} bytes of elements, the file holds {}", file.name, bytes,
         file.bytes.size() - begin);
  return {begin, header.shape, array.type->becomes};
}

void read_npz(const NamedBytes& file, const RoomFor& room) {
  const ZipReader zip(file, npz_op);
  MemoryLimit memory(file);
  for (const ZipEntry& entry : zip.entries()) {
    std::string name(entry.name);
    if (!name.ends_with(".npy"))
      fail(ErrorKind::data, npz_op, "{}: entry {} is no .npy array", file.name, in_quotes(name));
    name.resize(name.size() - 4);
    memory.take(entry.size, npz_op, name);
    {
      std::vector<std::byte> bytes = zip.read(entry);
      read_array(name, bytes, file.name, memory, room);
    }
    memory.give_back(entry.size);
  }
}

}  // namespace trireme
