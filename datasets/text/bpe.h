// Byte-level byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL
// 2016; over bytes: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), from Hugging Face's
// files.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "datasets/text/tokenizer.h"
#include "framework/io/json.h"

namespace trireme {

/// Of a tokenizer.json with a model BPE, whose text is kept for saved(): words by a ByteLevel pre-tokenizer, alone or
/// behind a Split by one of the patterns of words.h; added tokens; the special tokens that post-processors put around a
/// text (TokenizerModel::around()). Decoders are not looked at. Throws Error naming path for anything else:
/// normalizers, prefixes of words, byte_fallback, dropout, other patterns.
std::shared_ptr<const TokenizerModel> read_bpe(const Json& document, std::string text, const std::string& path);
/// The tokenizer.json that says the same as GPT-2's two files. "<|endoftext|>", where it has an id, is a special token.
std::string gpt2_document(std::string_view vocab_json, std::string_view merges_txt, const std::string& path);

}  // namespace trireme
