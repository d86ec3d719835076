// The pre-tokenizer of byte-level BPE: hand-written scanners that cut a text into words like the regular expressions of
// GPT-2 and Llama 3.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

/// The pattern that cuts a text; whole: the text is one word.
enum class WordPattern : std::uint8_t { whole, gpt2, llama3 };

/// GPT-2's pattern (encoder.py), as in tokenizer.json.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// The pattern of cl100k_base and Llama 3, as in tokenizer.json.
inline constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The end of the word that begins at `at`, a position inside the text at its beginning or after a word.
std::size_t word_end(WordPattern, std::string_view text, std::size_t at);

}  // namespace trireme
