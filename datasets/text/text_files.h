// Where the text of a data set comes from: files and folders of text, and token files.
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

/// The files of a data set, in the order of their names.
struct TextFiles {
  std::vector<std::string> training = {}, test = {};  ///< test empty: training has all, to be divided
  bool tokens = false;                                ///< they are token files
};
/// Of a file, or of a folder (its own files, not those of folders in it; names that begin with a dot do not count):
/// its token files (.bin) or, where it has none, its .txt files or, where it has none, all. Where some names have the
/// word "train" and some "val", "valid", "validation" or "test" between their punctuation, those are the two splits and
/// other files are left out. Throws Error for a path that is missing, and for a folder without files.
TextFiles find_text_files(const std::string& path);
/// Whether the file is a token file: by the ending .bin, or as llm.c's begin.
bool is_token_file(const std::string& path);

/// Tokens that a token file has.
struct TokenFileLayout {
  std::size_t begin = 0;  ///< of its first token, in bytes
  int width = 2;          ///< bytes of a token: an unsigned little-endian number
  Index count = 0;
};
/// Of the first bytes of a file of so many bytes: llm.c's header, 256 i32: magic 20240520 and version 1 (u16 tokens) or
/// magic 20240801 and version 7 (u32), their count; else nanoGPT's, nothing but u16 tokens. Throws Error naming path
/// for another version, and where the size does not suit.
TokenFileLayout token_file_layout(std::span<const std::byte> front, std::size_t size, const std::string& path);

/// A sequence of tokens: in memory, or of files that are mapped, one behind the other. Copies share them.
class TokenSequence {
 public:
  TokenSequence() = default;                                            ///< empty
  explicit TokenSequence(const std::vector<std::int64_t>& ids);         ///< of [0, 2^32): else Error
  explicit TokenSequence(const std::vector<std::string>& token_files);  ///< see token_file_layout() for errors
  Index size() const { return end_ - begin_; }
  TokenSequence part(Index begin, Index end) const;  ///< of [0, size()]
  /// Copies those from `from` on, all of which must exist.
  void read(Index from, std::span<std::int64_t> to) const;
  std::int64_t largest() const;  ///< the largest id, -1 without any; reads all
  /// "tokens.bin: token 17", for messages.
  std::string place(Index at) const;
  /// Which tokens these are: those in memory by all of them, files by name, size and parts of their content.
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
