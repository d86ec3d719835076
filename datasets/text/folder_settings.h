// What the files beside a tokenizer.json change, as Hugging Face's transformers reads them.
#pragma once
#include <string>

namespace trireme {

/// The text of a tokenizer.json with the changes of its folder's other files: added_tokens.json, and of
/// tokenizer_config.json and special_tokens_map.json the added tokens, special tokens, add_prefix_space, add_bos_token
/// and add_eos_token. A special token that the vocabulary lacks gets the next id. The text is unchanged if the files
/// change nothing. two_files: the text was made of GPT-2's vocab.json and
/// merges.txt. Throws Error (data) naming the folder for a tokenizer class that makes other tokens of these files.
std::string with_folder_settings(std::string document, const std::string& folder, bool two_files);

}  // namespace trireme
