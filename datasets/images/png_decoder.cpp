#include "datasets/images/png_decoder.h"

#include <png.h>

#include <cstdio>
#include <cstring>

namespace trireme {
namespace {

constexpr std::string_view png_op = "image";

/// libpng reports errors by longjmp. So the functions that call setjmp have no local objects with destructors; all
/// state is in this class.
class PngDecoder {
 public:
  explicit PngDecoder(std::span<const std::byte> bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    if (info_ == nullptr) png_destroy_read_struct(&png_, nullptr, nullptr);
    check(info_ != nullptr, ErrorKind::out_of_memory, png_op, "libpng cannot start");
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  /// Reads up to the first pixel row. Rows will be RGB with 8 bits. Returns false after an error; see message.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_read_info(png_, info_);
    width = png_get_image_width(png_, info_);
    height = png_get_image_height(png_, info_);
    bits = png_get_bit_depth(png_, info_);
    png_set_expand(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    return true;
  }
  /// pixels: height x width x 3.
  bool read_pixels(std::uint8_t* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_update_info(png_, info_);
    const std::size_t row = std::size_t{width} * 3;
    if (png_get_rowbytes(png_, info_) != row) png_error(png_, "unexpected row size");
    for (int pass = 0; pass < passes_; ++pass)
      for (std::size_t y = 0; y < height; ++y) png_read_row(png_, pixels + y * row, nullptr);
    png_read_end(png_, nullptr);
    return true;
  }

  png_uint_32 width = 0, height = 0;
  int bits = 8;  ///< per channel, in the file
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

}  // namespace

void decode_png(std::span<const std::byte> bytes, int channels, PixelBlock& block, std::string_view source,
                Index max_pixels) {
  PngDecoder png(bytes);
  const auto ok = [&](bool done) { check(done, ErrorKind::data, png_op, "{}: damaged PNG: {}", source, png.message); };
  ok(png.read_header());
  check(png.bits <= 8, ErrorKind::data, png_op, "{}: is a {}-bit PNG, only 8 bits are read: convert it first", source,
        png.bits);
  const Index width = png.width, height = png.height, pixels = width * height;
  check_room(width, height, 0, bytes.size(), max_pixels, source);
  check_room(width, height, 3 * pixels, bytes.size(), max_pixels, source);
  block.left = block.top = 0;
  block.width = width;
  block.height = height;
  block.channels = channels;
  block.reduction = 1;
  block.values.resize(static_cast<std::size_t>(3 * pixels));
  std::uint8_t* values = block.values.data();
  ok(png.read_pixels(values));
  if (channels == 3) return;
  for (Index i = 0; i < pixels; ++i) {  // Rec. 601 luma in 16-bit fixed point; grey pixels keep their value
    const std::uint8_t* rgb = values + 3 * i;
    values[i] = static_cast<std::uint8_t>((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
  }
  block.values.resize(static_cast<std::size_t>(pixels));
}

}  // namespace trireme
