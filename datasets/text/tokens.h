// Text as windows of tokens, for language models: x the tokens of a window, y the token that follows each.
#pragma once
#include <string>

#include "datasets/core/tensors.h"
#include "datasets/text/tokenizer.h"

namespace trireme {

/// Which windows of the context's length a text is read by.
enum class Windows : std::uint8_t {
  random,   ///< each begins at a place drawn from (seed, epoch, id), any of them where a target follows each token:
            ///< nanoGPT's batches
  strided,  ///< one behind the other, so that each token but the first is a target once. In the last, which the text
            ///< need not fill, x is padded with id 0 and y with -100, CrossEntropyOptions::ignore_index
};

/// Options of Tokens().
struct TokensOptions {
  /// The text itself, or a file of text or tokens, or a folder of either (find_text_files() in text_files.h says which
  /// files those are, and which of them are for training). One of the two.
  std::string text = {}, path = {};
  /// "train" or "test": of a text that is not in two files, all but the last part, and that part; empty: all.
  std::string split = {};
  double validation = 0.1;  ///< the last part, in [0, 1): of n characters (of a token file: tokens) those from
                            ///< floor(n (1 - validation)) on
  /// null: bytes, of a text; of token files unknown, with which the vocabulary is the largest id of all splits and one.
  Tokenizer tokenizer = {};
  bool characters = false;  ///< the tokenizer is that of the characters of the text, of all splits
  Index context = 256;      ///< tokens of a window, T; at least 1
  Windows windows = Windows::random;
  Index per_epoch = 0;  ///< random windows of an epoch; 0: as many as fit side by side, floor((tokens - 1) / T)
};

/// What a data set of text says of itself.
class TextSource : public TensorSource {
 public:
  virtual const Tokenizer& tokenizer() const = 0;  ///< null: a token file's, of which nothing is known
  virtual Index tokens() const = 0;                ///< of the split
  /// Of the split's text, 0 where the tokenizer is not known; of a token file this reads it all. Bits per byte are
  /// the mean loss of a token, in nats, / log(2) * tokens() / bytes().
  virtual Index bytes() const = 0;
};
/// Of a data set that Tokens() made; null: another one.
const TextSource* text_of(const Dataset&);

/// Windows of a text: x i64 [T] and y i64 [T], of which y[i] is the token behind x[i]; classes() is the vocabulary's
/// size. Token files are mapped, not read: an id outside the vocabulary is an Error, naming its place, when a window
/// has it. Throws Error for a text that is shorter than a window (strided: than two tokens) and for options outside
/// their ranges.
Dataset Tokens(const TokensOptions&);

}  // namespace trireme
