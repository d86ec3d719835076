// Reads and writes models of this folder in the format of Hugging Face's save_pretrained(): config.json with
// model.safetensors, or with the index of several files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/parameters.h"
#include "models/text/generate.h"
#include "models/text/gpt2.h"
#include "models/text/llama.h"

namespace trireme {

/// The config.json of a GPT2LMHeadModel. Throws Error for a model without biases, which Hugging Face's GPT-2 does not
/// support.
std::string gpt2_config(const GptOptions&);
/// The config.json of a LlamaForCausalLM, or of a MistralForCausalLM if it has a window. Throws Error for a window and
/// biases, which Hugging Face's Mistral does not support.
std::string llama_config(const LlamaOptions&);
/// The options in a config.json of GPT-2. Throws Error for another text, and with the name of a setting that is not
/// supported.
GptOptions gpt_options(const std::string& config);
/// As above, for Llama and Mistral.
LlamaOptions llama_options(const std::string& config);

/// The ids that end a text: eos_token_id, a number or a list, in a folder's generation_config.json, else in
/// config.json. Empty: neither has one. Throws Error with the name of a setting with which transformers' generate()
/// would not draw tokens by temperature, top_k and top_p alone (repetition_penalty, ...).
std::vector<Index> end_tokens(const std::string& folder);

/// The options with temperature, top_k and top_p from a folder's generation_config.json, else from its config.json: the
/// values with which transformers' generate() draws. do_sample false: temperature 0; true without a top_k: top_k 50.
/// Throws Error (data) with the name of a setting of another type.
GenerateOptions with_folder_sampling(GenerateOptions, const std::string& folder);

/// Builds the model of config.json with the folder's weights. Throws Error for a model_type other than gpt2, llama and
/// mistral, and as import_weights().
Module load_pretrained(const std::string& folder);
/// The model of load_pretrained() with uninitialised weights, and the path of the folder's weights: model.safetensors,
/// or the index of several files. For ranks that each read their part (StepResume::import_weights()).
std::pair<Module, std::string> undrawn_pretrained(const std::string& folder);
/// Writes config.json (the given text) and model.safetensors for transformers' from_pretrained(). Creates the folder.
void save_pretrained(const std::string& folder, const Parameters&, const std::string& config);

}  // namespace trireme
