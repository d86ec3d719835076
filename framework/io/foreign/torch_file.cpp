#include "framework/io/foreign/torch_file.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/io/foreign/pickle.h"
#include "framework/io/foreign/zip.h"

namespace trireme {
namespace {

using Kind = PickleValue::Kind;

constexpr char op[] = "torch";

/// A tensor of the file, and where its elements lie.
struct TorchArray {
  FileArray array;
  Strided at;
  const ZipEntry* storage = nullptr;
  std::byte* to = nullptr;
};

const ElementType* element_type(std::string_view storage) {
  static constexpr std::pair<std::string_view, std::string_view> kinds[] = {
      {"torch DoubleStorage", "f64"},    {"torch FloatStorage", "f32"}, {"torch HalfStorage", "f16"},
      {"torch BFloat16Storage", "bf16"}, {"torch LongStorage", "i64"},  {"torch IntStorage", "i32"},
      {"torch ShortStorage", "i16"},     {"torch CharStorage", "i8"},   {"torch ByteStorage", "u8"},
      {"torch BoolStorage", "bool"}};
  for (auto& [torch, name] : kinds)
    if (storage == torch) return find_element_type(name);
  return nullptr;
}

class TorchReader {
 public:
  explicit TorchReader(const ByteSource& source) : source_(source), memory_(source), zip_(open(source)) {
    const ZipEntry& pickled = find_pickle();
    folder_ = pickled.name.substr(0, pickled.name.size() - 8);
    check(zip_.find(folder_ + "constants.pkl") == nullptr, op,
          "{}: is a TorchScript archive, a program; save model.state_dict() with torch.save", source_.name);
    if (const ZipEntry* order = zip_.find(folder_ + "byteorder"); order != nullptr && order->size < 16)
      check(text_of(zip_.read(*order)) == "little", op, "{}: was written on a big-endian machine", source_.name);
    memory_.take(ZipReader::memory(pickled), op, pickled.name);
    bytes_ = zip_.read(pickled);
    pickle_ = parse_pickle(bytes_, op, source_.name);
  }

  std::vector<std::string> read(const RoomFor& room) {
    std::vector<TorchArray> arrays = find_arrays();
    for (TorchArray& a : arrays) {
      memory_.take(a.array.bytes(), op, a.array.name);
      a.to = room(a.array);
    }
    // Those of one storage together: it is then read once.
    std::stable_sort(arrays.begin(), arrays.end(),
                     [](auto& a, auto& b) { return a.storage->begin < b.storage->begin; });
    const ZipEntry* held = nullptr;
    std::vector<std::byte> elements;
    for (const TorchArray& a : arrays) {
      if (a.storage != held) {
        if (held != nullptr) memory_.give_back(ZipReader::memory(*held));
        elements = {};
        held = a.storage;
        memory_.take(ZipReader::memory(*held), op, a.array.name);
        elements = zip_.read(*held);
      }
      gather(a.array, a.at, elements, a.to, op, source_.name);
    }
    return std::move(left_out_);
  }

 private:
  static ZipReader open(const ByteSource& source) {
    std::byte magic[2] = {};
    if (source.size >= 2) source.read(0, magic);
    const bool pickle = magic[0] == std::byte{0x80};
    check(!pickle, op,
          "{}: is of the format before PyTorch 1.6; torch.load it there and torch.save it with a newer one",
          source.name);
    return {source, op};
  }
  static std::string_view text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  const ZipEntry& find_pickle() const {
    const ZipEntry* found = nullptr;
    for (const ZipEntry& e : zip_.entries()) {
      if (!e.name.ends_with("/data.pkl")) continue;
      check(found == nullptr, op, "{}: holds more than one data.pkl", source_.name);
      found = &e;
    }
    check(found != nullptr, op, "{}: is no PyTorch file: its ZIP archive holds no data.pkl", source_.name);
    return *found;
  }

  bool holds_tensors(const PickleValue& v) const {
    if (v.kind != Kind::dict) return false;
    for (std::size_t i = 1; i < v.items.size(); i += 2)
      if (pickle_[v.items[i]].kind == Kind::tensor) return true;
    return false;
  }

  std::vector<TorchArray> find_arrays() {
    const PickleValue* dict = &pickle_[pickle_.root];
    check(dict->kind == Kind::dict, op, "{}: holds a {}, not a dict of tensors; save model.state_dict()", source_.name,
          name_of(dict->kind));
    const PickleValue* inner = nullptr;
    for (std::size_t i = 0; i < dict->items.size(); i += 2) {
      const PickleValue &key = pickle_[dict->items[i]], &value = pickle_[dict->items[i + 1]];
      const bool wrapper = key.text == "state_dict" || key.text == "model_state_dict" || key.text == "model";
      if (inner == nullptr && key.kind == Kind::text && wrapper && holds_tensors(value)) inner = &value;
    }
    if (inner != nullptr) list_others(*dict, inner), dict = inner;
    check(holds_tensors(*dict), op, "{}: its dict holds no tensor; save model.state_dict()", source_.name);
    list_others(*dict, nullptr);
    std::vector<TorchArray> arrays;
    std::set<std::string_view> names;
    for (std::size_t i = 0; i < dict->items.size(); i += 2) {
      const PickleValue &key = pickle_[dict->items[i]], &value = pickle_[dict->items[i + 1]];
      if (value.kind != Kind::tensor) continue;
      check(key.kind == Kind::text, op, "{}: a tensor is named by a {}, not a text", source_.name, name_of(key.kind));
      if (!names.insert(key.text).second) fail(op, "{}: two tensors are named {}", source_.name, shown(key.text));
      arrays.push_back(describe(std::string(key.text), value));
    }
    return arrays;
  }

  /// Notes the entries of dict that are neither tensors nor `but`.
  void list_others(const PickleValue& dict, const PickleValue* but) {
    constexpr std::size_t most = 100;
    for (std::size_t i = 0; i < dict.items.size() && left_out_.size() < most; i += 2) {
      const PickleValue &key = pickle_[dict.items[i]], &value = pickle_[dict.items[i + 1]];
      if (&value == but || (but == nullptr && value.kind == Kind::tensor)) continue;
      left_out_.push_back(
          fmt::format("{} ({})", key.kind == Kind::text ? shown(key.text) : name_of(key.kind), name_of(value.kind)));
    }
  }

  Shape shape_of(const PickleValue& tuple, const std::string& name) const {
    if (tuple.items.size() > Shape::max_rank)
      fail(op, "{}: tensor {} has {} axes, at most {} are read", source_.name, shown(name), tuple.items.size(),
           int(Shape::max_rank));
    Shape shape;
    for (auto item : tuple.items) shape.push_back(pickle_[item].number);
    return shape;
  }

  TorchArray describe(const std::string& name, const PickleValue& tensor) const {
    const PickleValue& storage = pickle_[tensor.items[0]];
    const std::string_view type = pickle_[storage.items[0]].text;
    TorchArray a{{name, element_type(type), shape_of(pickle_[tensor.items[2]], name)}, {}, nullptr};
    const Index offset = pickle_[tensor.items[1]].number;
    a.at.strides = shape_of(pickle_[tensor.items[3]], name);
    const bool negative =
        offset < 0 || std::any_of(a.at.strides.begin(), a.at.strides.end(), [](Index s) { return s < 0; });
    if (a.array.type == nullptr || negative)
      fail(op, "{}: tensor {} has a negative offset or stride, or a storage of type {}", source_.name, shown(name),
           shown(type));
    a.at.offset = static_cast<std::size_t>(offset);
    count_elements(a.array, op, source_.name);
    a.storage = zip_.find(folder_ + "data/" + std::string(storage.text));
    if (a.storage == nullptr)
      fail(op, "{}: the storage {} of tensor {} is missing", source_.name, shown(storage.text), shown(name));
    const auto elements = static_cast<std::size_t>(storage.number), size = static_cast<std::size_t>(a.array.type->size);
    if (a.storage->size % size != 0 || a.storage->size / size != elements)
      fail(op, "{}: the storage {} of tensor {} has {} bytes, not those of {} elements of type {}", source_.name,
           shown(storage.text), shown(name), a.storage->size, elements, a.array.type->name);
    return a;
  }

  const ByteSource& source_;
  MemoryLimit memory_;
  ZipReader zip_;
  std::string folder_;
  std::vector<std::byte> bytes_;  // the pickle, whose texts lie in it
  Pickle pickle_;
  std::vector<std::string> left_out_;
};

}  // namespace

std::vector<std::string> read_torch(const ByteSource& source, const RoomFor& room) {
  return TorchReader(source).read(room);
}

}  // namespace trireme
