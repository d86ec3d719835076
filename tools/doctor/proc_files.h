// Short files of /proc and /sys.
#pragma once
#include <fstream>
#include <sstream>
#include <string>

namespace trireme {

/// The first line; empty if the file does not exist.
inline std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}
/// Value of the first line that starts with key: the text after ":" and blanks; empty if there is none.
inline std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (const std::size_t at = line.find(':'); at != line.npos)
        if (const std::size_t begin = line.find_first_not_of(" \t", at + 1); begin != line.npos)
          return line.substr(begin);
  return "";
}
/// The number at the start of the text; 0: none.
inline double number_in(const std::string& text) {
  std::istringstream in(text);
  double number = 0;
  in >> number;
  return number;
}

}  // namespace trireme
