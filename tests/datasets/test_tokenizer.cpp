// Tokenizers: every byte back, ids as the `tokenizers` library's, files that are wrong.
#include "datasets/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "datasets/text/unicode.h"
#include "datasets/text/words.h"
#include "framework/io/json.h"
#include "tests/datasets/texts.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_tokenizer {

using namespace trireme;
using test::contains;
using test::slurp;
using test::spill;
namespace fs = std::filesystem;
using Ids = std::vector<std::int64_t>;

namespace {

std::string fixture(const std::string& name) { return (test::root() / "tests/fixtures/text" / name).string(); }

/// Bytes, mostly of what tokenizers look at.
std::string random_bytes(std::mt19937& random, std::size_t most) {
  static const std::vector<std::string> parts{" ",    "  ",       "\n",         "\r",           "'s",
                                              "'LL",  "'",        "the",        "ing",          "12345",
                                              "!?",   "\u00e9",   "\u3000",     "\u65e5\u672c", "<|endoftext|>",
                                              "\xff", "\xe2\x80", "\U0001f600", "\u017f",       "\xed\xa0\x80"};
  std::string text;
  for (std::size_t n = random() % (most + 1); text.size() < n;)
    text += random() % 4 == 0 ? std::string(1, static_cast<char>(random() % 256)) : parts[random() % parts.size()];
  return text;
}

/// The string whose ids differ first, or nothing.
std::string first_difference(const Tokenizer& tokenizer, const std::string& all, const std::vector<double>& sizes,
                             const std::vector<double>& expected) {
  std::size_t from = 0, at = 0;
  for (const double size : sizes) {
    const std::string text = all.substr(from, static_cast<std::size_t>(size));
    from += text.size();
    Ids ids;
    for (++at; at < expected.size() && expected[at] >= 0; ++at) ids.push_back(static_cast<std::int64_t>(expected[at]));
    if (tokenizer.encode(text) != ids) return "of " + json_text(text, NotUtf8::replaced, -1, true);
  }
  return at == expected.size() ? "" : "in how many there are";
}

}  // namespace

TEST_CASE("bytes, characters and BPE give every byte back, and their files make them again") {
  std::mt19937 random(3);
  const test::Temporary folder;
  const std::string text = "naïve \u65e5\u672c\u8a9e, don't \U0001f600!\n";
  for (const Tokenizer& tokenizer :
       {byte_tokenizer(), character_tokenizer(text), open_tokenizer(fixture("bpe.json"))}) {
    const std::string path = folder / "tokenizer.json";
    save_tokenizer(tokenizer, path);
    const Tokenizer again = open_tokenizer(path);
    INFO(tokenizer.name());
    CHECK(again.name() == tokenizer.name());
    CHECK(again.vocabulary() == tokenizer.vocabulary());
    CHECK(slurp(path) == again->saved());
    CHECK(tokenizer.encode("").empty());
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    const bool any_bytes = tokenizer.vocabulary() >= 256;
    for (int i = 0; i < 400; ++i) {
      std::string some = any_bytes ? random_bytes(random, 60) : "";
      if (!any_bytes)
        for (auto n = random() % 30; n > 0; --n)
          some += tokenizer->bytes(static_cast<std::int64_t>(random()) % tokenizer.vocabulary());
      const Ids ids = tokenizer.encode(some);
      REQUIRE(tokenizer.decode(ids) == some);
      REQUIRE(again.encode(some) == ids);
    }
    CHECK_ERROR(tokenizer.decode(Ids{0, tokenizer.vocabulary()}), data, 1, 0);
    CHECK_ERROR(tokenizer.decode(Ids{-1}), data, -1, 0);
  }
  CHECK(open_tokenizer("bytes").encode("a\xff") == Ids{97, 255});
}

TEST_CASE("characters have ids in the order of their code points") {
  const Tokenizer tokenizer = character_tokenizer("b\u00e9a\U0001f600a\n");
  CHECK(tokenizer.vocabulary() == 5);
  CHECK(tokenizer.encode("\nab\u00e9\U0001f600") == Ids{0, 1, 2, 3, 4});
  CHECK_ERROR(tokenizer.encode("abc"), data, 2, "U+0063", "\"c\"", 5);
  CHECK_ERROR(tokenizer.encode("ab\xff"), data, 2, "0xff", 8);
  CHECK_ERROR(character_tokenizer("a\xe2\x80"), data, "characters", 1);
  CHECK_ERROR(character_tokenizer(""), data, "characters");
  CHECK_ERROR(open_tokenizer("chars"), usage, "tokenizer", "character_tokenizer");
  if (const std::string text = test::king_james_bible(); !text.empty()) {
    const Tokenizer all = character_tokenizer(text);
    CHECK(all.vocabulary() == 73);  // len(set(text)) in Python
    CHECK(all.encode("\n !'(),-.09:;?A") == Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 18, 19, 20, 21, 22});
  }
}

TEST_CASE("every code point is UTF-8 and back, and no other bytes are") {
  Index codes = 0, wrong = 0, classes[4] = {};
  for (std::uint32_t code = 0; code < 0x120000; ++code) {
    std::string text;
    append_utf8(text, code);
    const CodePoint c = code_point(text + "\x80");
    if (!c.valid) continue;
    ++codes;
    ++classes[static_cast<std::size_t>(class_of(c))];
    wrong += c.code != code || c.size != text.size();
    for (std::size_t n = 1; n < text.size(); ++n) wrong += !code_point(text.substr(0, n)).cut;
  }
  CHECK(codes == 0x110000 - 0x800);
  CHECK(wrong == 0);
  CHECK(classes[static_cast<std::size_t>(CharacterClass::letter)] == 141028);  // of Unicode 16
  CHECK(classes[static_cast<std::size_t>(CharacterClass::number)] == 1911);
  CHECK(classes[static_cast<std::size_t>(CharacterClass::space)] == 25);
  for (const char* no : {"\xc0\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                         "\xf5\x80\x80\x80", "\x80", "\xff"})
    CHECK_FALSE(code_point(no).valid);
}

TEST_CASE("a terminal gets whole characters, however their bytes come") {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_bytes(random, 40);
    Utf8Stream whole, pieces;
    std::string expected = whole.push(text);
    expected += whole.finish();
    std::string found;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = random() % 4;
      const std::string some = pieces.push(text.substr(at, n));
      for (std::size_t k = 0; k < some.size(); k += code_point(some.substr(k)).size)
        REQUIRE(code_point(some.substr(k)).valid);
      found += some;
      at += n;
    }
    REQUIRE(found + pieces.finish() == expected);
  }
  Utf8Stream stream;
  CHECK(stream.push("a\xe2\x82") == "a");
  CHECK(stream.push("\xac") == "\u20ac");
  CHECK(stream.push("\xff") == "\ufffd");
  CHECK(stream.push("\xe2") == "");
  CHECK(stream.finish() == "\ufffd");
  CHECK(stream.finish() == "");
}

TEST_CASE("BPE of a small file: the library's ids, special tokens, and the same from GPT-2's two files") {
  const Tokenizer tokenizer = open_tokenizer(fixture("bpe.json"));
  CHECK(tokenizer.vocabulary() == 384);
  CHECK(tokenizer.special("<|endoftext|>") == 0);
  CHECK_FALSE(tokenizer.special("the"));
  for (const Json& one : parse_json(slurp(fixture("bpe.expected.json"))))
    CHECK(tokenizer.encode(one["text"].get<std::string>()) == one["ids"].get<Ids>());

  const test::Temporary folder;
  const Json model = parse_json(slurp(fixture("bpe.json")))["model"];
  std::string merges = "#version: 0.2\n";
  for (const Json& m : model["merges"]) merges += m[0].get<std::string>() + " " + m[1].get<std::string>() + "\r\n";
  spill(folder / "vocab.json", json_text(model["vocab"]));
  CHECK_ERROR(open_tokenizer(folder.path()), file, "tokenizer.json", "vocab.json", "merges.txt");
  spill(folder / "merges.txt", merges);
  const Tokenizer two_files = open_tokenizer(folder.path());
  save_tokenizer(two_files, folder / "tokenizer.json");
  for (const Tokenizer& same : {two_files, open_tokenizer(folder.path())})
    for (const Json& one : parse_json(slurp(fixture("bpe.expected.json"))))
      CHECK(same.encode(one["text"].get<std::string>()) == one["ids"].get<Ids>());
}

TEST_CASE("special tokens around a text are those of the post-processor") {
  Json document = parse_json(slurp(fixture("bpe.json")));
  const auto around = [&](const Json& processor) {
    document["post_processor"] = processor;
    const Tokenizer t = parse_tokenizer(json_text(document), "F");
    const Ids plain = t.encode("the"), all = t.encode_with_special("the");
    const auto at = std::ranges::search(all, plain);
    REQUIRE(!at.empty());
    return std::pair(Ids(all.begin(), at.begin()), Ids(at.end(), all.end()));
  };
  using Pair = std::pair<Ids, Ids>;
  const auto token = [](const char* name) { return Json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; };
  const Json text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, none = Json::array();
  const auto places = [&](const Json& single) {
    return Json{{"type", "TemplateProcessing"},
                {"single", single},
                {"pair", none},
                {"special_tokens",
                 {{"<s>", {{"id", "<s>"}, {"ids", {5}}, {"tokens", {"<s>"}}}},
                  {"</s>", {{"id", "</s>"}, {"ids", {6, 7}}, {"tokens", {"<", "/s>"}}}}}}};
  };
  const Json bytes{{"type", "ByteLevel"}, {"trim_offsets", true}};
  const Json first = places({token("<s>"), text}), both = places({token("<s>"), text, token("</s>")});
  CHECK(around(nullptr) == Pair());
  CHECK(around(bytes) == Pair());
  CHECK(around(first) == Pair({5}, {}));
  CHECK(around(both) == Pair({5}, {6, 7}));
  CHECK(around({{"type", "Sequence"}, {"processors", {bytes, first}}}) == Pair({5}, {}));
  CHECK(around({{"type", "RobertaProcessing"}, {"cls", {"<s>", 3}}, {"sep", {"</s>", 4}}}) == Pair({3}, {4}));
  for (const Json& bad : {Json{{"type", "Other"}}, places(none), places({text, text}), places({text, token("<x>")}),
                          Json{{"type", "BertProcessing"}, {"cls", {"<s>", 3}}, {"sep", {"</s>", 384}}}}) {
    INFO(json_text(bad));
    CHECK_ERROR(around(bad), data, "post_processor");
  }
}

TEST_CASE("files beside a tokenizer's add tokens and special tokens, or are refused") {
  const Json whole = parse_json(slurp(fixture("bpe.json")));
  const Ids some = open_tokenizer(fixture("bpe.json")).encode("the "),
            more = open_tokenizer(fixture("bpe.json")).encode(" the ");
  for (const bool two_files : {false, true}) {
    const test::Temporary folder;
    INFO(two_files);
    if (two_files) {
      std::string merges;
      for (const Json& m : whole["model"]["merges"])
        merges += m[0].get<std::string>() + " " + m[1].get<std::string>() + "\n";
      spill(folder / "vocab.json", json_text(whole["model"]["vocab"]));
      spill(folder / "merges.txt", merges);
    } else {
      spill(folder / "tokenizer.json", slurp(fixture("bpe.json")));
    }
    const auto encoded = [&](const std::string& text) {
      return open_tokenizer(folder.path()).encode_with_special(text);
    };
    const auto followed = [](Ids ids, std::int64_t id) {
      ids.push_back(id);
      return ids;
    };
    spill(folder / "added_tokens.json", R"({"<|im_end|>": 384})");
    CHECK(open_tokenizer(folder.path()).vocabulary() == 385);
    CHECK(encoded("the <|im_end|>") == followed(some, 384));
    const auto settings = [&](const Json& json) { spill(folder / "tokenizer_config.json", json_text(json)); };
    settings(
        {{"added_tokens_decoder", {{"384", {{"content", "<|a|>"}, {"special", true}}}}}});  // this one alone is read
    CHECK(encoded("the <|a|>") == followed(some, 384));
    settings({{"added_tokens_decoder", {{"384", {{"content", "<|a|>"}, {"lstrip", true}}}}}});
    CHECK_ERROR(encoded("the"), data, "lstrip");
    settings({{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}});
    CHECK(encoded("the <|im_end|>") == followed(more, 384));
    const Ids word = encoded("framework");
    settings({{"eos_token", "rame"}});  // one of the vocabulary is found wherever it is
    CHECK(encoded("framework") != word);
    if (two_files) {
      settings({{"tokenizer_class", "RobertaTokenizer"}});
      CHECK_ERROR(encoded("the"), data, "RobertaTokenizer");
      continue;
    }
    settings({{"tokenizer_class", "LlamaTokenizerFast"}, {"bos_token", "<|endoftext|>"}});
    Ids begun = some;
    begun.insert(begun.begin(), 0);
    CHECK(encoded("the ") == begun);
    settings({{"tokenizer_class", "LlamaTokenizerFast"},
              {"add_bos_token", false},
              {"add_eos_token", true},
              {"eos_token", {{"content", "<|im_end|>"}}}});
    CHECK(encoded("the ") == followed(some, 384));
    settings({{"tokenizer_class", "LlamaTokenizer"}});  // its own <s>, </s> and <unk> follow <|im_end|>
    begun[0] = 385;
    CHECK(encoded("the ") == begun);
    CHECK(open_tokenizer(folder.path()).vocabulary() == 388);
    settings({{"tokenizer_class", "LlamaTokenizer"}, {"bos_token", ""}});
    CHECK_ERROR(encoded("the"), data, "bos_token");
    fs::remove(folder / "added_tokens.json");
    settings({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_bos_token", true}, {"bos_token", "<|endoftext|>"}});
    CHECK(encoded("the ") == some);
    CHECK(open_tokenizer(folder.path())->saved() == slurp(fixture("bpe.json")));
  }
}

TEST_CASE("special tokens that a vocabulary lacks get the ids that transformers gives them") {
  const test::Oracle oracle;
  const Json whole = parse_json(slurp(fixture("bpe.json")));
  const Json fast{{"tokenizer_class", "PreTrainedTokenizerFast"}}, map{{"bos_token", "<Y>"}, {"pad_token", "<X>"}};
  const auto with = [](Json base, const Json& more) {
    base.update(more);
    return base;
  };
  const Json flags{
      {"special", true}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}, {"single_word", false}};
  struct Case {
    std::string name;
    Json config = nullptr, map = nullptr, added = nullptr;  // null: no file
    Ids ids;                                                // of "<X><Y><pad><M>", each token that is none left out
  };
  const Case cases[] = {
      {"map", fast, {{"bos_token", "<X>"}, {"pad_token", "<pad>"}, {"eos_token", "<Y>"}}, nullptr, {384, 385, 386}},
      {"config",
       with(fast, {{"pad_token", "<pad>"}, {"bos_token", "<X>"}, {"additional_special_tokens", {"<M>", "<Y>"}}}),
       nullptr,
       nullptr,
       {384, 387, 385, 386}},
      {"map_wins", with(fast, {{"pad_token", "<pad>"}}), map, nullptr, {385, 384}},
      {"decoder_hides_map",
       with(fast, {{"added_tokens_decoder", {{"384", with(flags, {{"content", "<M>"}})}}}}),
       map,
       nullptr,
       {384}},
      {"after_added", fast, map, {{"<M>", 384}}, {386, 385, 384}},
      {"object",
       with(fast, {{"pad_token", with(flags, {{"__type", "AddedToken"}, {"content", "<X>"}})}}),
       nullptr,
       nullptr,
       {384}},
      {"null", with(fast, {{"pad_token", nullptr}, {"bos_token", "<Y>"}}), nullptr, nullptr, {384}},
      {"gpt2", {{"tokenizer_class", "GPT2Tokenizer"}, {"pad_token", "<pad>"}}, nullptr, nullptr, {384}},
      {"llama",
       {{"tokenizer_class", "LlamaTokenizerFast"}, {"bos_token", "<X>"}, {"eos_token", "<Y>"}},
       nullptr,
       nullptr,
       {384, 385}}};
  for (const Case& c : cases) {
    INFO(c.name);
    const std::string folder = (oracle.folder() / c.name).string();
    fs::create_directories(folder);
    spill(folder + "/tokenizer.json", slurp(fixture("bpe.json")));
    spill(folder + "/config.json", R"({"model_type": "gpt2"})");
    for (const auto& [file, json] :
         {std::pair("tokenizer_config.json", c.config), std::pair("special_tokens_map.json", c.map),
          std::pair("added_tokens.json", c.added)})
      if (!json.is_null()) spill(folder + "/" + file, json_text(json));
    const Tokenizer tokenizer = open_tokenizer(folder);
    const Ids all = tokenizer.encode("<X><Y><pad><M>");
    Ids special;
    std::ranges::copy_if(all, std::back_inserter(special), [](std::int64_t id) { return id >= 384; });
    CHECK(special == c.ids);
    Json expected = Json::object();
    for (const char* text : {"the <X>x<Y><pad> <M><unk>rame", "<|endoftext|><s>"})
      expected[text] = tokenizer.encode_with_special(text);
    spill(folder + "/ids.json", json_text(expected));
  }
  if (oracle.run("tokenizer_folders.py", "", test::Python::oracles)) SUCCEED("transformers has the same ids");
}

TEST_CASE("what a tokenizer.json may not say is refused, by name") {
  const Json good = parse_json(slurp(fixture("bpe.json")));
  const auto said = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    try {
      parse_tokenizer(json_text(bad), "F");
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("accepted");
  };
  const Json split = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  Json removed = split, known = split;
  removed["pretokenizers"][0]["behavior"] = "Removed";
  known["pretokenizers"][0]["pattern"]["Regex"] = llama3_pattern;
  const struct {
    const char* at;
    Json value;
    const char* says;
  } cases[] = {
      {"/model/type", "Unigram", "its model is 'type' \"\"Unigram\"\""},
      {"/model/dropout", 0.1, "'dropout' \"0.1\""},
      {"/model/byte_fallback", true, "'byte_fallback'"},
      {"/model/end_of_word_suffix", "</w>", "'end_of_word_suffix'"},
      {"/model/ignore_merges", 3, "'ignore_merges' must be true or false"},
      {"/model/vocab", 3, "has no object 'vocab'"},
      {"/model/vocab/a", -1, "has the id \"-1\", expected one of [0, "},
      {"/model/vocab/a", 1.5, "has the id \"1.5\""},
      {"/model/vocab/a", 1u << 30, "has the id"},
      {"/model/vocab/a", 3, "the id 3 is that of"},
      {"/model/merges", 3, "has no list 'merges'"},
      {"/model/merges/4", "ab", "merge 4, "},
      {"/model/merges/4", {"a", "\u65e5"}, "merge 4, "},
      {"/model/merges/4", "a b c", "must be two tokens, both and joined of the vocabulary"},
      {"/normalizer", {{"type", "NFC"}}, "it has 'normalizer'"},
      {"/pre_tokenizer", nullptr, "has no object 'pre_tokenizer'"},
      {"/pre_tokenizer/type", "Whitespace", "only ByteLevel"},
      {"/pre_tokenizer", split, "words are cut by \"\\\\w+\"; the patterns of GPT-2 and of Llama 3 (cl100k) are known"},
      {"/pre_tokenizer", removed, "a Split must be Isolated"},
      {"/pre_tokenizer", known, "accepted"},
      {"/added_tokens", 3, "'added_tokens' must be a list"},
      {"/added_tokens/0/content", "", "an added token has no content"},
      {"/added_tokens/0/lstrip", true, "'lstrip' \"true\""},
      {"/added_tokens/0/id", 7, "has the id 0 in the vocabulary, and another id"}};
  for (const auto& c : cases) {
    INFO(c.at << " " << json_text(c.value));
    CHECK_THAT(said(c.at, c.value), contains(c.says));
  }
  CHECK_ERROR(parse_tokenizer("[1]", "F"), data, "tokenizer", "F");
  CHECK_ERROR(parse_tokenizer("{", "F"), data, "tokenizer", "F");
  CHECK_ERROR(parse_tokenizer("{}", "F"), data, "tokenizer", "model");
  CHECK_ERROR(parse_tokenizer(R"({"trireme_tokenizer": "words"})", "F"), data, "bytes", "characters");
  CHECK_ERROR(open_tokenizer("/nowhere/tokenizer.json"), file, "file", "/nowhere/tokenizer.json");
  CHECK_ERROR(save_tokenizer({}, "F"), usage, "save_tokenizer", "F");
  Json few = good;  // a vocabulary without the byte 'z'
  few["model"]["vocab"].erase("z");
  few["model"]["merges"] = Json::array();
  const Tokenizer lacks = parse_tokenizer(json_text(few), "F");
  CHECK(lacks.encode("abc").size() == 3);
  CHECK_ERROR(lacks.encode("a zoo"), data, "0x7a", "\" zoo\"");
}

TEST_CASE("BPE has the ids of the tokenizers library: whole books, and odd strings of all planes") {
  const test::Oracle oracle;
  const std::string bible = test::king_james_bible();
  // The first quarter trains the BPE. The rest has words that the BPE has not seen.
  const std::size_t quarter = bible.empty() ? 0 : bible.find('\n', bible.size() / 4) + 1;
  oracle.note("train.txt",
              bible.empty() ? slurp((test::root() / "CONTRIBUTING.md").string()) : bible.substr(0, quarter));
  if (!bible.empty()) oracle.note("bible.txt", bible.substr(quarter));
  if (!oracle.run("bpe_tokenizers.py", "", test::Python::oracles)) return;
  const auto file = [&](const std::string& name) { return (oracle.folder() / name).string(); };
  const std::string strings = slurp(file("strings.bin"));
  const auto sizes = oracle.get("strings");
  for (const std::string name : {"gpt2", "prefix", "llama3", "whole"}) {
    INFO(name);
    const Tokenizer tokenizer = open_tokenizer(file(name + ".json"));
    CHECK(first_difference(tokenizer, strings, sizes, oracle.get("strings." + name)) == "");
    if (name == "whole") continue;
    for (const std::string text : {"train", "bible"}) {
      if (text == "bible" && bible.empty()) continue;
      INFO(text);
      const auto expected = oracle.get(text + "." + name);
      const Ids ids = tokenizer.encode(slurp(file(text + ".txt")));
      CHECK(std::ranges::equal(ids, expected, [](std::int64_t a, double b) { return static_cast<double>(a) == b; }));
    }
  }
  // From vocab.json and merges.txt; these name no added tokens but "<|endoftext|>".
  const Tokenizer tokenizer = open_tokenizer(file("gpt2")), same = open_tokenizer(file("gpt2.json"));
  const std::string text = slurp(file("train.txt")) + "<|endoftext|>";
  CHECK(tokenizer.encode(text) == same.encode(text));
  CHECK(tokenizer.encode("<|endoftext|>").size() == 1);
  std::string windows = "\xef\xbb\xbf";  // as an editor of Windows saves it
  for (const char c : slurp(file("gpt2/merges.txt"))) windows += c == '\n' ? "\r\n" : std::string(1, c);
  spill(file("gpt2/merges.txt"), windows);
  CHECK(open_tokenizer(file("gpt2")).encode(text) == same.encode(text));
}

}  // namespace test_tokenizer
