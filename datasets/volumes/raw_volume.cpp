#include "datasets/volumes/raw_volume.h"

#include "datasets/volumes/dense_voxels.h"
#include "framework/io/bytes.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

constexpr std::size_t longest_sidecar = 65'536;

}  // namespace

RawHeader parse_raw_header(std::string_view text, const std::string& path) {
  const Json json = parse_json(text, 4);
  check(json.is_object(), ErrorKind::data, "volume", "{}: no JSON object that says shape, dtype and byte_order", path);
  const auto at = [&](const char* key) { return json.contains(key) ? json[key] : Json(); };
  for (const char* key : {"order", "strides", "chunks", "filters", "compressor"})  // NumPy's and Zarr's
    check(at(key).is_null() || (at(key) == "C" && key == std::string_view("order")), ErrorKind::data, "volume",
          "{}: \"{}\" is {}; raw numbers are whole, in C's order: write them so, or as .npy or Zarr", path, key,
          [&] { return json_text(at(key), NotUtf8::replaced, -1, true).substr(0, 60); });
  RawHeader header;
  const Json shape = at("shape"), dtype = at("dtype"), order = at("byte_order"), offset = at("offset");
  check(shape.is_array() && shape.size() <= 4, ErrorKind::data, "volume",
        "{}: \"shape\" is no list of two to four extents", path);
  for (const Json& extent : shape) {
    check(extent.is_number_integer(), ErrorKind::data, "volume", "{}: an extent of \"shape\" is no 64-bit number",
          path);
    header.array.push_back(extent.get<Index>());
  }
  check(dtype.is_string(), ErrorKind::data, "volume", "{}: \"dtype\" is no text, such as \"uint16\"", path);
  header.type = find_voxel_type(dtype.get_ref<const std::string&>());
  check(
      header.type != nullptr && header.type->name == dtype.get_ref<const std::string&>(), ErrorKind::data, "volume",
      "{}: \"dtype\" is {}; {} are read", path, [&] { return in_quotes(dtype.get_ref<const std::string&>()); },
      voxel_type_names);
  header.big_endian = order == "big";
  check(header.big_endian || order == "little" || (order.is_null() && header.type->size == 1), ErrorKind::data,
        "volume", "{}: \"byte_order\" must be \"little\" or \"big\"", path);
  check(offset.is_null() || (offset.is_number_integer() && offset.get<Index>() >= 0), ErrorKind::data, "volume",
        "{}: \"offset\" is no number of bytes", path);
  if (!offset.is_null()) header.offset = offset.get<std::size_t>();
  (void)volume_shape(path, header.array, *header.type);
  return header;
}

std::string raw_header_text(const Shape& array, const VoxelType& type) {
  return fmt::format("{{\"shape\": {}, \"dtype\": \"{}\", \"byte_order\": \"little\"}}\n", array, type.name);
}

std::unique_ptr<const VolumeSource> open_raw(const std::string& path) {
  const RawHeader header = parse_raw_header(read_text(path + ".json", longest_sidecar), path + ".json");
  return std::make_unique<DenseVolume>(
      FileReader(path), header.array,
      DenseLayout{.type = header.type, .begin = header.offset, .swapped = header.big_endian});
}

}  // namespace trireme
