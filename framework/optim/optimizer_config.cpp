#include "framework/optim/optimizer_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "kernels/core/rows.h"

namespace trireme {

constexpr OptimizerField::Range OptimizerField::not_negative{[](double v) { return v >= 0 && std::isfinite(v); },
                                                             "at least 0, and finite"};
constexpr OptimizerField::Range OptimizerField::positive{[](double v) { return v > 0 && std::isfinite(v); },
                                                         "more than 0"};
constexpr OptimizerField::Range OptimizerField::fraction{[](double v) { return v >= 0 && v < 1; }, "0 <= {} < 1"};
constexpr OptimizerField::Range OptimizerField::unit{[](double v) { return v >= 0 && v <= 1; }, "0 <= {} <= 1"};

void OptimizerConfig::validate() const {
  OptimizerConfig copy = *this;
  for (const OptimizerField& field : copy.fields())
    if (const auto* value = std::get_if<double*>(&field.value); value && !field.range.holds(**value))
      fail(name(), "{} is {}, expected {}", field.name, **value,
           fmt::format(fmt::runtime(field.range.text), field.name));
  rule_->validate();
}

std::string to_string(OptimizerConfig config) {
  std::vector<std::string> all;
  for (const OptimizerField& field : config.fields())
    all.push_back(std::visit(
        [&](auto* value) {
          if constexpr (std::same_as<decltype(value), Schedule*>)
            return fmt::format("{}={}", field.name, value->text());
          else
            return fmt::format("{}={}", field.name, *value);
        },
        field.value));
  return fmt::format("{}({})", config.name(), fmt::join(all, ", "));
}

namespace {
std::vector<OptimizerConfig>& rows() {
  static std::vector<OptimizerConfig> all;
  return all;
}
}  // namespace

const std::vector<OptimizerConfig>& optimizers() { return rows(); }

bool add_optimizer(OptimizerConfig defaults) { return add_row(rows(), std::move(defaults), "optimizer"); }

}  // namespace trireme
