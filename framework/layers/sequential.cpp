#include "framework/layers/sequential.h"

#include <algorithm>
#include <set>

#include "framework/layers/conv.h"
#include "framework/layers/dropout.h"
#include "framework/layers/linear.h"
#include "framework/layers/norm.h"
#include "framework/layers/pool.h"
#include "framework/tensor/fields.h"

namespace trireme {
namespace {

using Function = Tensor (*)(const Tensor&);

bool is_relu(const Module& m) {
  auto* f = m.as<Function>();
  return f && *f == static_cast<Function>(relu);
}

/// Whether bias_relu_pool_dropout supports these windows: they tile the image, and a cell number fits into u8 next to
/// the mark 255.
bool tiles(const PoolOptions& o) {
  const Extents none{0, 0, 0}, dense{1, 1, 1};
  return !o.ceil_mode && o.stride == o.window && o.pad_begin == none && o.pad_end == none && o.dilation == dense &&
         o.window[0] * o.window[1] * o.window[2] < 255;
}

}  // namespace

Sequential::Sequential(std::initializer_list<Module> layers) {
  if (const Sequential* only = layers.size() == 1 ? layers.begin()->as<Sequential>() : nullptr)
    *this = *only;
  else
    for (const Module& layer : layers) add(layer);
}

Tensor Stash::operator()(const Tensor&) const {
  fail("stash", "'{}' is not in a Sequential: make it a layer of a Sequential that also has AddStashed(\"{}\")", name,
       name);
}
Tensor AddStashed::operator()(const Tensor&) const {
  fail("add_stashed", "'{}' is not in a Sequential: make it a layer of a Sequential that also has Stash{{\"{}\"}}",
       name, name);
}

Sequential& Sequential::add(std::string name, Module layer) {
  check(bool(layer), "sequential", "layer '{}' is empty", name);
  check(name.find('.') == std::string::npos && !name.empty(), "sequential",
        "'{}' cannot name a layer: a name is not empty and has no dot", name);
  for (auto& [known, part] : parts_) check(known != name, "sequential", "two layers are called '{}'", name);
  const auto waiting = groups_.empty() ? std::vector<std::string>{} : stashed_behind(groups_.size() - 1);
  const auto waits = [&](const std::string& stashed) {
    return std::find(waiting.begin(), waiting.end(), stashed) != waiting.end();
  };
  if (auto* s = layer.as<Stash>())
    check(!waits(s->name), "sequential", "layer '{}' stashes '{}', which is stashed already and not yet added", name,
          s->name);
  if (auto* a = layer.as<AddStashed>())
    check(waits(a->name), "sequential", "layer '{}' adds '{}', but no layer before it is Stash{{\"{}\"}}", name,
          a->name, a->name);
  parts_.emplace_back(std::move(name), std::move(layer));
  fuse();
  return *this;
}

void Sequential::fuse() {
  groups_.clear();
  auto part = [&](std::size_t i) -> const Module* { return i < parts_.size() ? &parts_[i].second : nullptr; };
  for (std::size_t i = 0; i < parts_.size();) {
    Group g{.first = i};
    const Module& head = *part(i);
    g.conv = as_conv(head);
    g.linear = head.as<Linear>();
    g.norm = head.as<BatchNorm>();
    g.stash = head.as<Stash>();
    g.add = head.as<AddStashed>();
    std::size_t next = i + (g.conv || g.linear || g.norm ? 1 : 0);
    if (g.conv && part(next) && (g.norm = part(next)->as<BatchNorm>())) ++next;
    if (part(next) && is_relu(*part(next))) {
      g.relu = true;
      ++next;
      g.pool = !g.linear && part(next) ? part(next)->as<MaxPool>() : nullptr;
      if (g.pool && !tiles(g.pool->options)) g.pool = nullptr;
      // Pooling applies ReLU at no cost, so a batch norm before it has no ReLU.
      if (g.norm && g.pool) {
        if (!g.conv) g.norm = nullptr;
        g.relu = false;
        g.pool = nullptr;
        --next;
      }
      if (g.pool) ++next;
      if (g.pool && part(next) && (g.dropout = part(next)->as<Dropout>())) ++next;
    }
    g.count = std::max<std::size_t>(next - i, 1);
    groups_.push_back(g);
    i += g.count;
  }
}

Tensor Sequential::run(const Group& g, Tensor x, Stashed& stashed) const {
  stashed.fields = as_divided(stashed.fields, x);
  x = with_fields(std::move(x), stashed.fields);
  if (g.stash) {
    check(stashed.emplace(g.stash->name, x).second, "sequential", "'{}' is stashed already", g.stash->name);
    return x;
  }
  if (g.add) {
    auto found = stashed.extract(g.add->name);
    check(!found.empty(), "sequential", "nothing is stashed as '{}': a layer Stash(\"{}\") must run before this one",
          g.add->name, g.add->name);
    const Tensor kept = std::move(found.mapped());
    const Tensor other = (g.add->shortcut ? g.add->shortcut(kept) : kept).to(x.device());
    return g.add->concat ? concat({x, other}, -1) : x + other;
  }
  // Options are public and may have changed since add().
  const bool apart = g.count == 1 || (g.pool && !tiles(g.pool->options)) || (g.conv && g.conv->options.relu);
  if (apart) {
    for (std::size_t i = g.first; i < g.first + g.count; ++i) x = parts_[i].second(std::move(x));
    return x;
  }
  if (g.pool) {
    // The bias is added, and its gradient summed, in the pass over the pool.
    if (g.conv) x = conv(x, g.conv->weight, {}, g.conv->options);
    return bias_relu_pool_dropout(x, g.conv ? g.conv->bias : Tensor(), g.pool->options, g.dropout ? g.dropout->p : 0,
                                  g.dropout ? g.dropout->key : 0);
  }
  if (g.conv && g.norm) {
    BatchNorm norm = *g.norm;
    norm.options.relu = norm.options.relu || g.relu;
    return conv_norm(*g.conv, norm, x);
  }
  if (g.conv) return g.conv->apply(x, true);
  if (g.linear) return linear(x, g.linear->weight, g.linear->bias, true);
  BatchNormOptions options = g.norm->options;
  options.relu = true;
  return batch_norm(x, g.norm->weight, g.norm->bias, g.norm->running_mean, g.norm->running_var, options);
}

Tensor Sequential::run_layer(std::size_t i, Tensor x, Stashed& stashed) const {
  const Module& layer = (*this)[i];
  return run(Group{.first = i, .stash = layer.as<Stash>(), .add = layer.as<AddStashed>()}, std::move(x), stashed);
}

Tensor Sequential::operator()(Tensor x) const {
  Stashed stashed;
  stashed.fields = fields_beside(x);
  for (const Group& g : groups_) x = run(g, std::move(x), stashed);
  check(stashed.empty(), "sequential", "'{}' is stashed, but nothing adds it: add a layer AddStashed(\"{}\")",
        stashed.empty() ? "" : stashed.begin()->first, stashed.empty() ? "" : stashed.begin()->first);
  return x;
}

std::vector<std::string> Sequential::stashed_behind(std::size_t g) const {
  std::set<std::string> names;
  for (std::size_t i = 0; i <= g; ++i) {
    if (group_at(i).stash) names.insert(groups_[i].stash->name);
    if (groups_[i].add) names.erase(groups_[i].add->name);
  }
  return {names.begin(), names.end()};
}

void Sequential::visit(const StateVisitor& v) {
  for (auto& [name, part] : parts_) v(name, part);
  if (v.copies()) fuse();
}

}  // namespace trireme
