// Every environment variable that the library and its tool read, in one table, with its allowed values.
#pragma once
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// One variable: its name, allowed values, default and meaning.
struct EnvironmentVariable {
  /// seconds: a decimal number; whole: a whole number; word: one of the words; text: any but ""; other: any, because
  /// the variable belongs to another program.
  enum Type : int { seconds, whole, word, text, other };
  const char* name;
  Type type;
  double least, most;         ///< inclusive bounds of a number
  std::string_view words;     ///< "0, 1": the words allowed
  std::string_view fallback;  ///< what holds if the variable is not set: "300"; "none": nothing does
  std::string_view unit;      ///< "s", "ranks", "folder"; empty, for words only: one of the words
  std::string_view meaning;   ///< a sentence for users
};

/// All variables: first the library's (TRIREME_...), then variables that launchers and systems set.
std::span<const EnvironmentVariable> environment_variables();
/// Throws Error (usage) for the first variable whose value is not allowed. The message names both.
void check_environment();
/// The value of a numeric variable; empty if the variable is not set. Throws Error (usage) for a value that is not
/// allowed.
std::optional<double> environment_number(const char* name);
/// The value of a word or text variable; empty if the variable is not set. Throws as environment_number().
std::optional<std::string> environment_text(const char* name);
/// `value` as the number of the variable `name`, with the checks of environment_number().
double number_of_variable(const char* name, std::string_view value);

}  // namespace trireme
