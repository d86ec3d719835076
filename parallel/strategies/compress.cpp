// compress(): each all_reduce of gradients in the plan gets a codec.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/core/suggest.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/custom.h"

namespace trireme {
namespace {

const CodecRow& row_of(const std::string& codec) {
  const auto at = std::ranges::find(codecs(), codec, [](const CodecRow& row) { return row.codec->name; });
  check(at != codecs().end(), "compress", "codec: {}", [&] {
    std::vector<std::string> names;
    for (const CodecRow& row : codecs()) names.emplace_back(row.codec->name);
    return unknown_name(codec, names);
  });
  return *at;
}

/// A parameter's value as read from text, in the member of its type.
struct Value {
  double number;
  Index whole;
  bool flag;
  Option option(const CodecParameter& p) {
    Option o{.name = std::string(p.name), .value = &number, .least = p.least, .most = p.most};
    if (p.multiple > 0) o.value = &whole;
    if (p.is_flag) o.value = &flag;
    return o;
  }
  double of(const CodecParameter& p) const {
    return p.is_flag ? flag : p.multiple > 0 ? static_cast<double>(whole) : number;
  }
};

}  // namespace

Strategy compress(StrategyOptions& given) {
  const CodecRow& row = row_of(given.take("codec", "topk"));
  std::vector<Value> values;
  for (const CodecParameter& p : row.parameters) values.push_back({p.value, static_cast<Index>(p.value), p.value != 0});
  std::vector<Option> table;
  for (std::size_t i = 0; i < values.size(); ++i) table.push_back(values[i].option(row.parameters[i]));
  given.read(table);
  std::vector<std::pair<std::string, double>> arguments;
  std::string text = fmt::format("codec={}", row.codec->name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const CodecParameter& p = row.parameters[i];
    const double value = values[i].of(p);
    check(p.multiple == 0 || std::fmod(value, p.multiple) == 0, "compress",
          "{}={}, but it must be a multiple of {}: use {}={}", p.name, value, p.multiple, p.name,
          p.multiple * std::max(1.0, std::round(value / p.multiple)));
    arguments.emplace_back(p.name, value);
    text += fmt::format(", {}={}", p.name, value_text(table[i]));
  }
  const auto is = [&](const char* name, double value) {
    return std::ranges::count(arguments, std::pair<std::string, double>(name, value)) > 0;
  };
  const Claim claim = is("ratio", 1) && is("momentum", 0) ? Claim::exact : Claim::statistical;
  const auto encode = [&codec = *row.codec, arguments](Plan plan) {
    return encode_gradients(std::move(plan), "compress", codec, arguments);
  };
  return {"compress", claim, encode, text, StrategyOrder::codecs};
}

Strategy compress(const std::string& codec, const std::map<std::string, double>& options) {
  std::map<std::string, std::string> texts{{"codec", codec}};
  for (const CodecParameter& p : row_of(codec).parameters)
    if (const auto at = options.find(std::string(p.name)); at != options.end() && p.is_flag)
      texts[at->first] = at->second != 0 ? "true" : "false";
  for (auto& [name, value] : options) texts.try_emplace(name, fmt::format("{}", value));
  StrategyOptions given("compress", texts);
  return compress(given);
}

}  // namespace trireme
