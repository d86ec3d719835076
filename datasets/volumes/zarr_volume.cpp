#include "datasets/volumes/zarr_volume.h"

#include <libdeflate.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "datasets/volumes/chunk_codecs.h"
#include "datasets/volumes/dense_voxels.h"
#include "framework/io/bytes.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t longest_text = 65'536;
constexpr Index most_chunk_bytes = Index{1} << 30;
constexpr std::size_t most_ratio = 1032;  // highest compression ratio of deflate

Shape extents(const Json& list, const char* key, const std::string& path) {
  check(list.is_array() && list.size() >= 2 && list.size() <= 4, ErrorKind::data, "volume",
        "{}: \"{}\" is no list of two to four extents", path, key);
  Shape shape;
  for (const Json& extent : list) {
    check(extent.is_number_integer() && extent.get<Index>() >= 1, ErrorKind::data, "volume",
          "{}: an extent of \"{}\" is no number of 1 or more", path, key);
    shape.push_back(extent.get<Index>());
  }
  return shape;
}

/// The bytes of the fill value; null means 0.
std::string fill_bytes(const Json& value, const VoxelType& type, const std::string& path) {
  std::string bytes(static_cast<std::size_t>(type.size), '\0');
  auto* to = reinterpret_cast<std::byte*>(bytes.data());
  bool good = value.is_null();
  if (value.is_number_unsigned() && type.code == "u8") {
    const auto number = value.get<std::uint64_t>();
    std::memcpy(to, &number, sizeof number);
    good = true;
  } else if (value.is_number_integer() && type.is_integer() && value.get<double>() < 0x1p63) {
    const auto number = value.get<std::int64_t>();
    good = type.encode(reinterpret_cast<const std::byte*>(&number), DType::i64, 1, to);
  } else if (value.is_number() || value.is_boolean() || value.is_string()) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double number = value.is_number() ? value.get<double>() : value == true ? 1 : 0;
    if (value.is_string()) number = value == "Infinity" ? infinity : value == "-Infinity" ? -infinity : std::nan("");
    good = !value.is_string() || value == "NaN" || std::isinf(number);
    good = good && type.encode(reinterpret_cast<const std::byte*>(&number), DType::f64, 1, to);
  }
  check(good, ErrorKind::data, "volume", "{}: \"fill_value\" is no {}", path, type.name);
  return bytes;
}

ZarrCompressor compressor_of(const Json& compressor, const std::string& path) {
  if (compressor.is_null()) return ZarrCompressor::none;
  const Json id = compressor.is_object() && compressor.contains("id") ? compressor["id"] : Json();
  if (id == "zlib") return ZarrCompressor::zlib;
  if (id == "gzip") return ZarrCompressor::gzip;
  if (id == "blosc" && blosc_codec() != nullptr) return ZarrCompressor::blosc;
  if (id == "zstd" && zstd_codec() != nullptr) return ZarrCompressor::zstd;
  const bool missing = id == "blosc" || id == "zstd";
  fail(ErrorKind::data, "volume", "{}: compressor {} is not read{}: write the array with zlib, gzip or none", path,
       in_quotes(id.is_string() ? id.get<std::string>() : "without a name"),
       missing ? " by this build, made without libblosc and libzstd (Debian: libblosc-dev libzstd-dev)" : "");
}

/// Whether a name consists of `count` numbers separated by dots.
bool is_numbers(std::string_view name, int count) {
  for (const char c : name) count -= c == '.';
  const bool whole = !name.empty() && name.front() != '.' && name.back() != '.' && name.find("..") == name.npos;
  return whole && count == 1 && name.find_first_not_of("0123456789.") == name.npos;
}

/// The separator in the names of chunk files. A chunk without a file has the fill value, so a wrong separator would
/// give a volume of fill values without an error. Therefore open fails if a folder has files but none with the name of
/// a chunk.
char chunk_separator(const std::string& folder, const ZarrHeader& header) {
  bool dotted = false, nested = false;
  std::string other;
  std::error_code wrong;
  for (fs::directory_iterator i(folder, wrong), end; !wrong && i != end; i.increment(wrong)) {
    const std::string name = i->path().filename().string();
    std::error_code unknown;
    if (name.starts_with('.')) continue;
    if (is_numbers(name, header.array.rank()))
      dotted = true;
    else if (is_numbers(name, 1) && i->is_directory(unknown))
      nested = true;
    else
      other = name;
    if (header.separator == '.' ? dotted : header.separator == '/' ? nested : dotted && nested) break;
  }
  check(!wrong, ErrorKind::file, "volume", "{} cannot be listed: {}", folder, [&] { return wrong.message(); });
  const char found = nested && !dotted ? '/' : '.', said = header.separator;
  check(!(said == '\0' && dotted && nested), ErrorKind::data, "volume",
        "{}: chunk files are named both ways, \"0.0\" and \"0/0\", and .zarray does not say which are of the array: "
        "give it a \"dimension_separator\"",
        folder);
  const bool has_own = said == '/' ? nested : said == '.' ? dotted : dotted || nested;
  if (!has_own && (dotted || nested || !other.empty()))
    fail(ErrorKind::data, "volume",
         "{}: it holds {}, and no chunk file of {} axes that is named as .zarray says{}: all of it would be the fill "
         "value",
         folder,
         dotted   ? "chunk files as \"0.0\""
         : nested ? "chunk files as \"0/0\""
                  : in_quotes(other),
         header.array.rank(), said == '\0' ? "" : fmt::format(" (\"dimension_separator\": \"{}\")", said));
  return said == '\0' ? found : said;
}

class ZarrVolume final : public VolumeSource {
 public:
  ZarrVolume(std::string folder, ZarrHeader header)
      : VolumeSource(folder, header.array, *header.type), folder_(std::move(folder)), header_(std::move(header)) {
    chunk_ = {.shape = volume_shape(folder_, header_.chunk, type()),
              .type = header_.type,
              .order = axis_order(header_.array.rank(), header_.columns_first),
              .swapped = header_.big_endian};
  }

  void read(const Box& box, const VoxelSink& sink) const override {
    Shape first = box.at, count = box.at;
    for (int i = 0; i < 4; ++i) {
      first[i] = box.at[i] / chunk_.shape[i];
      count[i] = (box.at[i] + box.size[i] - 1) / chunk_.shape[i] - first[i] + 1;
    }
    for (Index k = 0; k < count.numel(); ++k) {
      Shape chunk = first;
      for (Index rest = k, i = 4; i-- > 0; rest /= count[static_cast<int>(i)])
        chunk[static_cast<int>(i)] += rest % count[static_cast<int>(i)];
      read_chunk(chunk, box, sink);
    }
  }

 private:
  std::string file_of(const Shape& chunk) const {
    const int axes = header_.array.rank(), skip = axes == 2 ? 1 : 0;  // a picture has its depth axis first
    std::string name = folder_ + "/" + std::to_string(chunk[skip]);
    for (int i = 1; i < axes; ++i) name += header_.separator + std::to_string(chunk[skip + i]);
    return name;
  }
  void read_chunk(const Shape& chunk, const Box& box, const VoxelSink& sink) const {
    Shape origin = chunk;
    for (int i = 0; i < 4; ++i) origin[i] *= chunk_.shape[i];
    const std::string path = file_of(chunk);
    const auto bytes = static_cast<std::size_t>(chunk_.bytes());
    const BlockPart part = part_of_block(origin, chunk_.shape, box);
    // A file that exists but cannot be read, or a broken link, is an error and no missing chunk: FileReader reports it.
    std::error_code unknown;
    if (fs::symlink_status(path, unknown).type() == fs::file_type::not_found) return fill(part, sink);
    const FileReader file(path);
    if (header_.compressor == ZarrCompressor::none) {
      check(file.size() == bytes, ErrorKind::data, "volume", "{}: a chunk of {} has {} bytes, the file {}", path,
            header_.chunk, bytes, file.size());
      return read_dense(file, chunk_, part, sink);
    }
    const bool deflated = header_.compressor == ZarrCompressor::zlib || header_.compressor == ZarrCompressor::gzip;
    check(file.size() <= 2 * bytes + 65'536 && (!deflated || bytes / most_ratio <= file.size()), ErrorKind::data,
          "volume", "{}: {} bytes cannot be a chunk of {}, which has {}", path, file.size(), header_.chunk, bytes);
    std::vector<std::byte> packed(file.size());
    file.read(0, packed);
    // Uninitialized memory: a damaged chunk does not occupy pages.
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    const std::span<std::byte> block(memory.get(), bytes);
    const bool good = header_.compressor == ZarrCompressor::blosc  ? blosc_codec()(packed, block)
                      : header_.compressor == ZarrCompressor::zstd ? zstd_codec()(packed, block)
                                                                   : inflate(packed, block, path);
    check(good, ErrorKind::data, "volume", "{}: truncated or damaged, or no chunk of {} of {}", path, header_.chunk,
          type().name);
    read_dense(block, chunk_, part, sink);
  }
  bool inflate(std::span<const std::byte> packed, std::span<std::byte> block, const std::string& path) const {
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> tool(
        libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
    check(tool != nullptr, ErrorKind::out_of_memory, "volume", "{}: no memory to unpack it", path);
    const auto result =
        header_.compressor == ZarrCompressor::zlib
            ? libdeflate_zlib_decompress(tool.get(), packed.data(), packed.size(), block.data(), block.size(), nullptr)
            : libdeflate_gzip_decompress(tool.get(), packed.data(), packed.size(), block.data(), block.size(), nullptr);
    return result == LIBDEFLATE_SUCCESS;
  }
  void fill(const BlockPart& part, const VoxelSink& sink) const {
    constexpr Index most = 4096;
    std::string values;
    for (Index i = std::min(most, part.inside.size.numel()); i > 0; --i) values += header_.fill;
    visit_runs(chunk_, part, [&](const VoxelRuns& r) {
      for (Index i = 0; i < r.runs; ++i)
        for (Index begin = 0; begin < r.n; begin += most)
          sink(reinterpret_cast<const std::byte*>(values.data()), std::min(most, r.n - begin),
               r.at + i * r.run_step + begin * r.step, r.step);
    });
  }

  std::string folder_;
  ZarrHeader header_;
  DenseLayout chunk_;  // layout of a chunk, in [D, H, W, C]
};

}  // namespace

ZarrHeader parse_zarr_header(std::string_view text, const std::string& path) {
  const Json json = parse_json(text, 4);
  check(json.is_object(), ErrorKind::data, "volume", "{}: no JSON object", path);
  const auto at = [&](const char* key) { return json.contains(key) ? json[key] : Json(); };
  check(at("zarr_format") == 2, ErrorKind::data, "volume", "{}: \"zarr_format\" is not 2: only Zarr v2 is supported",
        path);
  ZarrHeader header;
  header.array = extents(at("shape"), "shape", path);
  header.chunk = extents(at("chunks"), "chunks", path);
  check(header.array.rank() == header.chunk.rank(), ErrorKind::data, "volume", "{}: chunks of {} of an array of {}",
        path, header.chunk, header.array);
  const Json dtype = at("dtype"), order = at("order"), separator = at("dimension_separator"), filters = at("filters");
  const std::string code = dtype.is_string() ? dtype.get<std::string>() : "";
  if (code.size() == 3 && std::string_view("<>|").find(code[0]) != std::string_view::npos)
    header.type = find_voxel_type(std::string_view(code).substr(1));
  check(
      header.type != nullptr, ErrorKind::data, "volume", "{}: \"dtype\" is {}; {} are read, as \"<u2\"", path,
      [&] { return in_quotes(code); }, voxel_type_names);
  header.big_endian = code[0] == '>';
  check(order == "C" || order == "F", ErrorKind::data, "volume", "{}: \"order\" is neither \"C\" nor \"F\"", path);
  header.columns_first = order == "F";
  check(filters.is_null() || (filters.is_array() && filters.empty()), ErrorKind::data, "volume",
        "{}: \"filters\" are not read: write the array without them", path);
  check(separator.is_null() || separator == "." || separator == "/", ErrorKind::data, "volume",
        "{}: \"dimension_separator\" is neither \".\" nor \"/\"", path);
  header.separator = separator.is_null() ? '\0' : separator == "/" ? '/' : '.';
  header.compressor = compressor_of(at("compressor"), path);
  header.fill = fill_bytes(at("fill_value"), *header.type, path);
  (void)volume_shape(path, header.array, *header.type);
  const Shape chunk = volume_shape(path, header.chunk, *header.type);
  check(chunk.numel() * header.type->size <= most_chunk_bytes, ErrorKind::data, "volume",
        "{}: chunks of {} have more than 2^30 bytes: write smaller ones", path, header.chunk);
  return header;
}

std::unique_ptr<const VolumeSource> open_zarr(const std::string& folder) {
  std::error_code unknown;
  const std::string file = folder + "/.zarray";
  if (!fs::exists(file, unknown)) {
    check(!fs::exists(folder + "/zarr.json", unknown), ErrorKind::data, "volume",
          "{}: Zarr v3 is not read: write the array with zarr_format=2", folder);
    check(!fs::exists(folder + "/.zgroup", unknown), ErrorKind::data, "volume",
          "{}: a group of Zarr: name one of its arrays", folder);
    fail(ErrorKind::data, "volume", "{}: a folder without .zarray, so no Zarr v2 array", folder);
  }
  ZarrHeader header = parse_zarr_header(read_text(file, longest_text), file);
  header.separator = chunk_separator(folder, header);
  return std::make_unique<ZarrVolume>(folder, std::move(header));
}

}  // namespace trireme
