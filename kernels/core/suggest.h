// "Did you mean": finds the known word nearest to a mistyped one, for names of models, options and configuration keys.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The known word that is nearest by edit distance (a swap of neighbours counts one), or that begins with `word`. Empty
/// if none is near. Among equally near words the first.
std::string suggestion(const std::string& word, std::span<const std::string> known);
/// " (did you mean 'sgd'?)" or "": the end of an error message.
std::string did_you_mean(const std::string& word, std::span<const std::string> known);
/// "there is no 'sdg' (did you mean 'sgd'?); there are: sgd, adam". A very long `word` is shortened.
std::string unknown_name(const std::string& word, const std::vector<std::string>& known);
/// For messages: the beginning of a very long text, or a short text as it is.
std::string shortened(std::string_view text);

}  // namespace trireme
