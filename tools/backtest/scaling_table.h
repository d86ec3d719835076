// A table of measured steps: what somebody's systems of different sizes took for a step of the same training.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// One system: a row of the table.
struct ScalingRow {
  int nodes = 0, accelerators = 0;  ///< of the whole system
  int size = 0;                     ///< nodes or accelerators, whichever its family counts
  double samples = 0;               ///< per accelerator and step
  double milliseconds = 0;          ///< of a step
  int line = 0;                     ///< of the file
};

/// Systems that differ in size and samples alone. Rows are sorted by size, then by samples, most first.
struct ScalingFamily {
  std::string name, submitter;
  bool counts_nodes = true;      ///< false: accelerators, because nodes have different numbers of them
  std::vector<ScalingRow> rows;  ///< of at least two sizes
  int calibration = 0;           ///< rows of the two smallest sizes, which stand first; the others are predicted
};

struct ScalingTable {
  std::vector<ScalingFamily> families;  ///< in the order of the file
  int left_out = 0;                     ///< rows without a family or a time, repeated ones, and families of one size
};

/// The columns of such a file, in words.
std::string_view scaling_columns();
/// Reads a CSV file (RFC 4180) with the columns of the folder's README.md. Throws Error with file:line and the columns
/// where it is damaged: a column that is missing or given twice, a row with another number of fields, what is no number
/// or not above 0, and no family at all.
ScalingTable read_scaling_table(const std::string& path);
/// The same from text; name: the file's, for messages.
ScalingTable parse_scaling_table(std::string_view text, const std::string& name);

}  // namespace trireme
