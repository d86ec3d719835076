// Space: the parameters that a search varies, each a setting of `trireme train` with the values that it may have, as
// places in a unit cube (Optuna's distributions, Ray Tune's search space).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// A value per parameter, in the space's order: the number itself, of a choice the index of its value; NaN where the
/// parameter does not apply.
using Point = std::vector<double>;

/// A parameter applies only where an earlier one has one of these values.
struct Condition {
  std::size_t parameter = 0;  ///< its place in the space
  std::vector<double> values = {};
};

struct Parameter {
  enum class Kind : std::uint8_t { uniform, log, integer, log_integer, choice };
  std::string name = {};  ///< of a setting: "optim.lr"
  Kind kind = Kind::uniform;
  double low = 0, high = 1;              ///< bounds, both included; of a choice the first and the last index
  std::vector<std::string> values = {};  ///< of a choice, as a command line has them
  int levels = 0;                        ///< values on a grid
  std::vector<Condition> only_if = {};   ///< all must hold

  bool is_whole() const { return kind != Kind::uniform && kind != Kind::log; }
  bool is_log() const { return kind == Kind::log || kind == Kind::log_integer; }
  /// The value at a place in [0, 1]; numbers that are not whole have six digits.
  double at(double place) const;
  /// The place of a value: of whole numbers and choices the middle of the places that have it.
  double place(double value) const;
  double clamped(double value) const;       ///< into the bounds, whole where it has to be
  std::string text(double value) const;     ///< as a command line has it
  double number(const std::string&) const;  ///< of such a text; NaN: none of the parameter's
};

class Space {
 public:
  /// Parameters in an order in which each stands behind those that it depends on.
  explicit Space(std::vector<Parameter> parameters = {}) : parameters_(std::move(parameters)) {}
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t size() const { return parameters_.size(); }
  const Parameter& operator[](std::size_t i) const { return parameters_[i]; }

  /// Whether parameter i applies, by the values of those before it.
  bool applies(const Point&, std::size_t i) const;
  /// The point at a place of the unit cube, a coordinate per parameter.
  Point at(const std::vector<double>& places) const;
  /// Its place; 0.5 where a parameter does not apply.
  std::vector<double> places(const Point&) const;
  /// Names and values of the settings that apply.
  std::vector<std::pair<std::string, std::string>> settings(const Point&) const;
  std::string text(const Point&) const;       ///< "optim.lr=0.01 optim.name=sgd"
  std::string to_json(const Point&) const;    ///< an object of texts by name
  Point from_json(const std::string&) const;  ///< throws Error for what to_json() of this space did not write
  std::string to_toml() const;                ///< the table [space], which parse_tune() reads

 private:
  std::vector<Parameter> parameters_;
};

}  // namespace trireme
