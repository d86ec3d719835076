#include "tools/training/data_record.h"

#include <algorithm>
#include <filesystem>

#include "datasets/text/tokens.h"
#include "framework/io/bytes.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "kernels/core/text.h"
#include "tools/training/run_dir.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

Json record_of(const Dataset& data) {
  return data ? Json{{"samples", data->size()}, {"content", data->fingerprint()}} : Json();
}

/// "12 samples of 12 files of 3456 bytes, checksum 89abcdef".
std::string text_of_record(const Json& split) {
  return fmt::format("{} samples of {}", value_or<Index>(split, "samples", 0),
                     value_or<std::string>(split, "content", ""));
}

}  // namespace

std::string data_record(const Dataset& train, const Dataset& test) {
  return json_text({{"train", record_of(train)}, {"test", record_of(test)}}, NotUtf8::replaced, 1) + "\n";
}

std::vector<std::string> data_changes(const std::string& run, const std::string& now) {
  const std::string path = run + "/" + data_file;
  if (!fs::exists(path)) return {};
  const Json before = parse_json(read_text(path, std::size_t{1} << 20)), after = parse_json(now);
  check(before.is_object(), ErrorKind::data, "run directory", "{} is damaged (no JSON object); remove it", path);
  std::vector<std::string> changes;
  for (const char* split : {"train", "test"}) {
    const Json a = before.value(split, Json()), b = after.value(split, Json());
    const bool known =
        !value_or<std::string>(a, "content", "").empty() && !value_or<std::string>(b, "content", "").empty();
    if (known && text_of_record(a) != text_of_record(b))
      changes.push_back(fmt::format("the {} data are {}, the run has {}", split, text_of_record(b), text_of_record(a)));
  }
  return changes;
}

std::string class_change(const std::string& run, const DatasetSource& data) {
  const std::string path = run + "/" + class_file;
  const std::vector<std::string> now = data.class_names();
  if (now.empty() || !fs::exists(path)) return {};
  std::vector<std::string> before = split_text(read_text(path, std::size_t{64} << 20), '\n');
  if (before.back().empty()) before.pop_back();
  std::size_t i = 0;
  while (i < before.size() && i < now.size() && before[i] == now[i]) ++i;
  if (i == before.size() && i == now.size()) return {};
  const auto at = [&](const std::vector<std::string>& names) {
    return i < names.size() ? in_quotes(names[i]) : "missing";
  };
  return fmt::format("class {} of {} is {}, of the run {}", i, data.name(), at(now), at(before));
}

TrainerOptions with_kept_tokenizer(TrainerOptions options, const std::string& run) {
  const std::string kept = run + "/" + tokenizer_file;
  if (options.data.name == "text" && fs::exists(kept)) options.data.tokenizer = kept;
  return options;
}

void check_same_labels(const std::string& run, const Dataset& data) {
  if (const std::string change = class_change(run, *data); !change.empty())
    fail(ErrorKind::data, "data", "{}; use data with the classes of {}/{}, in the same order", change, run, class_file);
  const TextSource* text = trireme::text_of(data);
  const std::string kept = run + "/" + tokenizer_file;
  if (!text || !text->tokenizer() || !fs::exists(kept)) return;
  const Tokenizer of_run = open_tokenizer(kept);
  if (of_run->saved() != text->tokenizer()->saved())
    fail(ErrorKind::data, "data", "the tokenizer is {}, but {} of the run is {}; leave out --data.tokenizer",
         text->tokenizer().name(), kept, of_run.name());
}

}  // namespace trireme
