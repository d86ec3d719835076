// A Python pickle read as data (protocols 2 to 4, Lib/pickle.py), never executed: the machine knows the opcodes below
// and no others, and the only names and calls it lets through are those of an allow-list that PyTorch's state dicts
// need. Whatever else a pickle names is an error that says so.
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

/// A value of a pickle. Others are meant by their number in Pickle::values, so cycles are harmless. Texts lie in the
/// pickle's bytes.
struct PickleValue {
  enum class Kind : std::uint8_t { none, boolean, number, real, text, tuple, list, dict, name, storage, tensor };
  Kind kind = Kind::none;
  std::int64_t number = 0;           ///< boolean, number; elements of a storage
  std::string_view text;             ///< text; name ("torch FloatStorage"); key of a storage
  std::vector<std::uint32_t> items;  ///< tuple, list; key, value, key, value, ... of a dict; storage: {its type's
                                     ///< name}; tensor: {storage, offset, size, strides}, of these kinds: storage,
                                     ///< number, tuple of numbers, tuple of as many numbers
};
std::string_view name_of(PickleValue::Kind);

/// The storages that a pickle may name, "module name", and their element types (framework/io/element_type.h).
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

/// Borrows bytes. source names them in messages; op begins those. Takes at most 48 MB beside the bytes. Throws Error.
Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view op, const std::string& source);

}  // namespace trireme
