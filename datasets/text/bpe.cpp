#include "datasets/text/bpe.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <list>
#include <queue>
#include <unordered_map>

#include "datasets/text/unicode.h"
#include "datasets/text/words.h"
#include "framework/io/bytes.h"
#include "framework/io/lines.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr std::int64_t most_ids = 1 << 21;

/// The characters that represent bytes in GPT-2's files. Printable Latin-1 bytes represent themselves; the others are
/// U+0100 and the following code points, in order.
struct ByteCharacters {
  std::array<std::uint32_t, 256> code{};  // by byte
  std::array<std::int16_t, 324> byte{};   // by code point; -1: none
};
constexpr ByteCharacters byte_characters = [] {
  ByteCharacters all;
  all.byte.fill(-1);
  std::uint32_t next = 0x100;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
    all.code[b] = itself ? b : next++;
    all.byte[all.code[b]] = static_cast<std::int16_t>(b);
  }
  return all;
}();

/// The bytes that a token of a file represents. None if a character represents no byte: the token then is its own text.
std::optional<std::string> token_bytes(const std::string& token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint c = code_point(std::string_view(token).substr(at));
    if (!c.valid || c.code >= byte_characters.byte.size() || byte_characters.byte[c.code] < 0) return {};
    bytes += static_cast<char>(byte_characters.byte[c.code]);
    at += c.size;
  }
  return bytes;
}

/// A token that is searched in the text before it is cut into words.
struct Added {
  std::string text;
  std::int32_t id = 0;
};
struct Merge {
  std::int32_t rank = 0, id = 0;  // rank of the pair, and id of the merged token
};
std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

struct BpeParts {
  WordPattern pattern = WordPattern::gpt2;
  bool prefix_space = false;                          // put a space before each text that does not begin with one
  bool whole_words = false;                           // ignore_merges: a word that is a token is not merged from parts
  std::vector<std::string> tokens;                    // bytes of each token, by id
  std::array<std::int32_t, 256> of_byte{};            // ids of the tokens of one byte; -1: none
  std::unordered_map<std::string, std::int32_t> ids;  // id by bytes; only for whole_words
  std::unordered_map<std::uint64_t, Merge> merges;    // by pair_of()
  std::vector<Added> first, second;                   // first: searched in the text; second: searched in the rest
  std::vector<std::int64_t> front, back;              // special ids around a text, from post-processors
  std::string file;
};

class Bpe final : public TokenizerModel {
 public:
  explicit Bpe(BpeParts parts) : p_(std::move(parts)) {}
  std::string name() const override { return fmt::format("BPE of {}", vocabulary()); }
  Index vocabulary() const override { return std::ssize(p_.tokens); }
  std::string_view bytes(std::int64_t id) const override { return p_.tokens[static_cast<std::size_t>(id)]; }
  std::string saved() const override { return p_.file; }
  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> around() const override {
    return {p_.front, p_.back};
  }
  std::optional<std::int64_t> special(std::string_view text) const override {
    for (const auto* list : {&p_.first, &p_.second})
      for (const Added& a : *list)
        if (a.text == text) return a.id;
    return {};
  }
  std::vector<std::int64_t> encode(std::string_view text) const override {
    Work work{.text = text};
    split(text, p_.first, work, [&](std::string_view between) {
      split(between, p_.second, work, [&](std::string_view rest) { words(rest, work); });
    });
    return std::move(work.ids);
  }

 private:
  struct Symbol {
    std::int32_t id;
    Index before, after;  // indices of neighbours, -1: none; id -1: merged into the neighbour before
  };
  struct Candidate {
    std::int32_t rank, id;
    Index at;
    bool operator<(const Candidate& other) const {  // the priority queue returns the lowest rank first, then the
                                                    // leftmost
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  struct Span {
    std::size_t begin, count;
  };
  /// State of one call: the ids so far, the words encoded so far, and reused memory.
  struct Work {
    std::string_view text;
    std::vector<std::int64_t> ids = {};
    std::unordered_map<std::string_view, Span> seen = {};  // position of an encoded word's ids in `ids`
    std::list<std::string> prefixed = {};                  // texts to which `seen` refers
    std::vector<Symbol> symbols = {};
    std::priority_queue<Candidate> queue = {};
  };

  /// Appends the ids of added tokens (the longest if several match) and calls then(text) for the text between them.
  template <class Then>
  static void split(std::string_view text, const std::vector<Added>& added, Work& work, const Then& then) {
    std::array<bool, 256> begins{};
    for (const Added& a : added) begins[static_cast<unsigned char>(a.text[0])] = true;
    std::size_t from = 0;
    for (std::size_t at = 0; !added.empty() && at < text.size();) {
      const Added* found = nullptr;
      if (begins[static_cast<unsigned char>(text[at])])
        for (const Added& a : added)
          if (text.substr(at).starts_with(a.text) && (!found || a.text.size() > found->text.size())) found = &a;
      if (!found) {
        ++at;
        continue;
      }
      if (at > from) then(text.substr(from, at - from));
      work.ids.push_back(found->id);
      from = at += found->text.size();
    }
    if (from < text.size()) then(text.substr(from));
  }

  void words(std::string_view text, Work& work) const {
    if (p_.prefix_space && !text.starts_with(' ')) text = work.prefixed.emplace_back(" " + std::string(text));
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = word_end(p_.pattern, text, at);
      const std::string_view word = text.substr(at, end - at);
      const auto [known, is_new] = work.seen.try_emplace(word);
      if (is_new) {
        const std::size_t begin = work.ids.size();
        encode_word(word, work);
        known->second = {begin, work.ids.size() - begin};
        continue;
      }
      for (std::size_t i = 0; i < known->second.count; ++i) work.ids.push_back(work.ids[known->second.begin + i]);
    }
  }

  void encode_word(std::string_view word, Work& work) const {
    if (p_.whole_words)
      if (const auto at = p_.ids.find(std::string(word)); at != p_.ids.end()) return work.ids.push_back(at->second);
    auto& symbols = work.symbols;
    symbols.clear();
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      check(
          p_.of_byte[byte] >= 0, ErrorKind::data, "encode",
          "the byte {:#04x} of the word {} has no token in the vocabulary of {}", byte, [&] { return in_quotes(word); },
          vocabulary());
      const Index i = std::ssize(symbols);
      symbols.push_back({p_.of_byte[byte], i - 1, i + 1});
    }
    symbols.back().after = -1;
    merge(work);
    for (const Symbol& s : symbols)
      if (s.id >= 0) work.ids.push_back(s.id);
  }

  /// Merges pairs, lowest rank first, until no pair is left.
  void merge(Work& work) const {
    auto& symbols = work.symbols;
    const auto at = [&](Index i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
    const auto find = [&](Index left) {
      const Index right = at(left).after;
      return right < 0 ? p_.merges.end() : p_.merges.find(pair_of(at(left).id, at(right).id));
    };
    const auto offer = [&](Index left) {
      if (const auto m = find(left); m != p_.merges.end()) work.queue.push({m->second.rank, m->second.id, left});
    };
    for (Index i = 0; i < std::ssize(symbols); ++i) offer(i);
    while (!work.queue.empty()) {
      const Candidate c = work.queue.top();
      work.queue.pop();
      if (at(c.at).id < 0) continue;
      if (const auto m = find(c.at); m == p_.merges.end() || m->second.id != c.id)
        continue;  // the pair has changed
                   // since it was queued
      const Index right = at(c.at).after, after = at(right).after;
      at(c.at).id = c.id;
      at(c.at).after = after;
      at(right).id = -1;
      if (after >= 0) at(after).before = c.at;
      if (at(c.at).before >= 0) offer(at(c.at).before);
      offer(c.at);
    }
  }

  BpeParts p_;
};

/// A value for a message: JSON on one line, shortened.
std::string as_text(const Json& value) { return in_quotes(json_text(value, NotUtf8::replaced, -1, true)); }

/// Reads a tokenizer.json.
class Reader {
 public:
  Reader(const Json& document, const std::string& path) : document_(document), path_(path) {}

  BpeParts read() {
    const Json& model = object(document_, "model");
    const auto type = model.find("type");  // older files have none
    refuse(type != model.end() && *type != "BPE", "its model is", model, "type");
    for (const char* empty : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& v = value(model, empty); !v.is_null() && v != "") refuse(true, "its model has", model, empty);
    for (const char* off : {"dropout", "byte_fallback"})
      if (const Json& v = value(model, off); !v.is_null() && v != false && v != 0)
        refuse(true, "its model has", model, off);
    refuse(!value(document_, "normalizer").is_null(), "it has", document_, "normalizer");
    parts_.whole_words = flag(model, "ignore_merges", false);
    pre_tokenizer();
    vocabulary(object(model, "vocab"));
    merges(value(model, "merges"));
    added(value(document_, "added_tokens"));
    post_processor(value(document_, "post_processor"));
    return std::move(parts_);
  }

 private:
  /// A member, or null.
  static const Json& value(const Json& of, const char* name) {
    static const Json none;
    const auto at = of.find(name);
    return at == of.end() ? none : *at;
  }
  const Json& object(const Json& of, const char* name) const {
    const Json& v = value(of, name);
    check(v.is_object(), ErrorKind::data, "tokenizer", "{} has no object '{}': it is no tokenizer.json", path_, name);
    return v;
  }
  bool flag(const Json& of, const char* name, bool otherwise) const {
    const Json& v = value(of, name);
    check(v.is_null() || v.is_boolean(), ErrorKind::data, "tokenizer", "{}: '{}' must be true or false", path_, name);
    return v.is_null() ? otherwise : v.get<bool>();
  }
  void refuse(bool wrong, const char* what, const Json& of, const char* name) const {
    check(!wrong, ErrorKind::data, "tokenizer",
          "{}: {} '{}' {}; byte-level BPE without normalizers, prefixes and dropout is read", path_, what, name,
          [&] { return as_text(value(of, name)); });
  }

  void pre_tokenizer() {
    const Json& all = object(document_, "pre_tokenizer");
    const bool sequence = value(all, "type") == "Sequence";
    const Json& list = sequence ? value(all, "pretokenizers") : all;
    const bool split = sequence && list.is_array() && list.size() == 2 && value(list[0], "type") == "Split";
    const Json& last = !sequence ? all : list.is_array() && !list.empty() ? list.back() : value(all, "none");
    const bool suits =
        last.is_object() && value(last, "type") == "ByteLevel" && (!sequence || split || list.size() == 1);
    refuse(!suits, "only ByteLevel pre-tokenizers, alone or after one Split, are supported; it has", document_,
           "pre_tokenizer");
    parts_.prefix_space = flag(last, "add_prefix_space", true);
    const bool cuts = flag(last, "use_regex", true);
    parts_.pattern = cuts ? WordPattern::gpt2 : WordPattern::whole;
    if (!split) return;
    refuse(parts_.prefix_space || cuts,
           "ByteLevel after a Split must have add_prefix_space and use_regex false, it has", all, "pretokenizers");
    const Json& cut = list[0];
    const Json& pattern =
        value(cut, "pattern").is_object() ? value(value(cut, "pattern"), "Regex") : value(cut, "none");
    refuse(value(cut, "behavior") != "Isolated" || flag(cut, "invert", false), "a Split must be Isolated, it has", cut,
           "behavior");
    check(pattern == gpt2_pattern || pattern == llama3_pattern, ErrorKind::data, "tokenizer",
          "{}: words are cut by {}; the patterns of GPT-2 and of Llama 3 (cl100k) are known", path_,
          [&] { return json_text(pattern, NotUtf8::replaced).substr(0, 300); });
    parts_.pattern = pattern == gpt2_pattern ? WordPattern::gpt2 : WordPattern::llama3;
  }

  /// Assigns an id to a token.
  void name(const std::string& token, const Json& id, std::string bytes) {
    check(
        id.is_number_integer() && id >= 0 && id < most_ids, ErrorKind::data, "tokenizer",
        "{}: the token {} has the id {}, expected one of [0, {})", path_, [&] { return in_quotes(token); },
        [&] { return as_text(id); }, most_ids);
    const auto at = id.get<std::size_t>();
    if (at >= taken_.size()) {
      taken_.resize(at + 1);
      parts_.tokens.resize(at + 1);
    }
    check(!taken_[at], ErrorKind::data, "tokenizer", "{}: the id {} is that of {} and of another token", path_, at,
          [&] { return in_quotes(token); });
    taken_[at] = true;
    parts_.tokens[at] = std::move(bytes);
    ids_.emplace(token, static_cast<std::int32_t>(at));
  }

  void vocabulary(const Json& vocab) {
    for (const auto& [token, id] : vocab.items()) {
      const auto bytes = token_bytes(token);
      name(token, id, bytes.value_or(token));
      if (bytes && parts_.whole_words) parts_.ids.emplace(*bytes, ids_.at(token));
    }
    for (std::size_t b = 0; b < 256; ++b) {
      std::string symbol;
      append_utf8(symbol, byte_characters.code[b]);
      const auto at = ids_.find(symbol);
      parts_.of_byte[b] = at == ids_.end() ? -1 : at->second;
    }
  }

  void merges(const Json& list) {
    check(list.is_array(), ErrorKind::data, "tokenizer", "{}: its model has no list 'merges'", path_);
    std::int32_t rank = 0;
    for (const Json& merge : list) {
      std::string left, right;
      if (merge.is_string()) {
        const auto& both = merge.get_ref<const std::string&>();
        const std::size_t space = both.find(' ');
        if (space != both.npos && both.find(' ', space + 1) == both.npos) {
          left = both.substr(0, space);
          right = both.substr(space + 1);
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0];
        right = merge[1];
      }
      const auto l = ids_.find(left), r = ids_.find(right), both = ids_.find(left + right);
      check(l != ids_.end() && r != ids_.end() && both != ids_.end(), ErrorKind::data, "tokenizer",
            "{}: merge {}, {}, must be two tokens, both and joined of the vocabulary", path_, rank,
            [&] { return as_text(merge); });
      parts_.merges.insert_or_assign(pair_of(l->second, r->second), Merge{rank++, both->second});
    }
  }

  void added(const Json& list) {
    if (list.is_null()) return;
    check(list.is_array(), ErrorKind::data, "tokenizer", "{}: 'added_tokens' must be a list", path_);
    for (const Json& token : list) {
      const Json& content = token.is_object() ? value(token, "content") : token;
      check(token.is_object() && content.is_string() && content != "", ErrorKind::data, "tokenizer",
            "{}: an added token has no content: {}", path_, [&] { return as_text(token); });
      for (const char* off : {"single_word", "lstrip", "rstrip"})
        refuse(flag(token, off, false), "added tokens must be found as they are, one has", token, off);
      const auto& text = content.get_ref<const std::string&>();
      const Json& id = value(token, "id");
      const auto known = ids_.find(text);
      if (known == ids_.end())
        name(text, id, text);
      else
        check(
            id == known->second, ErrorKind::data, "tokenizer",
            "{}: the added token {} has the id {} in the vocabulary, and another id in added_tokens", path_,
            [&] { return in_quotes(text); }, known->second);
      check(known == ids_.end() || token_bytes(text).value_or(text) == text, ErrorKind::data, "tokenizer",
            "{}: the added token {} is also one of the vocabulary, which stands for other bytes", path_,
            [&] { return in_quotes(text); });
      const std::int32_t at = ids_.at(text);
      (flag(token, "normalized", false) ? parts_.second : parts_.first).push_back({text, at});
    }
  }

  /// Processors of a list are applied in order, so the last one's tokens are the outermost.
  void post_processor(const Json& p) {
    const Json& type = value(p, "type");
    if (p.is_null() || type == "ByteLevel") return;  // changes only offsets
    if (const Json& list = value(p, "processors"); type == "Sequence" && list.is_array()) {
      for (const Json& each : list) post_processor(each);
    } else if (type == "TemplateProcessing") {
      place(template_of(p, true), template_of(p, false));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const auto id = [&](const char* key) {
        const Json& pair = value(p, key);
        return std::vector{special_id(pair.is_array() && pair.size() == 2 ? pair[1] : Json())};
      };
      place(id("cls"), id("sep"));
    } else {
      refuse(true, "special tokens are put around a text by templates, it has", document_, "post_processor");
    }
  }
  void place(std::vector<std::int64_t> front, const std::vector<std::int64_t>& back) {
    front.insert(front.end(), parts_.front.begin(), parts_.front.end());
    parts_.front = std::move(front);
    parts_.back.insert(parts_.back.end(), back.begin(), back.end());
  }
  std::int64_t special_id(const Json& id) const {
    check(
        id.is_number_integer() && id >= 0 && id < std::ssize(parts_.tokens), ErrorKind::data, "tokenizer",
        "{}: 'post_processor' has the id {}, and the tokens have [0, {})", path_, [&] { return as_text(id); },
        parts_.tokens.size());
    return id.get<std::int64_t>();
  }
  /// The ids of a TemplateProcessing before or after the text, its sequence A.
  std::vector<std::int64_t> template_of(const Json& p, bool before) const {
    const Json &single = value(p, "single"), &known = value(p, "special_tokens");
    std::vector<std::int64_t> ids;
    int texts = 0;
    for (const Json& part : single) {
      const Json &text = value(part, "Sequence"), &token = value(part, "SpecialToken");
      if (!text.is_null()) ++texts;
      if (token.is_null() || (texts == 0) != before) continue;
      const Json& name = value(token, "id");
      const Json& of = name.is_string() && known.is_object() ? value(known, name.get_ref<const std::string&>().c_str())
                                                             : value(known, "none");
      const Json& list = value(of, "ids");
      check(list.is_array(), ErrorKind::data, "tokenizer", "{}: 'post_processor' names {} and not its ids", path_,
            [&] { return as_text(name); });
      for (const Json& id : list) ids.push_back(special_id(id));
    }
    refuse(!single.is_array() || texts != 1, "the template of 'post_processor' must have the text once, it has", p,
           "single");
    return ids;
  }

  const Json& document_;
  const std::string& path_;
  BpeParts parts_;
  std::vector<bool> taken_;
  std::unordered_map<std::string, std::int32_t> ids_;  // by the token as written in the file
};

}  // namespace

std::shared_ptr<const TokenizerModel> read_bpe(const Json& document, std::string text, const std::string& path) {
  BpeParts parts = Reader(document, path).read();
  parts.file = std::move(text);
  return std::make_shared<Bpe>(std::move(parts));
}

std::string gpt2_document(std::string_view vocab_json, std::string_view merges_txt, const std::string& path) {
  Json vocab = parse_json(vocab_json);
  check(vocab.is_object(), ErrorKind::data, "tokenizer", "{}: vocab.json is no JSON object", path);
  Json merges = Json::array(), added = Json::array();
  for (const std::string& line : text_lines(merges_txt))
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  constexpr const char* end_of_text = "<|endoftext|>";
  if (const auto id = vocab.find(end_of_text); id != vocab.end())
    added.push_back({{"id", *id}, {"content", end_of_text}, {"special", true}});
  return json_text({{"added_tokens", added},
                    {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                    {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}}}},
                   NotUtf8::replaced);
}

}  // namespace trireme
