#include "datasets/text/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "datasets/text/bpe.h"
#include "datasets/text/folder_settings.h"
#include "datasets/text/unicode.h"
#include "framework/io/bytes.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr std::size_t largest_file = std::size_t{256} << 20;
constexpr const char* key = "trireme_tokenizer";  // a tokenizer.json does not have this key

class Bytes final : public TokenizerModel {
 public:
  Bytes() {
    for (std::size_t c = 0; c < all_.size(); ++c) all_[c] = static_cast<char>(c);
  }
  std::string name() const override { return "bytes"; }
  Index vocabulary() const override { return std::ssize(all_); }
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids(text.size());
    std::ranges::transform(text, ids.begin(), [](char c) { return static_cast<unsigned char>(c); });
    return ids;
  }
  std::string_view bytes(std::int64_t id) const override { return {&all_[static_cast<std::size_t>(id)], 1}; }
  std::string saved() const override { return json_text({{key, "bytes"}}) + "\n"; }

 private:
  std::array<char, 256> all_;
};

/// The character at byte `at`. Throws Error unless it is valid UTF-8.
CodePoint valid_at(std::string_view text, std::size_t at) {
  const CodePoint c = code_point(text.substr(at));
  check(c.valid, ErrorKind::data, "characters",
        "byte {} of the text, {:#04x}, begins no UTF-8 character; the tokenizer 'bytes' takes any", at, c.code);
  return c;
}

class Characters final : public TokenizerModel {
 public:
  explicit Characters(std::string_view text) {
    check(!text.empty(), ErrorKind::data, "characters", "the text is empty: it has no characters");
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = valid_at(text, at);
      if (c.code >= ids_.size()) ids_.resize(c.code + 1, -1);
      ids_[c.code] = 0;
      at += c.size;
    }
    begins_.push_back(0);
    for (std::uint32_t code = 0; code < ids_.size(); ++code) {
      if (ids_[code] < 0) continue;
      ids_[code] = static_cast<std::int32_t>(begins_.size() - 1);
      append_utf8(all_, code);
      begins_.push_back(all_.size());
    }
  }
  std::string name() const override { return fmt::format("{} characters", vocabulary()); }
  Index vocabulary() const override { return std::ssize(begins_) - 1; }
  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids;
    ids.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = valid_at(text, at);
      check(
          c.code < ids_.size() && ids_[c.code] >= 0, ErrorKind::data, "characters",
          "character {} of the text, {} {}, is none of the {} that the tokenizer was made of", ids.size(),
          [&] { return code_name(c.code); }, [&] { return in_quotes(text.substr(at, c.size)); }, vocabulary());
      ids.push_back(ids_[c.code]);
      at += c.size;
    }
    return ids;
  }
  std::string_view bytes(std::int64_t id) const override {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(all_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }
  std::string saved() const override { return json_text({{key, "characters"}, {"characters", all_}}) + "\n"; }

 private:
  std::vector<std::int32_t> ids_;    // id by code point; -1: none
  std::string all_;                  // the characters, in order
  std::vector<std::size_t> begins_;  // offset of each character in all_, and the end
};

}  // namespace

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  const Index count = vocabulary();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    check(ids[i] >= 0 && ids[i] < count, ErrorKind::data, "decode", "id {} at {} is outside the tokenizer's [0, {})",
          ids[i], i, count);
    text += model_->bytes(ids[i]);
  }
  return text;
}

std::vector<std::int64_t> Tokenizer::encode_with_special(std::string_view text) const {
  auto [ids, behind] = model_->around();
  const std::vector<std::int64_t> own = encode(text);
  ids.insert(ids.end(), own.begin(), own.end());
  ids.insert(ids.end(), behind.begin(), behind.end());
  return ids;
}

Tokenizer byte_tokenizer() { return Tokenizer(std::make_shared<Bytes>()); }
Tokenizer character_tokenizer(std::string_view text) { return Tokenizer(std::make_shared<Characters>(text)); }

Tokenizer parse_tokenizer(std::string_view document, const std::string& path) {
  const Json all = parse_json(document);
  check(all.is_object(), ErrorKind::data, "tokenizer", "{} is no JSON object", path);
  if (!all.contains(key)) return Tokenizer(read_bpe(all, std::string(document), path));
  const Json& kind = all.at(key);
  if (kind == "bytes") return byte_tokenizer();
  const auto characters = all.find("characters");
  check(kind == "characters" && characters != all.end() && characters->is_string(), ErrorKind::data, "tokenizer",
        "{}: {} must be \"bytes\", or \"characters\" with a text of the characters", path, key);
  return character_tokenizer(characters->get_ref<const std::string&>());
}

Tokenizer open_tokenizer(const std::string& name) {
  if (name == "bytes") return byte_tokenizer();
  check(name != "chars", "tokenizer", "'chars' are those of a text: character_tokenizer(text) makes the tokenizer");
  namespace fs = std::filesystem;
  std::error_code unknown;  // the read below reports errors
  if (!fs::is_directory(name, unknown)) return parse_tokenizer(read_text(name, largest_file), name);
  const fs::path folder = name;
  if (const std::string whole = (folder / "tokenizer.json").string(); fs::exists(whole, unknown))
    return parse_tokenizer(with_folder_settings(read_text(whole, largest_file), name, false), whole);
  check(fs::exists(folder / "vocab.json", unknown) && fs::exists(folder / "merges.txt", unknown), ErrorKind::file,
        "tokenizer", "{} has neither tokenizer.json nor vocab.json and merges.txt", name);
  const std::string document = gpt2_document(read_text((folder / "vocab.json").string(), largest_file),
                                             read_text((folder / "merges.txt").string(), largest_file), name);
  return parse_tokenizer(with_folder_settings(document, name, true), name);
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
  check(bool(tokenizer), "save_tokenizer", "there is no tokenizer to write to {}", path);
  replace_file(path, tokenizer->saved());
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string whole;
  std::size_t at = 0;
  while (at < held_.size()) {
    const CodePoint c = code_point(std::string_view(held_).substr(at));
    if (c.cut) break;
    if (c.valid)
      whole.append(held_, at, c.size);
    else
      whole += "\ufffd";
    at += c.size;
  }
  held_.erase(0, at);
  return whole;
}
std::string Utf8Stream::finish() {
  const bool some = !held_.empty();
  held_.clear();
  return some ? "\ufffd" : "";
}

}  // namespace trireme
