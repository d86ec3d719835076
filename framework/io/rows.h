// Rows: tables whose rows have names, as models and schedules do.
#pragma once
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/suggest.h"

namespace trireme {

/// The row of that name, of rows that have a member `name`. Throws Error of `op` with unknown_name() behind `prefix`
/// for a name that there is not.
template <class Rows>
const auto& find_row(const Rows& rows, const std::string& name, std::string_view op, std::string_view prefix = "") {
  const auto name_of = [](const auto& row) { return std::string(row.name); };
  const auto at = std::ranges::find(rows, name, name_of);
  if (at != std::end(rows)) return *at;
  std::vector<std::string> known;
  std::ranges::transform(rows, std::back_inserter(known), name_of);
  fail(op, "{}{}", prefix, unknown_name(name, known));
}

}  // namespace trireme
