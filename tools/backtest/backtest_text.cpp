#include "tools/backtest/backtest_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

std::string totals_line(std::string_view name, const ErrorTotals& t) {
  return fmt::format("  {:<18}{:>8.1f}{:>8.1f}{:>8.1f}{:>8.1f}\n", name, 100 * t.median, 100 * t.mean, 100 * t.p90,
                     100 * t.largest);
}

std::string_view counted(const ScalingFamily& f) { return f.counts_nodes ? "nodes" : "accelerators"; }

std::string calibration_of(const ScalingFamily& f) {
  std::string text;
  for (int i = 0; i < f.calibration; ++i) {
    const ScalingRow& r = f.rows[static_cast<std::size_t>(i)];
    text += fmt::format("{}{} x {:g}: {:.4g} ms", i == 0 ? "" : ", ", r.size, r.samples, r.milliseconds);
  }
  return text;
}

}  // namespace

std::string in_words(const Backtest& test) {
  std::string text = fmt::format(
      "Back-test: the two smallest sizes of a family calibrate, larger ones are predicted. Priors are learnt from the "
      "other families{} of {}; {} rows of the table are not used.\n",
      test.leave_out == LeaveOut::submitter ? ", those of the same submitter left out," : "", test.evidence,
      test.left_out);
  for (const BacktestFamily& f : test.families) {
    text += fmt::format("\n{}\n  calibrated ({} x samples): {}\n", f.family.name, counted(f.family),
                        calibration_of(f.family));
    text += fmt::format("  {:>12} {:>8} {:>12} {:>12} {:>23} {:>8}\n", counted(f.family), "samples", "measured ms",
                        "predicted ms", "80 % band", "error %");
    for (const BacktestPoint& p : f.points)
      text += fmt::format("  {:>12} {:>8g} {:>12.4g} {:>12.4g} {:>10.4g} to {:>9.4g} {:>+8.1f}{}\n", p.row.size,
                          p.row.samples, p.row.milliseconds, p.predicted.milliseconds, p.predicted.low,
                          p.predicted.high, 100 * p.error(), p.inside() ? "" : "  outside the band");
  }
  const ErrorTotals all = test.totals();
  text += fmt::format("\nAbsolute errors, %, of {} points of {} families\n  {:<18}{:>8}{:>8}{:>8}{:>8}\n", all.points,
                      test.families.size(), "", "median", "mean", "p90", "largest");
  text += totals_line("predicted", all);
  for (std::size_t b = 0; b < baselines.size(); ++b)
    text += totals_line(name_of(baselines[b]), test.baseline_totals(b));
  text += fmt::format("{:.0f} % of the points are inside their 80 % band.\n", 100 * test.coverage());
  return text;
}

std::string markdown(const Backtest& test) {
  std::string text =
      "| family | calibrated on | predicted: size x samples, error % (80 % band) | ring over nodes, error % |\n"
      "| --- | --- | --- | --- |\n";
  for (const BacktestFamily& f : test.families) {
    std::string points, ring;
    for (const BacktestPoint& p : f.points) {
      const auto share = [&](double ms) { return 100 * (ms / p.row.milliseconds - 1); };
      points += fmt::format("{}{} x {:g}: {}{:+.1f}{} ({:+.0f} to {:+.0f})", points.empty() ? "" : "; ", p.row.size,
                            p.row.samples, p.inside() ? "" : "**", 100 * p.error(), p.inside() ? "" : "**",
                            share(p.predicted.low), share(p.predicted.high));
      ring += fmt::format("{}{:+.1f}", ring.empty() ? "" : "; ", 100 * p.baseline_error(baselines.size() - 1));
    }
    std::string name = f.family.name;
    std::ranges::replace(name, '|', ' ');
    text += fmt::format("| {} | {}, {} {} | {} | {} |\n", name, f.family.rows.front().size,
                        f.family.rows[static_cast<std::size_t>(f.family.calibration) - 1].size, counted(f.family),
                        points, ring);
  }
  return text;
}

std::string csv(const Backtest& test) {
  std::string text =
      "family,counted,size,nodes,accels,lbs,step_ms_median,predicted_ms,low_ms,high_ms,error_pct,inside_band\n";
  for (const BacktestFamily& f : test.families)
    for (const BacktestPoint& p : f.points) {
      std::string name = f.family.name;
      for (std::size_t at = 0; (at = name.find('"', at)) != name.npos; at += 2) name.insert(at, 1, '"');
      text +=
          fmt::format("\"{}\",{},{},{},{},{:g},{:.6g},{:.6g},{:.6g},{:.6g},{:.3f},{}\n", name, counted(f.family),
                      p.row.size, p.row.nodes, p.row.accelerators, p.row.samples, p.row.milliseconds,
                      p.predicted.milliseconds, p.predicted.low, p.predicted.high, 100 * p.error(), p.inside() ? 1 : 0);
    }
  return text;
}

}  // namespace trireme
