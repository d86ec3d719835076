#include "datasets/text/text_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "datasets/core/fingerprint.h"
#include "framework/io/bytes.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr std::int32_t u16_magic = 20240520, u32_magic = 20240801;
constexpr std::size_t header_bytes = 256 * sizeof(std::int32_t);

/// Whether the file's name contains one of the words, delimited by punctuation.
bool has_word(const std::filesystem::path& file, std::initializer_list<std::string_view> words) {
  const std::string name = file.filename().string();
  for (const std::string_view word : words)
    for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
      const auto is_letter = [&](std::size_t i) {
        return i < name.size() && std::isalpha(static_cast<unsigned char>(name[i]));
      };
      if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
    }
  return false;
}

template <class T>
void widen(const std::byte* from, std::span<std::int64_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = value;
  }
}

}  // namespace

bool is_token_file(const std::string& path) {
  if (std::filesystem::path(path).extension() == ".bin") return true;
  const FileReader file(path);
  std::array<std::byte, 4> front{};
  if (file.size() < header_bytes) return false;
  file.read(0, front);
  const auto magic = little_endian<std::int32_t>(front);
  return magic == u16_magic || magic == u32_magic;
}

TextFiles find_text_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) return {.training = {path}, .tokens = is_token_file(path)};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.is_regular_file(error) && !entry.path().filename().string().starts_with('.'))
      files.push_back(entry.path());
  check(!files.empty(), ErrorKind::data, "text",
        "{} has no files; a text file, or a folder of text files, was expected", path);
  std::ranges::sort(files);
  TextFiles found;
  for (const char* ending : {".bin", ".txt"}) {
    const auto has = [&](const fs::path& file) { return file.extension() == ending; };
    if (std::ranges::none_of(files, has)) continue;
    std::erase_if(files, [&](const fs::path& file) { return !has(file); });
    found.tokens = ending == std::string_view(".bin");
  }
  std::vector<std::string> all;
  for (const fs::path& file : files) {
    all.push_back(file.string());
    if (has_word(file, {"train"}))
      found.training.push_back(all.back());
    else if (has_word(file, {"val", "valid", "validation", "test"}))
      found.test.push_back(all.back());
  }
  if (found.training.empty() || found.test.empty()) {
    found.training = std::move(all);
    found.test.clear();
  }
  return found;
}

TokenFileLayout token_file_layout(std::span<const std::byte> front, std::size_t size, const std::string& path) {
  const auto word = [&](std::size_t i) { return little_endian<std::int32_t>(front.subspan(4 * i)); };
  TokenFileLayout layout;
  const std::int32_t magic = size >= 4 ? word(0) : 0;
  if (magic == u16_magic || magic == u32_magic) {
    check(size >= header_bytes, ErrorKind::data, "tokens", "{}: {} bytes, its header alone has {}", path, size,
          header_bytes);
    layout.width = magic == u16_magic ? 2 : 4;
    layout.begin = header_bytes;
    const std::int32_t version = magic == u16_magic ? 1 : 7;
    check(word(1) == version, ErrorKind::data, "tokens", "{}: version {} of llm.c's format, {} is read", path, word(1),
          version);
    layout.count = word(2);
    check(layout.count >= 0 && header_bytes + static_cast<std::size_t>(layout.count * layout.width) == size,
          ErrorKind::data, "tokens", "{}: {} bytes, with a header of {} tokens of {} bytes behind {}", path, size,
          layout.count, layout.width, header_bytes);
    return layout;
  }
  check(size % 2 == 0, ErrorKind::data, "tokens",
        "{}: {} bytes, tokens have 2 each (nanoGPT's .bin; llm.c's begin with 20240520)", path, size);
  layout.count = static_cast<Index>(size / 2);
  return layout;
}

TokenSequence::TokenSequence(const std::vector<std::int64_t>& ids) : end_(std::ssize(ids)) {
  const auto [least, most] = std::ranges::minmax_element(ids);
  if (ids.empty()) return;
  check(*least >= 0 && *most <= UINT32_MAX, "tokens", "ids from {} to {}, expected from 0 to {}", *least, *most,
        UINT32_MAX);
  Piece piece{.width = *most > UINT16_MAX ? 4 : 2, .count = end_};
  const auto keep = [&](auto narrow) {
    auto kept = std::make_shared<std::vector<decltype(narrow)>>(ids.begin(), ids.end());
    piece.data = reinterpret_cast<const std::byte*>(kept->data());
    piece.keeper = std::move(kept);
  };
  if (piece.width == 2)
    keep(std::uint16_t{});
  else
    keep(std::uint32_t{});
  pieces_ = std::make_shared<std::vector<Piece>>(1, std::move(piece));
}

TokenSequence::TokenSequence(const std::vector<std::string>& token_files) {
  std::vector<Piece> pieces;
  for (const std::string& path : token_files) {
    const auto file = std::make_shared<FileReader>(path);
    if (file->size() == 0) continue;
    const auto bytes = file->map(false);
    const TokenFileLayout layout = token_file_layout(bytes, bytes.size(), path);
    pieces.push_back({path, file, bytes.data() + layout.begin, layout.width, end_, layout.count});
    end_ += layout.count;
  }
  std::erase_if(pieces, [](const Piece& p) { return p.count == 0; });
  pieces_ = std::make_shared<std::vector<Piece>>(std::move(pieces));
}

TokenSequence TokenSequence::part(Index begin, Index end) const {
  check(0 <= begin && begin <= end && end <= size(), "tokens", "a part from {} to {} of {} tokens", begin, end, size());
  TokenSequence some = *this;
  some.begin_ = begin_ + begin;
  some.end_ = begin_ + end;
  return some;
}

const TokenSequence::Piece& TokenSequence::piece(Index at) const {
  return *std::prev(std::ranges::upper_bound(*pieces_, at, {}, &Piece::begin));
}

void TokenSequence::read(Index from, std::span<std::int64_t> to) const {
  check(from >= 0 && from + std::ssize(to) <= size(), "tokens", "{} tokens from {} on, there are {}", to.size(), from,
        size());
  for (Index at = begin_ + from; !to.empty();) {
    const Piece& p = piece(at);
    const Index count = std::min(p.begin + p.count - at, std::ssize(to));
    const std::byte* data = p.data + (at - p.begin) * p.width;
    const auto filled = to.first(static_cast<std::size_t>(count));
    if (p.width == 2)
      widen<std::uint16_t>(data, filled);
    else
      widen<std::uint32_t>(data, filled);
    to = to.subspan(filled.size());
    at += count;
  }
}

std::int64_t TokenSequence::largest() const {
  std::int64_t most = -1;
  std::vector<std::int64_t> some(static_cast<std::size_t>(std::min<Index>(size(), 1 << 16)));
  for (Index at = 0; at < size(); at += std::ssize(some)) {
    if (const Index left = size() - at; left < std::ssize(some)) some.resize(static_cast<std::size_t>(left));
    read(at, some);
    most = std::max(most, *std::ranges::max_element(some));
  }
  return most;
}

void TokenSequence::add_to(Fingerprint& all) const {
  const Index bounds[] = {begin_, end_};
  all.add(std::as_bytes(std::span(bounds)));
  if (!pieces_) return;
  for (const Piece& p : *pieces_) {
    if (!p.path.empty()) {
      all.add_file(std::filesystem::path(p.path).filename().string(), p.path);
      all.add_content(p.path);
      continue;
    }
    all.add({p.data, static_cast<std::size_t>(p.count * p.width)});
  }
}

std::string TokenSequence::place(Index at) const {
  const Piece& p = piece(begin_ + at);
  return fmt::format("{}token {}", p.path.empty() ? "" : p.path + ": ", begin_ + at - p.begin);
}

}  // namespace trireme
