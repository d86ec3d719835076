#include "framework/io/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/core/suggest.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

template <class T>
constexpr bool is_text = std::same_as<T, std::string>;
template <class T>
constexpr bool is_number = std::same_as<T, int> || std::same_as<T, Index> || std::same_as<T, double>;
template <class T>
concept List = requires {
  typename T::value_type;
}
&&!is_text<T>;

template <List T>
constexpr char separator = is_text<typename T::value_type> ? '+' : ',';

template <class T>
const char* type_name() {
  if constexpr (is_text<T>) return "text";
  if constexpr (std::same_as<T, bool>) return "true or false";
  if constexpr (std::same_as<T, double>) return "a number";
  if constexpr (std::same_as<T, std::vector<double>>) return "a list of numbers: 30,60,80";
  if constexpr (std::same_as<T, std::vector<std::string>>) return "a list of texts: a+b";
  return "a whole number";
}

/// False for a text of another type.
template <class T>
bool read(std::string_view text, T& value) {
  if constexpr (is_text<T>) {
    value = text;
  } else if constexpr (std::same_as<T, bool>) {
    value = text == "true";
    return value || text == "false";
  } else if constexpr (is_number<T>) {
    return parse_number(text, value);
  } else {
    value.clear();
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(separator<T>), text.size());
      if (!read(trimmed(text.substr(0, end)), value.emplace_back())) return false;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  return true;
}

void check_number(const Option& o, const std::string& shown, double value) {
  const auto refuse = [&](const std::string& remedy) {
    throw OptionError(fmt::format("{} is {}, it must be {}", o.name, shown, remedy));
  };
  if (!std::isfinite(value)) refuse("a finite number");
  if (value < o.least) refuse(fmt::format("at least {}", o.least));
  if (value > o.most) refuse(fmt::format("at most {}", o.most));
}

void check_text(const Option& o, const std::string& value) {
  std::vector<std::string> known;
  for (std::size_t at = 0; at < o.choices.size(); at = std::min(o.choices.find(", ", at), o.choices.size() - 2) + 2)
    known.push_back(o.choices.substr(at, o.choices.find(", ", at) - at));
  if (!known.empty() && std::ranges::count(known, value) == 0)
    throw OptionError(fmt::format("{}: {}", o.name, unknown_name(value, known)));
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (is_text<T>) {
    return value;
  } else if constexpr (List<T>) {
    std::string text;
    for (std::size_t i = 0; i < value.size(); ++i) text += (i ? std::string(1, separator<T>) : "") + text_of(value[i]);
    return text;
  } else {
    return fmt::format("{}", value);
  }
}

template <class T>
void check_one(const Option& o, const T& value) {
  if constexpr (is_number<T>) check_number(o, text_of(value), static_cast<double>(value));
  if constexpr (is_text<T>) check_text(o, value);
}

}  // namespace

std::string type_of(const Option& o) {
  return std::visit([](auto* v) { return type_name<std::remove_pointer_t<decltype(v)>>(); }, o.value);
}

const Option& find_option(std::span<const Option> options, const std::string& name) {
  std::vector<std::string> names;
  std::string last = "." + name;  // "lr" and "weight-decay" are probably meant as "optim.lr", "optim.weight_decay"
  std::ranges::replace(last, '-', '_');
  std::string near;
  for (const Option& o : options) {
    if (o.name.ends_with(last)) near = fmt::format(" (did you mean '{}'?)", o.name);
    if (o.name == name || (!o.alias.empty() && o.alias == name)) return o;
    names.push_back(o.name);
  }
  if (names.size() <= 12) throw OptionError(unknown_name(name, names));
  throw OptionError(
      fmt::format("unknown setting '{}'{}", shortened(name), near.empty() ? did_you_mean(name, names) : near));
}

void set_option(const Option& o, std::string_view text) {
  const bool set = std::visit(
      [&](auto* v) {
        auto value = *v;
        if (!read(text, value)) return false;
        *v = std::move(value);
        return true;
      },
      o.value);
  if (!set) throw OptionError(fmt::format("{}: '{}' is not {}", o.name, shortened(text), type_of(o)));
  check_value(o);
}

void check_value(const Option& o) {
  std::visit(
      [&]<class T>(const T* v) {
        if constexpr (List<T>)
          for (const auto& each : *v) check_one(o, each);
        else
          check_one(o, *v);
      },
      o.value);
}

std::string value_text(const Option& o) {
  return std::visit([](const auto* v) { return text_of(*v); }, o.value);
}

}  // namespace trireme
