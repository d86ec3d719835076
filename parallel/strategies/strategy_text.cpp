// The table of strategies by name, the parser for texts such as "pipeline(micro=4) | data_parallel", and the claims of
// the strategies in a text.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/core/rows.h"
#include "kernels/core/suggest.h"
#include "kernels/core/text.h"
#include "parallel/strategies/codecs/codecs.h"
#include "parallel/strategies/schedules.h"
#include "parallel/strategies/strategy.h"

namespace trireme {
namespace {

std::string trim(std::string_view text) { return std::string(trimmed(text, " \t")); }

/// Does not split inside double quotes.
std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted || text[at] != separator) continue;
    pieces.push_back(trim(text.substr(begin, at - begin)));
    begin = at + 1;
  }
  check(!quoted, "strategy", "'{}' opens a quotation and does not close it: add a quotation mark", text);
  pieces.push_back(trim(text.substr(begin)));
  return pieces;
}
std::string without_quotes(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

DataParallelOptions read_data_parallel(StrategyOptions& given) {
  DataParallelOptions o;
  std::string scope;
  given.read({{.name = "axis", .value = &o.axis},
              {.name = "first_bucket", .value = &o.first_bucket, .least = 1},
              {.name = "bucket", .value = &o.bucket, .least = 1},
              {.name = "overlap", .value = &o.overlap},
              {.name = "norm_scope", .value = &scope, .choices = "local, group, global"},
              {.name = "norm_group", .value = &o.norm_group, .least = 1}});
  if (!scope.empty()) o.norm_scope = norm_scope_of(scope);
  return o;
}

/// Claims of compress() by codec: codecs with a ratio send everything at ratio 1; error feedback keeps the rest.
std::vector<StrategyClaim> codec_claims() {
  std::vector<StrategyClaim> all;
  for (const CodecRow& row : codecs()) {
    const auto has = [&](const char* name) {
      return std::ranges::find(row.parameters, name, &CodecParameter::name) != row.parameters.end();
    };
    const std::string codec = fmt::format("codec={}", row.codec->name);
    const std::string plain = has("clip") ? "momentum=0, clip=0" : has("momentum") ? "momentum=0" : "";
    if (has("ratio")) all.push_back({.kind = StrategyClaim::Kind::limit, .when = codec, .with = "ratio=1, " + plain});
    if (row.codec == &codec_rows::powersgd)
      all.push_back({.kind = StrategyClaim::Kind::limit, .when = codec, .with = "rank=1000000"});
    if (!has("residual")) continue;
    // A sum in a narrow type is rounded once more; no residual keeps this error.
    const double rounded = row.codec->wire == DType::bf16 ? 1e-2 : row.codec->wire == DType::f16 ? 1e-3 : 0;
    all.push_back({.kind = StrategyClaim::Kind::error_feedback,
                   .when = codec + ", residual=true",
                   .with = plain,
                   .tolerance = rounded});
  }
  return all;
}

/// A new strategy gets a row here.
const std::vector<StrategyRow> table = {
    {"serial", [](StrategyOptions&) { return Strategy(); }},
    {"accumulate",
     [](StrategyOptions& given) {
       int micro = 4;
       given.read({{.name = "micro", .value = &micro, .least = 1}});
       return accumulate(micro);
     }},
    {"pipeline",
     [](StrategyOptions& given) {
       PipelineOptions o{.micro = 0, .chunks = 0};
       given.read({{.name = "micro", .value = &o.micro, .least = 1},
                   {.name = "schedule", .value = &o.schedule},
                   {.name = "chunks", .value = &o.chunks, .least = 1},
                   {.name = "partition", .value = &o.partition},
                   {.name = "axis", .value = &o.axis},
                   {.name = "memory", .value = &o.memory, .least = 1},
                   {.name = "bandwidth", .value = &o.bandwidth, .least = 1}});
       const PipelineSchedule& schedule = find_schedule(o.schedule);
       if (o.micro == 0) o.micro = schedule.one_by_one ? 1 : PipelineOptions().micro;
       if (o.chunks == 0) o.chunks = schedule.interleaves || schedule.folds ? 2 : 1;
       return pipeline(o);
     },
     "pipe"},
    {"spatial",
     [](StrategyOptions& given) {
       std::vector<std::string> axes{"h", "w", "d"};
       given.read({{.name = "axes", .value = &axes}});
       return spatial(axes);
     },
     "h"},
    {"context",
     [](StrategyOptions& given) {
       std::string mode = "gather", axis = "context", cut = "contiguous";
       given.read({{.name = "mode", .value = &mode}, {.name = "axis", .value = &axis}, {.name = "cut", .value = &cut}});
       return context(context_mode_of(mode), axis, context_cut_of(cut));
     },
     "context"},
    {"data_parallel", [](StrategyOptions& given) { return data_parallel(read_data_parallel(given)); }, "data"},
    {"tensor",
     [](StrategyOptions& given) {
       std::string axis = "tensor";
       bool sequence = false;
       given.read({{.name = "axis", .value = &axis}, {.name = "sequence", .value = &sequence}});
       return tensor(axis, sequence);
     },
     "tensor"},
    {"experts",
     [](StrategyOptions& given) {
       std::vector<std::string> axes{"data"};
       given.read({{.name = "axes", .value = &axes}});
       return experts(axes);
     },
     "data"},
    {"place",
     [](StrategyOptions& given) {
       WeightPlacement row;
       given.read({{.name = "weights", .value = &row.weights},
                   {.name = "dim", .value = &row.dim},
                   {.name = "whole", .value = &row.whole},
                   {.name = "axis", .value = &row.axis}},
                  "weights");
       return place(row);
     },
     "tensor"},
    {"one_weird_trick", [](StrategyOptions& given) { return one_weird_trick(read_data_parallel(given)); }, "data"},
    {"zero",
     [](StrategyOptions& given) {
       int stage = 1;
       ZeroOptions o;
       given.read({{.name = "stage", .value = &stage, .least = 1},
                   {.name = "axis", .value = &o.axis},
                   {.name = "prefetch", .value = &o.prefetch, .least = 0},
                   {.name = "reshard", .value = &o.reshard}},
                  "stage");
       return zero(stage, o);
     },
     "data"},
    {"central_storage", [](StrategyOptions&) { return central_storage(); }, "data"},
    {"local_sgd",
     [](StrategyOptions& given) {
       LocalSgdOptions o;
       given.read({{.name = "every", .value = &o.every, .least = 1},
                   {.name = "outer_lr", .value = &o.outer_lr},
                   {.name = "outer_momentum", .value = &o.outer_momentum, .least = 0},
                   {.name = "from_epoch", .value = &o.from_epoch, .least = 0},
                   {.name = "axis", .value = &o.axis}});
       return local_sgd(o);
     },
     "data",
     1,
     {{.kind = StrategyClaim::Kind::limit, .with = "every=1, outer_lr=1, outer_momentum=0, from_epoch=0"},
      {.kind = StrategyClaim::Kind::mean_preserved, .with = "outer_lr=1, outer_momentum=0, from_epoch=0"}}},
    {"easgd",
     [](StrategyOptions& given) {
       int every = 4;
       double rho = 0;
       std::string axis = "data";
       given.read({{.name = "every", .value = &every, .least = 1},
                   {.name = "rho", .value = &rho, .least = 0},
                   {.name = "axis", .value = &axis}});
       return easgd(every, rho, axis);
     },
     "data",
     1,
     {{.kind = StrategyClaim::Kind::mean_preserved, .center = "elastic.center"}}},
    {"gossip",
     [](StrategyOptions& given) {
       GossipOptions o;
       int seed = 0;
       given.read({{.name = "graph", .value = &o.graph},
                   {.name = "mode", .value = &o.mode, .choices = "sync, push_sum, async"},
                   {.name = "global_every", .value = &o.global_every, .least = 0},
                   {.name = "seed", .value = &seed, .least = 0},
                   {.name = "axis", .value = &o.axis}});
       o.seed = static_cast<std::uint64_t>(seed);
       return gossip(o);
     },
     "data",
     1,
     {{.kind = StrategyClaim::Kind::limit, .with = "graph=complete, mode=sync, global_every=0"},
      {.kind = StrategyClaim::Kind::mean_preserved, .when = "mode=sync"},
      {.kind = StrategyClaim::Kind::mean_preserved, .when = "mode=async"},
      {.kind = StrategyClaim::Kind::mean_preserved,
       .when = "mode=push_sum",
       .numerator = "push_sum.x",
       .divisor = "push_sum.w"}}},
    {"parameter_server",
     [](StrategyOptions& given) {
       ParameterServerOptions o;
       given.read({{.name = "servers", .value = &o.servers, .least = 1},
                   {.name = "mode", .value = &o.mode, .choices = "sync, async, ssp"},
                   {.name = "staleness", .value = &o.staleness, .least = 0},
                   {.name = "shard", .value = &o.shard, .choices = "bytes, layer"},
                   {.name = "backup", .value = &o.backup, .least = 0},
                   {.name = "groups", .value = &o.groups, .least = 0},
                   {.name = "axis", .value = &o.axis}});
       return parameter_server(o);
     },
     "data",
     2,
     {{.kind = StrategyClaim::Kind::limit, .with = "mode=sync, staleness=, backup=0"},
      {.kind = StrategyClaim::Kind::limit, .with = "mode=ssp, staleness=0, backup=0"},
      {.kind = StrategyClaim::Kind::delayed, .when = "mode=async, groups=0"},
      {.kind = StrategyClaim::Kind::delayed, .when = "mode=ssp, groups=0"}}},
    {"compress", [](StrategyOptions& given) { return compress(given); }, "data", 1, codec_claims()},
};

/// Parses "name" or "name(option=value, ...)"; options as in StrategyOptions.
struct Piece {
  std::string name;
  std::map<std::string, std::string> options = {};

  explicit Piece(const std::string& text) : name(text) {
    const auto open = text.find('(');
    if (open == std::string::npos) return;
    check(text.back() == ')', "strategy", "'{}' opens a bracket and does not close it: add a bracket", text);
    name = trim(text.substr(0, open));
    options = read(trim(text.substr(open + 1, text.size() - open - 2)), text);
  }
  static std::map<std::string, std::string> read(const std::string& list, const std::string& text) {
    std::map<std::string, std::string> values;
    for (auto& item : list.empty() ? std::vector<std::string>{} : split_at(list, ',')) {
      const auto equals = item.find('=');
      const bool named = equals != std::string::npos;
      const std::string value = named ? item.substr(equals + 1) : item;
      bool added = values.emplace(named ? trim(item.substr(0, equals)) : "", without_quotes(trim(value))).second;
      check(added, "strategy", "'{}' gives an option twice: leave one out", text);
    }
    return values;
  }
  Strategy parse(const std::vector<StrategyRow>& rows) const {
    check(name != "one_weird", "strategy", "there is no 'one_weird': use one_weird_trick");
    const StrategyRow& row = find_row(rows, name, "strategy");
    StrategyOptions given(name, options);
    Strategy strategy = row.parse(given);
    given.read({});  // throws for options that the strategy has not read
    return strategy;
  }
  /// A copy in which these options replace its own.
  Piece with(const std::string& list) const {
    Piece other = *this;
    for (auto& [option, value] : read(list, list)) {
      other.options.erase(option);
      if (!value.empty()) other.options[option] = value;
    }
    return other;
  }
  std::string text() const {
    std::string list;
    for (auto& [option, value] : options)
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", option.empty() ? "" : option + "=",
                          value.find_first_of(",|()") == value.npos ? value : '"' + value + '"');
    return list.empty() ? name : fmt::format("{}({})", name, list);
  }
};

/// The row's claims that hold with the options of the piece and the defaults of others.
std::vector<StrategyClaim> claims_of(const Piece& piece, const std::vector<StrategyRow>& rows) {
  std::vector<StrategyClaim> all;
  std::map<std::string, std::string> options;
  for (const std::string& part : split_at(piece.parse(rows).text(), '|')) options.merge(Piece(part).options);
  for (const StrategyClaim& claim : find_row(rows, piece.name, "strategy").claims) {
    const auto wants = Piece::read(claim.when, claim.when);
    const bool fits = std::ranges::all_of(wants, [&](const auto& option) {
      const auto at = options.find(option.first);
      return at != options.end() && at->second == option.second;
    });
    if (fits) all.push_back(claim);
  }
  return all;
}

std::vector<StrategyRow> with_own(const std::vector<StrategyRow>& own) {
  std::vector<StrategyRow> rows = table;
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}
std::vector<Piece> pieces_of(const std::string& text) {
  std::vector<Piece> pieces;
  for (auto& piece : split_at(text, '|')) {
    check(!piece.empty(), "strategy", "'{}' has an empty place; write for example \"data_parallel\"", text);
    pieces.emplace_back(piece);
  }
  return pieces;
}

}  // namespace

void StrategyOptions::read(const std::vector<Option>& table, const std::string& unnamed) {
  const auto values = std::exchange(values_, {});
  for (const auto& [name, text] : values) {
    check(!name.empty() || !unnamed.empty(), strategy_,
          "'{}' is not of the form option=value: write the option's name, too", text);
    check(!name.empty() || !values.contains(unnamed), strategy_, "gives {} twice: leave one out", unnamed);
    try {
      set_option(find_option(table, name.empty() ? unnamed : name), text);
    } catch (const OptionError& e) { fail(strategy_, "{}", e.what()); }
  }
}

std::string StrategyOptions::take(const std::string& name, const std::string& otherwise) {
  for (const std::string& key : {name, std::string()})
    if (auto given = values_.extract(key)) return given.mapped();
  return otherwise;
}

const std::vector<StrategyRow>& strategies() { return table; }

Strategy parse_strategy(const std::string& text, const std::vector<StrategyRow>& own) {
  const std::vector<StrategyRow> rows = with_own(own);
  Strategy whole;
  for (const Piece& piece : pieces_of(text)) whole = std::move(whole) | piece.parse(rows);
  return whole;
}

std::vector<ClaimedText> claims_of(const std::string& text, const std::vector<StrategyRow>& own) {
  using Kind = StrategyClaim::Kind;
  const std::vector<StrategyRow> rows = with_own(own);
  const std::vector<Piece> pieces = pieces_of(text);
  std::vector<std::vector<StrategyClaim>> claims;
  for (const Piece& piece : pieces) claims.push_back(claims_of(piece, rows));
  std::vector<ClaimedText> all;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (const StrategyClaim& claim : claims[i]) {
      std::string whole;
      bool measurable = true;
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        const auto limit = std::ranges::find(claims[k], Kind::limit, &StrategyClaim::kind);
        const bool others = k != i && claim.kind == Kind::limit, has = limit != claims[k].end();
        const Piece piece = pieces[k].with(k == i ? claim.with : others && has ? limit->with : "");
        if (others && !has && piece.parse(rows).claim(false) != Claim::exact) measurable = false;
        whole += (whole.empty() ? "" : " | ") + piece.text();
      }
      if (measurable) all.push_back({claim, pieces[i].name, whole});
    }
  std::ranges::stable_sort(all, {}, &ClaimedText::name);
  return all;
}

}  // namespace trireme
