// Tensors as text, in the layout of NumPy's str(): columns of equal width, at most 75 characters per line. Of tensors
// with more than 1,000 elements it shows the first and last three along each axis.
#pragma once
#include <iosfwd>
#include <string>

#include "framework/tensor/tensor.h"

namespace trireme {

/// "[[1.  2.5]\n [3.  4. ]]", or "undefined". Floats have the fewest digits that identify them, at most eight after the
/// point. Waits for the elements, and copies from a GPU.
std::string to_string(const Tensor&);
/// Prints to_string().
std::ostream& operator<<(std::ostream&, const Tensor&);
std::ostream& operator<<(std::ostream&, const Shape&);  ///< "[2, 3]"
std::ostream& operator<<(std::ostream&, DType);         ///< "f32"

}  // namespace trireme

template <>
struct fmt::formatter<trireme::Tensor> : trireme::detail::Formatter<trireme::Tensor> {};
