#include "datasets/image.h"

#include <png.h>
#include <turbojpeg.h>

#include <cstdio>
#include <cstring>

#include "datasets/files.h"

namespace trireme {
namespace {

constexpr std::string_view op = "image";

void check_size(Index width, Index height, Index max_pixels, const std::string& source) {
  check(width > 0 && height > 0 && width <= max_pixels / height, op,
        "{}: {} x {} pixels, at most {} in all are decoded", source, width, height, max_pixels);
}

/// Rec. 601 luma in 16-bit fixed point.
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

/// libpng reports errors by longjmp, so the two functions that call setjmp keep nothing in their frames that
/// has a destructor; all state lies here.
class PngDecoder {
 public:
  explicit PngDecoder(std::span<const std::byte> bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    if (info_ == nullptr) png_destroy_read_struct(&png_, nullptr, nullptr);
    check(info_ != nullptr, op, "libpng cannot start");
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// Reads up to the first pixel row. Rows will be grey or RGB, 8 bits. False: see message.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_read_info(png_, info_);
    width = png_get_image_width(png_, info_);
    height = png_get_image_height(png_, info_);
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    passes_ = png_set_interlace_handling(png_);
    grey = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) == 0;
    return true;
  }
  /// pixels: height x width x (1 if grey, else 3).
  bool read_pixels(std::uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_update_info(png_, info_);
    const std::size_t row = std::size_t{width} * (grey ? 1 : 3);
    if (png_get_rowbytes(png_, info_) != row) png_error(png_, "unexpected row size");
    for (int pass = 0; pass < passes_; ++pass)
      for (std::size_t y = 0; y < height; ++y) png_read_row(png_, pixels + y * row, nullptr);
    png_read_end(png_, nullptr);
    return true;
  }

  png_uint_32 width = 0, height = 0;
  bool grey = false;
  char message[128] = {};

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngDecoder*>(png_get_error_ptr(png));
    std::snprintf(self->message, sizeof self->message, "%s", text);
    png_longjmp(png, 1);
  }
  static void on_read(png_structp png, png_bytep to, std::size_t n) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (n > self->rest_.size()) png_error(png, "the data ends too early");
    std::memcpy(to, self->rest_.data(), n);
    self->rest_ = self->rest_.subspan(n);
  }

  std::span<const std::byte> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
};

Tensor decode_png(std::span<const std::byte> bytes, int channels, const std::string& source, Index max_pixels) {
  PngDecoder png(bytes);
  const auto ok = [&](bool done) { check(done, op, "{}: damaged PNG: {}", source, png.message); };
  ok(png.read_header());
  check_size(png.width, png.height, max_pixels, source);
  Tensor read = Tensor::empty({png.height, png.width, png.grey ? 1 : 3}, DType::u8);
  ok(png.read_pixels(read.data<std::uint8_t>()));
  if (read.dim(2) == channels) return read;

  Tensor image = Tensor::empty({png.height, png.width, channels}, DType::u8);
  const auto* from = read.data<std::uint8_t>();
  auto* to = image.data<std::uint8_t>();
  for (Index i = 0, n = read.shape().product(0, 2); i < n; ++i)
    if (channels == 1)
      to[i] = luma(from + 3 * i);
    else
      to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = from[i];
  return image;
}

Tensor decode_jpeg(std::span<const std::byte> bytes, int channels, const std::string& source, Index max_pixels) {
  std::unique_ptr<void, int (*)(tjhandle)> jpeg(tjInitDecompress(), tjDestroy);
  check(jpeg != nullptr, op, "libjpeg-turbo cannot start");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, subsampling = 0, colors = 0;
  const int header = tjDecompressHeader3(jpeg.get(), data, bytes.size(), &width, &height, &subsampling, &colors);
  check(header == 0, op, "{}: damaged JPEG: {}", source, tjGetErrorStr2(jpeg.get()));
  // Tables alone are a legal JPEG.
  check(width > 0 && height > 0, op, "{}: damaged JPEG: it holds no image", source);
  check(colors != TJCS_CMYK && colors != TJCS_YCCK, op,
        "{}: is a CMYK image, only grey and RGB are read: convert it first", source);
  check_size(width, height, max_pixels, source);
  Tensor image = Tensor::empty({height, width, channels}, DType::u8);
  const int status = tjDecompress2(jpeg.get(), data, bytes.size(), image.data<unsigned char>(), width, 0, height,
                                   channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  // Warnings about stray bytes are common in the wild and harmless; missing pixels are not.
  const std::string_view text = status == 0 ? "" : tjGetErrorStr2(jpeg.get());
  const bool whole = tjGetErrorCode(jpeg.get()) != TJERR_FATAL && text.find("Premature end") == text.npos;
  check(status == 0 || whole, op, "{}: damaged JPEG: {}", source, text);
  return image;
}

bool begins_with(std::span<const std::byte> bytes, std::string_view signature) {
  return bytes.size() >= signature.size() && std::memcmp(bytes.data(), signature.data(), signature.size()) == 0;
}

}  // namespace

Tensor decode_image(std::span<const std::byte> bytes, int channels, const std::string& source, Index max_pixels) {
  check(channels == 1 || channels == 3, op, "channels is {}, it must be 1 (grey) or 3 (RGB)", channels);
  check(!bytes.empty(), op, "{}: is empty", source);
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return decode_png(bytes, channels, source, max_pixels);
  if (begins_with(bytes, "\xff\xd8\xff")) return decode_jpeg(bytes, channels, source, max_pixels);
  fail(op, "{}: is neither PNG nor JPEG", source);
}

Tensor read_image(const std::string& path, int channels) { return decode_image(read_bytes(path), channels, path); }

}  // namespace trireme
