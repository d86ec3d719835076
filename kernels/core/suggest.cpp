#include "kernels/core/suggest.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

/// Optimal string alignment distance: insert, delete, replace, swap neighbours.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const bool equal = a[i - 1] == b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string suggestion(const std::string& word, std::span<const std::string> known) {
  std::string best;
  std::size_t fewest = word.size() < 2 ? 1 : std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& k : known) {
    const std::size_t n = word.size() >= 2 && k.starts_with(word) ? 1 : edits(word, k);
    if (n < fewest) {
      best = k;
      fewest = n;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, std::span<const std::string> known) {
  const std::string near = word.size() <= 200 ? suggestion(word, known) : "";
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

std::string unknown_name(const std::string& word, const std::vector<std::string>& known) {
  return fmt::format("there is no '{}'{}; there are: {}", shortened(word), did_you_mean(word, known),
                     known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

std::string shortened(std::string_view text) {
  return text.size() <= 200 ? std::string(text) : fmt::format("{}... ({} characters)", text.substr(0, 60), text.size());
}

}  // namespace trireme
