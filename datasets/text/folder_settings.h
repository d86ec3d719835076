// The changes that other files in a tokenizer's folder make to tokenizer.json, as in Hugging Face's transformers.
#pragma once
#include <string>

namespace trireme {

/// The text of a tokenizer.json with the changes of its folder's other files; the same text without changes. The
/// changes are added_tokens.json, and from tokenizer_config.json and special_tokens_map.json the added tokens, special
/// tokens, add_prefix_space, add_bos_token and add_eos_token. A special token that the vocabulary lacks gets the next
/// id. two_files: document was made from GPT-2's vocab.json and merges.txt. Throws Error (data) that names the folder
/// for a tokenizer class that would give other tokens.
std::string with_folder_settings(std::string document, const std::string& folder, bool two_files);

}  // namespace trireme
