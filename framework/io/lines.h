// The lines of text files: of a log that grows, in little memory; and of a list that a person wrote.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Calls f with each line of the file, without its line feed. Of a line of more than 1 MiB only the first MiB comes.
/// False: there is no such file. Throws Error of the kind file for one that cannot be read or is no regular file: a
/// pipe would wait for its writer, and a device may have no end.
bool each_line(const std::string& path, const std::function<void(std::string_view)>& f);

/// The lines of a text that a person wrote. Line ends are "\n" or Windows' "\r\n"; a byte order mark before the first
/// line is left out.
std::vector<std::string> text_lines(std::string_view text);

}  // namespace trireme
