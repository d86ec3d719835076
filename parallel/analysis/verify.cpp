#include "parallel/analysis/verify.h"

#include <fmt/format.h>

#include "parallel/analysis/verifier.h"

namespace trireme {

std::string Difference::to_string() const {
  const auto dot = tensor.rfind('.');
  const std::string layer = dot == std::string::npos ? "" : fmt::format(" of layer '{}'", tensor.substr(0, dot));
  return fmt::format("step {}, rank {}: the {}{}{} differs by {:.3g}, relative {:.3g}", step, rank, kind,
                     tensor.empty() ? "" : fmt::format(" of '{}'", tensor), layer, absolute, relative);
}

std::optional<Difference> verify(const Subject& subject, Mesh& mesh, const Strategy& strategy,
                                 const VerifyOptions& options, std::string* against) {
  Verifier verifier(subject, mesh, strategy, options);
  if (against) *against = verifier.against();
  for (int step = 0; step < options.steps; ++step)
    if (auto difference = verifier.step(step)) return difference;
  return std::nullopt;
}

}  // namespace trireme
