// Models of this folder from and to folders as Hugging Face's save_pretrained() writes them: config.json beside
// model.safetensors, or beside the index of several files.
#pragma once
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "models/text/generate.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"

namespace trireme {

/// config.json of such a model: GPT2LMHeadModel, LlamaForCausalLM. gpt2_config throws Error for a model without biases,
/// which Hugging Face's GPT-2 has not.
std::string gpt2_config(const GptOptions&);
std::string llama_config(const LlamaOptions&);
/// The options that a config.json says. Throw Error for text that is no such configuration, and, naming it, for a
/// setting that these models do not have.
GptOptions gpt_options(const std::string& config);
LlamaOptions llama_options(const std::string& config);

/// Ids that end a text: eos_token_id of a folder's generation_config.json or, where that names none, of config.json, a
/// number or a list. Empty: neither names one. Throws Error naming it for a setting by which transformers' generate()
/// chooses other tokens than by temperature, top_k and top_p (repetition_penalty, ...).
std::vector<Index> end_tokens(const std::string& folder);

/// The options with the temperature, top_k and top_p of a folder's generation_config.json or, without that file, of its
/// config.json: those by which transformers' generate() draws. do_sample false: temperature 0; true without a
/// top_k: 50. Throws Error (data) naming a setting of another type.
GenerateOptions with_folder_sampling(GenerateOptions, const std::string& folder);

/// The model that config.json says, with the folder's weights. Throws Error for a model_type other than gpt2 and llama,
/// and as import_weights().
Module load_pretrained(const std::string& folder);
/// Writes config.json, the given text, and model.safetensors, so that transformers' from_pretrained() loads them.
/// Makes the folder.
void save_pretrained(const std::string& folder, const Parameters&, const std::string& config);

}  // namespace trireme
