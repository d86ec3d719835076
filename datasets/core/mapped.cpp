#include "datasets/core/mapped.h"

#include "framework/io/element_type.h"
#include "framework/io/foreign/npz.h"
#include "framework/io/safetensors.h"
#include "framework/tensor/storage.h"

namespace trireme {
namespace {

/// A tensor of elements in a mapped file. It keeps the file mapped.
Tensor on_pages(std::shared_ptr<FileReader> file, std::span<const std::byte> elements, const Shape& shape,
                DType dtype) {
  const auto size = static_cast<std::uintptr_t>(size_of(dtype));
  auto* first = const_cast<std::byte*>(elements.data());  // mapped by map(false, true): writes are private
  if (reinterpret_cast<std::uintptr_t>(first) % size != 0 || elements.empty())
    return Tensor::from_bytes(elements, shape, dtype);
  auto block = std::make_shared<detail::Storage>(first, elements.size(), cpu(), [file = std::move(file)] {});
  return detail::wrap(std::move(block), 0, shape, dtype);
}

}  // namespace

Tensor map_npy(const std::string& path) {
  auto file = std::make_shared<FileReader>(path);
  const auto bytes = file->map(false, true);
  const NpyLayout layout = npy_layout(NamedBytes{path, bytes});
  return on_pages(file, bytes.subspan(layout.begin), layout.shape, layout.dtype);
}

MappedSafetensors::MappedSafetensors(const std::string& path)
    : file_((SafetensorsReader(path), std::make_shared<FileReader>(path))),  // SafetensorsReader gives the reason for
                                                                             // each kind of invalid file
      bytes_(file_->map(false, true)) {
  const auto size = safetensors_header_size(bytes_.first(std::min<std::size_t>(bytes_.size(), 8)), bytes_.size());
  header_ = parse_safetensors(bytes_.first(size), bytes_.size());
}
Tensor MappedSafetensors::tensor(const SafetensorsEntry& e, DType dtype) const {
  const Shape shape(e.shape);
  check(checked_bytes("map_safetensors", shape, dtype) == e.end - e.begin, ErrorKind::data, "map_safetensors",
        "{}: '{}' has {} bytes, {} of {} has others", file_->path(), e.name, e.end - e.begin, shape, dtype);
  return on_pages(file_, bytes_.subspan(header_.data_offset + e.begin, e.end - e.begin), shape, dtype);
}

Tensor map_safetensors(const std::string& path, const std::string& name) {
  const MappedSafetensors file(path);
  for (const SafetensorsEntry& e : file.header().entries)
    if (e.name == name) {
      const ElementType* type = find_element_type(e.dtype);
      check(type && type->as_is, ErrorKind::data, "map_safetensors",
            "{}: '{}' has elements of type {}, which are converted when read", path, name, e.dtype);
      return file.tensor(e, type->becomes);
    }
  fail(ErrorKind::data, "map_safetensors", "{}: there is no tensor '{}'", path, name);
}

}  // namespace trireme
