// Reads a Python pickle as data (protocols 2 to 4, Lib/pickle.py), and never executes it. It supports only the opcodes
// and names that PyTorch's state dicts need. Any other name or call is an error.
//   names: collections.OrderedDict, torch.Size, torch.*Storage, torch._utils._rebuild_tensor_v2, ._rebuild_parameter
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// A value of a pickle. It refers to other values by their index in Pickle::values, so that cycles are harmless. Texts
/// point into the pickle's bytes.
struct PickleValue {
  enum class Kind : std::uint8_t { none, boolean, number, real, text, tuple, list, dict, name, storage, tensor };
  Kind kind = Kind::none;
  std::int64_t number = 0;  ///< of a boolean or number; number of elements of a storage
  std::string_view text;    ///< of a text; of a name ("torch FloatStorage"); key of a storage
  /// Elements of a tuple or list; key, value, key, value, ... of a dict; of a storage: its type's name; of a tensor:
  /// storage, offset (number), size (tuple of numbers), strides (tuple of the same length).
  std::vector<std::uint32_t> items;
};
std::string_view name_of(PickleValue::Kind);

/// The storages that a pickle may contain, as "module name", and their element types (framework/io/element_type.h).
inline constexpr std::pair<std::string_view, std::string_view> torch_storages[] = {
    {"torch DoubleStorage", "F64"},    {"torch FloatStorage", "F32"}, {"torch HalfStorage", "F16"},
    {"torch BFloat16Storage", "BF16"}, {"torch LongStorage", "I64"},  {"torch IntStorage", "I32"},
    {"torch ShortStorage", "I16"},     {"torch CharStorage", "I8"},   {"torch ByteStorage", "U8"},
    {"torch BoolStorage", "BOOL"}};

struct Pickle {
  std::deque<PickleValue> values;
  std::uint32_t root = 0;
  const PickleValue& operator[](std::uint32_t i) const { return values[i]; }
};

/// Parses bytes, which must outlive the result. source: name of the file for messages; op: beginning of the messages.
/// Uses at most 48 MB in addition to the bytes. Throws Error.
Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view op, const std::string& source);

}  // namespace trireme
