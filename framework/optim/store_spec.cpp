#include "framework/optim/store_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "kernels/core/suggest.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

constexpr const char* op = "parameters";
constexpr Index most = Index{1} << 40;  // elements

// Words of a text, in the enumerators' order.
const std::vector<std::string> uses{"weight", "no_decay", "buffer"}, layouts{"same", "filter", "transposed", "listed"},
    dtypes{"f32", "f64", "bf16", "f16", "i32", "i64", "u8"}, devices{"cpu", "cuda"};

template <class E>
E parse_word(std::string_view text, const std::vector<std::string>& words) {
  const auto at = std::find(words.begin(), words.end(), text);
  check(at != words.end(), op, "{}", [&] { return unknown_name(std::string(text), words); });
  return static_cast<E>(at - words.begin());
}

template <class T>
T parse_count(std::string_view text) {
  T value = 0;
  check(parse_number(text, value) && value >= 0, op, "'{}' is no number of elements, or of a device",
        [&] { return shortened(text); });
  return value;
}

Shape parse_shape(std::string_view text) {
  const bool closed = text.size() >= 2 && text.front() == '[' && text.back() == ']';
  const auto extents = text.size() > 2 ? split_text(text.substr(1, text.size() - 2), ',') : std::vector<std::string>{};
  check(
      closed && extents.size() <= Shape::max_rank, op, "'{}' is no shape of at most {} extents, as [5,3] is",
      [&] { return shortened(text); }, int(Shape::max_rank));
  Shape shape;
  for (const std::string& extent : extents) shape.push_back(parse_count<Index>(extent));
  return shape;
}

Device parse_device(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  return {parse_word<DeviceKind>(text.substr(0, colon), devices),
          parse_count<int>(text.substr(std::min(colon + 1, text.size())))};
}

/// Takes the word up to the next space from a line.
std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

TensorSpec parse_tensor(std::string_view line) {
  TensorSpec t;
  t.kind = parse_word<StateKind>(take_word(line), uses);
  t.layout = parse_word<FileLayout>(take_word(line), layouts);
  t.begin = parse_count<Index>(take_word(line));
  t.shape = parse_shape(take_word(line));
  t.dtype = parse_word<DType>(take_word(line), dtypes);
  t.device = parse_device(take_word(line));
  t.name = line;
  return t;
}

}  // namespace

void StoreSpec::validate() const {
  std::set<std::string_view> names;
  Index end = 0, held = 0;
  const auto count = [&](const TensorSpec& t) {
    const auto name = [&] { return shortened(t.name); };
    check(names.insert(t.name).second, op, "two tensors are called '{}'", name);
    checked_bytes(op, t.shape, t.dtype);
    const Index n = t.shape.numel();
    check(n <= most && (held += n) <= most, op, "with '{}' {} of {} elements the store has more than 2^40 elements",
          name, t.shape, n);
    return n;
  };
  check(!tensors.empty(), op, "no tensor of it is trained, expected at least one");
  const TensorSpec& first = tensors.front();
  for (const TensorSpec& t : tensors) {
    const auto name = [&] { return shortened(t.name); };
    check(t.dtype == DType::f32 || t.dtype == DType::f64, op,
          "'{}' is {}, expected f32 or f64; call convert(model, ...) first", name, t.dtype);
    check(
        t.dtype == first.dtype, op, "'{}' is {} but '{}' is {}; call convert(model, ...) first", name, t.dtype,
        [&] { return shortened(first.name); }, first.dtype);
    const Index n = count(t);
    check(t.kind != StateKind::buffer && t.begin >= end && t.begin <= most && (t.begin == 0 || &t != &first), op,
          "'{}' is a {} that begins at element {}, expected one that is trained {} {}", name,
          uses[static_cast<std::size_t>(t.kind)], t.begin,
          &t == &first ? "at" : "at or behind the end of the one before,", end);
    end = t.begin + n;
  }
  check(end <= size && size <= most, op, "its tensors end at element {} of {}, expected at most 2^40", end, size);
  for (const TensorSpec& t : buffers) {
    count(t);
    check(
        t.kind == StateKind::buffer && t.begin == 0, op,
        "'{}' begins at element {}, expected a buffer that begins at 0", [&] { return shortened(t.name); }, t.begin);
  }
}

std::string to_string(const TensorSpec& t) {
  check(t.name.find('\n') == t.name.npos, op,
        "a name has a line break, which the text format does not allow: rename the tensor");
  return fmt::format("{} {} {} [{}] {} {} {}", uses[static_cast<std::size_t>(t.kind)],
                     layouts[static_cast<std::size_t>(t.layout)], t.begin,
                     fmt::join(t.shape.begin(), t.shape.end(), ","), name_of(t.dtype), to_string(t.device), t.name);
}

std::string to_string(const StoreSpec& spec) {
  std::string text = fmt::format("store {}\n", spec.size);
  for (const auto* list : {&spec.tensors, &spec.buffers})
    for (const TensorSpec& t : *list) text += to_string(t) + "\n";
  return text;
}

StoreSpec parse_store_spec(std::string_view text) {
  StoreSpec spec;
  check(text.starts_with("store ") && text.ends_with('\n'), op, "a text of {} characters is no list of tensors",
        text.size());
  for (bool head = true; !text.empty(); head = false) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (head) {
      take_word(line);
      spec.size = parse_count<Index>(line);
      continue;
    }
    TensorSpec t = parse_tensor(line);
    (t.kind == StateKind::buffer ? spec.buffers : spec.tensors).push_back(std::move(t));
  }
  spec.validate();
  return spec;
}

}  // namespace trireme
