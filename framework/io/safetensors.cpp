#include "framework/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <set>
#include <string_view>

#include "framework/autograd/tape.h"
#include "framework/io/element_type.h"
#include "framework/io/safetensors_shards.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and so is this code");
constexpr char safetensors_op[] = "safetensors";

// In the reference's order of writing: its enum of types, reversed.
struct TypeName {
  DType type;
  std::string_view name;
};
constexpr std::array<TypeName, 10> type_names{{{DType::i64, "I64"},
                                               {DType::f64, "F64"},
                                               {DType::f32, "F32"},
                                               {DType::i32, "I32"},
                                               {DType::bf16, "BF16"},
                                               {DType::f16, "F16"},
                                               {DType::i16, "I16"},
                                               {DType::i8, "I8"},
                                               {DType::u8, "U8"},
                                               {DType::boolean, "BOOL"}}};

std::size_t rank_of(DType t) {
  return static_cast<std::size_t>(
      std::find_if(type_names.begin(), type_names.end(), [&](auto& n) { return n.type == t; }) - type_names.begin());
}

std::span<std::byte> bytes_of(const Tensor& t) {
  return {t.data<std::byte>(), static_cast<std::size_t>(t.view().bytes())};
}

/// Throws Error for weights in other formats, by the first bytes of the files that PyTorch and NumPy write.
void refuse_foreign(const std::string& path, std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (head.size() > 8 && head[8] == '{') return;  // a header of any length
  using namespace std::string_view_literals;
  const bool zip = head.starts_with("PK\3\4"), array = head.starts_with("\x93NUMPY");
  const std::string_view ending = zip && head.find(".npy") != head.npos   ? ".npz"  // its first entry
                                  : zip || head.starts_with("\x80\x02"sv) ? ".pt"
                                  : array                                 ? ".npy"
                                                                          : "";
  if (ending.empty()) return;
  std::filesystem::path named = path;  // `trireme import` recognises files by their endings
  const std::string given = named.extension();
  const bool known = given == ending || (ending == ".pt" && (given == ".pth" || given == ".bin"));
  if (!known) named.replace_extension(ending);
  fail(ErrorKind::data, safetensors_op,
       "{} is a {} file: {}`trireme import {} --out w.safetensors` makes weights of it", path,
       ending == ".pt" ? "PyTorch" : "NumPy", known ? "" : "rename it, and ", named.string());
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  std::vector<std::byte> bytes(std::min<std::size_t>(file_.size(), 128));
  file_.read(0, bytes);
  refuse_foreign(path, bytes);
  try {
    bytes.resize(safetensors_header_size(bytes, file_.size()));
    file_.read(0, bytes);
    header_ = parse_safetensors(bytes, file_.size());
  } catch (const Error& e) { throw Error(path + ": " + e.what(), e.where(), e.kind()); }
}

Tensor load_entry(const FileReader& file, std::size_t data_offset, const SafetensorsEntry& e) {
  const ElementType* type = find_element_type(e.dtype);
  check(type != nullptr, ErrorKind::data, safetensors_op,
        "{}: tensor \"{}\" has type {}; F32, F64, BF16, F16, BOOL and integers can be read", file.path(), e.name,
        e.dtype);
  check(e.shape.size() <= Shape::max_rank, ErrorKind::data, safetensors_op,
        "{}: tensor \"{}\" has {} axes, at most {} can be read", file.path(), e.name, e.shape.size(),
        int(Shape::max_rank));
  Tensor t = Tensor::empty(Shape(e.shape), type->becomes);
  std::size_t at = data_offset + e.begin;
  if (type->as_is) {
    file.read(at, bytes_of(t));
    return t;
  }
  std::vector<std::byte> bytes(e.end - e.begin);
  file.read(at, bytes);
  check(type->copy(bytes.data(), 1, t.numel(), t.data<std::byte>()), ErrorKind::data, safetensors_op,
        "{}: tensor \"{}\" of type {} holds a number of 2^63 or more: i64 has none", file.path(), e.name, e.dtype);
  return t;
}

std::span<const std::byte> SafetensorsReader::map(const SafetensorsEntry& e) {
  return file_.map().subspan(header_.data_offset + e.begin, e.end - e.begin);
}

const Tensor& SafetensorsFile::at(const std::string& name) const {
  const Tensor* found = find(name);
  check(found != nullptr, ErrorKind::data, safetensors_op, "there is no tensor \"{}\" among the file's {}", name,
        tensors.size());
  return *found;
}
const Tensor* SafetensorsFile::find(const std::string& name) const {
  for (auto& t : tensors)
    if (t.name == name) return &t.tensor;
  return nullptr;
}

SafetensorsFile read_safetensors(const std::string& path) {
  if (path.ends_with(".json")) return read_indexed(path);
  SafetensorsReader reader(path);
  if (reader.header().metadata.contains("slices")) return assembled(open_shards({path}));
  SafetensorsFile file;
  for (auto& e : reader.header().entries) file.tensors.push_back({e.name, reader.load(e)});
  file.metadata = reader.header().metadata;
  return file;
}

SafetensorsWriter::SafetensorsWriter(std::vector<TensorToWrite> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)) {
  std::set<std::string_view> names;
  for (auto& t : tensors_) {
    check(t.tensor.defined(), safetensors_op, "tensor \"{}\" is undefined", t.name);
    check(t.name != "__metadata__" && names.insert(t.name).second, safetensors_op, "two tensors are named \"{}\"",
          t.name);
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](auto& a, auto& b) {
    auto x = rank_of(a.tensor.dtype()), y = rank_of(b.tensor.dtype());
    return x != y ? x < y : a.name < b.name;
  });

  std::vector<SafetensorsEntry> entries;
  std::size_t end = 0;
  for (auto& t : tensors_) {
    const std::size_t begin = std::exchange(end, end + static_cast<std::size_t>(t.tensor.view().bytes()));
    const Shape& shape = t.tensor.shape();
    entries.push_back(
        {t.name, std::string(type_names[rank_of(t.tensor.dtype())].name), {shape.begin(), shape.end()}, begin, end});
  }
  header_ = encode_safetensors_header(entries, metadata);
  size_ = header_.size() + end;
}

void SafetensorsWriter::write(const std::function<void(std::span<const std::byte>)>& sink) const {
  sink(std::as_bytes(std::span(header_)));
  const NoGrad no_grad;
  for (auto& t : tensors_) {
    const Tensor values = (t.ordered ? t.ordered() : t.tensor).to(cpu());
    sink(bytes_of(values));
  }
}

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(tensors, metadata);
  replace_file(path, writer.size(), [&](FileWriter& file) { writer.write([&](auto bytes) { file.write(bytes); }); });
}

}  // namespace trireme
