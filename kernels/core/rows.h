// Tables whose rows have names: the registries of models, optimizers and schedules.
#pragma once
#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/suggest.h"

namespace trireme {

/// The name of a row: its member `name`, or the result of its member function name().
template <class Row>
std::string name_of_row(const Row& row) {
  return std::string(std::invoke(&Row::name, row));
}

/// The row of this name. Throws Error naming op for an unknown name; the message is `prefix` and unknown_name().
template <class Row>
const Row& find_row(const std::vector<Row>& rows, const std::string& name, std::string_view op,
                    std::string_view prefix = "") {
  const auto at = std::ranges::find(rows, name, name_of_row<Row>);
  if (at != rows.end()) return *at;
  std::vector<std::string> known;
  std::ranges::transform(rows, std::back_inserter(known), name_of_row<Row>);
  fail(op, "{}{}", prefix, unknown_name(name, known));
}

/// Inserts a row in the order of names. Always true, so that a file can register a row before main. Throws Error of
/// `op` if the name exists.
template <class Row>
bool add_row(std::vector<Row>& rows, Row row, std::string_view op) {
  const auto at = std::ranges::lower_bound(rows, name_of_row(row), {}, name_of_row<Row>);
  check(at == rows.end() || name_of_row(*at) != name_of_row(row), op, "'{}' exists already: choose another name",
        name_of_row(row));
  rows.insert(at, std::move(row));
  return true;
}

}  // namespace trireme
