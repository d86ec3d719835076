#include "parallel/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parallel/comm/fnv.h"
#include "parallel/plan/action_kind.h"

namespace trireme {
namespace {

constexpr std::array kinds = {"forward",     "loss",   "backward",   "backward_input", "backward_weight",
                              "send",        "recv",   "all_reduce", "reduce_scatter", "all_gather",
                              "broadcast",   "update", "average",    "free",           "drop_gradients",
                              "drop_values", "agree"};

std::string range(const Slice& s) { return fmt::format("[{}, {})", s.begin, s.end); }

std::string head(const Plan& plan) {
  return fmt::format("plan {}: {} parts, {} parameters, hash {:016x}\n",
                     plan.strategies.empty() ? "serial" : fmt::format("{}", fmt::join(plan.strategies, " | ")),
                     plan.parts.size(), plan.parameters, plan.hash());
}

std::string role_line(const Role& role) {
  return fmt::format("role {}: {} actions{}\n", role.name, role.actions.size(),
                     role.in_flight > 0 ? fmt::format(", at most {} in flight", role.in_flight) : "");
}

void add(Fnv& fnv, const Action& a) {
  fnv.add(a.kind, a.stream, a.part, a.microbatch, a.peer.offset, a.peer.root, a.on_ready);
  fnv.add(a.slice.begin, a.slice.end, a.peer.axis, a.field, a.every, a.after.size());
  for (ActionId id : a.after) fnv.add(id);
}

}  // namespace

std::vector<Slice> detail::joined(std::vector<Slice> slices) {
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  std::vector<Slice> all;
  for (const Slice& s : slices)
    if (!all.empty() && all.back().end == s.begin)
      all.back().end = s.end;
    else
      all.push_back(s);
  return all;
}

std::string to_string(Stream s) { return s == Stream::compute ? "compute" : "comm"; }
std::string to_string(ActionKind v) { return kinds[static_cast<std::size_t>(v)]; }

std::string to_string(const Action& a) {
  std::string text = to_string(a.kind);
  if (!a.field.empty()) text += " " + a.field;
  if (a.part >= 0) text += fmt::format(" part {}", a.part);
  if (a.microbatch > 0) text += fmt::format(" micro {}", a.microbatch);
  if (a.slice.size() > 0) text += fmt::format(" {}", range(a.slice));
  if (a.kind == ActionKind::send)
    text += fmt::format(" to {} {:+}", a.peer.axis, a.peer.offset);
  else if (a.kind == ActionKind::recv)
    text += fmt::format(" from {} {:+}", a.peer.axis, a.peer.offset);
  else if (!a.peer.axis.empty())
    text += " over " + a.peer.axis;
  if (a.peer.root >= 0) text += fmt::format("{} {}", a.kind == ActionKind::update ? " at" : " from", a.peer.root);
  if (a.on_ready) text += ", on ready";
  if (a.every > 1) text += fmt::format(", every {} steps", a.every);
  return text;
}

int Plan::size(const std::string& axis) const { return size_along(axes, axis); }

int Plan::role_of(int part) const {
  for (std::size_t r = 0; r < roles.size(); ++r)
    for (auto& a : roles[r].actions)
      if (a.kind == ActionKind::forward && a.part == part) return static_cast<int>(r);
  return -1;
}

std::string Plan::reduced_axis() const {
  for (auto& role : roles)
    for (auto& a : role.actions)
      if (is_reduction(a)) return a.peer.axis;
  return "data";
}

std::vector<Slice> Plan::updated(std::size_t role) const {
  std::vector<Slice> slices;
  for (auto& a : roles[role].actions)
    if (a.kind == ActionKind::update) slices.push_back(a.slice);
  return detail::joined(std::move(slices));
}

std::string Plan::summary() const {
  std::string text = head(*this);
  for (auto& role : roles) {
    text += role_line(role);
    std::vector<std::pair<Action, Index>> groups;  // actions that differ in place only, and how many they are
    for (Action a : role.actions) {
      const Index elements = a.slice.size();
      a.part = -1, a.microbatch = 0, a.slice = {}, a.after.clear();
      auto at = std::ranges::find(groups, a, [](auto& group) {
        Action alike = group.first;
        alike.slice = {};
        return alike;
      });
      if (at == groups.end()) at = groups.insert(at, {a, 0});
      at->first.slice.end += elements, ++at->second;
    }
    for (auto& [a, count] : groups) {
      Action alike = a;
      alike.slice = {};
      text += fmt::format("{:>6}  {:<8} {}{}\n", count, trireme::to_string(a.stream), trireme::to_string(alike),
                          a.slice.size() > 0 ? fmt::format(", {} elements", a.slice.size()) : "");
    }
  }
  return text;
}

std::string Plan::to_string() const {
  std::string text = head(*this);
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += fmt::format("part {:>3}  {:<24} {}\n", i, parts[i].name, range(parts[i].slice));
  for (auto& role : roles) {
    text += role_line(role);
    for (std::size_t i = 0; i < role.actions.size(); ++i) {
      const Action& a = role.actions[i];
      std::string line = fmt::format("{:>4}  {:<8} {}", i, trireme::to_string(a.stream), trireme::to_string(a));
      if (!a.after.empty()) line += fmt::format(", after {}", fmt::join(a.after, " "));
      text += line + "\n";
    }
  }
  return text;
}

std::uint64_t Plan::hash() const {
  Fnv fnv;
  fnv.add(parameters, buffers, stage_axis, axes.size());
  for (auto& a : axes) fnv.add(a.name, a.size);
  fnv.add(microbatches, parts.size());
  for (auto& p : parts) fnv.add(p.name, p.slice.begin, p.slice.end, p.buffers.begin, p.buffers.end);
  fnv.add(strategies.size());
  for (auto& name : strategies) fnv.add(name);
  fnv.add(roles.size());
  for (auto& role : roles) {
    fnv.add(role.name, role.in_flight, role.actions.size());
    for (auto& a : role.actions) add(fnv, a);
  }
  return fnv.value();
}

void insert(Role& role, ActionId at, Action action) {
  role.actions.insert(role.actions.begin() + at, std::move(action));
  for (auto& a : role.actions)
    for (auto& id : a.after) id += id >= at;
}

}  // namespace trireme
