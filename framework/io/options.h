// Option: a named setting of a struct, read from text. A table of options defines the names of a struct's members on
// the command line, in a settings file and in "pipeline(micro=4)" (compare argparse's add_argument).
#pragma once
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/view.h"

namespace trireme {

/// Thrown for an option that does not exist, or a value that is not allowed. `trireme` exits with status 2, as for
/// every Error of kind usage.
class OptionError : public Error {
 public:
  /// message: the complete text of what(), for the user.
  explicit OptionError(std::string message, std::source_location where = std::source_location::current())
      : Error(std::move(message), where, Kind::usage) {}
};

/// One option: its name, the member that holds its value, and the allowed values.
struct Option {
  /// A pointer to the member. Its type determines how text is parsed: see type_of().
  using Value =
      std::variant<std::string*, int*, Index*, double*, bool*, std::vector<double>*, std::vector<std::string>*>;
  std::string name;       ///< "optim.lr", "micro"
  Value value;            ///< member of a struct that outlives the table
  std::string help = {};  ///< one line for --help
  /// Minimum, inclusive, of a number or of the numbers in a list.
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();  ///< maximum, inclusive, likewise
  std::string choices = {};                               ///< allowed texts: "stop, skip"; empty: any
  std::string alias = {};                                 ///< another name: "ranks" for "parallel.ranks"
  std::string bare = {};  ///< on a command line: the value if only the name is given; empty: a value is required
};

/// "a number", "a whole number", "true or false", "text", "a list of numbers: 30,60,80", "a list of texts: a+b".
std::string type_of(const Option&);
/// The option with this name or alias. Throws OptionError with the nearest name, and with all names if they are few.
const Option& find_option(std::span<const Option>, const std::string& name);
/// Parses text and sets the member. Lists of numbers are separated by commas, lists of texts by "+". Throws OptionError
/// for a text of another type, and as check_value().
void set_option(const Option&, std::string_view text);
/// Throws OptionError if the member's value is outside the bounds, is none of the choices, or is not finite.
void check_value(const Option&);
/// The member's value in the syntax of set_option(): 0.1, true, 30,60,80.
std::string value_text(const Option&);

}  // namespace trireme
