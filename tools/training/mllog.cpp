#include "tools/training/mllog.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/lines.h"
#include "kernels/core/error.h"

namespace trireme {

MlLog::MlLog(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  check(file >= 0, ErrorKind::file, "mllog", "cannot write {}: {}", path, [&] { return std::strerror(errno); });
  file_.reset(::fdopen(file, "a"));
  new_ = ::lseek(file, 0, SEEK_END) == 0;
}

void MlLog::rewind(const std::string& path, std::int64_t epochs) {
  std::string kept;
  const bool there = each_line(path, [&](std::string_view line) {
    constexpr std::string_view mark = ":::MLLOG ";
    const Json json = line.starts_with(mark) ? parse_json(line.substr(mark.size())) : Json();
    if (!json.is_object() || value_or<std::string>(json, "key", "") == "run_stop") return;
    const auto metadata = json.find("metadata");
    const bool placed = metadata != json.end() && metadata->is_object();
    if (placed && value_or<std::int64_t>(*metadata, "epoch_num", 0) > epochs) return;
    kept.append(line) += '\n';
  });
  if (there) replace_file(path, kept);
}

void MlLog::write(std::string_view kind, std::string_view key, const Json& value, Json metadata, Time at) {
  const auto now = at.time_since_epoch();
  metadata.update({{"file", "trireme"}, {"lineno", 0}});
  const Json line{{"namespace", ""},    {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
                  {"event_type", kind}, {"key", key},
                  {"value", value},     {"metadata", metadata}};
  std::fprintf(file_.get(), ":::MLLOG %s\n", json_text(line).c_str());
  std::fflush(file_.get());
}

void write_begin(MlLog& log, const TrainerOptions& o, const MlRun& run, MlLog::Time at) {
  const auto point = [&](const std::string& key, const Json& value) {
    log.write("POINT_IN_TIME", key, value, Json::object(), at);
  };
  const auto mark = [&](const char* kind, const char* key) { log.write(kind, key, nullptr, Json::object(), at); };
  point("submission_benchmark", o.model == "resnet50" ? "resnet" : o.model);
  point("submission_division", "open");
  point("submission_org", "trireme");
  point("submission_platform", "local");
  point("submission_status", "research");
  point("cache_clear", false);  // file caches are not cleared
  mark("INTERVAL_START", "init_start");
  point("seed", o.seed);
  point("global_batch_size", o.data.batch);
  point("gradient_accumulation_steps", run.microbatches);
  point("train_samples", run.train_samples);
  point("eval_samples", run.test_samples);
  point("opt_name", o.optim.name);
  point("model_parameters", run.parameters);
  point("model_bn_span", run.span);
  const double rate =
      o.optim.lr *
      (o.optim.lr_base_size > 0 ? static_cast<double>(o.data.batch) / static_cast<double>(o.optim.lr_base_size) : 1);
  const double steps = static_cast<double>(run.steps_per_epoch);
  const double warmup =
      o.optim.warmup_steps > 0 && steps > 0 ? static_cast<double>(o.optim.warmup_steps) / steps : o.optim.warmup_epochs;
  for (const std::string& of : {std::string(), o.optim.name + "_"}) {
    if (of != "" && of != "sgd_" && of != "lars_") continue;  // keys of optimizers in the ResNet rules
    point(of + "opt_base_learning_rate", rate);
    point(of + "opt_weight_decay", o.optim.weight_decay);
    point(of + "opt_learning_rate_warmup_epochs", warmup);
    if (of.empty()) continue;
    point(of + "opt_momentum", o.optim.momentum);
    point(of + "opt_end_learning_rate", o.optim.min_lr);
    if (o.optim.schedule != "linear") continue;
    point(of + "opt_learning_rate_decay_poly_power", 1);
    point(of + "opt_learning_rate_decay_steps",
          static_cast<std::int64_t>(std::round(steps * (static_cast<double>(o.epochs) - warmup))));
  }
  mark("INTERVAL_END", "init_stop");
  mark("INTERVAL_START", "run_start");
}

}  // namespace trireme
