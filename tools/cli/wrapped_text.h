// Text wrapped to the width of the terminal: for --help and for tables.
#pragma once
#include <string>

namespace trireme {

/// Columns of text on standard output: those of the terminal, from 20 to 80; 80 without a terminal.
int help_columns();
/// The words of a text in lines of at most `columns`, and a line feed. The first line starts at column `indent`; the
/// other lines get that many spaces in front.
std::string wrapped(const std::string& text, int indent, int columns = help_columns());

}  // namespace trireme
