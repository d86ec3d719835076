#include "tools/cli/wrapped_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace trireme {

int help_columns() {
  winsize window{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return known ? std::clamp<int>(window.ws_col, 20, 80) : 80;
}

std::string wrapped(const std::string& text, int indent, int columns) {
  std::string out, word;
  bool first = true;
  int at = indent;
  for (std::istringstream words(text); words >> word; first = false) {
    const int width = static_cast<int>(word.size());
    if (!first && at + 1 + width > columns) {
      out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
      at = indent;
      first = true;
    }
    out += (first ? "" : " ") + word;
    at += width + (first ? 0 : 1);
  }
  return out + "\n";
}

}  // namespace trireme
