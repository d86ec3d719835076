#include "tools/study/study_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <unordered_set>
#include <vector>

#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/layers/summary.h"
#include "tools/study/sha256.h"
#include "tools/training/from_options.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr double most_file_bytes = 2e9;  // largest samples that are hashed

/// The digest of each sample, and of all samples.
struct Digests {
  std::vector<std::string> samples;
  std::string all;
};

Digests digests_of(const DatasetSource& data) {
  Digests d;
  std::string together;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(data.shape().numel()));
  for (Index id = 0; id < data.size(); ++id) {
    const std::int64_t label = data.read(id, pixels);
    d.samples.push_back(sha256({reinterpret_cast<const char*>(pixels.data()), pixels.size()}));
    together += fmt::format("{} {}\n", d.samples.back(), label);
  }
  d.all = sha256(together);
  return d;
}

void compare_sets(StudyFacts& facts, const DatasetSource& train, const DatasetSource& test) {
  const double bytes =
      static_cast<double>(train.size() + test.size()) * static_cast<double>(std::max<Index>(1, train.shape().numel()));
  if (train.tensors()) {
    facts.not_compared = "samples are tensors, not pictures";
  } else if (bytes > most_file_bytes) {
    facts.not_compared = fmt::format("samples have {:.1f} GB, more than are read for this", bytes / 1e9);
  } else {
    const Digests learned = digests_of(train), held_out = digests_of(test);
    facts.train_sha256 = learned.all;
    facts.test_sha256 = held_out.all;
    const std::unordered_set<std::string> known(learned.samples.begin(), learned.samples.end());
    facts.shared_samples = std::ranges::count_if(held_out.samples, [&](const auto& s) { return known.contains(s); });
  }
}

}  // namespace

StudyFacts find_facts(const TrainerOptions& given) {
  TrainerOptions options = given;
  options.data.augment = false;
  StudyFacts facts;
  facts.cores = static_cast<int>(std::thread::hardware_concurrency());
  double load = 0;
  if (::getloadavg(&load, 1) == 1) facts.load = load;
  try {
    const bool made_up = options.data.name == "synthetic";
    const Dataset train = make_dataset(options, "train"), test = make_dataset(options, "test");
    facts.train_samples = train->size();
    facts.test_samples = test->size();
    std::vector<std::string> sides;
    for (Index i = 0; i < train->shape().rank(); ++i) sides.push_back(std::to_string(train->shape()[i]));
    facts.input = fmt::format("{}", fmt::join(sides, " x "));
    if (!train->tensors()) {
      Module model = make_model(options, options_for(*train));
      std::vector<Index> one{1};
      for (Index i = 0; i < train->shape().rank(); ++i) one.push_back(train->shape()[i]);
      const ModelSummary counted = summary(model, Tensor::zeros(Shape(one)));
      facts.forward_flops = counted.flops;
      facts.parameters = counted.parameters;
    }
    if (made_up)
      facts.not_compared = "they are made up";
    else
      compare_sets(facts, *train, *test);
  } catch (const std::exception& e) { facts.not_compared = e.what(); }
  return facts;
}

void keep_facts(const std::string& directory, const TrainerOptions& options) {
  const std::string path = directory + "/" + facts_file;
  if (fs::exists(path)) return;
  const StudyFacts f = find_facts(options);
  if (f.train_samples == 0) return;  // the data cannot be read, as the first run will say
  const Json json{{"train_samples", f.train_samples},   {"test_samples", f.test_samples}, {"input", f.input},
                  {"train_sha256", f.train_sha256},     {"test_sha256", f.test_sha256},   {"cores", f.cores},
                  {"shared_samples", f.shared_samples}, {"not_compared", f.not_compared}, {"load", f.load},
                  {"forward_flops", f.forward_flops},   {"parameters", f.parameters}};
  replace_file(path, json_text(json, NotUtf8::replaced, 1) + "\n");
}

std::optional<StudyFacts> read_facts(const std::string& directory) {
  const std::string path = directory + "/" + facts_file;
  if (!fs::is_regular_file(path)) return {};
  try {
    const Json j = parse_json(read_text(path, std::size_t{1} << 20));
    return StudyFacts{.train_samples = j.at("train_samples").get<std::int64_t>(),
                      .test_samples = j.at("test_samples").get<std::int64_t>(),
                      .input = j.at("input").get<std::string>(),
                      .train_sha256 = j.at("train_sha256").get<std::string>(),
                      .test_sha256 = j.at("test_sha256").get<std::string>(),
                      .shared_samples = j.at("shared_samples").get<std::int64_t>(),
                      .not_compared = j.at("not_compared").get<std::string>(),
                      .forward_flops = j.at("forward_flops").get<double>(),
                      .parameters = j.at("parameters").get<std::int64_t>(),
                      .cores = j.at("cores").get<int>(),
                      .load = j.at("load").get<double>()};
  } catch (const std::exception&) { return {}; }
}

}  // namespace trireme
