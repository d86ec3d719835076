// Tokenizers: text to ids and back: decode(encode(text)) is the text, byte for byte, but for the spaces that a file
// with add_prefix_space puts before it.
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

/// What a tokenizer does; a kind derives from it. Called from several threads.
class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  virtual std::string name() const = 0;  ///< in messages: "bytes", "65 characters"
  virtual Index vocabulary() const = 0;  ///< ids lie in [0, vocabulary)
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  /// What an id of [0, vocabulary) stands for; empty for one that stands for nothing.
  virtual std::string_view bytes(std::int64_t id) const = 0;
  /// Ids that are put before and after those of a text as a prompt is made (add_special_tokens of Hugging Face's).
  virtual std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> around() const { return {}; }
  /// The id of a token that is written as one whatever surrounds it, as "<|endoftext|>".
  virtual std::optional<std::int64_t> special(std::string_view) const { return {}; }
  virtual std::string saved() const = 0;  ///< the JSON document by which open_tokenizer() makes it again
};

/// A tokenizer by value: copies share it.
class Tokenizer {
 public:
  Tokenizer() = default;  ///< none
  explicit Tokenizer(std::shared_ptr<const TokenizerModel> model) : model_(std::move(model)) {}
  explicit operator bool() const { return model_ != nullptr; }  ///< whether there is one; what follows needs one
  std::string name() const { return model_->name(); }
  Index vocabulary() const { return model_->vocabulary(); }  ///< ids lie in [0, vocabulary)
  /// Throws Error naming the first character, and its place, that has no id.
  std::vector<std::int64_t> encode(std::string_view text) const { return model_->encode(text); }
  /// The same with the special tokens that the tokenizer's file puts around a text (its post-processor), such as one
  /// that begins it: what Hugging Face's tokenizers do unless add_special_tokens is False.
  std::vector<std::int64_t> encode_with_special(std::string_view text) const;
  /// The bytes of these ids one behind the other; a character may be spread over ids (Utf8Stream). Throws Error naming
  /// an id outside [0, vocabulary) and its place.
  std::string decode(std::span<const std::int64_t> ids) const;
  /// The id of "<|endoftext|>" and the like; none: there is no such token.
  std::optional<std::int64_t> special(std::string_view text) const { return model_->special(text); }
  const TokenizerModel* operator->() const { return model_.get(); }  ///< null: there is none

 private:
  std::shared_ptr<const TokenizerModel> model_;
};

/// A token per byte: 256 ids, for any text.
Tokenizer byte_tokenizer();
/// A token per Unicode code point of the text, ids in their order (nanoGPT's shakespeare_char). Throws Error naming
/// where the text is no UTF-8, and for an empty one.
Tokenizer character_tokenizer(std::string_view text);
/// "bytes"; a file that save_tokenizer() wrote; Hugging Face's tokenizer.json of a byte-level BPE, or a folder that
/// has it; a folder with GPT-2's vocab.json and merges.txt. BPE's ids are those of the `tokenizers` library with
/// add_special_tokens=False: of the words that GPT-2's or Llama 3's pattern cuts a text into; special tokens in a text
/// become their ids. A folder's added_tokens.json and tokenizer_config.json are read, too. Throws Error naming the file
/// for one that is missing, malformed or asks for something else.
Tokenizer open_tokenizer(const std::string& name_or_path);
/// The same of the document itself; path is for messages.
Tokenizer parse_tokenizer(std::string_view document, const std::string& path);
/// Writes the file by which open_tokenizer() makes it again: of BPE the tokenizer.json as it was. Throws Error where it
/// cannot be written.
void save_tokenizer(const Tokenizer&, const std::string& path);

/// Text for a terminal from the bytes of tokens as they come: whole characters only; bytes that are no UTF-8 become
/// U+FFFD.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  ///< what is complete by now
  std::string finish();                      ///< what was held back, as U+FFFD; begins anew

 private:
  std::string held_;  ///< the begin of a character
};

}  // namespace trireme
