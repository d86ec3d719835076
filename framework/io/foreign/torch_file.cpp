#include "framework/io/foreign/torch_file.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/io/foreign/pickle.h"
#include "framework/io/foreign/zip.h"

namespace trireme {
namespace {

using StorageKind = PickleValue::Kind;

constexpr char torch_op[] = "torch";

/// A tensor of the file, and the position of its elements.
struct TorchArray {
  FileArray array;
  Strided at;
  const ZipEntry* storage = nullptr;
  std::byte* to = nullptr;
};

const ElementType* torch_element_type(std::string_view storage) {
  for (auto& [torch, name] : torch_storages)
    if (storage == torch) return find_element_type(name);
  return nullptr;
}

class TorchReader {
 public:
  explicit TorchReader(const NamedBytes& file) : file_(file), memory_(file), zip_(not_of_old(file), torch_op) {
    const ZipEntry& pickled = find_pickle();
    folder_ = std::string(pickled.name.substr(0, pickled.name.size() - 8));
    check(zip_.find(folder_ + "constants.pkl") == nullptr, ErrorKind::data, torch_op,
          "{}: is a TorchScript archive, a program; save model.state_dict() with torch.save", file_.name);
    if (const ZipEntry* order = zip_.find(folder_ + "byteorder"); order != nullptr && order->size < 16)
      check(std::ranges::equal(zip_.read(*order), std::as_bytes(std::span("little", 6))), ErrorKind::data, torch_op,
            "{}: was written on a big-endian machine", file_.name);
    memory_.take(pickled.size, torch_op, pickled.name);
    bytes_ = zip_.read(pickled);
    pickle_ = parse_pickle(bytes_, torch_op, file_.name);
  }

  std::vector<std::string> read(const RoomFor& room) {
    std::vector<TorchArray> arrays = find_arrays();
    for (TorchArray& a : arrays) {
      memory_.take(a.array.bytes(), torch_op, a.array.name);
      a.to = room(a.array);
    }
    // Sorted by storage, so that each storage is read once.
    std::stable_sort(arrays.begin(), arrays.end(),
                     [](auto& a, auto& b) { return a.storage->begin < b.storage->begin; });
    const ZipEntry* held = nullptr;
    std::vector<std::byte> elements;
    for (const TorchArray& a : arrays) {
      if (a.storage != held) {
        if (held != nullptr) memory_.give_back(held->size);
        elements = {};
        held = a.storage;
        memory_.take(held->size, torch_op, a.array.name);
        elements = zip_.read(*held);
      }
      gather(a.array, a.at, elements, a.to, torch_op, file_.name);
    }
    return std::move(left_out_);
  }

 private:
  static const NamedBytes& not_of_old(const NamedBytes& file) {
    const bool pickle = file.bytes.size() >= 2 && file.bytes[0] == std::byte{0x80};
    check(!pickle, ErrorKind::data, torch_op,
          "{}: is of the format before PyTorch 1.6; torch.load it there and torch.save it with a newer one", file.name);
    return file;
  }
  const ZipEntry& find_pickle() const {
    const ZipEntry* found = nullptr;
    for (const ZipEntry& e : zip_.entries()) {
      if (!e.name.ends_with("/data.pkl")) continue;
      check(found == nullptr, ErrorKind::data, torch_op, "{}: holds more than one data.pkl", file_.name);
      found = &e;
    }
    check(found != nullptr, ErrorKind::data, torch_op, "{}: is no PyTorch file: its ZIP archive holds no data.pkl",
          file_.name);
    return *found;
  }

  /// Calls f(key, value) for each entry of a dict.
  template <class F>
  void each(const PickleValue& dict, F f) const {
    for (std::size_t i = 0; i < dict.items.size(); i += 2) f(pickle_[dict.items[i]], pickle_[dict.items[i + 1]]);
  }
  bool holds_tensors(const PickleValue& v) const {
    bool holds = false;
    if (v.kind == StorageKind::dict)
      each(v, [&](auto&, auto& value) { holds = holds || value.kind == StorageKind::tensor; });
    return holds;
  }

  std::vector<TorchArray> find_arrays() {
    const PickleValue *dict = &pickle_[pickle_.root], *inner = nullptr;
    check(dict->kind == StorageKind::dict, ErrorKind::data, torch_op,
          "{}: holds a {}, not a dict of tensors; save model.state_dict()", file_.name, name_of(dict->kind));
    each(*dict, [&](auto& key, auto& value) {
      const bool wrapper = key.text == "state_dict" || key.text == "model_state_dict" || key.text == "model";
      if (inner == nullptr && key.kind == StorageKind::text && wrapper && holds_tensors(value)) inner = &value;
    });
    if (inner != nullptr) {
      list_others(*dict, inner);
      dict = inner;
    }
    check(holds_tensors(*dict), ErrorKind::data, torch_op, "{}: its dict holds no tensor; save model.state_dict()",
          file_.name);
    list_others(*dict, nullptr);
    std::vector<TorchArray> arrays;
    std::set<std::string_view> names;
    each(*dict, [&](auto& key, auto& value) {
      if (value.kind != StorageKind::tensor) return;
      check(key.kind == StorageKind::text, ErrorKind::data, torch_op, "{}: a tensor is named by a {}, not a text",
            file_.name, name_of(key.kind));
      if (!names.insert(key.text).second)
        fail(ErrorKind::data, torch_op, "{}: two tensors are named {}", file_.name, in_quotes(key.text));
      arrays.push_back(describe(std::string(key.text), value));
    });
    return arrays;
  }

  /// Lists the entries of dict that are neither tensors nor `but`.
  void list_others(const PickleValue& dict, const PickleValue* but) {
    constexpr std::size_t most = 100;
    each(dict, [&](auto& key, auto& value) {
      if (&value == but || (but == nullptr && value.kind == StorageKind::tensor) || left_out_.size() == most) return;
      left_out_.push_back(fmt::format(
          "{} ({})", key.kind == StorageKind::text ? in_quotes(key.text) : name_of(key.kind), name_of(value.kind)));
    });
  }

  Shape shape_of(const PickleValue& tuple, const std::string& name) const {
    if (tuple.items.size() > Shape::max_rank)
      fail(ErrorKind::data, torch_op, "{}: tensor {} has {} axes, at most {} are read", file_.name, in_quotes(name),
           tuple.items.size(), int(Shape::max_rank));
    Shape shape;
    for (auto item : tuple.items) shape.push_back(pickle_[item].number);
    return shape;
  }

  TorchArray describe(const std::string& name, const PickleValue& tensor) const {
    const PickleValue& storage = pickle_[tensor.items[0]];
    const std::string_view type = pickle_[storage.items[0]].text;
    TorchArray a{{name, torch_element_type(type), shape_of(pickle_[tensor.items[2]], name)}, {}, nullptr};
    const Index offset = pickle_[tensor.items[1]].number;
    a.at.strides = shape_of(pickle_[tensor.items[3]], name);
    const bool negative =
        offset < 0 || std::any_of(a.at.strides.begin(), a.at.strides.end(), [](Index s) { return s < 0; });
    if (a.array.type == nullptr || negative)
      fail(ErrorKind::data, torch_op, "{}: tensor {} has a negative offset or stride, or a storage of type {}",
           file_.name, in_quotes(name), in_quotes(type));
    a.at.offset = static_cast<std::size_t>(offset);
    count_elements(a.array, torch_op, file_.name);
    a.storage = zip_.find(folder_ + "data/" + std::string(storage.text));
    if (a.storage == nullptr)
      fail(ErrorKind::data, torch_op, "{}: the storage {} of tensor {} is missing", file_.name, in_quotes(storage.text),
           in_quotes(name));
    const auto elements = static_cast<std::size_t>(storage.number), size = a.array.type->size;
    if (a.storage->size % size != 0 || a.storage->size / size != elements)
      fail(ErrorKind::data, torch_op,
           "{}: the storage {} of tensor {} has {} bytes, not those of {} elements of type {}", file_.name,
           in_quotes(storage.text), in_quotes(name), a.storage->size, elements, a.array.type->name);
    return a;
  }

  const NamedBytes& file_;
  MemoryLimit memory_;
  ZipReader zip_;
  std::string folder_;
  std::vector<std::byte> bytes_;  // the pickle; its texts point here
  Pickle pickle_;
  std::vector<std::string> left_out_;
};

}  // namespace

std::vector<std::string> read_torch(const NamedBytes& file, const RoomFor& room) {
  return TorchReader(file).read(room);
}

}  // namespace trireme
