// Tokens: a data set of token windows of a text, for language models. x is the window's tokens, y the token after each.
#pragma once
#include <string>

#include "datasets/core/tensors.h"
#include "datasets/text/tokenizer.h"

namespace trireme {

/// How a text is divided into windows of `context` tokens.
enum class Windows : std::uint8_t {
  random,   ///< each begins at a position drawn from (seed, epoch, id), uniformly among all full windows with
            ///< targets (as nanoGPT's batches)
  strided,  ///< consecutive, so that each token but the first is a target once. The last window may be short: x is
            ///< padded with id 0 and y with -100 (CrossEntropyOptions::ignore_index)
};

/// Options of Tokens().
struct TokensOptions {
  std::string text = {},  ///< the text itself; give either text or path
      path = {};          ///< a file of text or tokens, or a folder of such files, which find_text_files()
                          ///< (text_files.h) selects and divides into splits
  /// "train", "validation" or "test"; empty: all. A text without separate files is divided: its last part is the test
  /// split, and the last part before it the validation split.
  std::string split = {};
  double test_split = 0.1,   ///< share of the test split, in [0, 1): of n characters (tokens of a token file), those
                             ///< from floor(n (1 - test_split)) on
      validation_split = 0;  ///< share of the other characters (tokens), likewise, that the training split lacks
  /// null: bytes for a text. For token files the tokenizer is then unknown, and the vocabulary is the largest id of all
  /// splits plus one.
  Tokenizer tokenizer = {};
  bool characters = false;            ///< true: a token per distinct character of the text (all splits)
  Index context = 256;                ///< tokens per window, T; at least 1
  Windows windows = Windows::random;  ///< how the text is divided
  Index per_epoch = 0;  ///< random windows per epoch; 0: floor((tokens - 1) / T), as many as fit without overlap
  /// Id with which a document of the text ends, such as GPT-2's 50256. x then gets the field "first_keys" i64 [T]: for
  /// each token the index of its document's first token in the window. gpt2() and llama() then attend to the tokens of
  /// one document only. -1: there is none
  Index separator = -1;
};

/// Properties of a data set that Tokens() made.
class TextSource : public TensorSource {
 public:
  virtual const Tokenizer& tokenizer() const = 0;  ///< null: unknown (token files)
  virtual Index tokens() const = 0;                ///< number of tokens in the split
  /// Bytes of the split's text; 0 if the tokenizer is unknown. For a token file this reads all tokens. Bits per byte
  /// are (mean loss per token in nats) / log(2) * tokens() / bytes().
  virtual Index bytes() const = 0;
};
/// The properties of a data set that Tokens() made; null: another data set.
const TextSource* text_of(const Dataset&);

/// Windows of a text: x i64 [T] and y i64 [T], where y[i] is the token after x[i]. classes() is the size of the
/// vocabulary. Token files are mapped into memory, so an id outside the vocabulary is found only when a window has it
/// (Error with its position). Throws Error for a text that is shorter than a window (strided: than two tokens) and for
/// options outside their ranges.
Dataset Tokens(const TokensOptions&);

}  // namespace trireme
