#include "tools/report/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

#include "kernels/core/error.h"
#include "kernels/core/text.h"
#include "tools/report/run_data.h"
#include "tools/study/statistics.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_exact = 20;  // pairs of which all flips are tried

std::map<std::int64_t, RunData> runs_by_seed(const std::string& path) {
  std::set<std::string> folders;
  if (fs::exists(path + "/config.toml")) folders.insert(path);
  if (folders.empty() && fs::is_directory(path))
    for (const auto& entry : fs::directory_iterator(path))
      if (fs::exists(entry.path() / "config.toml")) folders.insert(entry.path());
  check(!folders.empty(), ErrorKind::file, "report", "{} is no run directory, and has no run directories", path);
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

std::map<std::string, double> metrics_of(const RunData& run) {
  std::map<std::string, double> all;
  for (const auto& [key, points] : run.test)
    if (key.starts_with("test_") && key != "test_correct" && key != "test_samples")
      all["last " + key] = points.back().second;
  if (const Points* p = find(run.test, "test_top1"))
    all["best test_top1"] = std::ranges::max_element(*p, {}, &std::pair<double, double>::second)->second;
  double batch = 0;
  std::vector<double> step;
  if (const Points* p = find(run.test, "images_per_s"); p && parse_number(told(run.settings, "data.batch"), batch))
    for (const auto& [at, rate] : *p) step.push_back(1000 * batch / rate);
  if (!step.empty()) all["ms per step"] = median_of(step);
  return all;
}

}  // namespace

PairedDifference paired_difference(const std::vector<double>& d) {
  const std::size_t n = d.size(), flips = std::size_t{1} << std::min(n, most_exact);
  check(n >= 2, "report", "a test needs two pairs or more, but there are {}", n);
  std::mt19937_64 random(1);
  std::vector<double> means;  // of subsets
  double sum = 0, size = 0, as_far = 0;
  for (const double v : d) {
    sum += v;
    size += std::abs(v);
  }
  for (std::size_t flip = 0; flip < flips; ++flip) {
    double inside = 0, count = 0;
    for (std::size_t i = 0; i < n; ++i)
      if ((n <= most_exact ? flip >> i : random()) & 1) {
        inside += d[i];
        ++count;
      }
    as_far += std::abs(2 * inside - sum) >= std::abs(sum) - 1e-12 * size;  // the others' signs are flipped
    if (count > 0) means.push_back(inside / count);
  }
  std::ranges::sort(means);
  // The centre is in each of the gaps between sorted means, and at their ends, with the same probability.
  const auto gaps = static_cast<double>(means.size() + 1);
  const auto k = static_cast<std::size_t>(std::max(1.0, std::floor(0.025 * gaps + 1e-9)));
  return {as_far / static_cast<double>(flips), means[k - 1], means[means.size() - k],
          1 - 2 * static_cast<double>(k) / gaps};
}

std::string comparison_text(const std::string& a, const std::string& b) {
  const std::map<std::int64_t, RunData> first = runs_by_seed(a), second = runs_by_seed(b);
  struct Pairs {
    std::vector<double> a, b, difference;
  };
  std::map<std::string, Pairs> metrics;
  std::set<std::string> differ, warnings;
  std::vector<std::int64_t> seeds;
  for (const auto& [seed, run] : first) {
    const auto other = second.find(seed);
    if (other == second.end()) continue;
    seeds.push_back(seed);
    for (const auto& [name, value] : other->second.settings)
      if (!name.starts_with("run.") && told(run.settings, name) != told(other->second.settings, name))
        differ.insert(fmt::format("{} {} / {}", name, told(run.settings, name), told(other->second.settings, name)));
    for (const RunData* each : {&run, &other->second})
      if (each->status != "finished") warnings.insert(fmt::format("WARNING {}: {}\n", each->path, each->status));
    std::map<std::string, double> theirs = metrics_of(other->second);
    for (const auto& [name, value] : metrics_of(run))
      if (theirs.contains(name)) {
        metrics[name].a.push_back(value);
        metrics[name].b.push_back(theirs[name]);
        metrics[name].difference.push_back(theirs[name] - value);
      }
  }
  const std::size_t n = seeds.size();
  check(n > 0, "report", "{} and {} have no seed in common, so no runs can be paired", a, b);
  std::string text = fmt::format(
      "A: {}, {} runs\nB: {}, {} runs\n{} pairs, of the seeds {}; other runs are left out\n{}settings that differ, A / "
      "B: "
      "{}\n\n{:<24} {:>12} {:>12} {:>12} {:>26} {:>8} {:>8}\n",
      a, first.size(), b, second.size(), n, fmt::join(seeds, ", "), fmt::join(warnings, ""), fmt::join(differ, "; "),
      "metric", "mean of A", "mean of B", "B - A", "interval", "level", "p");
  for (const auto& [name, m] : metrics) {
    text +=
        fmt::format("{:<24} {:>12.6g} {:>12.6g} {:>12.4g}", name, mean_of(m.a), mean_of(m.b), mean_of(m.difference));
    if (m.difference.size() > 1) {
      const PairedDifference r = paired_difference(m.difference);
      text += fmt::format(" {:>26} {:>6.4g} % {:>8.4g}", fmt::format("[{:.4g}, {:.4g}]", r.low, r.high), 100 * r.level,
                          r.p);
    }
    text += "\n";
  }
  if (n < 2) return text + "\nA single pair has no test and no interval: train more seeds.\n";
  return text + fmt::format(
                    "\np: two-sided sign-flip permutation test of the mean difference, {}. With {} pairs the smallest "
                    "p is 2/2^{}.\n"
                    "{} metrics are tested, each by itself.\n",
                    n <= most_exact ? "exact" : "of 2^20 random flips", n, std::min(n, most_exact), metrics.size());
}

}  // namespace trireme
