#include "datasets/text/tokens.h"

#include <algorithm>
#include <cmath>

#include "datasets/core/fingerprint.h"
#include "datasets/core/random_stream.h"
#include "datasets/text/text_files.h"

namespace trireme {
namespace {

constexpr std::int64_t ignored = -100;
constexpr std::size_t largest_text = std::size_t{64} << 30;

class TextWindows final : public TextSource {
 public:
  /// bytes: size of the text; -1: not counted yet.
  TextWindows(std::string name, TokenSequence tokens, Index bytes, Index vocabulary, const TokensOptions& o)
      : name_(std::move(name)),
        tokens_(std::move(tokens)),
        tokenizer_(o.tokenizer),
        bytes_(bytes),
        vocabulary_(vocabulary),
        context_(o.context),
        separator_(o.separator),
        windows_(o.windows) {
    const Index n = tokens_.size();
    check(separator_ >= -1 && separator_ < vocabulary_, "text",
          "the separator of documents is {}, expected an id below {}, or -1 for none", separator_, vocabulary_);
    const bool random = windows_ == Windows::random;
    check(n >= (random ? context_ + 1 : 2), ErrorKind::data, "text",
          "{}{} has {} tokens, {}: give a longer text, or another share of it for the test (data.test_split, "
          "data.validation_split)",
          name_, o.split.empty() ? "" : " (" + o.split + ")", n, [&] {
            return random ? fmt::format("a window of {} and the token after it need {}", context_, context_ + 1)
                          : std::string("a target needs 2");
          });
    const Index whole = random ? (n - 1) / context_ : (n - 2) / context_ + 1;
    size_ = random && o.per_epoch > 0 ? o.per_epoch : whole;
  }
  std::string name() const override { return name_; }
  Index size() const override { return size_; }
  Shape shape() const override { return {context_}; }
  Index classes() const override { return vocabulary_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  Index tokens() const override { return tokens_.size(); }
  std::string fingerprint() const override {
    Fingerprint all;
    if (tokenizer_) all.add(tokenizer_->saved());
    tokens_.add_to(all);
    return all.text();
  }
  Index bytes() const override {
    if (bytes_ >= 0 || !tokenizer_) return std::max<Index>(bytes_, 0);
    Index count = 0;
    std::vector<std::int64_t> some;
    for (Index at = 0; at < tokens(); at += std::ssize(some)) {
      some.resize(static_cast<std::size_t>(std::min<Index>(tokens() - at, 1 << 16)));
      read_tokens(at, some);
      for (const std::int64_t id : some) count += std::ssize(tokenizer_->bytes(id));
    }
    return count;
  }
  Sample sample(Index id, const AugmentKey& draw) const override {
    const Sample one{Tensor::empty({context_}, DType::i64), Tensor::empty({context_}, DType::i64)};
    fill(id, draw, one.x.data<std::int64_t>(), one.y.data<std::int64_t>());
    return in_documents(one);
  }
  Sample batch(std::span<const std::int64_t> ids, const AugmentKey& draw) const override {
    const Shape shape{std::ssize(ids), context_};
    const Sample all{Tensor::empty(shape, DType::i64), Tensor::empty(shape, DType::i64)};
    std::int64_t *x = all.x.data<std::int64_t>(), *y = all.y.data<std::int64_t>();
    for (const Index id : ids) {
      fill(id, draw, x, y);
      x += context_;
      y += context_;
    }
    return in_documents(all);
  }

 private:
  /// First token of window id.
  Index begin(Index id, const AugmentKey& draw) const {
    if (windows_ == Windows::strided) return id * context_;
    const auto places = static_cast<std::uint64_t>(tokens_.size() - context_);
    const auto bits =
        random_stream(draw.seed, RandomStream::text_window, draw.epoch)(0, static_cast<std::uint64_t>(id));
    const std::uint64_t uniform = static_cast<std::uint64_t>(bits[1]) << 32 | bits[0];
    return static_cast<Index>(static_cast<unsigned __int128>(uniform) * places >> 64);
  }
  /// Reads tokens. Throws Error for an id outside the vocabulary.
  void read_tokens(Index from, std::span<std::int64_t> to) const {
    tokens_.read(from, to);
    const auto wrong = std::ranges::find_if(to, [&](std::int64_t id) { return id >= vocabulary_; });
    check(
        wrong == to.end(), ErrorKind::data, "text",
        "{} is {}, outside the vocabulary of {}; another tokenizer made the file",
        [&] { return tokens_.place(from + (wrong - to.begin())); }, [&] { return *wrong; }, vocabulary_);
  }
  void fill(Index id, const AugmentKey& draw, std::int64_t* x, std::int64_t* y) const {
    check_id(id);
    const Index from = begin(id, draw), count = std::min(context_, tokens_.size() - 1 - from);
    read_tokens(from, {x, static_cast<std::size_t>(count)});
    std::copy(x + 1, x + count, y);
    read_tokens(from + count, {y + count - 1, 1});
    std::fill(x + count, x + context_, 0);
    std::fill(y + count, y + context_, ignored);
  }

  /// The windows, with the field "first_keys" if documents have separators.
  Sample in_documents(const Sample& s) const {
    if (separator_ < 0) return s;
    const Tensor first = Tensor::empty(s.x.shape(), DType::i64);
    const auto* const ids = s.x.data<std::int64_t>();
    auto* const to = first.data<std::int64_t>();
    for (Index i = 0; i < first.numel(); ++i)
      to[i] = i % context_ == 0 ? 0 : ids[i - 1] == separator_ ? i % context_ : to[i - 1];
    return {s.x.with("first_keys", first), s.y};
  }

  std::string name_;
  TokenSequence tokens_;
  Tokenizer tokenizer_;
  Index bytes_, vocabulary_, context_, separator_, size_ = 0;
  Windows windows_;
};

/// Index at which the test part of n things begins.
Index test_begin(Index n, double validation) {
  return static_cast<Index>(std::floor(static_cast<double>(n) * (1 - validation)));
}

/// Byte at which the test part of a text begins, at the start of a character.
std::size_t test_byte(std::string_view text, double validation) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };  // start of a UTF-8
                                                                                              // character
  Index left = test_begin(std::ranges::count_if(text, begins), validation);
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if (begins(text[at]) && left-- == 0) break;
  return at;
}

std::string read_all(const std::vector<std::string>& files) {
  std::string all;
  for (const std::string& file : files) all += read_text(file, largest_text);
  return all;
}

/// [begin, end) of the split among n things; the validation part begins at `held`, the test part at `test`.
template <class N>
std::pair<N, N> split_of(const TokensOptions& o, N n, N held, N test) {
  const bool tests = o.split == "test", validates = o.split == "validation", trains = o.split == "train";
  return {tests ? test : validates ? held : N{0}, trains ? held : validates ? test : n};
}

Dataset of_token_files(const TextFiles& files, TokensOptions o) {
  check(!o.characters, "text", "{} has tokens, not characters: it needs the tokenizer that it was made with, or none",
        o.path);
  std::vector<std::string> both = files.training;
  both.insert(both.end(), files.test.begin(), files.test.end());
  const TokenSequence all(both);
  const Index vocabulary = o.tokenizer ? o.tokenizer.vocabulary() : all.largest() + 1;
  const Index test = files.test.empty() ? test_begin(all.size(), o.test_split) : TokenSequence(files.training).size();
  const auto [begin, end] = split_of(o, all.size(), test_begin(test, o.validation_split), test);
  return std::make_unique<TextWindows>(o.path, all.part(begin, end), -1, vocabulary, o);
}

}  // namespace

const TextSource* text_of(const Dataset& data) { return data ? dynamic_cast<const TextSource*>(&*data) : nullptr; }

Dataset Tokens(const TokensOptions& options) {
  TokensOptions o = options;
  check(o.text.empty() != o.path.empty(), "text",
        "{}; one of TokensOptions::text and path, a text file, a token file or a folder, is needed",
        o.path.empty() ? "there is neither text nor path" : "there are both a text and a path");
  check(o.context >= 1, "text", "context is {}, at least 1 was expected", o.context);
  for (const double share : {o.test_split, o.validation_split})
    check(share >= 0 && share < 1, "text", "test_split or validation_split is {}, expected in [0, 1)", share);
  check(o.per_epoch >= 0, "text", "windows of an epoch are {}, expected 0 or more", o.per_epoch);
  check(o.split.empty() || o.split == "train" || o.split == "validation" || o.split == "test", "text",
        "there is no split '{}'; there are train, validation and test", o.split);
  std::string text = std::move(o.text);
  std::size_t test = 0;
  if (!o.path.empty()) {
    const TextFiles files = find_text_files(o.path);
    if (files.tokens) return of_token_files(files, std::move(o));
    text = read_all(files.training);
    test = text.size();
    text += read_all(files.test);
    if (files.test.empty()) test = test_byte(text, o.test_split);
  } else {
    test = test_byte(text, o.test_split);
  }
  if (o.characters) o.tokenizer = character_tokenizer(text);
  if (!o.tokenizer) o.tokenizer = byte_tokenizer();
  const auto [begin, end] =
      split_of(o, text.size(), test_byte(std::string_view(text).substr(0, test), o.validation_split), test);
  const auto ids = o.tokenizer.encode(std::string_view(text).substr(begin, end - begin));
  const std::string name = o.path.empty() ? "text" : o.path;
  return std::make_unique<TextWindows>(name, TokenSequence(ids), static_cast<Index>(end - begin),
                                       o.tokenizer.vocabulary(), o);
}

}  // namespace trireme
