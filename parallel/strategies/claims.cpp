#include "parallel/strategies/claims.h"

#include <fmt/format.h>

#include "kernels/core/text.h"

namespace trireme {
namespace {

/// The options as text, without options that are removed.
std::string given(const std::string& options) {
  std::string text;
  for (const std::string& item : split_text(options, ','))
    if (const std::string_view option = trimmed(item); !option.empty() && !option.ends_with('='))
      text += fmt::format("{}{}", text.empty() ? " with " : ", ", option);
  return text;
}

}  // namespace

std::string to_string(const StrategyClaim& claim) {
  using Kind = StrategyClaim::Kind;
  switch (claim.kind) {
    case Kind::limit:
      return fmt::format("limit:{} it equals the serial run, for SGD without momentum", given(claim.with));
    case Kind::delayed: return "delayed: servers apply gradients one by one, in the order of arrival";
    case Kind::mean_preserved:
      return fmt::format("mean preserved: exchanges do not change the sum of all workers' {}",
                         claim.numerator.empty() ? "weights" : claim.numerator);
    case Kind::error_feedback: return "error feedback: sent values plus kept residuals equal the gradients";
  }
  return "";
}

}  // namespace trireme
