#include "datasets/images/jpeg_decoder.h"

#include <csetjmp>
#include <cstdio>
// libjpeg's headers need stdio.h first.
#include <jerror.h>
#include <jpeglib.h>

namespace trireme {
namespace {

constexpr std::string_view op = "image";
/// Fancy upsampling of chroma reads neighbouring pixels.
constexpr Index margin = 4;
constexpr int most_scans = 100;  // of a progressive file; each scan costs time for only a few bytes

}  // namespace

/// libjpeg reports errors by longjmp. So functions that call setjmp have no local objects with destructors; all state
/// is in this struct.
struct JpegDecoder::State {
  State() {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr c) { static_cast<State*>(c->client_data)->leave(); };
    errors.emit_message = [](j_common_ptr c, int level) {
      if (level < 0 && loses_pixels(c->err->msg_code)) static_cast<State*>(c->client_data)->leave();
    };
    errors.output_message = [](j_common_ptr) {};
    progress.progress_monitor = [](j_common_ptr c) {
      auto* self = static_cast<State*>(c->client_data);
      if (self->jpeg.input_scan_number <= most_scans) return;
      std::snprintf(self->message, sizeof self->message, "it has more than %d scans", most_scans);
      std::longjmp(self->back, 1);
    };
    jpeg.client_data = this;
  }
  ~State() { jpeg_destroy_decompress(&jpeg); }

  static bool loses_pixels(int warning) {
    return warning != JWRN_EXTRANEOUS_DATA && warning != JWRN_ADOBE_XFORM && warning != JWRN_JFIF_MAJOR &&
           warning != JWRN_NOT_SEQUENTIAL && warning != JWRN_TOO_MUCH_DATA && warning != JWRN_BOGUS_PROGRESSION;
  }
  [[noreturn]] void leave() {
    errors.format_message(reinterpret_cast<j_common_ptr>(&jpeg), message);
    std::longjmp(back, 1);
  }
  /// Returns false after an error; see message. So do the functions below.
  bool read_header(const unsigned char* data, unsigned long size) {
    if (setjmp(back) != 0) return false;
    // A new decompressor: else tables of the previous image would replace missing ones.
    jpeg_destroy_decompress(&jpeg);
    jpeg_create_decompress(&jpeg);
    jpeg.progress = &progress;
    jpeg_mem_src(&jpeg, data, size);
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  bool start(int reduction, int channels, JDIMENSION left, JDIMENSION width) {
    if (setjmp(back) != 0) return false;
    jpeg.scale_num = 1;
    jpeg.scale_denom = static_cast<unsigned>(reduction);
    jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg.dct_method = JDCT_ISLOW;
    // No smoothing of incomplete progressive files, because it would read outside of the part.
    jpeg.do_block_smoothing = FALSE;
    jpeg_start_decompress(&jpeg);
    offset = left;
    columns = width;
    if (width < jpeg.output_width) jpeg_crop_scanline(&jpeg, &offset, &columns);
    return true;
  }
  /// to_the_end: also read the rows after the last one, to detect a truncated file.
  bool read_rows(std::uint8_t* to, std::size_t line, JDIMENSION top, JDIMENSION rows, bool to_the_end) {
    if (setjmp(back) != 0) return false;
    if (top > 0) jpeg_skip_scanlines(&jpeg, top);
    while (jpeg.output_scanline < top + rows) {
      JSAMPROW row = to + (jpeg.output_scanline - top) * line;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    if (to_the_end) {
      if (jpeg.output_scanline < jpeg.output_height)
        jpeg_skip_scanlines(&jpeg, jpeg.output_height - jpeg.output_scanline);
      jpeg_finish_decompress(&jpeg);
    } else {
      jpeg_abort_decompress(&jpeg);
    }
    return true;
  }

  /// Memory for all coefficients, which several scans need.
  Index coefficient_bytes() {
    if (!jpeg_has_multiple_scans(&jpeg)) return 0;
    Index blocks = 0;
    for (int i = 0; i < jpeg.num_components; ++i)
      blocks += Index{jpeg.comp_info[i].width_in_blocks} * Index{jpeg.comp_info[i].height_in_blocks};
    return blocks * Index{sizeof(JBLOCK)};
  }

  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX] = {};
  JDIMENSION offset = 0, columns = 0;
  std::span<const std::byte> bytes;
  Index max_pixels = 0;
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}
JpegDecoder::~JpegDecoder() = default;

Region JpegDecoder::open(std::span<const std::byte> bytes, std::string_view source, Index max_pixels) {
  State& s = *state_;
  s.bytes = bytes;
  s.max_pixels = max_pixels;
  const bool read = s.read_header(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  check(read, ErrorKind::data, op, "{}: damaged JPEG: {}", source, s.message);
  check(s.jpeg.jpeg_color_space != JCS_CMYK && s.jpeg.jpeg_color_space != JCS_YCCK, ErrorKind::data, op,
        "{}: is a CMYK image, only grey and RGB are read: convert it first", source);
  const Index width = s.jpeg.image_width, height = s.jpeg.image_height;
  check_room(width, height, s.coefficient_bytes(), bytes.size(), max_pixels, source);
  return {0, 0, width, height};
}

void JpegDecoder::decode(const Region& wanted, int reduction, int channels, PixelBlock& block,
                         std::string_view source) {
  State& s = *state_;
  const auto up = [&](Index n) { return (n + reduction - 1) / reduction; };
  const Index wide = up(s.jpeg.image_width), high = up(s.jpeg.image_height);
  const Index left = std::max<Index>(0, wanted.left / reduction - margin);
  const Index right = std::min(wide, up(wanted.left + wanted.width) + margin);
  const Index top = wanted.top / reduction, bottom = std::min(high, up(wanted.top + wanted.height));
  check(left < right && top < bottom, op, "{}: the part asked for lies outside the image", source);
  check_room(s.jpeg.image_width, s.jpeg.image_height,
             s.coefficient_bytes() + (right - left) * (bottom - top) * channels, s.bytes.size(), s.max_pixels, source);
  const bool started =
      s.start(reduction, channels, static_cast<JDIMENSION>(left), static_cast<JDIMENSION>(right - left));
  check(started, ErrorKind::data, op, "{}: damaged JPEG: {}", source, s.message);

  block.left = s.offset;
  block.top = top;
  block.width = s.columns;
  block.height = bottom - top;
  block.channels = channels;
  block.reduction = reduction;
  const auto line = static_cast<std::size_t>(block.line());
  block.values.resize(line * static_cast<std::size_t>(block.height));
  const std::size_t n = s.bytes.size();
  const bool ends = n >= 2 && s.bytes[n - 2] == std::byte{0xff} && s.bytes[n - 1] == std::byte{JPEG_EOI};
  const bool whole = s.read_rows(block.values.data(), line, static_cast<JDIMENSION>(top),
                                 static_cast<JDIMENSION>(block.height), !ends || bottom == high);
  check(whole, ErrorKind::data, op, "{}: damaged JPEG: {}", source, s.message);
}

}  // namespace trireme
