#include "tools/recipe.h"

#include <algorithm>
#include <cmath>

#include "datasets/datasets.h"
#include "framework/init.h"
#include "framework/suggest.h"

namespace trireme {
namespace {
[[noreturn]] void unknown(const char* what, const std::string& word, std::vector<std::string> known) {
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  throw ConfigError(std::string(what) + ": unknown '" + word + "'" + did_you_mean(word, known) + "; there are " + list);
}
}  // namespace

DType make_dtype(const Config& c) { return c.dtype == "f64" ? DType::f64 : DType::f32; }

Dataset make_dataset(const Config& c, const std::string& split) {
  SyntheticOptions synthetic{.size = c.data.synthetic_size, .seed = 7};
  Dataset data = open_dataset(c.data.name, split, c.data.root, synthetic);
  if (split == "train" && c.data.limit > 0) data = head(data, std::min<Index>(c.data.limit, data->size()));
  return data;
}

Module make_model(const Config& c, const Dataset& data) {
  Module model = make_model(c.model, ModelOptions{.input = data->shape(), .classes = data->classes()});
  initialize(model, static_cast<std::uint64_t>(c.seed));
  if (make_dtype(c) != DType::f32) convert(model, make_dtype(c));
  return model;
}

Rate make_rate(const Config& c, std::int64_t per_epoch) {
  const Config::Optim& o = c.optim;
  std::int64_t warm = static_cast<std::int64_t>(o.warmup_epochs * static_cast<double>(per_epoch));
  std::int64_t total = std::max<std::int64_t>(1, c.epochs * per_epoch - warm);
  std::int64_t every =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(o.step_epochs * static_cast<double>(per_epoch)));
  auto base = [&]() -> Rate {
    if (o.schedule == "constant") return o.lr;
    if (o.schedule == "step") return step_decay(o.lr, every, o.step_factor);
    if (o.schedule == "exponential")
      return exponential(o.lr, std::pow(o.step_factor, 1.0 / static_cast<double>(per_epoch)));
    if (o.schedule == "cosine") return cosine(o.lr, total);
    if (o.schedule == "linear") return polynomial(o.lr, total, 1);
    if (o.schedule == "one_cycle") return one_cycle(o.lr, total);
    unknown("optim.schedule", o.schedule, {"constant", "step", "exponential", "cosine", "linear", "one_cycle"});
  };
  return warm > 0 ? warm_up(base(), warm) : base();
}

Recipe make_recipe(const Config& c, std::int64_t per_epoch) {
  const Config::Optim& o = c.optim;
  Rate lr = make_rate(c, per_epoch);
  if (o.name == "sgd") return Sgd{.lr = lr, .momentum = o.momentum, .decay = o.decay, .nesterov = o.nesterov};
  if (o.name == "adagrad") return Adagrad{.lr = lr, .decay = o.decay};
  if (o.name == "adadelta") return Adadelta{.lr = lr, .decay = o.decay};
  if (o.name == "adam") return Adam{.lr = lr, .decay = o.decay};
  if (o.name == "adamw") return AdamW{.lr = lr, .decay = o.decay};
  if (o.name == "lars") return Lars{.lr = lr, .momentum = o.momentum, .decay = o.decay};
  unknown("optim.name", o.name, {"sgd", "adagrad", "adadelta", "adam", "adamw", "lars"});
}

Strategy make_strategy(const Config& c, int ranks) {
  NormScope scope = NormScope::local;
  if (c.parallel.norm_scope == "global")
    scope = NormScope::global;
  else if (c.parallel.norm_scope != "local")
    unknown("parallel.norm_scope", c.parallel.norm_scope, {"local", "global"});
  if (!c.parallel.strategy.empty()) {
    Strategy s = parse_strategy(c.parallel.strategy);
    s.norm_scope = scope;
    return s;
  }
  return ranks == 1 ? Strategy{} : data_parallel({.overlap = c.parallel.overlap, .norm_scope = scope});
}

}  // namespace trireme
