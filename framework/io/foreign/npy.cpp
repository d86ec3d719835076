#include "framework/io/foreign/npy.h"

#include <algorithm>
#include <span>
#include <utility>

#include "framework/io/file.h"
#include "framework/io/foreign/npz.h"

namespace trireme {

Tensor read_npy(const std::string& path) {
  FileReader file(path);
  Tensor t;
  read_npy(NamedBytes{path, file.map()}, [&](const FileArray& array) {
    t = Tensor::empty(array.shape, array.type->becomes);
    return t.data<std::byte>();
  });
  return t;
}

std::string npy_front(const Shape& extents, std::string_view descr) {
  std::string shape;
  for (const Index extent : extents) shape += std::to_string(extent) + ", ";
  if (extents.rank() > 1) shape.resize(shape.size() - 2);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr,
                                   extents.rank() == 1 ? shape.substr(0, shape.size() - 1) : shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const auto size = static_cast<std::uint16_t>(header.size());
  std::string front("\x93NUMPY\x01\x00", 8);
  front += static_cast<char>(size & 255);
  front += static_cast<char>(size >> 8);
  return front + header;
}

void write_npy(const std::string& path, const Tensor& given) {
  check(given.defined(), "npy", "{}: the tensor is undefined", path);
  const Tensor t = given.detach().to(cpu());
  constexpr std::pair<DType, std::string_view> types[] = {
      {DType::f32, "<f4"}, {DType::f64, "<f8"}, {DType::f16, "<f2"}, {DType::i32, "<i4"},    {DType::i64, "<i8"},
      {DType::u8, "|u1"},  {DType::i8, "|i1"},  {DType::i16, "<i2"}, {DType::boolean, "|b1"}};
  const auto type = std::ranges::find(types, t.dtype(), &std::pair<DType, std::string_view>::first);
  check(type != std::end(types), "npy", "{}: NumPy has no type {}: convert with to(DType)", path, t.dtype());
  const std::string front = npy_front(t.shape(), type->second);
  const auto elements = std::span(t.data<const std::byte>(), static_cast<std::size_t>(t.view().bytes()));
  replace_file(path, front.size() + elements.size(), [&](FileWriter& file) {
    file.write(std::as_bytes(std::span(front)));
    file.write(elements);
  });
}

}  // namespace trireme
