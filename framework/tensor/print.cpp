#include "framework/tensor/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <ostream>
#include <vector>

namespace trireme {
namespace {

constexpr Index threshold = 1000, edge = 3;
constexpr std::size_t line_width = 75;
constexpr int digits = 8;  // after the point

/// A number as text in its two parts, for columns that have their points below each other.
struct Parts {
  std::string whole, rest;  // rest: digits after the point
  std::string exponent;     // "e+10"; empty: none
};

template <class T>
std::string chars(T value, auto... how) {
  std::array<char, 512> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value, how...).ptr};
}
/// The shortest text that reads back as value, or a text with eight digits after the point if that is shorter.
template <class T>
Parts parts_of(T value, std::chars_format form) {
  std::string text = chars(value, form);
  const auto point_of = [&] { return std::min(text.find('.'), text.size()); };
  const auto end_of = [&] { return std::min(text.find('e'), text.size()); };
  if (end_of() > point_of() + 1 + digits) {
    text = chars(value, form, digits);
    const std::size_t end = end_of(), last = text.find_last_not_of('0', end - 1);
    text.erase(last + 1, end - last - 1);
  }
  const std::size_t point = std::min(point_of(), end_of()), end = end_of();
  return {text.substr(0, point), point < end ? text.substr(point + 1, end - point - 1) : "", text.substr(end)};
}

/// A truth value, printed as Python's.
struct Truth {
  Truth(std::uint8_t v) : value(v != 0) {}
  bool value;
};
std::string text_of(Truth t) { return t.value ? "True" : "False"; }
std::string text_of(std::integral auto number) { return std::to_string(number); }

/// Turns the elements of one tensor into words of one width.
template <class T>
class Words {
 public:
  /// shown: the elements that are printed.
  explicit Words(const std::vector<T>& shown) {
    if constexpr (!std::is_floating_point_v<T>) {
      for (const T value : shown) width_ = std::max(width_, text_of(value).size());
    } else {
      T least = std::numeric_limits<T>::infinity(), most = 0;
      for (const T value : shown)
        if (std::isfinite(value) && value != 0) {
          least = std::min(least, std::abs(value));
          most = std::max(most, std::abs(value));
        }
      if (most > 0 && (most >= T(1e8) || least < T(1e-4) || most / least > T(1000)))
        form_ = std::chars_format::scientific;
      for (const T value : shown) {
        if (!std::isfinite(value)) continue;
        const Parts p = parts_of(value, form_);
        whole_ = std::max(whole_, p.whole.size());
        rest_ = std::max(rest_, p.rest.size());
        exponent_ = std::max(exponent_, p.exponent.size());
      }
      width_ = whole_ + 1 + rest_ + exponent_;
      for (const T value : shown)
        if (!std::isfinite(value)) width_ = std::max(width_, word_of_special(value).size());
    }
  }
  std::string operator()(T value) const {
    if constexpr (!std::is_floating_point_v<T>)
      return fmt::format("{:>{}}", text_of(value), width_);
    else if (!std::isfinite(value))
      return fmt::format("{:>{}}", word_of_special(value), width_);
    else {
      if (form_ == std::chars_format::scientific) {  // all digits that the longest one has
        std::string text = chars(value, form_, static_cast<int>(rest_));
        if (rest_ == 0) text.insert(text.find('e'), ".");
        if (const std::size_t digits_at = text.find('e') + 2; text.size() < digits_at + exponent_ - 2)
          text.insert(digits_at, digits_at + exponent_ - 2 - text.size(), '0');
        return fmt::format("{:>{}}", text, width_);
      }
      const Parts p = parts_of(value, form_);
      return fmt::format("{:>{}}", fmt::format("{}.{:<{}}", p.whole, p.rest, rest_), width_);
    }
  }

 private:
  static std::string word_of_special(T value) requires std::is_floating_point_v<T> {
    return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  }
  std::chars_format form_ = std::chars_format::fixed;
  std::size_t whole_ = 0, rest_ = 0, exponent_ = 0, width_ = 0;
};

/// Calls f with each printed position along an axis, and with -1 where positions are left out.
template <class F>
void each_shown(Index extent, bool shortened, F&& f) {
  for (Index i = 0; i < extent; ++i) {
    if (shortened && i == edge && extent > 2 * edge) {
      f(Index{-1});
      i = extent - edge;
    }
    f(i);
  }
}

template <class T>
class Printer {
 public:
  Printer(const T* from, const Shape& shape)
      : from_(from), shape_(shape), shortened_(shape.numel() > threshold), words_(shown(0, 0)) {}
  /// Elements from `first` on, of the axes from `axis` on; indent: brackets before it on its line, room: characters.
  std::string text(int axis, Index first, std::size_t indent, std::size_t room) const {
    if (axis == shape_.rank()) return words_(from_[first]);
    std::string all, line(indent, ' ');
    const bool last = axis == shape_.rank() - 1;
    Index left = shape_[axis];
    if (shortened_ && left > 2 * edge) left = 2 * edge + 1;
    each_shown(shape_[axis], shortened_, [&](Index i) {
      const std::string word =
          i < 0 ? "..." : text(axis + 1, first + i * shape_.product(axis + 1, shape_.rank()), indent + 1, room - 1);
      --left;
      if (!last) {
        all += line + word + (left > 0 ? std::string(static_cast<std::size_t>(shape_.rank() - axis - 1), '\n') : "");
        return;
      }
      if (line.size() > indent && line.size() + word.size() > room - 1) {
        all += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        line.assign(indent, ' ');
      }
      line += word + (left > 0 ? " " : "");
    });
    if (last) all += line;
    return "[" + all.substr(std::min(indent, all.size())) + "]";
  }

 private:
  std::vector<T> shown(int axis, Index first) const {
    if (axis == shape_.rank()) return {from_[first]};
    std::vector<T> all;
    each_shown(shape_[axis], shortened_, [&](Index i) {
      if (i < 0) return;
      const auto more = shown(axis + 1, first + i * shape_.product(axis + 1, shape_.rank()));
      all.insert(all.end(), more.begin(), more.end());
    });
    return all;
  }

  const T* from_;
  Shape shape_;
  bool shortened_;
  Words<T> words_;
};

}  // namespace

std::string to_string(const Tensor& t) {
  if (!t) return "undefined";
  if (t.numel() == 0) return "[]";
  // Halves are floats of fewer digits, short integers are numbers.
  const bool is_short = is_integer(t.dtype()) && size_of(t.dtype()) < 4;
  const DType shown = is_half(t.dtype()) ? DType::f32 : is_short ? DType::i32 : t.dtype();
  const Tensor host = t.detach().to(cpu()).to(shown);
  if (shown == DType::boolean) {
    const auto values = host.to_vector<std::uint8_t>();
    std::vector<Truth> truths(values.begin(), values.end());
    return host.rank() > 0 ? Printer<Truth>(truths.data(), host.shape()).text(0, 0, 1, line_width) : text_of(truths[0]);
  }
  return dispatch_any(shown, [&]<class T>(T) -> std::string {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t> ||
                  std::is_same_v<T, std::int64_t>) {
      const auto values = host.to_vector<T>();
      if (host.rank() > 0) return Printer<T>(values.data(), host.shape()).text(0, 0, 1, line_width);
      if constexpr (std::is_integral_v<T>) return text_of(values[0]);
      const std::string text = fmt::format("{}", values[0]);
      return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
    } else {
      return "";
    }
  });
}
std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << to_string(t); }
std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << to_string(s); }
std::ostream& operator<<(std::ostream& out, DType t) { return out << name_of(t); }

template <>
fmt::format_context::iterator detail::Formatter<Tensor>::format(const Tensor& t, fmt::format_context& context) const {
  return std::ranges::copy(to_string(t), context.out()).out;  // fmt::format_to() would compile all of fmt here
}

}  // namespace trireme
