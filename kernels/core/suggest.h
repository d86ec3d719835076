// "Did you mean": the known word nearest to a mistyped one. For model names, options and configuration keys.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The known word that word most likely means, by edit distance (a swap of neighbours counts one) or because
/// it begins with word; empty when none is near. The first of equals.
std::string suggestion(const std::string& word, std::span<const std::string> known);
/// " (did you mean 'sgd'?)", or nothing: the tail of an error message.
std::string did_you_mean(const std::string& word, std::span<const std::string> known);
/// "there is no 'sdg' (did you mean 'sgd'?); there are: sgd, adam", cut where word is too long to be meant.
std::string unknown_name(const std::string& word, const std::vector<std::string>& known);
/// For messages: the beginning of a text that is too long to be meant.
std::string shortened(std::string_view text);

}  // namespace trireme
