// The files of a text data set: files and folders of text, and token files.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/io/file.h"
#include "kernels/core/view.h"

namespace trireme {
class Fingerprint;

/// The files of a data set, ordered by name.
struct TextFiles {
  std::vector<std::string> training = {},
                           test = {};  ///< files per split; test empty: training has all files, to be divided
  bool tokens = false;                 ///< whether they are token files
};
/// The file at path, or the files directly in a folder, without names that begin with a dot. A folder's token files
/// (.bin) are used; without any, its .txt files; without any, all files. If some names contain the word "train" and
/// some "val", "valid", "validation" or "test", delimited by punctuation, these are the two splits and other files are
/// ignored. Throws Error for a missing path, and for a folder without files.
TextFiles find_text_files(const std::string& path);
/// Whether the file is a token file: it ends in .bin or begins with llm.c's header.
bool is_token_file(const std::string& path);

/// The position and format of the tokens in a token file.
struct TokenFileLayout {
  std::size_t begin = 0;  ///< offset of the first token in bytes
  int width = 2;          ///< bytes per token, an unsigned little-endian number
  Index count = 0;        ///< number of tokens
};
/// Detects the layout from the first bytes of a file and its size in bytes: llm.c's header, 256 i32: magic 20240520 and
/// version 1 (u16 tokens) or magic 20240801 and version 7 (u32), their count; else nanoGPT's format, u16 tokens without
/// a header. Throws Error that names path for another version, and for a size that does not match.
TokenFileLayout token_file_layout(std::span<const std::byte> front, std::size_t size, const std::string& path);

/// A sequence of tokens in memory, or in mapped files that are concatenated. Copies share the tokens.
class TokenSequence {
 public:
  TokenSequence() = default;                                            ///< empty
  explicit TokenSequence(const std::vector<std::int64_t>& ids);         ///< Throws Error for ids outside [0, 2^32)
  explicit TokenSequence(const std::vector<std::string>& token_files);  ///< see token_file_layout() for errors
  Index size() const { return end_ - begin_; }                          ///< number of tokens
  TokenSequence part(Index begin, Index end) const;                     ///< tokens [begin, end), within [0, size()]
  /// Copies to.size() tokens from position `from` on; all must exist.
  void read(Index from, std::span<std::int64_t> to) const;
  std::int64_t largest() const;  ///< the largest id, -1 if empty; reads all tokens
  /// A position for messages: "tokens.bin: token 17".
  std::string place(Index at) const;
  /// Adds these tokens to a fingerprint: tokens in memory completely, files by name, size and parts of their content.
  void add_to(Fingerprint&) const;

 private:
  struct Piece {
    std::string path = {};                    // empty: in memory
    std::shared_ptr<const void> keeper = {};  // of its bytes
    const std::byte* data = nullptr;
    int width = 2;
    Index begin = 0, count = 0;  // of the whole
  };
  const Piece& piece(Index at) const;
  std::shared_ptr<const std::vector<Piece>> pieces_;
  Index begin_ = 0, end_ = 0;
};

}  // namespace trireme
