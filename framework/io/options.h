// Option: a named setting of a struct, read from text. A table of options is the one place that says what the members
// of a struct are called on a command line, in a settings file or in "pipeline(micro=4)" (argparse's add_argument).
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

/// An option that does not exist, or a value that it cannot have. `trireme` ends with status 2, as for
/// every Error of the kind usage.
class OptionError : public Error {
 public:
  /// message: for the user, as what() shows it.
  explicit OptionError(std::string message, std::source_location where = std::source_location::current())
      : Error(std::move(message), where, Kind::usage) {}
};

/// One option: its name, the member that holds its value, and the values allowed.
struct Option {
  /// A pointer to the member; its type decides how a text is read: type_of().
  using Value =
      std::variant<std::string*, int*, Index*, double*, bool*, std::vector<double>*, std::vector<std::string>*>;
  std::string name;                                         ///< "optim.lr", "micro"
  Value value;                                              ///< of a struct that outlives the table
  std::string help = {};                                    ///< a line for --help
  double least = -std::numeric_limits<double>::infinity();  ///< bound, inclusive, of a number or of a list's
  double most = std::numeric_limits<double>::infinity();    ///< bound, inclusive, alike
  std::string choices = {};                                 ///< of a text: "stop, skip"; empty: any
  std::string alias = {};                                   ///< another name for it: "ranks" for "parallel.ranks"
  std::string bare = {};  ///< on a command line: what the name means without a value; empty: it wants one
};

/// "a number", "a whole number", "true or false", "text", "a list of numbers: 30,60,80", "a list of texts: a+b".
std::string type_of(const Option&);
/// The option of that name or alias. Throws OptionError with the nearest name, and with all names where they are few.
const Option& find_option(std::span<const Option>, const std::string& name);
/// Sets the member. Numbers in a list are separated by commas, texts by "+". Throws OptionError for a text of another
/// type and what check_value() refuses.
void set_option(const Option&, std::string_view text);
/// Throws OptionError when the member's value lies outside the range or is none of the choices, and for a number that
/// is not finite.
void check_value(const Option&);
/// The member's value, as set_option() reads it: 0.1, true, 30,60,80.
std::string value_text(const Option&);

}  // namespace trireme
