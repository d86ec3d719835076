#include "datasets/volumes/tiff_volume.h"

#include <fmt/ranges.h>
#include <tiffio.h>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "datasets/volumes/dense_voxels.h"
#include "framework/io/bytes.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

constexpr Index most_strip_bytes = Index{1} << 29;
constexpr tmsize_t most_library_bytes = tmsize_t{1} << 28;  // most memory that libtiff allocates for one block

/// The file as libtiff reads it, and libtiff's last error message.
struct TiffFile {
  explicit TiffFile(const std::string& path) : reader(path) {}
  FileReader reader;
  std::size_t at = 0;
  std::string said;
};
TiffFile& file_of(thandle_t handle) { return *static_cast<TiffFile*>(handle); }

tmsize_t read_file(thandle_t handle, void* to, tmsize_t size) {
  TiffFile& f = file_of(handle);
  const std::size_t left = f.reader.size() - std::min(f.at, f.reader.size());
  const std::size_t n = std::min(left, static_cast<std::size_t>(std::max<tmsize_t>(size, 0)));
  try {
    f.reader.read(std::min(f.at, f.reader.size()), {static_cast<std::byte*>(to), n});
  } catch (const Error&) { return -1; }
  f.at += n;
  return static_cast<tmsize_t>(n);
}
tmsize_t write_file(thandle_t, void*, tmsize_t) { return -1; }
toff_t seek_file(thandle_t handle, toff_t offset, int whence) {
  TiffFile& f = file_of(handle);
  f.at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? f.at + offset : f.reader.size() + offset;
  return f.at;
}
int close_file(thandle_t) { return 0; }
toff_t size_of_file(thandle_t handle) { return file_of(handle).reader.size(); }
int keep_error(TIFF*, void* user, const char*, const char* format, va_list arguments) {
  char text[160];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string& said = static_cast<TiffFile*>(user)->said;
  if (said.empty()) said = in_quotes(text);
  return 1;  // 1: libtiff prints nothing itself
}
int keep_quiet(TIFF*, void*, const char*, const char*, va_list) { return 1; }

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using Tiff = std::unique_ptr<TIFF, CloseTiff>;

Tiff open_file(TiffFile& file) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 &TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), keep_error, &file);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), keep_quiet, &file);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), most_library_bytes);
  // m: no memory mapping
  return Tiff(TIFFClientOpenExt("volume", "rm", &file, read_file, write_file, seek_file, close_file, size_of_file,
                                nullptr, nullptr, options.get()));
}

/// A TIFF handle for one thread: it has a current page.
struct TiffHandle {
  explicit TiffHandle(const std::string& path) : file(path), tiff(open_file(file)) {
    check(tiff != nullptr, ErrorKind::data, "volume", "{}: no TIFF: {}", path, file.said);
  }
  TiffFile file;
  Tiff tiff;
};

/// Properties that all pages must share.
struct PageForm {
  std::uint32_t width = 0, height = 0;
  std::uint16_t bits = 1, channels = 1, format = SAMPLEFORMAT_UINT;
  bool operator==(const PageForm&) const = default;
};

/// Whether the page is uncompressed, so that its bytes are the samples.
bool is_plain(TIFF* tiff) {
  std::uint16_t compression = COMPRESSION_NONE, fill_order = FILLORDER_MSB2LSB;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_FILLORDER, &fill_order);
  return compression == COMPRESSION_NONE && fill_order == FILLORDER_MSB2LSB;
}

class TiffVolume final : public VolumeSource {
 public:
  TiffVolume(const FileReader& file, const Shape& array, const VoxelType& type, std::vector<std::uint64_t> pages)
      : VolumeSource(file.path(), array, type), file_(file), pages_(std::move(pages)) {}

  void read(const Box& box, const VoxelSink& sink) const override {
    TiffHandle handle(file_.path);
    file_.check_same(handle.file.reader);
    for (Index d = box.at[0]; d < box.at[0] + box.size[0]; ++d) {
      handle.file.said.clear();
      check(TIFFSetSubDirectory(handle.tiff.get(), pages_[static_cast<std::size_t>(d)]) == 1, ErrorKind::data, "volume",
            "{}: page {} cannot be read: {}", file_.path, d, handle.file.said);
      read_page(handle, d, box, sink);
    }
  }

 private:
  void read_page(TiffHandle& handle, Index page, const Box& box, const VoxelSink& sink) const {
    TIFF* const tiff = handle.tiff.get();
    std::uint32_t width = static_cast<std::uint32_t>(shape()[2]), height = static_cast<std::uint32_t>(shape()[1]);
    const bool tiled = TIFFIsTiled(tiff) != 0;
    if (tiled) {
      TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width);
      TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height);
    } else {
      std::uint32_t rows = height;
      TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &rows);
      height = std::min(height, rows);
    }
    const Index bytes = tiled ? TIFFTileSize(tiff) : TIFFStripSize(tiff);
    DenseLayout block{.shape = {1, height, width, shape()[3]}, .type = &type()};
    const bool few = std::uint64_t{width} * height <= std::uint64_t{most_strip_bytes};  // before the multiplication,
                                                                                        // which could overflow
    check(few && bytes > 0 && bytes <= most_strip_bytes && block.bytes() == bytes, ErrorKind::data, "volume",
          "{}: page {} has {} of {} x {} pixels and {} bytes; at most 2^29 bytes are read", file_.path, page,
          tiled ? "tiles" : "strips", height, width, bytes);
    const bool plain = is_plain(tiff);
    const Index across = (shape()[2] + width - 1) / width;
    for (Index y = box.at[1] / height; y * height < box.at[1] + box.size[1]; ++y)
      for (Index x = box.at[2] / width; x * width < box.at[2] + box.size[2]; ++x) {
        // The last strip has only the remaining rows.
        if (!tiled) block.shape[1] = std::min<Index>(height, shape()[1] - y * height);
        const BlockPart part = part_of_block({page, y * height, x * width, 0}, block.shape, box);
        read_block(handle, static_cast<std::uint32_t>(y * across + x), page, tiled, plain, block, part, sink);
      }
  }
  void read_block(TiffHandle& handle, std::uint32_t number, Index page, bool tiled, bool plain, DenseLayout block,
                  const BlockPart& part, const VoxelSink& sink) const {
    TIFF* const tiff = handle.tiff.get();
    if (plain) {  // uncompressed: read only the needed rows
      block.begin = TIFFGetStrileOffset(tiff, number);
      block.swapped = TIFFIsByteSwapped(tiff) != 0;
      const std::uint64_t held = TIFFGetStrileByteCount(tiff, number);
      check(held >= static_cast<std::uint64_t>(block.bytes()) && block.begin <= handle.file.reader.size(),
            ErrorKind::data, "volume", "{}: {} {} of page {} has {} bytes of {}", file_.path, tiled ? "tile" : "strip",
            number, page, held, block.bytes());
      return read_dense(handle.file.reader, block, part, sink);
    }
    const auto bytes = static_cast<std::size_t>(block.bytes());
    const auto unpacked = std::make_unique_for_overwrite<std::byte[]>(bytes);
    handle.file.said.clear();
    const auto n = static_cast<tmsize_t>(bytes);
    const tmsize_t got = tiled ? TIFFReadEncodedTile(tiff, number, unpacked.get(), n)
                               : TIFFReadEncodedStrip(tiff, number, unpacked.get(), n);
    check(got == n, ErrorKind::data, "volume", "{}: {} {} of page {} cannot be unpacked: {}", file_.path,
          tiled ? "tile" : "strip", number, page,
          [&] { return handle.file.said.empty() ? "it is cut short" : handle.file.said; });
    read_dense({unpacked.get(), bytes}, block, part, sink);
  }

  OpenedFile file_;
  std::vector<std::uint64_t> pages_;  // offsets of the pages' directories
};

const VoxelType* type_of(const PageForm& form) {
  const char* kind = form.format == SAMPLEFORMAT_UINT ? "u" : form.format == SAMPLEFORMAT_INT ? "i" : "f";
  if (form.format > SAMPLEFORMAT_IEEEFP || form.bits % 8 != 0) return nullptr;
  return find_voxel_type(kind + std::to_string(form.bits / 8));
}

/// Properties of the current page. Throws Error for unsupported pages.
PageForm look(TIFF* tiff, const TiffFile& file, std::size_t page) {
  const std::string& path = file.reader.path();
  PageForm form;
  std::uint16_t planes = PLANARCONFIG_CONTIG, colours = PHOTOMETRIC_MINISBLACK;
  const bool sized = TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &form.width) == 1 &&
                     TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &form.height) == 1;
  check(sized && form.width > 0 && form.height > 0, ErrorKind::data, "volume", "{}: page {} has no size", path, page);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &form.bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &form.channels);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &form.format);
  if (form.format == SAMPLEFORMAT_VOID) form.format = SAMPLEFORMAT_UINT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planes);
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &colours);
  check(type_of(form) != nullptr, ErrorKind::data, "volume",
        "{}: page {} has samples of {} bits in format {}; integers of 8 to 64 bits and floats of 16 to 64 are read",
        path, page, form.bits, form.format);
  check(form.channels == 1 || planes == PLANARCONFIG_CONTIG, ErrorKind::data, "volume",
        "{}: page {} stores its {} channels as separate planes; write interleaved channels", path, page, form.channels);
  check(form.channels >= 1 &&
            (colours == PHOTOMETRIC_MINISBLACK || colours == PHOTOMETRIC_MINISWHITE || colours == PHOTOMETRIC_RGB),
        ErrorKind::data, "volume", "{}: page {} has colours by photometric interpretation {}: save it as grey or RGB",
        path, page, colours);
  std::uint32_t slices = 1, tile_slices = 1;  // slices per page, by SGI's tags
  TIFFGetField(tiff, TIFFTAG_IMAGEDEPTH, &slices);
  TIFFGetField(tiff, TIFFTAG_TILEDEPTH, &tile_slices);
  check(slices == 1 && tile_slices == 1, ErrorKind::data, "volume",
        "{}: page {} holds {} slices in 3-D tiles of {}, which are not read: write a page for each slice", path, page,
        slices, tile_slices);
  const std::uint32_t last = (TIFFIsTiled(tiff) ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff)) - 1;
  const std::uint64_t offset = TIFFGetStrileOffset(tiff, last), bytes = TIFFGetStrileByteCount(tiff, last);
  check(offset <= file.reader.size() && bytes <= file.reader.size() - offset, ErrorKind::data, "volume",
        "{}: cut short: page {} ends at byte {}, the file has {}", path, page, offset + bytes, file.reader.size());
  return form;
}

/// The description of the current page; empty if it has none.
std::string_view description_of(TIFF* tiff) {
  const char* text = nullptr;
  return TIFFGetField(tiff, TIFFTAG_IMAGEDESCRIPTION, &text) == 1 ? text : "";
}

/// The number after the first `key` of a text; `none` without key or number.
Index number_after(std::string_view text, std::string_view key, Index none) {
  const auto at = text.find(key);
  Index number = none;
  if (at != text.npos) std::from_chars(text.data() + at + key.size(), text.data() + text.size(), number);
  return number;
}

/// The extents in which page 0's description arranges the pages: ImageJ's channels, slices and frames, the same of
/// OME-XML's first picture, or the leading extents of tifffile's shape. Extents of 1 and unknown extents are omitted.
std::vector<Index> arrangement_of(std::string_view description, const PageForm& form) {
  std::vector<Index> extents;
  if (description.starts_with("ImageJ=")) {
    for (const char* key : {"\nframes=", "\nslices=", "\nchannels="})
      extents.push_back(number_after(description, key, 1));
  } else if (const auto at = description.find("<Pixels "); at != description.npos) {
    const std::string_view pixels = description.substr(at, description.find('>', at) - at);
    for (const char* key : {" SizeT=\"", " SizeZ=\"", " SizeC=\""}) extents.push_back(number_after(pixels, key, 1));
    extents[2] /= form.channels;  // tifffile's count includes the samples per pixel
  } else if (description.starts_with("{\"shape\":")) {
    const Json json = parse_json(description, 3);
    if (json.is_object() && json.contains("shape") && json["shape"].is_array())
      for (const Json& extent : json["shape"]) extents.push_back(extent.is_number_integer() ? extent.get<Index>() : 1);
    std::erase(extents, 1);
    for (const Index extent : {Index{form.channels}, Index{form.width}, Index{form.height}}) {
      if (extent == 1) continue;
      if (extents.empty() || extents.back() != extent) return {};  // of another layout
      extents.pop_back();
    }
  }
  std::erase_if(extents, [](Index extent) { return extent <= 1; });
  return extents;
}

/// Number of slices that a file with a single page describes. ImageJ (above 4 GiB) and tifffile (truncate=True) write
/// the other slices after the first one, without pages. 0: no such description.
Index slices_of(std::string_view description, const PageForm& form) {
  Index slices = 0;
  if (description.starts_with("ImageJ=")) {
    slices = number_after(description, "\nimages=", 0);
  } else if (description.starts_with('{')) {
    const Json json = parse_json(description, 3);
    const bool whole = json.is_object() && json.contains("truncated") && json["truncated"] == true &&
                       json.contains("shape") && json["shape"].is_array();
    slices = whole ? 1 : 0;
    const Json shape = whole ? json["shape"] : Json::array();
    for (const Json& extent : shape)
      if (!extent.is_number_integer() || __builtin_mul_overflow(slices, extent.get<Index>(), &slices)) return 0;
    slices = slices / form.width / form.height / form.channels;
  }
  return slices;
}

/// The volume of such a file. Throws Error unless the slices are contiguous and uncompressed.
std::unique_ptr<const VolumeSource> stack(TIFF* tiff, const PageForm& form, const Shape& array,
                                          const FileReader& file) {
  std::uint32_t rows = form.height;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &rows);
  const DenseLayout layout{
      .type = type_of(form), .begin = TIFFGetStrileOffset(tiff, 0), .swapped = TIFFIsByteSwapped(tiff) != 0};
  const std::uint32_t last = TIFFIsTiled(tiff) ? 0 : TIFFNumberOfStrips(tiff) - 1;
  const std::uint64_t row = std::uint64_t{form.width} * form.channels * (form.bits / 8U);
  check(!TIFFIsTiled(tiff) && is_plain(tiff) &&
            TIFFGetStrileOffset(tiff, last) == layout.begin + last * row * std::min(rows, form.height),
        ErrorKind::data, "volume",
        "{}: its description says {} slices, but it has one page, compressed or in pieces: write a page for each, or "
        "remove the description",
        file.path(), array[0]);
  return std::make_unique<DenseVolume>(file, array, layout, true);
}

}  // namespace

std::unique_ptr<const VolumeSource> open_tiff(const std::string& path) {
  TiffHandle handle(path);
  TIFF* const tiff = handle.tiff.get();
  std::string& said = handle.file.said;
  PageForm form;
  std::vector<std::uint64_t> pages;
  do {
    std::uint32_t kind = 0;
    if (TIFFGetField(tiff, TIFFTAG_SUBFILETYPE, &kind) == 1 && (kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) != 0)
      continue;
    const PageForm here = look(tiff, handle.file, pages.size());
    if (pages.empty()) form = here;
    check(here == form, ErrorKind::data, "volume",
          "{}: page {} is {} x {} of {} channels of {} bits, page 0 {} x {} of {} of {}: a volume's are alike", path,
          pages.size(), here.height, here.width, here.channels, here.bits, form.height, form.width, form.channels,
          form.bits);
    pages.push_back(TIFFCurrentDirOffset(tiff));
  } while (said.clear(), TIFFReadDirectory(tiff) == 1);
  if (said.empty() && TIFFLastDirectory(tiff) != 1) said = "the page directories form a loop";
  check(said.empty() && !pages.empty(), ErrorKind::data, "volume", "{}: the page after page {} cannot be read: {}",
        path, std::ssize(pages) - 1, said);
  check(TIFFSetSubDirectory(tiff, pages[0]) == 1, ErrorKind::data, "volume", "{}: page 0 cannot be read: {}", path,
        said);
  const std::string_view description = description_of(tiff);
  const std::vector<Index> arranged = arrangement_of(description, form);
  check(arranged.size() <= 1, ErrorKind::data, "volume",
        "{}: its description arranges the pages as {}, for example channels or times by slices; all pages of a volume "
        "are its slices, so write a file for each channel and time",
        path, [&] { return fmt::format("{}", fmt::join(arranged, " x ")).substr(0, 100); });
  const Index slices = pages.size() == 1 ? slices_of(description, form) : 0;
  const Index depth = std::max<Index>(std::ssize(pages), slices);
  const Shape picture{form.height, form.width}, grey{depth, form.height, form.width};
  const Shape array = form.channels > 1 ? Shape{depth, form.height, form.width, form.channels}
                      : depth == 1      ? picture
                                        : grey;
  if (slices > 1) return stack(tiff, form, array, handle.file.reader);
  return std::make_unique<TiffVolume>(handle.file.reader, array, *type_of(form), std::move(pages));
}

}  // namespace trireme
