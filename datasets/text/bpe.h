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

/// Reads a tokenizer.json with a BPE model; text is kept for saved(). Supported are a ByteLevel pre-tokenizer, alone or
/// after a Split by a pattern of words.h; added tokens; and the special tokens that post-processors put around a text
/// (TokenizerModel::around()). Decoders are ignored. Throws Error that names path for anything else: normalizers, word
/// prefixes, byte_fallback, dropout, other patterns.
std::shared_ptr<const TokenizerModel> read_bpe(const Json& document, std::string text, const std::string& path);
/// The tokenizer.json that is equivalent to GPT-2's two files. "<|endoftext|>" is a special token if it has an id.
std::string gpt2_document(std::string_view vocab_json, std::string_view merges_txt, const std::string& path);

}  // namespace trireme
