// DivisionError: an op cannot compute with a tensor that ranks divide (framework/tensor/shard_spec.h).
#pragma once
#include <fmt/format.h>

#include "kernels/core/error.h"

namespace trireme {

/// An Error of the kind usage, whose message has the remedy. A Chain adds the layer's name.
class DivisionError : public Error {
 public:
  using Error::Error;
};

/// Throws DivisionError("op: text").
template <class... A>
[[noreturn, gnu::cold]] void fail_division(std::string_view op, Message<std::type_identity_t<A>...> text, A&&... args) {
  throw DivisionError(fmt::format("{}: {}", op, fmt::format(text.format, std::forward<A>(args)...)), text.where);
}

}  // namespace trireme
