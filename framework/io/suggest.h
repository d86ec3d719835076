// "Did you mean": the known word nearest to a mistyped one. For model names, options and configuration keys.
#pragma once
#include <span>
#include <string>

namespace trireme {

/// The known word that word most likely means, by edit distance (a swap of neighbours counts one) or because
/// it begins with word; empty when none is near. The first of equals.
std::string suggestion(const std::string& word, std::span<const std::string> known);
/// " (did you mean 'sgd'?)", or nothing: the tail of an error message.
std::string did_you_mean(const std::string& word, std::span<const std::string> known);

}  // namespace trireme
