// Rows: tables whose rows have names, as models, optimizers and schedules do.
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

/// A row's name, which is a member `name` or what a member function of this name returns.
template <class Row>
std::string name_of_row(const Row& row) {
  return std::string(std::invoke(&Row::name, row));
}

/// The row of that name. Throws Error of `op` with unknown_name() behind `prefix` for a name that there is not.
template <class Row>
const Row& find_row(const std::vector<Row>& rows, const std::string& name, std::string_view op,
                    std::string_view prefix = "") {
  const auto at = std::ranges::find(rows, name, name_of_row<Row>);
  if (at != rows.end()) return *at;
  std::vector<std::string> known;
  std::ranges::transform(rows, std::back_inserter(known), name_of_row<Row>);
  fail(op, "{}{}", prefix, unknown_name(name, known));
}

/// Adds a row to rows in the order of their names; true, so that a file can do so before main. Throws Error of `op`
/// when there is one of this name.
template <class Row>
bool add_row(std::vector<Row>& rows, Row row, std::string_view op) {
  const auto at = std::ranges::lower_bound(rows, name_of_row(row), {}, name_of_row<Row>);
  check(at == rows.end() || name_of_row(*at) != name_of_row(row), op, "'{}' is there already", name_of_row(row));
  rows.insert(at, std::move(row));
  return true;
}

}  // namespace trireme
