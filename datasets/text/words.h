// The words that byte-level BPE works on: cuts of a text by the regular expressions of GPT-2 and Llama 3, as scanners.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

/// Whose pattern; whole: the text is one word.
enum class WordPattern : std::uint8_t { whole, gpt2, llama3 };

/// GPT-2's (encoder.py), and the one that cl100k_base and Llama 3 have, as tokenizer.json writes them.
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Where the word that begins at `at` ends; at lies in the text, behind a word or at its begin.
std::size_t word_end(WordPattern, std::string_view text, std::size_t at);

}  // namespace trireme
