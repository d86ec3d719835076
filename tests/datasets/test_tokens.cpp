// Windows of text: each target once, random ones by (seed, epoch, id) on any number of ranks, splits, token files.
#include "datasets/text/tokens.h"

#include <cstring>
#include <random>
#include <set>

#include "datasets/core/loader.h"
#include "datasets/formats/open_dataset.h"
#include "datasets/text/text_files.h"
#include "framework/ops/attention.h"
#include "tests/datasets/texts.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_tokens {

using namespace trireme;
using test::contains;
using test::spill;
using Ids = std::vector<std::int64_t>;

namespace {

/// n bytes of which each place's neighbourhood is its own.
std::string numbered(std::size_t n) {
  std::mt19937 random(7);
  std::string text(n, ' ');
  for (char& c : text) c = static_cast<char>(random() % 256);
  return text;
}
std::int64_t byte(const std::string& text, Index at) {
  return static_cast<unsigned char>(text[static_cast<std::size_t>(at)]);
}

/// Little-endian numbers one behind the other.
template <class T>
std::string packed(const Ids& ids) {
  std::string bytes;
  for (const std::int64_t id : ids) {
    const T value = static_cast<T>(id);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}
std::string llm_c(const Ids& header, const std::string& tokens) {
  Ids all = header;
  all.resize(256);
  return packed<std::int32_t>(all) + tokens;
}
/// All tokens of a data set of strided windows, by what its windows say.
Ids all_tokens(const Dataset& data) {
  Ids all;
  for (Index i = 0; i < data->size(); ++i) {
    const Sample s = sample_of(data, i);
    if (i == 0) all.push_back(s.x.to_vector<Index>()[0]);
    for (const Index y : s.y.to_vector<Index>())
      if (y != -100) all.push_back(y);
  }
  return all;
}

/// (epoch, id) -> x and y, of all that the loaders of so many ranks hand out.
std::map<std::pair<Index, Index>, std::pair<Ids, Ids>> passes(const Dataset& data, int ranks, int epochs,
                                                              Index start_batch = 0) {
  std::map<std::pair<Index, Index>, std::pair<Ids, Ids>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(data, {.batch = 8,
                         .shuffle = true,
                         .seed = 11,
                         .shard = {rank, ranks},
                         .workers = rank % 2 + 1,
                         .start_batch = start_batch});
    for (Index e = 0; e < epochs; ++e)
      for (Batch& b : loader) {
        const Index T = b.x.dim(1);
        const auto ids = b.samples.to_vector<Index>(), x = b.x.to_vector<Index>(), y = b.y.to_vector<Index>();
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const auto row = [&](const Ids& of) {
            return Ids(of.begin() + static_cast<Index>(i) * T, of.begin() + static_cast<Index>(i + 1) * T);
          };
          CHECK(all.emplace(std::pair(e, ids[i]), std::pair(row(x), row(y))).second);
        }
      }
  }
  return all;
}

}  // namespace

TEST_CASE("strided windows have each token but the first as a target once") {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const Index n = 2 + static_cast<Index>(random() % 80), T = 1 + static_cast<Index>(random() % 20);
    const std::string text = numbered(static_cast<std::size_t>(n));
    const Dataset data = Tokens({.text = text, .context = T, .windows = Windows::strided});
    INFO(n << " tokens, windows of " << T);
    REQUIRE(data->size() == (n - 2) / T + 1);
    Index at = 0;
    for (Index id = 0; id < data->size(); ++id) {
      const Sample s = sample_of(data, id);
      REQUIRE(s.x.shape() == Shape{T});
      const auto x = s.x.to_vector<Index>(), y = s.y.to_vector<Index>();
      for (std::size_t k = 0; k < x.size(); ++k, ++at) {
        const bool real = at + 1 < n;
        REQUIRE(x[k] == (real ? byte(text, at) : 0));
        REQUIRE(y[k] == (real ? byte(text, at + 1) : -100));
      }
    }
    REQUIRE(at >= n - 1);
    const Sample both = data->tensors()->batch(Ids{data->size() - 1, 0});
    REQUIRE(both.x.rows(1, 2).to_vector() == sample_of(data, 0).x.to_vector());
    REQUIRE(both.y.rows(0, 1).to_vector() == sample_of(data, data->size() - 1).y.to_vector());
  }
}

TEST_CASE("random windows are those of the text, anywhere in it, by (seed, epoch, id) alone") {
  const std::string text = numbered(300);
  const Dataset data = Tokens({.text = text, .context = 7, .per_epoch = 2000});
  CHECK(data->size() == 2000);
  CHECK(Tokens({.text = text, .context = 7})->size() == 299 / 7);
  CHECK(Tokens({.text = text, .context = 299})->size() == 1);
  CHECK(data->classes() == 256);
  std::set<std::size_t> begins;
  const AugmentKey keys[] = {{1, 0}, {1, 1}, {2, 0}};
  std::set<Ids> by_key;
  for (const AugmentKey& key : keys) {
    Ids firsts;
    for (Index id = 0; id < data->size(); ++id) {
      const Sample s = sample_of(data, id, key);
      std::string x, y;
      for (const Index v : s.x.to_vector<Index>()) x += static_cast<char>(v);
      for (const Index v : s.y.to_vector<Index>()) y += static_cast<char>(v);
      const std::size_t at = text.find(x);
      REQUIRE(at != text.npos);
      REQUIRE(text.substr(at + 1, 7) == y);
      begins.insert(at);
      firsts.push_back(static_cast<Index>(at));
    }
    by_key.insert(firsts);
  }
  CHECK(by_key.size() == std::size(keys));
  CHECK(begins.size() == 293);  // each place from 0 to n - T - 1: 6000 draws leave one out with a chance of 4e-7
  CHECK(*begins.begin() == 0);
  CHECK(*begins.rbegin() == 292);
}

TEST_CASE("windows are the same on any number of ranks, and after a resume") {
  const std::string text = numbered(500);
  for (const Windows windows : {Windows::random, Windows::strided}) {
    const Dataset data = Tokens({.text = text, .context = 9, .windows = windows, .per_epoch = 45});
    const auto serial = passes(data, 1, 2);
    CHECK(std::ssize(serial) == 2 * data->size());
    for (const int ranks : {2, 3, 4}) CHECK(passes(data, ranks, 2) == serial);
    Index found = 0;
    for (const auto& [key, rows] : passes(data, 3, 2, 4)) {
      ++found;
      CHECK(serial.at(key) == rows);
    }
    CHECK(found == 2 * data->size() - 4 * 8);
  }
}

TEST_CASE("a text's last characters are the test split; characters are counted, not bytes") {
  const test::Temporary folder;
  std::string text;
  for (int i = 0; i < 95; ++i) text += i % 3 ? "\u00e9" : "x\n";
  spill(folder / "text.md", text);
  const OpenOptions options{.root = folder / "text.md", .context = 4, .tokenizer = "chars"};
  const Dataset train = open_dataset("text", "train", options), validation = open_dataset("text", "test", options);
  const Index n = 95 + 32, cut = 114;  // floor(127 * 0.9)
  CHECK(train->classes() == 3);
  CHECK(train->shape() == Shape{4});
  CHECK(text_of(train)->tokens() == cut);
  CHECK(text_of(validation)->tokens() == n - cut);
  CHECK(text_of(train)->bytes() + text_of(validation)->bytes() == std::ssize(text));
  CHECK(text_of(train)->tokenizer().decode(all_tokens(validation)) ==
        text.substr(static_cast<std::size_t>(text_of(train)->bytes())));
  CHECK(train->size() == 113 / 4);
  CHECK(validation->size() == 3);
  CHECK(open_dataset("text", "train", {.root = folder / "text.md", .context = 9})->classes() == 256);
  CHECK(open_dataset("text", "train", {.root = folder / "text.md", .context = 2, .windows = 1000})->size() == 1000);
  CHECK(text_of(open_dataset("text", "train", {.root = folder / "text.md", .context = 2, .test_split = 0}))->bytes() ==
        std::ssize(text));
  for (const auto& [share, held] : {std::pair(0.0, 0), {0.25, 29}}) {  // of the 114 tokens in front of the test split
    const OpenOptions o{
        .root = folder / "text.md", .context = 2, .tokenizer = options.tokenizer, .validation_split = share};
    const Dataset part = open_dataset("text", "train", o);
    CHECK(text_of(part)->tokens() == cut - held);
    if (held > 0) CHECK(text_of(open_dataset("text", "validation", o))->tokens() == held);
    CHECK(text_of(open_dataset("text", "test", o))->tokens() == n - cut);
  }
  CHECK(text_of(open_dataset("mnist", "test")) == nullptr);
  CHECK(text_of({}) == nullptr);
  CHECK_ERROR(open_dataset("text", "test", {.root = folder / "text.md", .test_split = 0}), data, 0, 2);
  CHECK_ERROR(open_dataset("text", "train", {}), usage, "text", "root");
  CHECK_ERROR(open_dataset("text", "train", {.root = folder / "none"}), file, "none");
  CHECK_ERROR(open_dataset("text", "train", {.root = folder / "text.md", .tokenizer = "/nowhere"}), file, "file",
              "/nowhere");
  if (const std::string all = test::king_james_bible(); !all.empty()) {
    // nanoGPT's split: int(0.9 * 4404412) characters train, the rest validates.
    spill(folder / "bible.txt", all);
    for (const auto& [split, tokens] : {std::pair("train", 3963970), std::pair("test", 440442)}) {
      const Dataset data =
          open_dataset("text", split, {.root = folder / "bible.txt", .context = 64, .tokenizer = "chars"});
      CHECK(text_of(data)->tokens() == tokens);
      CHECK(data->classes() == 73);
    }
  }
}

TEST_CASE("a folder's files come in the order of their names, and its training and validation files are the splits") {
  const test::Temporary folder;
  const auto read = [&](const std::string& split) {
    const Dataset data = Tokens({.path = folder.path(), .split = split, .context = 3, .windows = Windows::strided});
    return byte_tokenizer().decode(all_tokens(data));
  };
  CHECK_ERROR(read(""), data, "text");
  spill(folder / "b.c", "BBBB");
  spill(folder / "a.c", "AAAA");
  spill(folder / ".hidden", "no");
  CHECK(read("") == "AAAABBBB");
  CHECK(read("train") == "AAAABBB");
  spill(folder / "z.txt", "ZZ");
  spill(folder / "y.txt", "YY");
  CHECK(read("") == "YYZZ");
  spill(folder / "poem_train_2.txt", "22");
  spill(folder / "poem_train_1.txt", "11");
  spill(folder / "constrain.txt", "CC");
  CHECK(read("") == "CC1122YYZZ");
  spill(folder / "val.txt", "VVV");
  CHECK(read("train") == "1122");
  CHECK(read("test") == "VVV");
  CHECK(read("") == "1122VVV");
  const Dataset chars = Tokens({.path = folder.path(), .split = "train", .characters = true, .context = 3});
  CHECK(chars->classes() == 3);  // those of both splits
}

TEST_CASE("token files: nanoGPT's and llm.c's, mapped, alone and as shards") {
  const test::Temporary folder;
  std::mt19937 random(2);
  Ids ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(random() % 50257);
  ids[500] = 50256;
  const auto open = [&](const std::string& path, const std::string& split = "", const Tokenizer& tokenizer = {}) {
    return Tokens({.path = path, .split = split, .tokenizer = tokenizer, .context = 33, .windows = Windows::strided});
  };
  const auto part = [&](Index from, Index to) { return Ids(ids.begin() + from, ids.begin() + to); };
  spill(folder / "nano.bin", packed<std::uint16_t>(ids));
  spill(folder / "llm.dat", llm_c({20240520, 1, 1000}, packed<std::uint16_t>(ids)));
  spill(folder / "llama.dat", llm_c({20240801, 7, 1000}, packed<std::uint32_t>(ids)));
  for (const char* name : {"nano.bin", "llm.dat", "llama.dat"}) {
    const Dataset data = open(folder / name);
    CHECK(all_tokens(data) == ids);
    CHECK(data->classes() == 50257);
    CHECK(text_of(data)->bytes() == 0);
    CHECK_FALSE(bool(text_of(data)->tokenizer()));
    CHECK(all_tokens(open(folder / name, "train")) == part(0, 900));
    CHECK(all_tokens(open(folder / name, "test")) == part(900, 1000));
  }
  const std::string shards = folder / "shards";
  std::filesystem::create_directory(shards);
  spill(shards + "/x_train_000.bin", llm_c({20240520, 1, 100}, packed<std::uint16_t>(part(0, 100))));
  spill(shards + "/x_train_001.bin", packed<std::uint16_t>(part(100, 400)));
  spill(shards + "/x_train_002.bin", "");
  spill(shards + "/x_val_000.bin", packed<std::uint16_t>(part(400, 1000)));
  spill(shards + "/meta.pkl", "?");
  CHECK(all_tokens(open(shards, "train")) == part(0, 400));
  CHECK(all_tokens(open(shards, "test")) == part(400, 1000));
  CHECK(all_tokens(open(shards)) == ids);
  CHECK(open(shards, "train")->classes() == 50257);  // of both splits

  // A tokenizer says how many bytes there are, and which ids there may be.
  const Tokenizer bpe = open_tokenizer((test::root() / "tests/fixtures/text/bpe.json").string());
  const std::string text = "the tests of the kernel, the recipe and the rest of what there is";
  spill(folder / "bpe.bin", packed<std::uint16_t>(bpe.encode(text)));
  const Dataset data = open(folder / "bpe.bin", "", bpe);
  CHECK(text_of(data)->bytes() == std::ssize(text));
  CHECK(data->classes() == 384);
  CHECK(bpe.decode(all_tokens(data)) == text);
  const Dataset wrong = open(shards, "train", bpe);
  CHECK_ERROR(sample_of(wrong, 3), data, "text", 384);
  CHECK_ERROR(Tokens({.path = folder / "nano.bin", .characters = true}), usage, "text");
}

TEST_CASE("windows of a text with separators say where each token's document begins in them") {
  const std::string text = "\nab\nc\n\ndefghijklmnop\n";
  for (const Windows windows : {Windows::random, Windows::strided}) {
    const Dataset plain = Tokens({.text = text, .context = 7, .windows = windows}),
                  data = Tokens({.text = text, .context = 7, .windows = windows, .separator = '\n'});
    Loader loader(data, {.batch = 2, .shuffle = false, .seed = 3}),
        same(plain, {.batch = 2, .shuffle = false, .seed = 3});
    auto other = same.begin();
    for (Batch& b : loader) {
      CHECK(b.x.to_vector() == (*other).x.to_vector());
      ++other;
      CHECK(b.x.at("first_keys").to_vector() == document_starts(b.x, '\n').to_vector());
    }
    CHECK(plain->size() == data->size());
    CHECK(sample_of(plain, 0).x.fields().empty());
  }
  const Sample first =
      sample_of(Tokens({.text = text, .context = 7, .windows = Windows::strided, .separator = '\n'}), 0);
  CHECK(first.x.at("first_keys").to_vector<Index>() == Ids{0, 1, 1, 1, 4, 4, 6});
}

TEST_CASE("token files that are damaged, and options outside their ranges") {
  const test::Temporary folder;
  const auto said = [&](const std::string& bytes) {
    spill(folder / "F.bin", bytes);
    try {
      Tokens({.path = folder / "F.bin", .context = 2});
    } catch (const Error& e) { return test::told(e); }
    return std::string("accepted");
  };
  const std::string six = packed<std::uint16_t>({1, 2, 3, 4, 5, 6});
  CHECK(said(six) == "accepted");
  CHECK(said(llm_c({20240520, 1, 6}, six)) == "accepted");
  CHECK_THAT(said(six + "x"), test::mentions("data", 13, 2));
  CHECK_THAT(said(""), test::mentions("data", 0, 2, 3));
  CHECK_THAT(said(six.substr(0, 4)), test::mentions("data", 2));
  CHECK_THAT(said(llm_c({20240520, 1, 6}, six).substr(0, 600)), test::mentions("data", 600, 1024));
  CHECK_THAT(said(llm_c({20240520, 2, 6}, six)), test::mentions("data", 2, 1));
  CHECK_THAT(said(llm_c({20240801, 1, 6}, six)), test::mentions("data", 1, 7));
  CHECK_THAT(said(llm_c({20240520, 1, 7}, six)), test::mentions("data", 1036, 7, 2));
  CHECK_THAT(said(llm_c({20240520, 1, -6}, six)), test::mentions("data", -6));

  const std::string text = "some text";
  CHECK_ERROR(Tokens({}), usage, "text");
  CHECK_ERROR(Tokens({.text = text, .path = "x"}), usage, "text");
  CHECK_ERROR(Tokens({.text = text, .context = 0}), usage, "text", 0);
  CHECK_ERROR(Tokens({.text = text, .test_split = 1}), usage, "text", 1);
  CHECK_ERROR(Tokens({.text = text, .per_epoch = -1}), usage, "text", -1);
  CHECK_ERROR(Tokens({.text = text, .context = 2, .separator = -2}), usage, "separator", -2, 256);
  CHECK_ERROR(Tokens({.text = text, .context = 2, .separator = 256}), usage, "separator", 256);
  CHECK_ERROR(Tokens({.text = text, .split = "val"}), usage, "text", "val");
  CHECK_ERROR(Tokens({.text = text, .split = "train", .context = 8}), data, "text", 8);
  CHECK_ERROR(Tokens({.text = text, .tokenizer = character_tokenizer("som"), .context = 2}), data, 3, "U+0065",
              "\"e\"");
  CHECK_ERROR(sample_of(Tokens({.text = text, .context = 2}), 4), usage, 4, 0);
}

}  // namespace test_tokens
