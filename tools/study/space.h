// Space: the parameters that a search varies. Each is a setting of `trireme train` with its possible values, mapped to
// a coordinate of the unit cube (Optuna's distributions, Ray Tune's search space).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// A value per parameter, in the space's order: a number, or the index of a choice; NaN if the parameter does not
/// apply.
using Point = std::vector<double>;

/// Restricts a parameter to points at which an earlier parameter has one of these values.
struct Condition {
  std::size_t parameter = 0;  ///< index in the space
  std::vector<double> values = {};
};

struct Parameter {
  enum class Kind : std::uint8_t { uniform, log, integer, log_integer, choice };
  std::string name = {};  ///< name of a setting: "optim.lr"
  Kind kind = Kind::uniform;
  double low = 0, high = 1;              ///< inclusive bounds; for a choice the first and last index
  std::vector<std::string> values = {};  ///< of a choice, in the notation of the command line
  int levels = 0;                        ///< number of values on a grid
  std::vector<Condition> only_if = {};   ///< all conditions must hold

  bool is_whole() const { return kind != Kind::uniform && kind != Kind::log; }
  bool is_log() const { return kind == Kind::log || kind == Kind::log_integer; }
  /// The value at a coordinate in [0, 1]; real numbers are rounded to six digits.
  double at(double place) const;
  /// The coordinate of a value; for whole numbers and choices the middle of their interval.
  double place(double value) const;
  double clamped(double value) const;       ///< limited to the bounds, and rounded if whole
  std::string text(double value) const;     ///< in the notation of the command line
  double number(const std::string&) const;  ///< parses that text; NaN for no value of the parameter
};

class Space {
 public:
  /// parameters: each after the parameters on which it depends.
  explicit Space(std::vector<Parameter> parameters = {}) : parameters_(std::move(parameters)) {}
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t size() const { return parameters_.size(); }
  const Parameter& operator[](std::size_t i) const { return parameters_[i]; }

  /// Whether parameter i applies, given the values of earlier parameters.
  bool applies(const Point&, std::size_t i) const;
  /// The point at a coordinate vector of the unit cube.
  Point at(const std::vector<double>& places) const;
  /// Coordinates of a point; 0.5 if a parameter does not apply.
  std::vector<double> places(const Point&) const;
  /// Names and values of the settings that apply.
  std::vector<std::pair<std::string, std::string>> settings(const Point&) const;
  std::string text(const Point&) const;       ///< "optim.lr=0.01 optim.name=sgd"
  std::string to_json(const Point&) const;    ///< an object of texts by name
  Point from_json(const std::string&) const;  ///< throws Error for text that to_json() of this space did not write
  std::string to_toml() const;                ///< the table [space], for parse_tune()

 private:
  std::vector<Parameter> parameters_;
};

}  // namespace trireme
