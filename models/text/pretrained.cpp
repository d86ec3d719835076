#include "models/text/pretrained.h"

#include <filesystem>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors.h"
#include "framework/io/weights.h"

namespace trireme {
namespace {
namespace fs = std::filesystem;

constexpr const char* pretrained_op = "pretrained";
constexpr std::size_t longest = std::size_t{1} << 20;  // bytes of a config.json

Json parse_config(const std::string& text) {
  Json config = parse_json(text);
  check(config.is_object(), ErrorKind::data, pretrained_op,
        "{} characters are no JSON object, expected a config.json of Hugging Face", text.size());
  return config;
}
/// A member with its type, or `otherwise` if it is missing or null.
template <class T>
T member(const Json& config, const char* name, const T& otherwise) {
  const auto at = config.find(name);
  if (at == config.end() || at->is_null()) return otherwise;
  const bool fits = std::is_same_v<T, bool>          ? at->is_boolean()
                    : std::is_same_v<T, std::string> ? at->is_string()
                    : std::is_integral_v<T>          ? at->is_number_integer()
                                                     : at->is_number();
  check(fits, ErrorKind::data, pretrained_op, "\"{}\" of the configuration is of another type than expected", name);
  return at->template get<T>();
}
/// Throws Error if a setting is given with a value that these models do not support.
template <class T>
void only(const Json& config, const char* name, const T& value) {
  const T given = member(config, name, value);
  check(given == value, ErrorKind::data, pretrained_op,
        "the configuration says \"{}\": {}, and the model here is for {}", name, given, value);
}
void refuse_quantized(const Json& config) {
  check(config.value("quantization_config", Json()).is_null(), ErrorKind::data, pretrained_op,
        "the configuration has \"quantization_config\": quantized weights are not read; give the folder before "
        "quantization");
}
void check_type(const Json& config, const std::string& type) {
  check(
      member(config, "model_type", type) == type, ErrorKind::data, pretrained_op,
      "the configuration is of a \"{}\", expected a \"{}\"",
      [&] { return member(config, "model_type", std::string()); }, type);
}

/// A number or a list of numbers; empty if the member is missing or null.
std::vector<Index> token_ids(const Json& config, const char* name) {
  const Json all = config.value(name, Json());
  std::vector<Index> ids;
  for (const Json& id : all.is_array() ? all : all.is_null() ? Json::array() : Json::array({all})) {
    check(id.is_number_integer(), ErrorKind::data, pretrained_op, "\"{}\" of the configuration is no id of a token",
          name);
    ids.push_back(id.get<Index>());
  }
  return ids;
}
Json id_or_list(const std::vector<Index>& ids) {
  return ids.empty() ? Json() : ids.size() == 1 ? Json(ids[0]) : Json(ids);
}

RopeScaling rope_scaling(const Json& rope) {
  const std::string type = member(rope, "rope_type", member(rope, "type", std::string("default")));
  if (type == "default") return {};
  check(type == "linear" || type == "llama3", ErrorKind::data, pretrained_op,
        "rotary positions of type \"{}\": there are default, linear and llama3", type);
  RopeScaling s{.kind = type == "linear" ? RopeScaling::Kind::linear : RopeScaling::Kind::llama3};
  s.factor = member(rope, "factor", s.factor);
  s.low_frequency = member(rope, "low_freq_factor", s.low_frequency);
  s.high_frequency = member(rope, "high_freq_factor", s.high_frequency);
  s.original_context = member(rope, "original_max_position_embeddings", s.original_context);
  return s;
}
Json rope_of(const RopeOptions& o) {
  const RopeScaling& s = o.scaling;
  if (s.kind == RopeScaling::Kind::none) return {{"rope_type", "default"}, {"rope_theta", o.base}};
  Json rope{{"rope_type", "linear"}, {"rope_theta", o.base}, {"factor", s.factor}};
  if (s.kind == RopeScaling::Kind::linear) return rope;
  rope["rope_type"] = "llama3";
  rope["low_freq_factor"] = s.low_frequency;
  rope["high_freq_factor"] = s.high_frequency;
  rope["original_max_position_embeddings"] = s.original_context;
  return rope;
}

}  // namespace

std::string gpt2_config(const GptOptions& o) {
  check(o.experts == 0, "gpt2", "Hugging Face's GPT-2 has no experts: export the weights alone");
  check(o.bias, "gpt2",
        "Hugging Face's GPT-2 has biases, and this model none: export its weights alone, or train it with arch.bias 1");
  const bool usual = o.vocabulary == 50257 && o.eos.empty();
  const Json begin = usual ? Json(50256) : id_or_list(o.bos), end = usual ? Json(50256) : id_or_list(o.eos);
  return json_text({{"architectures", Json::array({"GPT2LMHeadModel"})},
                    {"model_type", "gpt2"},
                    {"vocab_size", o.vocabulary},
                    {"n_positions", o.positions},
                    {"n_embd", o.width},
                    {"n_layer", o.layers},
                    {"n_head", o.heads},
                    {"n_inner", o.hidden == 0 ? Json() : Json(o.hidden)},
                    {"activation_function", o.activation == "gelu_tanh" ? "gelu_new" : o.activation},
                    {"resid_pdrop", o.dropout},
                    {"embd_pdrop", o.dropout},
                    {"attn_pdrop", o.dropout},
                    {"layer_norm_epsilon", 1e-5},
                    {"initializer_range", 0.02},
                    {"tie_word_embeddings", o.tied},
                    {"bos_token_id", begin},
                    {"eos_token_id", end},
                    {"torch_dtype", "float32"}},
                   NotUtf8::fails, 2);
}

GptOptions gpt_options(const std::string& text) {
  const Json config = parse_config(text);
  check_type(config, "gpt2");
  only(config, "layer_norm_epsilon", 1e-5);
  only(config, "scale_attn_weights", true);
  only(config, "scale_attn_by_inverse_layer_idx", false);
  only(config, "add_cross_attention", false);
  refuse_quantized(config);
  GptOptions o;
  o.layers = member(config, "n_layer", o.layers);
  o.heads = member(config, "n_head", o.heads);
  o.width = member(config, "n_embd", o.width);
  o.hidden = member(config, "n_inner", o.hidden);
  o.positions = member(config, "n_positions", o.positions);
  o.vocabulary = member(config, "vocab_size", o.vocabulary);
  o.dropout = member(config, "resid_pdrop", o.dropout);
  for (const char* other : {"embd_pdrop", "attn_pdrop"}) only(config, other, o.dropout);
  o.tied = member(config, "tie_word_embeddings", o.tied);
  o.bos = token_ids(config, "bos_token_id");
  o.eos = token_ids(config, "eos_token_id");
  o.activation = member(config, "activation_function", o.activation);
  if (o.activation == "gelu_new" || o.activation == "gelu_pytorch_tanh") o.activation = "gelu_tanh";
  return o;
}

std::string llama_config(const LlamaOptions& o) {
  const bool mixture = o.experts > 0;
  check(!mixture || !(o.bias || o.rope.scaling.kind != RopeScaling::Kind::none), pretrained_op,
        "Hugging Face's Mixtral has neither biases nor scaled rotary positions");
  Json all{{"architectures", Json::array({mixture ? "MixtralForCausalLM" : "LlamaForCausalLM"})},
           {"model_type", mixture ? "mixtral" : "llama"},
           {"vocab_size", o.vocabulary},
           {"hidden_size", o.width},
           {"intermediate_size", o.hidden_size()},
           {"num_hidden_layers", o.layers},
           {"num_attention_heads", o.heads},
           {"num_key_value_heads", o.kv_heads ? o.kv_heads : o.heads},
           {"hidden_act", "silu"},
           {"max_position_embeddings", o.positions},
           {"rms_norm_eps", o.eps},
           {"rope_parameters", rope_of(o.rope)},  // of transformers 5
           {"rope_theta", o.rope.base},           // of earlier versions, with rope_scaling
           {"attention_bias", o.bias},
           {"mlp_bias", o.bias},
           {"tie_word_embeddings", o.tied},
           {"initializer_range", 0.02},
           {"bos_token_id", id_or_list(o.bos)},
           {"eos_token_id", id_or_list(o.eos)},
           {"torch_dtype", "float32"}};
  if (mixture) {
    all["num_local_experts"] = o.experts;
    all["num_experts_per_tok"] = o.expert_top_k;
    all["sliding_window"] = nullptr;
  }
  if (o.rope.scaling.kind != RopeScaling::Kind::none) {
    all["rope_scaling"] = rope_of(o.rope);
    all["rope_scaling"].erase("rope_theta");
  }
  if (o.window > 0) {
    check(!o.bias, "llama", "Hugging Face's Mistral has no biases, and this model has a window and biases");
    if (!mixture) {
      all["architectures"] = Json::array({"MistralForCausalLM"});
      all["model_type"] = "mistral";
    }
    all["sliding_window"] = o.window;
    for (const char* other : {"attention_bias", "mlp_bias"}) all.erase(other);
  }
  return json_text(all, NotUtf8::fails, 2);
}

LlamaOptions llama_options(const std::string& text) {
  const Json config = parse_config(text);
  const std::string type = member(config, "model_type", std::string());
  const bool mixture = type == "mixtral", windowed = mixture || type == "mistral";
  if (!windowed) check_type(config, "llama");
  only(config, "hidden_act", std::string("silu"));
  refuse_quantized(config);
  LlamaOptions o;
  o.layers = member(config, "num_hidden_layers", Index{32});
  o.heads = member(config, "num_attention_heads", Index{32});
  o.kv_heads = member(config, "num_key_value_heads", o.heads);
  o.width = member(config, "hidden_size", Index{4096});
  o.hidden = member(config, "intermediate_size", Index{11008});
  o.positions = member(config, "max_position_embeddings", o.positions);
  o.vocabulary = member(config, "vocab_size", o.vocabulary);
  o.eps = member(config, "rms_norm_eps", 1e-6);
  o.tied = member(config, "tie_word_embeddings", o.tied);
  if (mixture) {
    o.experts = member(config, "num_local_experts", Index{8});
    o.expert_top_k = member(config, "num_experts_per_tok", Index{2});
    o.rope.base = 1e6;
  }
  o.bos = token_ids(config, "bos_token_id");
  o.eos = token_ids(config, "eos_token_id");
  if (windowed)  // null: no window
    o.window = member(config, "sliding_window", Index{config.contains("sliding_window") || mixture ? 0 : 4096});
  o.bias = member(config, "attention_bias", false);
  check(
      member(config, "mlp_bias", false) == o.bias, ErrorKind::data, pretrained_op,
      "the configuration says \"attention_bias\": {} and \"mlp_bias\": {}; the linear layers here have biases in both, "
      "or in none",
      o.bias, !o.bias);
  if (o.heads > 0) only(config, "head_dim", o.width / o.heads);
  const Json none = Json::object();
  const Json rope = config.contains("rope_parameters") ? config["rope_parameters"] : config.value("rope_scaling", none);
  o.rope.base = member(config, "rope_theta", o.rope.base);
  if (rope.is_object()) {
    o.rope.base = member(rope, "rope_theta", o.rope.base);
    o.rope.scaling = rope_scaling(rope);
  }
  return o;
}

std::vector<Index> end_tokens(const std::string& folder) {
  const std::pair<const char*, Json> neutral[] = {{"repetition_penalty", 1},
                                                  {"encoder_repetition_penalty", 1},
                                                  {"no_repeat_ngram_size", 0},
                                                  {"num_beams", 1},
                                                  {"num_beam_groups", 1},
                                                  {"penalty_alpha", Json()},
                                                  {"min_length", 0},
                                                  {"min_new_tokens", 0},
                                                  {"bad_words_ids", Json()},
                                                  {"suppress_tokens", Json()},
                                                  {"begin_suppress_tokens", Json()},
                                                  {"forced_bos_token_id", Json()},
                                                  {"forced_eos_token_id", Json()},
                                                  {"forced_decoder_ids", Json()},
                                                  {"sequence_bias", Json()},
                                                  {"force_words_ids", Json()},
                                                  {"constraints", Json()},
                                                  {"exponential_decay_length_penalty", Json()},
                                                  {"min_p", 0},
                                                  {"typical_p", 1},
                                                  {"epsilon_cutoff", 0},
                                                  {"eta_cutoff", 0},
                                                  {"guidance_scale", 1},
                                                  {"stop_strings", Json()}};
  std::vector<Index> ends;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = fs::path(folder) / name;
    std::error_code unknown;
    if (!fs::exists(file, unknown)) continue;
    const Json config = parse_config(read_text(file.string(), longest));
    for (const auto& [key, value] : neutral) {
      const Json given = config.value(key, Json());
      if (!given.is_null() && given != value && !(given.is_array() && given.empty()))
        fail(ErrorKind::data, pretrained_op,
             "{} says \"{}\": {}, by which other tokens are chosen than here: remove it to generate without it",
             file.string(), key, json_text(given, NotUtf8::replaced));
    }
    if (ends.empty()) ends = token_ids(config, "eos_token_id");
  }
  return ends;
}

GenerateOptions with_folder_sampling(GenerateOptions options, const std::string& folder) {
  const fs::path own = fs::path(folder) / "generation_config.json",
                 file = fs::exists(own) ? own : fs::path(folder) / "config.json";
  const Json config = parse_config(read_text(file.string(), longest));
  // GenerationConfig of transformers (4.47.1) draws from 50 tokens unless the file has top_k; null there means all.
  constexpr Index usual_top_k = 50;
  const bool samples = member(config, "do_sample", false);
  options.temperature = member(config, "temperature", options.temperature);
  options.top_k = member(config, "top_k", samples && !config.contains("top_k") ? usual_top_k : options.top_k);
  options.top_p = member(config, "top_p", options.top_p);
  if (config.contains("do_sample") && !samples) options.temperature = 0;
  return options;
}

std::pair<Module, std::string> undrawn_pretrained(const std::string& folder) {
  const fs::path path(folder);
  const std::string text = read_text((path / "config.json").string(), longest);
  const std::string type = member(parse_config(text), "model_type", std::string());
  check(type == "gpt2" || type == "llama" || type == "mistral" || type == "mixtral", ErrorKind::data, pretrained_op,
        "{}: a model of type \"{}\"; there are gpt2, llama, mistral and mixtral", folder, type);
  const fs::path whole = path / "model.safetensors", index = path / "model.safetensors.index.json";
  const std::string weights = (fs::exists(whole) ? whole : index).string();
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"})
    check(fs::exists(weights) || !fs::exists(path / other), ErrorKind::file, pretrained_op,
          "{0} has {1} and no model.safetensors: make one of a .bin file by `trireme import {0}/{1} --out "
          "{0}/model.safetensors`",
          folder, other);
  check(fs::exists(weights), ErrorKind::file, pretrained_op, "{} holds no model.safetensors and no index of several",
        folder);  // checked before a possibly large model is allocated
  double held = 0;
  for (const SafetensorsPiece& t : open_safetensors(weights)) held += static_cast<double>(t.box.size.numel());
  const SkipInit loaded_below;
  const auto make = [&](const auto& o, auto build) {
    const auto width = static_cast<double>(o.width);
    const double least = static_cast<double>(o.vocabulary) * width + 2 * width * width * static_cast<double>(o.layers);
    check(least <= held, ErrorKind::data, pretrained_op,
          "{}/config.json needs at least {:.0f} weights, but {} has {:.0f}; use the config.json that belongs to the "
          "weights",
          folder, least, weights, held);
    return Module(build(o));
  };
  Module model = [&] {
    try {
      return type == "gpt2" ? make(gpt_options(text), gpt2) : make(llama_options(text), llama);
    } catch (const Error& e) {  // invalid sizes are a fault of the file, not of the call
      if (e.kind() != ErrorKind::usage) throw;
      fail(ErrorKind::data, pretrained_op, "{}/config.json: {}", folder, e.what());
    }
  }();
  return {std::move(model), weights};
}

Module load_pretrained(const std::string& folder) {
  auto [model, weights] = undrawn_pretrained(folder);
  Parameters parameters(model);
  import_weights(parameters, weights);
  return model;
}

void save_pretrained(const std::string& folder, const Parameters& parameters, const std::string& config) {
  fs::create_directories(folder);
  write_safetensors(folder + "/model.safetensors", export_weights(parameters), {{"format", "pt"}});
  replace_file(folder + "/config.json", config + "\n");
}

}  // namespace trireme
