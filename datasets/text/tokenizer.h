// Tokenizers: convert text to ids and back. decode(encode(text)) equals the text byte for byte, except for the space
// that add_prefix_space puts before it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/view.h"

namespace trireme {

/// The interface of tokenizers. Several threads call it.
class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  virtual std::string name() const = 0;  ///< for messages: "bytes", "65 characters"
  virtual Index vocabulary() const = 0;  ///< ids are in [0, vocabulary)
  /// The ids of a text. Throws Error as Tokenizer::encode().
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  /// The bytes of an id in [0, vocabulary); empty for an unused id.
  virtual std::string_view bytes(std::int64_t id) const = 0;
  /// Special ids that encode_with_special() puts before and after a text (Hugging Face's add_special_tokens).
  virtual std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> around() const { return {}; }
  /// The id of a special token such as "<|endoftext|>", which is recognised in any context; none: no such token.
  virtual std::optional<std::int64_t> special(std::string_view) const { return {}; }
  virtual std::string saved() const = 0;  ///< a JSON document that parse_tokenizer() reads
};

/// A tokenizer as a value; copies share the model. Without a model only bool and -> may be used.
class Tokenizer {
 public:
  Tokenizer() = default;  ///< no tokenizer
  /// Takes a model.
  explicit Tokenizer(std::shared_ptr<const TokenizerModel> model) : model_(std::move(model)) {}
  explicit operator bool() const { return model_ != nullptr; }  ///< whether there is a tokenizer
  std::string name() const { return model_->name(); }           ///< for messages: "bytes", "65 characters"
  Index vocabulary() const { return model_->vocabulary(); }     ///< ids are in [0, vocabulary)
  /// The ids of a text. Throws Error with the first character that has no id and its position.
  std::vector<std::int64_t> encode(std::string_view text) const { return model_->encode(text); }
  /// As encode(), with the special tokens that the post-processor of the tokenizer's file puts around a text, for
  /// example one at its beginning. Hugging Face's tokenizers do this unless add_special_tokens=False.
  std::vector<std::int64_t> encode_with_special(std::string_view text) const;
  /// The concatenated bytes of these ids. A character may span several ids (see Utf8Stream). Throws Error with an id
  /// outside [0, vocabulary) and its position.
  std::string decode(std::span<const std::int64_t> ids) const;
  /// The id of a special token such as "<|endoftext|>"; none: no such token.
  std::optional<std::int64_t> special(std::string_view text) const { return model_->special(text); }
  const TokenizerModel* operator->() const { return model_.get(); }  ///< the model; null: no tokenizer

 private:
  std::shared_ptr<const TokenizerModel> model_;
};

/// A token per byte: 256 ids, for any text.
Tokenizer byte_tokenizer();
/// A token per distinct Unicode code point of the text, with ids in code point order (nanoGPT's shakespeare_char).
/// Throws Error with the position of invalid UTF-8, and for an empty text.
Tokenizer character_tokenizer(std::string_view text);
/// Opens a tokenizer: "bytes"; a file of save_tokenizer(); Hugging Face's tokenizer.json of a byte-level BPE or its
/// folder; or a folder with GPT-2's vocab.json and merges.txt. A folder's added_tokens.json and tokenizer_config.json
/// are read, too. BPE gives the ids of the `tokenizers` library with add_special_tokens=False: GPT-2's or Llama 3's
/// pattern cuts the text into words, and special tokens in the text become their ids. Throws Error that names a file
/// that is missing, malformed or uses an unsupported feature.
Tokenizer open_tokenizer(const std::string& name_or_path);
/// As open_tokenizer(), from the text of a document; path is for messages.
Tokenizer parse_tokenizer(std::string_view document, const std::string& path);
/// Writes a file that open_tokenizer() reads: for BPE the original tokenizer.json. Throws Error if the file cannot be
/// written.
void save_tokenizer(const Tokenizer&, const std::string& path);

/// Converts the bytes of a stream of tokens to text for a terminal, in whole characters; invalid UTF-8 becomes U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  ///< adds bytes and returns the characters that are complete
  std::string finish();                      ///< returns U+FFFD for an incomplete character, and resets the stream

 private:
  std::string held_;  ///< the beginning of a character
};

}  // namespace trireme
