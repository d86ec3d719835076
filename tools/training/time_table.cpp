#include "tools/training/time_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>

#include "framework/io/json.h"

namespace trireme {
namespace {

using Event = FlightRecorder::Event;
constexpr const char *host = "host (between kernels)", *slowest = "waiting for the slowest rank: ";

bool within(const Event& e, const std::vector<Event>& outer) {
  return std::ranges::any_of(outer, [&](const Event& o) { return e.begin >= o.begin && e.end <= o.end; });
}

/// The word after " over ", " to " or " from " in an action's text: "all_reduce gradients [0, 8) over data, on ready".
std::string axis_of(const std::string& text) {
  for (const char* word : {" over ", " to ", " from "})
    if (const std::size_t at = text.find(word); at != text.npos) {
      const std::size_t begin = at + std::string_view(word).size();
      const std::string name = text.substr(begin, text.find_first_of(", ", begin) - begin);
      if (name != "rank" && !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) != 0)) return name;
    }
  return "";
}

/// Parts of "send activation part 1 to pipe +1": its kind, the content, and the distance along the axis.
struct MessageText {
  std::string what, axis;
  int offset = 0;
};
MessageText message_of(const std::string& text, const char* kind, const char* word) {
  const std::string begin = std::string(kind) + " ";
  const std::size_t at = text.find(word);
  if (!text.starts_with(begin) || at == text.npos) return {};
  MessageText m{.what = text.substr(begin.size(), at - begin.size()), .axis = axis_of(text)};
  const std::size_t sign = text.find_first_of("+-", at);
  if (m.axis.empty() || sign == text.npos) return {};
  m.offset = std::atoi(text.c_str() + sign);
  return m;
}

std::int64_t step_time(const RankTrace& rank, int& steps) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  steps = 0;
  for (const Event& e : rank.events)
    if (e.kind == Event::step) {
      first = std::min(first, e.begin);
      last = std::max(last, e.end);
      ++steps;
    }
  return std::max<std::int64_t>(0, last - first);
}

}  // namespace

std::string kernel_kind(std::string_view op) {
  constexpr std::pair<std::string_view, const char*> kinds[] = {
      {"conv", "convolution"},      {"batch_norm", "batch norm"},  {"layer_norm", "layer norm"},
      {"linear", "linear"},         {"matmul", "linear"},          {"max_pool", "pooling"},
      {"avg_pool", "pooling"},      {"bias_relu_pool", "pooling"}, {"mixed_scale", "convolution"},
      {"group_norm", "group norm"}, {"attention", "attention"},    {"rope", "attention"},
      {"softmax", "softmax"},       {"log_softmax", "softmax"},    {"cross_entropy", "loss"}};
  for (const auto& [start, kind] : kinds)
    if (op.starts_with(start)) return kind;
  return op.ends_with("_update") ? "optimizer" : "elementwise and other";
}

std::vector<TimeShare> time_shares(const std::vector<RankTrace>& ranks, const std::vector<Axis>& mesh) {
  const RankGrid grid(mesh);
  std::vector<std::map<std::string, double>> sums(ranks.size());            // nanoseconds
  std::map<std::string, std::vector<std::pair<std::size_t, double>>> same;  // waits of a line's ranks for the same
                                                                            // call: (rank, duration)
  std::vector<int> steps(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::string, double>& sum = sums[r];
    std::vector<Event> outer, within_steps;
    for (const Event& e : ranks[r].events)
      if (e.kind == Event::data || e.kind == Event::save) outer.push_back(e);
    std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0;
    for (const Event& e : ranks[r].events)
      if (e.kind == Event::step) {
        begin = std::min(begin, e.begin);
        end = std::max(end, e.end);
      }
    std::map<std::string, int> count;
    for (const Event& e : ranks[r].events) {
      if (e.kind == Event::call || e.kind == Event::step || e.begin < begin || e.end > end || e.end == 0) continue;
      const auto time = static_cast<double>(e.end - e.begin);
      if (e.kind == Event::data) sum["waiting for data"] += time;
      if (e.kind == Event::save) sum["checkpoint"] += time;
      if ((e.kind != Event::kernel && e.kind != Event::wait) || within(e, outer)) continue;
      if (e.kind == Event::kernel) {
        sum["compute: " + kernel_kind(e.name)] += time;
        continue;
      }
      const std::string axis = axis_of(e.name);
      const bool known = !axis.empty() && size_along(mesh, axis) > 1;
      sum["messages: " + (known ? axis : "other")] += time;
      if (known && e.name.find(" over ") != e.name.npos)
        same[fmt::format("{}|{}|{}|{}", axis, grid.place(static_cast<int>(r), axis).first, e.name, count[e.name]++)]
            .emplace_back(r, time);
    }
    const std::int64_t whole = step_time(ranks[r], steps[r]);
    double told = 0;
    for (const auto& [what, time] : sum) told += time;
    sum[host] = static_cast<double>(whole) - told;
  }
  for (const auto& [key, waits] : same) {
    const std::string axis = key.substr(0, key.find('|'));
    if (std::ssize(waits) < size_along(mesh, axis))
      continue;  // some ranks did not wait for this call: the slowest is
                 // not known
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [rank, time] : waits) least = std::min(least, time);
    for (const auto& [rank, time] : waits) {
      sums[rank]["messages: " + axis] -= time - least;
      sums[rank][slowest + axis] += time - least;
    }
  }
  std::map<std::string, TimeShare> all;
  double whole = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const auto& [what, time] : sums[r]) all[what].what = what;
  for (auto& [what, share] : all) {
    share.least = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const double per = steps[r] > 0 ? sums[r][what] / steps[r] / 1e6 : 0;
      share.mean += per / static_cast<double>(ranks.size());
      share.least = std::min(share.least, per);
      share.most = std::max(share.most, per);
    }
    whole += share.mean;
  }
  std::vector<TimeShare> sorted;
  for (auto& [what, share] : all) {
    share.percent = whole > 0 ? 100 * share.mean / whole : 0;
    sorted.push_back(share);
  }
  std::ranges::sort(sorted, [](const TimeShare& a, const TimeShare& b) {
    return (a.what == host) != (b.what == host) ? b.what == host : a.mean > b.mean;
  });
  return sorted;
}

std::string time_table(const std::vector<TimeShare>& shares, int steps) {
  std::string text = fmt::format("{:<44} {:>11} {:>7}   {}\n", fmt::format("where the time of {} steps went", steps),
                                 "ms a step", "%", "least and most of a rank");
  double mean = 0, percent = 0;
  for (const TimeShare& s : shares) {
    text += fmt::format("{:<44} {:>11.3f} {:>7.2f}   {:.3f} to {:.3f}\n", s.what, s.mean, s.percent, s.least, s.most);
    mean += s.mean;
    percent += s.percent;
  }
  return text + fmt::format("{:<44} {:>11.3f} {:>7.2f}\n", "all", mean, percent);
}

std::string trace_text(const std::vector<RankTrace>& ranks, const std::vector<Axis>& mesh) {
  enum Track : int { steps, actions, kernels, waits, data, checkpoints, writer };
  constexpr const char* lanes[] = {"steps", "actions and calls", "kernels",          "waits for others",
                                   "data",  "checkpoint",        "checkpoint writer"};
  const RankGrid grid(mesh);
  Json events = Json::array();
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& rank : ranks)
    for (const Event& e : rank.events) zero = std::min(zero, e.begin);
  const auto us = [&](double ns) { return std::max(0.0, (ns - static_cast<double>(zero)) / 1e3); };
  std::map<std::string, int> sent, received;  // number of each message so far
  std::map<std::string, std::pair<std::size_t, double>> posted;
  int flow = 0;
  const auto event = [&](const char* ph, std::size_t rank, int lane, const std::string& name, double ts, Json more) {
    more.update({{"ph", ph}, {"pid", rank}, {"tid", lane}, {"name", name}, {"ts", ts}});
    events.push_back(std::move(more));
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", r},
                      {"args", {{"name", fmt::format("rank {} ({})", r, ranks[r].host)}}}});
    events.push_back({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", r}, {"args", {{"sort_index", r}}}});
    for (int lane = steps; lane <= writer; ++lane)
      events.push_back(
          {{"ph", "M"}, {"name", "thread_name"}, {"pid", r}, {"tid", lane}, {"args", {{"name", lanes[lane]}}}});
    std::map<std::string, double> begun;  // start times of current collectives
    for (const Event& e : ranks[r].events) {
      if (e.end == 0) continue;
      const Track lane = e.kind == Event::call     ? actions
                         : e.kind == Event::wait   ? waits
                         : e.kind == Event::kernel ? kernels
                         : e.kind == Event::data   ? data
                         : e.kind == Event::save   ? checkpoints
                                                   : steps;
      const double begin = us(static_cast<double>(e.begin)), end = us(static_cast<double>(e.end));
      event("X", r, lane, e.name, begin, {{"dur", end - begin}});
      const bool collective = e.name.find(" over ") != e.name.npos;
      if (e.kind == Event::call && collective) begun[e.name] = begin;
      if (e.kind == Event::wait && collective && begun.contains(e.name)) {
        const Json id{{"id", ++flow}, {"cat", "communication"}};
        event("b", r, actions, e.name, begun[e.name], id);
        event("e", r, actions, e.name, end, id);
        begun.erase(e.name);
      }
    }
    for (const auto& [at, megabytes] : ranks[r].memory)
      event("C", r, steps, "resident MB", us(at), {{"args", {{"MB", megabytes}}}});
    for (const auto& [begin, end] : ranks[r].checkpoints)
      event("X", r, writer, "written", us(begin), {{"dur", std::max(0.0, us(end) - us(begin))}});
  }
  // Message arrows: from the action that sends to the action of the other rank that receives.
  for (const bool sends : {true, false})
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (const Event& e : ranks[r].events) {
        const MessageText m = message_of(e.name, sends ? "send" : "recv", sends ? " to " : " from ");
        if (m.what.empty() || e.end == 0 || e.kind != Event::call) continue;
        const std::size_t axis = grid.find(m.axis);
        if (axis >= grid.axes().size()) continue;
        const int other = grid.neighbour(static_cast<int>(r), axis, m.offset);
        const auto [from, to] = sends ? std::pair(static_cast<int>(r), other) : std::pair(other, static_cast<int>(r));
        const std::string pair = fmt::format("{}|{}|{}", from, to, m.what);
        if (sends) {
          posted[fmt::format("{}|{}", pair, sent[pair]++)] = {r, us(static_cast<double>(e.begin))};
          continue;
        }
        double arrived = us(static_cast<double>(e.end));
        for (const Event& wait : ranks[r].events)
          if (wait.kind == Event::wait && wait.name == e.name && wait.begin >= e.begin && wait.end > 0) {
            arrived = us(static_cast<double>(wait.end));
            break;
          }
        const auto from_where = posted.find(fmt::format("{}|{}", pair, received[pair]++));
        if (from_where == posted.end()) continue;
        arrived = std::max(arrived, from_where->second.second);  // clocks of hosts agree up to half a round trip
        const Json id{{"id", ++flow}, {"cat", "message"}};
        event("s", from_where->second.first, actions, m.what, from_where->second.second, id);
        Json finish = id;
        finish["bp"] = "e";
        event("f", r, waits, m.what, arrived, finish);
      }
  return json_text(
      {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}, {"otherData", {{"times", "measured"}}}},
      NotUtf8::replaced, -1, true);
}

}  // namespace trireme
