#include "datasets/text/folder_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A JSON object in a folder; empty if the file is missing.
Json object_of(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return Json::object();
  Json json = parse_json(read_text(path, std::size_t{64} << 20));
  check(json.is_object(), ErrorKind::data, "tokenizer", "{} is no JSON object", path);
  return json;
}
/// The text of a special token: "<s>", or {"content": "<s>", ...}; empty: none.
std::string content_of(const Json& token) {
  return token.is_string() ? token.get<std::string>() : value_or<std::string>(token, "content", "");
}

/// Applies the settings of the folder's other files to a tokenizer.json.
class FolderSettings {
 public:
  FolderSettings(Json& document, const std::string& folder, bool two_files)
      : document_(document),
        folder_(folder),
        config_(object_of(folder, "tokenizer_config.json")),
        specials_(object_of(folder, "special_tokens_map.json")),
        class_(value_or<std::string>(config_, "tokenizer_class", "")),
        gpt2_(two_files || class_.starts_with("GPT2Tokenizer")) {
    if (!document_.contains("added_tokens") || !document_["added_tokens"].is_array())
      document_["added_tokens"] = Json::array();
    for (const Json& token : document_["added_tokens"]) known_.insert(content_of(token));
  }
  void apply(bool two_files) {
    check(!two_files || class_.empty() || class_.starts_with("GPT2Tokenizer") || class_ == "PreTrainedTokenizerFast",
          ErrorKind::data, "tokenizer",
          "{}/tokenizer_config.json: the class {} makes other tokens of vocab.json and merges.txt than GPT-2's does; "
          "save the tokenizer as tokenizer.json",
          folder_, class_);
    add_tokens();
    add_specials();
    Json& words = document_["pre_tokenizer"];
    if (gpt2_ && words.is_object() && words.contains("add_prefix_space"))
      words["add_prefix_space"] = value_or<bool>(config_, "add_prefix_space", false);
    if (class_.starts_with("LlamaTokenizer")) document_["post_processor"] = llama_template();
  }

 private:
  void add_tokens() {
    const Json decoder = config_.value("added_tokens_decoder", Json());
    if (decoder.is_object()) {
      for (const auto& [id, token] : decoder.items()) add(content_of(token), id, token);
      return;
    }
    const Json added = object_of(folder_, "added_tokens.json");
    for (const auto& [text, id] : added.items()) add(text, json_text(id), Json::object());
  }
  void add(const std::string& text, const std::string& id, Json flags) {
    std::int64_t number = 0;
    check(!text.empty() && parse_number(id, number) && flags.is_object(), ErrorKind::data, "tokenizer",
          "{}: the added token {} has the id {}", folder_, text, id);
    if (!known_.insert(text).second) return;
    flags["id"] = number;
    flags["content"] = text;
    document_["added_tokens"].push_back(std::move(flags));
  }
  /// A special token: its text, or an object with flags. special_tokens_map.json is used only without
  /// added_tokens_decoder. Without a setting the class's default applies.
  Json special(const std::string& name) const {
    if (!config_.contains("added_tokens_decoder") && specials_.contains(name)) return specials_[name];
    if (config_.contains(name)) return config_[name];
    const bool begins = name == "bos_token", ends = name == "eos_token", unknown = name == "unk_token";
    if (class_.starts_with("LlamaTokenizer")) return begins ? "<s>" : ends ? "</s>" : unknown ? Json("<unk>") : Json();
    if (gpt2_ && (begins || ends || unknown)) return "<|endoftext|>";
    return {};
  }
  /// Adds the special tokens, which are recognised in any text. Tokens that the vocabulary lacks get the next ids.
  void add_specials() {
    const Json vocab = document_.contains("model") ? document_["model"].value("vocab", Json()) : Json();
    if (!vocab.is_object()) return;
    auto next = static_cast<std::int64_t>(vocab.size());
    for (const Json& token : document_["added_tokens"])
      next = std::max(next, value_or<std::int64_t>(token, "id", -1) + 1);
    const auto add_one = [&](const Json& token) {
      const std::string text = content_of(token);
      if (text.empty() || known_.contains(text)) return;
      const auto at = vocab.find(text);
      add(text, at != vocab.end() ? json_text(*at) : std::to_string(next++),
          token.is_object() ? token : Json::object());
    };
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
      add_one(special(name));
    if (const Json more = special("additional_special_tokens"); more.is_array())
      for (const Json& token : more) add_one(token);
  }
  /// LlamaTokenizerFast makes its own template and ignores that of tokenizer.json.
  Json llama_template() const {
    Json single = Json::array(), known = Json::object();
    const auto place = [&](const char* flag, bool usual, const char* name) {
      if (!value_or<bool>(config_, flag, usual)) return;
      const std::string text = content_of(special(name));
      for (const Json& token : document_["added_tokens"])
        if (content_of(token) == text) known[text] = {{"id", text}, {"ids", {token["id"]}}, {"tokens", {text}}};
      check(known.contains(text), ErrorKind::data, "tokenizer",
            "{}/tokenizer_config.json: {} needs a token, and {} is '{}', expected the text of a token", folder_, flag,
            name, text);
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    };
    place("add_bos_token", true, "bos_token");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    place("add_eos_token", false, "eos_token");
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", known}};
  }

  Json& document_;
  const std::string& folder_;
  Json config_, specials_;
  std::string class_;
  bool gpt2_;  ///< whether the class is GPT2Tokenizer
  std::set<std::string> known_;
};

}  // namespace

std::string with_folder_settings(std::string document, const std::string& folder, bool two_files) {
  const Json before = parse_json(document);
  if (!before.is_object()) return document;  // parse_tokenizer() reports the error
  Json after = before;
  if (!after.contains("added_tokens")) after["added_tokens"] = Json::array();
  const Json plain = after;
  FolderSettings(after, folder, two_files).apply(two_files);
  return after == plain ? document : json_text(after, NotUtf8::replaced);
}

}  // namespace trireme
