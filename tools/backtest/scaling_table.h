// ScalingTable: measured times of a training step on systems of different sizes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// One system: a row of the table.
struct ScalingRow {
  int nodes = 0, accelerators = 0;  ///< of the whole system
  int size = 0;                     ///< nodes or accelerators, as ScalingFamily::counts_nodes says
  double samples = 0;               ///< per accelerator and step
  double milliseconds = 0;          ///< of a step
  int line = 0;                     ///< of the file
};

/// Systems that differ only in size and samples. Rows are sorted by size (ascending), then by samples (descending).
struct ScalingFamily {
  std::string name, submitter;
  bool counts_nodes = true;      ///< false: sizes are accelerators, because nodes have different numbers of
                                 ///< accelerators
  std::vector<ScalingRow> rows;  ///< of at least two sizes
  int calibration = 0;           ///< number of rows of the two smallest sizes, which come first; the other rows are
                                 ///< predicted
};

struct ScalingTable {
  std::vector<ScalingFamily> families;  ///< in the order of the file
  int left_out = 0;                     ///< rows without a family or a time, repeated rows, and rows of families of one
                                        ///< size
};

/// Describes the columns of the file, for messages.
std::string_view scaling_columns();
/// Reads a CSV file (RFC 4180) with the columns of the folder's README.md. Throws Error with file:line and the expected
/// columns for:
/// - a column that is missing or given twice;
/// - a row with another number of fields;
/// - a value that is not a number above 0;
/// - a table without a family.
ScalingTable read_scaling_table(const std::string& path);
/// The same from text. name: of the file, for messages.
ScalingTable parse_scaling_table(std::string_view text, const std::string& name);

}  // namespace trireme
