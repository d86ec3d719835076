#include "tools/report/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "kernels/core/error.h"
#include "kernels/core/text.h"
#include "tools/report/run_data.h"
#include "tools/scaling/statistics.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_exact = 20;  // pairs of which all flips are tried
constexpr std::size_t most_flips = 1 << 20;

std::map<std::int64_t, RunData> runs_by_seed(const std::string& path) {
  std::vector<std::string> folders;
  if (fs::exists(path + "/config.toml")) folders.push_back(path);
  if (folders.empty() && fs::is_directory(path))
    for (const auto& entry : fs::directory_iterator(path))
      if (fs::exists(entry.path() / "config.toml")) folders.push_back(entry.path());
  check(!folders.empty(), ErrorKind::file, "report", "{} is no run directory, and has no run directories", path);
  std::ranges::sort(folders);
  std::map<std::int64_t, RunData> runs;
  for (const std::string& folder : folders) {
    RunData run = read_run(folder);
    std::int64_t seed = 0;
    check(parse_number(told(run.settings, "seed"), seed), ErrorKind::data, "report", "{} has no seed", folder);
    const auto [at, added] = runs.emplace(seed, std::move(run));
    check(added, "report", "{} and {} both have seed {}, so pairs are not defined", at->second.path, folder, seed);
  }
  return runs;
}

/// Metrics in the order of the table.
std::vector<std::pair<std::string, double>> metrics_of(const RunData& run) {
  std::vector<std::pair<std::string, double>> all;
  if (const Points* p = find(run.test, "test_top1")) {
    all.emplace_back("last accuracy, %", p->back().second);
    all.emplace_back("best accuracy, %",
                     std::ranges::max_element(*p, {}, [](const auto& q) { return q.second; })->second);
  }
  for (const auto& [key, points] : run.test)
    if (key.starts_with("test_") && key != "test_top1" && key != "test_correct" && key != "test_samples")
      all.emplace_back("last " + key, points.back().second);
  double batch = 0;
  std::vector<double> step;
  if (const Points* p = find(run.test, "images_per_s"); p && parse_number(told(run.settings, "data.batch"), batch))
    for (const auto& [at, rate] : *p)
      if (rate > 0) step.push_back(1000 * batch / rate);
  if (!step.empty()) all.emplace_back("ms per step", median_of(step));
  return all;
}

}  // namespace

PairedDifference paired_difference(const std::vector<double>& d, double level) {
  const std::size_t n = d.size();
  check(n >= 2, "report", "a test needs two pairs or more, but there are {}", n);
  PairedDifference result{.mean = mean_of(d), .exact = n <= most_exact};
  const std::size_t flips = result.exact ? std::size_t{1} << n : most_flips;
  std::mt19937_64 random(1);
  std::vector<double> means;  // of subsets
  std::size_t as_far = 0;
  const double sum = result.mean * static_cast<double>(n);
  double size = 0;
  for (const double v : d) size += std::abs(v);
  std::vector<bool> in(n);
  for (std::size_t flip = 0; flip < flips; ++flip) {
    double inside = 0, count = 0;
    for (std::size_t i = 0; i < n; ++i) {
      in[i] = (result.exact ? flip >> i : random()) & 1;
      inside += in[i] ? d[i] : 0;
      count += in[i];
    }
    as_far += std::abs(2 * inside - sum) >= std::abs(sum) - 1e-12 * size;  // signs flipped outside of the subset
    if (count > 0) means.push_back(inside / count);
  }
  const auto all = static_cast<double>(flips);
  result.p = result.exact ? static_cast<double>(as_far) / all : (static_cast<double>(as_far) + 1) / (all + 1);
  // Each of the gaps between the sorted means holds the centre with the same probability.
  const double gaps = static_cast<double>(means.size()) + 1;
  const double outside = std::floor((1 - level) / 2 * gaps + 1e-9);
  const auto k = static_cast<std::size_t>(std::max(1.0, outside));
  std::ranges::sort(means);
  result.low = means[k - 1];
  result.high = means[means.size() - k];
  result.level = 1 - 2 * static_cast<double>(k) / gaps;
  return result;
}

std::string comparison_text(const std::string& a, const std::string& b) {
  const std::map<std::int64_t, RunData> first = runs_by_seed(a), second = runs_by_seed(b);
  std::vector<std::int64_t> seeds, alone;
  for (const auto& [seed, run] : first) (second.contains(seed) ? seeds : alone).push_back(seed);
  for (const auto& [seed, run] : second)
    if (!first.contains(seed)) alone.push_back(seed);
  check(!seeds.empty(), "report", "{} and {} have no seed in common, so no runs can be paired", a, b);
  std::string text =
      fmt::format("A: {}\nB: {}\npairs: {}, of the seeds {}\n", a, b, seeds.size(), fmt::join(seeds, ", "));
  if (!alone.empty())
    text += fmt::format("WARNING left out, because only one side has them: seeds {}\n", fmt::join(alone, ", "));
  std::vector<std::string> differ;
  const RunData &one = first.at(seeds[0]), &other = second.at(seeds[0]);
  for (const auto& [name, value] : other.settings)
    if (!name.starts_with("run.") && told(one.settings, name) != told(other.settings, name))
      differ.push_back(fmt::format("{} {} / {}", name, told(one.settings, name), told(other.settings, name)));
  text += fmt::format("settings that differ, A / B: {}\n",
                      differ.empty() ? "none" : fmt::format("{}", fmt::join(differ, "; ")));
  for (const std::int64_t seed : seeds)
    for (const RunData* run : {&first.at(seed), &second.at(seed)})
      if (run->status != "finished") text += fmt::format("WARNING {}: {}\n", run->path, run->status);
  text += fmt::format("\n{:<28} {:>12} {:>12} {:>12} {:>26} {:>8} {:>8}\n", "metric", "mean of A", "mean of B", "B - A",
                      "interval", "level", "p");
  bool exact = true;
  for (const auto& [name, ignored] : metrics_of(one)) {
    std::vector<double> left, right, d;
    for (const std::int64_t seed : seeds)
      for (const auto& [key, x] : metrics_of(first.at(seed)))
        for (const auto& [key_b, y] : metrics_of(second.at(seed)))
          if (key == name && key_b == name) {
            left.push_back(x);
            right.push_back(y);
            d.push_back(y - x);
          }
    if (d.empty()) continue;
    text += fmt::format("{:<28} {:>12.6g} {:>12.6g} {:>12.4g}", name, mean_of(left), mean_of(right), mean_of(d));
    if (d.size() > 1) {
      const PairedDifference r = paired_difference(d);
      exact &= r.exact;
      text += fmt::format(" {:>26} {:>6.4g} % {:>8.4g}", fmt::format("[{:.4g}, {:.4g}]", r.low, r.high), 100 * r.level,
                          r.p);
    }
    text += "\n";
  }
  if (seeds.size() < 2) return text + "\nA single pair has no test and no interval: train more seeds.\n";
  return text + fmt::format(
                    "\np: {} sign-flip permutation test of the mean difference, two-sided. With {} pairs the smallest "
                    "p is {:.3g}.\n"
                    "{} metrics are tested, each by itself.\n",
                    exact ? "exact" : "random (2^20 flips)", seeds.size(),
                    exact ? std::pow(2.0, 1 - static_cast<double>(seeds.size())) : 1 / (most_flips + 1.0),
                    metrics_of(one).size());
}

}  // namespace trireme
