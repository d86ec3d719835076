// Tensors as text, laid out as NumPy's str(): columns of one width, at most 75 characters a line, and of more than
// 1,000 elements the first and last three along each axis.
#pragma once
#include <iosfwd>
#include <string>

#include "framework/tensor/tensor.h"

namespace trireme {

/// "[[1.  2.5]\n [3.  4. ]]"; "undefined". Floats have the fewest digits that tell them from their neighbours, and at
/// most eight behind the point. Waits for the elements, and copies from a GPU.
std::string to_string(const Tensor&);
/// to_string().
std::ostream& operator<<(std::ostream&, const Tensor&);
std::ostream& operator<<(std::ostream&, const Shape&);  ///< "[2, 3]"
std::ostream& operator<<(std::ostream&, DType);         ///< "f32"

}  // namespace trireme

template <>
struct fmt::formatter<trireme::Tensor> : trireme::detail::Formatter<trireme::Tensor> {};
