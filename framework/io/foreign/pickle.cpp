#include "framework/io/foreign/pickle.h"

#include <algorithm>

#include "framework/io/bytes.h"
#include "kernels/core/error.h"

namespace trireme {
namespace {

using Kind = PickleValue::Kind;
using Id = std::uint32_t;

// About 16,000 tensors; a larger pickle is treated as an attack on memory.
constexpr std::size_t most_values = 300'000, most_steps = 1'500'000, most_marks = 10'000, most_extents = 64;

constexpr std::string_view allowed[] = {"collections OrderedDict", "torch Size", "torch._utils _rebuild_tensor_v2",
                                        "torch._utils _rebuild_parameter"};

/// The allowed name, for GLOBAL's "module\nname\n" and for STACK_GLOBAL's two texts; empty: not allowed.
std::string_view find_allowed(std::string_view module, std::string_view name) {
  const auto is = [&](std::string_view both) {
    return both.size() == module.size() + 1 + name.size() && both.starts_with(module) && both[module.size()] == ' ' &&
           both.ends_with(name);
  };
  for (std::string_view both : allowed)
    if (is(both)) return both;
  for (auto& [both, element] : torch_storages)
    if (is(both)) return both;
  return {};
}

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view op, const std::string& source)
      : rest_(bytes), size_(bytes.size()), op_(op), source_(source) {
    none_ = make(Kind::none);
    true_ = make(Kind::boolean, 1);
    false_ = make(Kind::boolean);
    empty_ = make(Kind::tuple);
  }

  Pickle run() {
    for (std::size_t step = 0;; ++step) {
      if (step == most_steps) wrong(fmt::format("it has more than {} steps", std::size_t{most_steps}));
      const auto code = little<std::uint8_t>();
      if (code == '.') break;
      if (!structure(code) && !constant(code) && !memory(code)) call(code);
    }
    if (!rest_.empty()) wrong(fmt::format("{} bytes follow its end", rest_.size()));
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::data, op_, "{}: its pickle is refused at byte {}: {}", source_, size_ - rest_.size(), what);
  }

  std::span<const std::byte> take(std::size_t n) {
    if (n > rest_.size()) wrong("it is cut off");
    const auto taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }
  template <class T>
  T little() {
    return little_endian<T>(take(sizeof(T)));
  }
  std::string_view text(std::size_t n) {
    const auto taken = take(n);
    return {reinterpret_cast<const char*>(taken.data()), n};
  }
  std::string_view line() {
    const std::string_view all(reinterpret_cast<const char*>(rest_.data()), rest_.size());
    const std::size_t end = all.find('\n');
    if (end == all.npos) wrong("it is cut off");
    take(end + 1);
    return all.substr(0, end);
  }

  Id make(Kind kind, std::int64_t number = 0, std::string_view text = {}, std::vector<Id> items = {}) {
    if (pickle_.values.size() == most_values)
      wrong(fmt::format("it has more than {} values", std::size_t{most_values}));
    pickle_.values.push_back({kind, number, text, std::move(items)});
    return static_cast<Id>(pickle_.values.size() - 1);
  }
  PickleValue& value(Id id) { return pickle_.values[id]; }

  void push(Id id) { stack_.push_back(id); }
  /// Values below the newest mark are out of reach, as in Python.
  Id pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) wrong("it takes a value where there is none");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Id top() {
    const Id id = pop();
    push(id);
    return id;
  }
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) wrong("a mark is missing");
    std::vector<Id> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  std::vector<Id> pop_many(std::size_t n) {
    std::vector<Id> items(n);
    for (std::size_t i = n; i-- > 0;) items[i] = pop();
    return items;
  }
  void push_tuple(std::vector<Id> items) { push(items.empty() ? empty_ : make(Kind::tuple, 0, {}, std::move(items))); }
  void append(Kind kind, const std::vector<Id>& items) {
    PickleValue& to = value(top());
    if (to.kind != kind) wrong(fmt::format("it appends to a {} as to a {}", name_of(to.kind), name_of(kind)));
    if (kind == Kind::dict && items.size() % 2) wrong("a key has no value");
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  bool structure(std::uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        if (const auto version = little<std::uint8_t>(); version < 2 || version > 5)
          wrong(fmt::format("it is of protocol {}; 2 to 5 are read", version));
        return true;
      case 0x95: return take(8), true;  // FRAME
      case '(':
        if (marks_.size() == most_marks) wrong("it is nested too deeply");
        return marks_.push_back(stack_.size()), true;
      case '0': return pop(), true;
      case '1': return pop_to_mark(), true;
      case 't': return push_tuple(pop_to_mark()), true;
      case 0x85: return push_tuple(pop_many(1)), true;
      case 0x86: return push_tuple(pop_many(2)), true;
      case 0x87: return push_tuple(pop_many(3)), true;
      case 'a': return append(Kind::list, pop_many(1)), true;
      case 'e': return append(Kind::list, pop_to_mark()), true;
      case 's': return append(Kind::dict, pop_many(2)), true;
      case 'u': return append(Kind::dict, pop_to_mark()), true;
      default: return false;
    }
  }

  bool constant(std::uint8_t code) {
    switch (code) {
      case 'N': return push(none_), true;
      case 0x88: return push(true_), true;
      case 0x89: return push(false_), true;
      case ')': return push(empty_), true;
      case ']': return push(make(Kind::list)), true;
      case '}': return push(make(Kind::dict)), true;
      case 'K': return push(make(Kind::number, little<std::uint8_t>())), true;
      case 'M': return push(make(Kind::number, little<std::uint16_t>())), true;
      case 'J': return push(make(Kind::number, static_cast<std::int32_t>(little<std::uint32_t>()))), true;
      case 0x8a: return push(make(Kind::number, long_number())), true;
      case 'G': return take(8), push(make(Kind::real)), true;
      case 0x8c:  // SHORT_BINUNICODE, and Python 2's str
      case 'U': return push(make(Kind::text, 0, text(little<std::uint8_t>()))), true;
      case 'X':  // BINUNICODE, and Python 2's str
      case 'T': return push(make(Kind::text, 0, text(little<std::uint32_t>()))), true;
      case 0x8d: return push(make(Kind::text, 0, text(little<std::uint64_t>()))), true;  // BINUNICODE8
      default: return false;
    }
  }
  /// LONG1: a number of n bytes in two's complement.
  std::int64_t long_number() {
    const auto bytes = take(little<std::uint8_t>());
    if (bytes.size() > 8) wrong(fmt::format("a number of {} bytes; at most 8 are read", bytes.size()));
    std::uint64_t value = !bytes.empty() && (bytes.back() & std::byte{0x80}) != std::byte{0} ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    return static_cast<std::int64_t>(value);
  }

  bool memory(std::uint8_t code) {
    switch (code) {
      case 'q': return remember(little<std::uint8_t>()), true;
      case 'r': return remember(little<std::uint32_t>()), true;
      case 0x94: return remember(memo_.size()), true;  // MEMOIZE
      case 'h': return recall(little<std::uint8_t>()), true;
      case 'j': return recall(little<std::uint32_t>()), true;
      default: return false;
    }
  }
  void remember(std::size_t place) {
    // Python numbers them from 0 (Python 2 from 1) without gaps.
    if (place > memo_.size() + 1) wrong(fmt::format("memo {} after {} others", place, memo_.size()));
    if (place >= memo_.size()) memo_.resize(place + 1, none_);
    memo_[place] = top();
  }
  void recall(std::size_t place) {
    if (place >= memo_.size()) wrong(fmt::format("memo {} of {}", place, memo_.size()));
    push(memo_[place]);
  }

  /// The opcodes with which a pickle could run code in Python.
  void call(std::uint8_t code) {
    switch (code) {
      case 'c': {  // GLOBAL
        const std::string_view module = line();
        return global(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const auto names = pop_many(2);
        if (value(names[0]).kind != Kind::text || value(names[1]).kind != Kind::text) wrong("a name that is no text");
        return global(value(names[0]).text, value(names[1]).text);
      }
      case 'R': return reduce();
      case 'b': return build();
      case 'Q': return storage();
      default:
        if (code > ' ' && code <= '~') wrong(fmt::format("opcode '{}' is not one that a state dict needs", char(code)));
        wrong(fmt::format("opcode {:#04x} is not one that a state dict needs", code));
    }
  }
  void global(std::string_view module, std::string_view name) {
    const std::string_view both = find_allowed(module, name);
    if (both.empty())
      wrong(fmt::format("it names {}, which is not among what a state dict of tensors needs; {}",
                        in_quotes(std::string(module.substr(0, 80)) + "." + std::string(name.substr(0, 80))),
                        name.starts_with("Complex") ? "complex numbers are not read: save real and imaginary parts"
                                                    : "save model.state_dict()"));
    push(make(Kind::name, 0, both));
  }

  bool is(Id id, Kind kind) { return value(id).kind == kind; }
  bool is_numbers(Id id) {
    const PickleValue& tuple = value(id);  // as long as a shape, or looking at it often would take for ever
    return tuple.kind == Kind::tuple && tuple.items.size() <= most_extents &&
           std::all_of(tuple.items.begin(), tuple.items.end(), [this](Id i) { return is(i, Kind::number); });
  }

  void reduce() {
    const Id arguments = pop(), function = pop();
    if (!is(function, Kind::name) || !is(arguments, Kind::tuple)) wrong("it calls what is no name");
    const std::string_view name = value(function).text;
    const std::vector<Id>& items = value(arguments).items;  // stays where it is: make() moves no value
    if (name == "collections OrderedDict") {
      if (!items.empty()) wrong("it makes an OrderedDict of something");
      return push(make(Kind::dict));
    }
    if (name == "torch Size") {
      if (items.size() != 1 || !is_numbers(items[0])) wrong("torch.Size of what is no tuple of numbers");
      return push(items[0]);
    }
    if (name == "torch._utils _rebuild_tensor_v2") return tensor(items);
    if (name == "torch._utils _rebuild_parameter") {
      if (items.size() != 3 || !is(items[0], Kind::tensor)) wrong("a parameter that is no tensor");
      return push(items[0]);
    }
    wrong(fmt::format("it calls {}", in_quotes(name)));
  }
  /// (storage, offset, size, strides, requires_grad, hooks[, metadata])
  void tensor(const std::vector<Id>& items) {
    bool good = (items.size() == 6 || items.size() == 7) && is(items[0], Kind::storage) && is(items[1], Kind::number) &&
                is_numbers(items[2]) && is_numbers(items[3]);
    good = good && value(items[2]).items.size() == value(items[3]).items.size();
    if (!good) wrong("a tensor is not made of storage, offset, size and as many strides");
    // Marks a view that is to be negated or conjugated.
    if (items.size() == 7 && !is(items[6], Kind::none) && !value(items[6]).items.empty())
      wrong("a tensor with metadata (a lazy negation or conjugate)");
    push(make(Kind::tensor, 0, {}, {items.begin(), items.begin() + 4}));
  }
  /// The attributes of an OrderedDict (its _metadata) say nothing about tensors.
  void build() {
    pop();
    if (!is(top(), Kind::dict)) wrong(fmt::format("it gives attributes to a {}", name_of(value(top()).kind)));
  }
  /// ('storage', type, key, device, elements)
  void storage() {
    const Id id = pop();
    const std::vector<Id>& items = value(id).items;
    const bool good = is(id, Kind::tuple) && items.size() == 5 && is(items[0], Kind::text) &&
                      value(items[0]).text == "storage" && is(items[1], Kind::name) &&
                      value(items[1]).text.ends_with("Storage") && is(items[2], Kind::text) &&
                      is(items[4], Kind::number) && value(items[4]).number >= 0;
    if (!good) wrong("a storage is not made of type, key, device and size");
    push(make(Kind::storage, value(items[4]).number, value(items[2]).text, {items[1]}));
  }

  std::span<const std::byte> rest_;
  std::size_t size_;
  std::string_view op_;
  const std::string& source_;
  Pickle pickle_;
  std::vector<Id> stack_, memo_;
  std::vector<std::size_t> marks_;
  Id none_, true_, false_, empty_;
};

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, 11> names{"None", "truth value", "number",   "number",  "text",  "tuple",
                                                   "list", "dict",        "function", "storage", "tensor"};
  return names[static_cast<std::size_t>(kind)];
}

Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view op, const std::string& source) {
  return Machine(bytes, op, source).run();
}

}  // namespace trireme
