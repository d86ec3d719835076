#include "framework/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "kernels/core/half_types.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and so is this code");
constexpr char op[] = "safetensors";

// In the reference's order of writing: its enum of types, reversed.
struct TypeName {
  DType type;
  std::string_view name;
};
constexpr std::array<TypeName, 7> type_names{{{DType::i64, "I64"},
                                              {DType::f64, "F64"},
                                              {DType::f32, "F32"},
                                              {DType::i32, "I32"},
                                              {DType::bf16, "BF16"},
                                              {DType::f16, "F16"},
                                              {DType::u8, "U8"}}};

/// A type that tensors do not have, and the next one that holds all its values (U64: those below 2^63).
struct Widened {
  std::string_view name;
  DType type;
  /// False: a value does not fit.
  bool (*convert)(std::span<const std::byte> from, std::byte* to);
};
template <class From, class To>
bool widen(std::span<const std::byte> from, std::byte* to) {
  for (; !from.empty(); from = from.subspan(sizeof(From)), to += sizeof(To)) {
    From value;
    std::memcpy(&value, from.data(), sizeof value);
    if constexpr (std::is_same_v<From, std::uint64_t>)
      if (value > std::uint64_t{INT64_MAX}) return false;
    const auto wide = [&] {
      if constexpr (std::is_same_v<From, f16>)
        return static_cast<float>(value);
      else
        return static_cast<To>(value);
    }();
    std::memcpy(to, &wide, sizeof wide);
  }
  return true;
}
constexpr std::array<Widened, 7> widened{{{"F16", DType::f32, widen<f16, float>},
                                          {"BOOL", DType::u8, widen<std::uint8_t, std::uint8_t>},
                                          {"I8", DType::i32, widen<std::int8_t, std::int32_t>},
                                          {"I16", DType::i32, widen<std::int16_t, std::int32_t>},
                                          {"U16", DType::i32, widen<std::uint16_t, std::int32_t>},
                                          {"U32", DType::i64, widen<std::uint32_t, std::int64_t>},
                                          {"U64", DType::i64, widen<std::uint64_t, std::int64_t>}}};

std::size_t rank_of(DType t) {
  return static_cast<std::size_t>(
      std::find_if(type_names.begin(), type_names.end(), [&](auto& n) { return n.type == t; }) - type_names.begin());
}

std::span<std::byte> bytes_of(const Tensor& t) {
  return {t.data<std::byte>(), static_cast<std::size_t>(t.view().bytes())};
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  try {
    std::vector<std::byte> bytes(std::min<std::size_t>(file_.size(), 8));
    file_.read(0, bytes);
    bytes.resize(safetensors_header_size(bytes, file_.size()));
    file_.read(0, bytes);
    header_ = parse_safetensors(bytes, file_.size());
  } catch (const Error& e) { throw Error(path + ": " + e.what(), e.where()); }
}

Tensor SafetensorsReader::load(const SafetensorsEntry& e) const {
  auto wide = std::find_if(widened.begin(), widened.end(), [&](auto& w) { return w.name == e.dtype; });
  auto known = std::find_if(type_names.begin(), type_names.end(), [&](auto& n) { return n.name == e.dtype; });
  check(wide != widened.end() || known != type_names.end(), op,
        "{}: tensor \"{}\" has type {}; F32, F64, BF16, F16, BOOL and integers can be read", file_.path(), e.name,
        e.dtype);
  check(e.shape.size() <= Shape::max_rank, op, "{}: tensor \"{}\" has {} axes, at most {} can be read", file_.path(),
        e.name, e.shape.size(), int(Shape::max_rank));
  Tensor t = Tensor::empty(Shape(e.shape), wide != widened.end() ? wide->type : known->type);
  std::size_t at = header_.data_offset + e.begin;
  if (wide == widened.end()) {
    file_.read(at, bytes_of(t));
    return t;
  }
  std::vector<std::byte> bytes(e.end - e.begin);
  file_.read(at, bytes);
  check(wide->convert(bytes, t.data<std::byte>()), op,
        "{}: tensor \"{}\" of type {} holds a number of 2^63 or more: i64 has none", file_.path(), e.name, e.dtype);
  return t;
}

const Tensor& SafetensorsFile::at(const std::string& name) const {
  const Tensor* found = find(name);
  check(found != nullptr, op, "there is no tensor \"{}\" among the file's {}", name, tensors.size());
  return *found;
}
const Tensor* SafetensorsFile::find(const std::string& name) const {
  for (auto& t : tensors)
    if (t.name == name) return &t.tensor;
  return nullptr;
}

SafetensorsFile read_safetensors(const std::string& path) {
  SafetensorsReader reader(path);
  SafetensorsFile file;
  for (auto& e : reader.header().entries) file.tensors.push_back({e.name, reader.load(e)});
  file.metadata = reader.header().metadata;
  return file;
}

SafetensorsWriter::SafetensorsWriter(std::vector<NamedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)) {
  std::set<std::string_view> names;
  for (auto& t : tensors_) {
    check(t.tensor.defined(), op, "tensor \"{}\" is undefined", t.name);
    check(t.name != "__metadata__" && names.insert(t.name).second, op, "two tensors are named \"{}\"", t.name);
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](auto& a, auto& b) {
    auto x = rank_of(a.tensor.dtype()), y = rank_of(b.tensor.dtype());
    return x != y ? x < y : a.name < b.name;
  });

  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (auto& [key, value] : metadata) json += json_quote(key) + ":" + json_quote(value) + ",";
    json.back() = '}';
    json += ",";
  }
  std::size_t end = 0;
  for (auto& t : tensors_) {
    std::size_t begin = end;
    end += static_cast<std::size_t>(t.tensor.view().bytes());
    auto& shape = t.tensor.shape();
    json +=
        fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", json_quote(t.name),
                    type_names[rank_of(t.tensor.dtype())].name, fmt::join(shape.begin(), shape.end(), ","), begin, end);
  }
  if (json.back() == ',') json.pop_back();
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  check(json.size() <= 100'000'000, op, "the names of {} tensors need {} bytes, at most 100000000 are allowed",
        tensors_.size(), json.size());
  for (std::uint64_t n = json.size(), i = 0; i < 8; ++i) header_ += static_cast<char>(n >> (8 * i) & 255);
  header_ += json;
  size_ = header_.size() + end;
}

void SafetensorsWriter::write(const std::function<void(std::span<const std::byte>)>& sink) const {
  sink(std::as_bytes(std::span(header_)));
  for (auto& t : tensors_) {
    Tensor host = t.tensor;
    if (host.device().kind != DeviceKind::cpu) {
      host = Tensor::empty(host.shape(), host.dtype());
      host.copy_from(t.tensor);
    }
    sink(bytes_of(host));
  }
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(tensors, metadata);
  replace_file(path, writer.size(), [&](FileWriter& file) { writer.write([&](auto bytes) { file.write(bytes); }); });
}

std::vector<std::byte> encode_safetensors(const std::vector<NamedTensor>& tensors,
                                          const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(tensors, metadata);
  std::vector<std::byte> bytes;
  bytes.reserve(writer.size());
  writer.write([&](auto part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

}  // namespace trireme
