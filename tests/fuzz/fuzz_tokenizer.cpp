// libFuzzer entry for tokenizer files and for encoding; tools/fuzz builds and runs it.
// sources: kernels/core/error.cpp framework/io/json.cpp framework/io/file.cpp datasets/text/tokenizer.cpp
// sources: datasets/text/bpe.cpp datasets/text/folder_settings.cpp
// sources: datasets/text/words.cpp datasets/text/unicode.cpp datasets/text/unicode_ranges.cpp
// libraries: -ldeflate
// A file that is accepted makes a tokenizer that gives every byte back of what it encodes, and that its own file makes
// again. The input is also a text: words follow each other, and a BPE of all bytes gives it back.
#include <cstdlib>
#include <string>
#include <string_view>

#include "datasets/text/bpe.h"
#include "datasets/text/tokenizer.h"
#include "datasets/text/unicode.h"
#include "datasets/text/words.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"

namespace {

using trireme::Tokenizer;

void require(bool promise) {
  if (!promise) std::abort();
}

void said_well(const trireme::Error& error, std::string_view op) {
  const std::string_view what = error.what();
  require(what.starts_with(op) && what.size() < 1000 && what.find('\n') == what.npos);
}

/// Ids decode to the text, unless a character has none. prefixed: with spaces before what is between special tokens.
void round_trip(const Tokenizer& tokenizer, std::string_view text, bool prefixed = false) {
  try {
    const auto ids = tokenizer.encode(text);
    for (const auto id : ids) require(id >= 0 && id < tokenizer.vocabulary());
    std::string decoded = tokenizer.decode(ids), expected(text);
    if (prefixed) {
      std::erase(decoded, ' ');
      std::erase(expected, ' ');
    }
    require(decoded == expected);
  } catch (const trireme::Error& error) {
    const std::string_view what = error.what();
    require(what.starts_with("encode: ") || what.starts_with("characters: "));
    require(what.find('\n') == std::string_view::npos);
  }
}

void as_file(std::string_view text) {
  Tokenizer tokenizer;
  try {
    tokenizer = trireme::parse_tokenizer(text, "F");
  } catch (const trireme::Error& error) {
    const std::string_view what = error.what();
    return said_well(error, what.starts_with("characters: ") ? "characters: " : "tokenizer: F");
  }
  const trireme::Json document = trireme::parse_json(text);
  const bool prefixed = document.contains("pre_tokenizer") && document["pre_tokenizer"].value("add_prefix_space", true);
  round_trip(tokenizer, text, prefixed);
  round_trip(tokenizer, "abab ab\n  ab 12ab", prefixed);
  const Tokenizer again = trireme::parse_tokenizer(tokenizer->saved(), "F");
  require(again.vocabulary() == tokenizer.vocabulary() && again->saved() == tokenizer->saved());
}

/// All bytes, some merges, and tokens that overlap.
Tokenizer whole_bpe(const char* pattern) {
  trireme::Json vocab = trireme::Json::object(), merges = trireme::Json::array(), words;
  int id = 0;
  for (std::uint32_t code = 0; code < 324; ++code) {
    const bool printable = (code >= '!' && code <= '~') || (code >= 0xa1 && code != 0xad);
    std::string symbol;
    trireme::append_utf8(symbol, code);
    if (printable) vocab[symbol] = id++;
  }
  for (const char* merge : {"a a", "a b", "aa aa", "ab a", "\u0120 a", "\u0120 \u0120", "\u0120\u0120 \u0120\u0120",
                            "' s", "\u00c3 \u00a9"}) {
    std::string both = merge;
    both.erase(both.find(' '), 1);
    merges.push_back(merge);
    vocab[both] = id++;
  }
  words = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", pattern == nullptr}};
  if (pattern)
    words = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}, words}}};
  const trireme::Json added = {{{"id", id}, {"content", "<|"}, {"normalized", false}},
                               {{"id", id + 1}, {"content", "<|a"}, {"normalized", true}}};
  return trireme::parse_tokenizer(
      trireme::json_text(
          {{"added_tokens", added}, {"pre_tokenizer", words}, {"model", {{"vocab", vocab}, {"merges", merges}}}}),
      "F");
}

void as_text(std::string_view text) {
  for (const auto pattern : {trireme::WordPattern::whole, trireme::WordPattern::gpt2, trireme::WordPattern::llama3})
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = trireme::word_end(pattern, text, at);
      require(end > at && end <= text.size());
      at = end;
    }
  static const Tokenizer all[] = {whole_bpe(nullptr), whole_bpe(trireme::llama3_pattern.data())};
  for (const Tokenizer& tokenizer : all) {
    round_trip(tokenizer, text);
    require(tokenizer.decode(tokenizer.encode(text)) == text);
  }
  trireme::Utf8Stream whole, bytes;
  std::string one = whole.push(text), other;
  one += whole.finish();
  for (const char c : text) other += bytes.push({&c, 1});
  other += bytes.finish();
  require(one == other);
}

/// GPT-2's two files, one behind the other, a zero between them.
void as_two_files(std::string_view text) {
  const std::size_t cut = text.find('\0');
  if (cut == text.npos) return;
  try {
    const std::string_view merges = text.substr(cut + 1);
    const Tokenizer tokenizer = trireme::parse_tokenizer(trireme::gpt2_document(text.substr(0, cut), merges, "F"), "F");
    round_trip(tokenizer, merges);
  } catch (const trireme::Error& error) { said_well(error, "tokenizer: F"); }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  as_file(text);
  as_text(text);
  as_two_files(text);
  return 0;
}
