// Short files of /proc and /sys.
#pragma once
#include <fstream>
#include <sstream>
#include <string>

namespace trireme {

/// The first line; empty where there is no such file.
inline std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}
/// The rest of the first line that begins so, behind ":" and blanks; empty where there is none.
inline std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (const std::size_t at = line.find(':'); at != line.npos)
        if (const std::size_t begin = line.find_first_not_of(" \t", at + 1); begin != line.npos)
          return line.substr(begin);
  return "";
}
/// The number with which the text begins; 0: none.
inline double number_in(const std::string& text) {
  std::istringstream in(text);
  double number = 0;
  in >> number;
  return number;
}

}  // namespace trireme
