#include "datasets/text/folder_settings.h"

#include <fmt/core.h>

#include <filesystem>
#include <set>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A JSON object of a folder; an empty one where there is no such file.
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

/// Changes a tokenizer.json as the files beside it say.
class FolderSettings {
 public:
  FolderSettings(Json& document, const std::string& folder)
      : document_(document),
        folder_(folder),
        config_(object_of(folder, "tokenizer_config.json")),
        specials_(object_of(folder, "special_tokens_map.json")),
        class_(value_or<std::string>(config_, "tokenizer_class", "")) {
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
    const bool gpt2 = two_files || class_.starts_with("GPT2Tokenizer");
    if (gpt2 && words.is_object() && words.contains("add_prefix_space"))
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
    flags["id"] = number, flags["content"] = text;
    document_["added_tokens"].push_back(std::move(flags));
  }
  /// Special tokens of the vocabulary are found in a text as they are.
  void add_specials() {
    const Json vocab = document_.contains("model") ? document_["model"].value("vocab", Json()) : Json();
    const auto add_one = [&](const Json& token) {
      const std::string text = content_of(token);
      const auto at = vocab.is_object() ? vocab.find(text) : vocab.end();
      if (!text.empty() && at != vocab.end()) add(text, json_text(*at), Json::object());
    };
    for (const Json* of : {&config_, &specials_}) {
      for (const char* name :
           {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
        if (of->contains(name)) add_one((*of)[name]);
      if (const Json more = of->value("additional_special_tokens", Json()); more.is_array())
        for (const Json& token : more) add_one(token);
    }
  }
  /// LlamaTokenizerFast makes its own, whatever tokenizer.json has.
  Json llama_template() const {
    Json single = Json::array(), known = Json::object();
    const auto place = [&](const char* flag, bool usual, const char* name, const char* otherwise) {
      if (!value_or<bool>(config_, flag, usual)) return;
      std::string text = content_of(config_.value(name, Json()));
      if (text.empty()) text = content_of(specials_.value(name, Json(otherwise)));
      for (const Json& token : document_["added_tokens"])
        if (content_of(token) == text) known[text] = {{"id", text}, {"ids", {token["id"]}}, {"tokens", {text}}};
      check(known.contains(text), ErrorKind::data, "tokenizer",
            "{}/tokenizer_config.json: {} is to put {} around a text, which is no token of the tokenizer: give its "
            "{}",
            folder_, flag, text, name);
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    };
    place("add_bos_token", true, "bos_token", "<s>");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    place("add_eos_token", false, "eos_token", "</s>");
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", known}};
  }

  Json& document_;
  const std::string& folder_;
  Json config_, specials_;
  std::string class_;
  std::set<std::string> known_;
};

}  // namespace

std::string with_folder_settings(std::string document, const std::string& folder, bool two_files) {
  const Json before = parse_json(document);
  if (!before.is_object()) return document;  // parse_tokenizer() will tell
  Json after = before;
  if (!after.contains("added_tokens")) after["added_tokens"] = Json::array();
  const Json plain = after;
  FolderSettings(after, folder).apply(two_files);
  return after == plain ? document : json_text(after, NotUtf8::replaced);
}

}  // namespace trireme
