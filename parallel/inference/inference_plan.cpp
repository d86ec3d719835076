#include "parallel/inference/inference_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace trireme {

std::string to_string(InferenceWay way) {
  return way == InferenceWay::whole ? "whole" : way == InferenceWay::tiles ? "tiles" : "mesh";
}

TileGrid::TileGrid(const Shape& output, const Extents& tile, const Extents& granularity) : output_(output) {
  for (int axis = 1; axis < output.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    const Index extent = output[axis], grain = std::min(granularity[s], extent);
    const Index asked = std::clamp<Index>(tile[s], 1, extent), n = (extent + asked - 1) / asked;
    tile_[s] = std::min(extent, ((extent + n - 1) / n + grain - 1) / grain * grain);
    counts_[s] = (extent + tile_[s] - 1) / tile_[s];
  }
}

Box TileGrid::box(Index tile) const {
  return box(Extents{tile / counts_[1] / counts_[2], tile / counts_[2] % counts_[1], tile % counts_[2]});
}

Box TileGrid::box(const Extents& place) const {
  Box box = whole_box(output_);
  for (int axis = 1; axis < output_.rank() - 1; ++axis) {
    const auto s = static_cast<std::size_t>(axis - 1);
    box.at[axis] = place[s] * tile_[s];
    box.size[axis] = std::min(tile_[s], output_[axis] - box.at[axis]);
  }
  return box;
}

namespace {

double cells(const Shape& shape) { return static_cast<double>(shape.product(1, shape.rank() - 1)); }

/// Sample positions along an axis of n tiles, with weights: exact up to five tiles.
std::vector<std::pair<Index, double>> samples(Index n) {
  std::vector<Index> at;
  for (int quarter = 0; quarter <= 4; ++quarter)
    if (const Index i = (n - 1) * quarter / 4; at.empty() || at.back() != i) at.push_back(i);
  std::vector<std::pair<Index, double>> all;
  for (const Index i : at) all.emplace_back(i, 1.0);
  for (std::size_t k = 0; k + 1 < at.size(); ++k) {  // positions between samples count half for each neighbour
    const double between = static_cast<double>(at[k + 1] - at[k] - 1) / 2;
    all[k].second += between;
    all[k + 1].second += between;
  }
  return all;
}

template <class F>
void each_sample(const TileGrid& grid, F&& f) {
  for (const auto& [d, of_d] : samples(grid.counts()[0]))
    for (const auto& [h, of_h] : samples(grid.counts()[1]))
      for (const auto& [w, of_w] : samples(grid.counts()[2])) f(grid.box(Extents{d, h, w}), of_d * of_h * of_w);
}

double voxels_without_overlap(const VolumeNet& net) {
  return net.cost(0, net.layers(), whole_box(net.output())).voxels;
}

/// The box of a pass other than the last is within the volume, and has the channels that the pass adds.
Box of_pass(const VolumeNet& net, const Box& tile, int first, int last) {
  Box box = tile;
  if (last == net.layers()) return box;
  box.at[-1] = net.channels(first);
  box.size[-1] = net.channels(last) - net.channels(first);
  return box;
}

InferencePlan of_tiles(const VolumeNet& net, const Extents& tile, const std::vector<int>& passes,
                       const Division& division, const InferenceRates& rates) {
  const TileGrid grid(net.output(), tile, net.granularity());
  InferencePlan plan{.way = grid.size() == 1 && passes.size() == 2 ? InferenceWay::whole : InferenceWay::tiles,
                     .tile = grid.tile(),
                     .passes = passes,
                     .division = division,
                     .tiles = static_cast<double>(grid.size())};
  const double element = static_cast<double>(size_of(net.dtype()));
  for (std::size_t p = 0; p + 1 < passes.size(); ++p) {
    const int first = passes[p], last = passes[p + 1];
    each_sample(grid, [&](const Box& box, double of) {
      const Box out = of_pass(net, box, first, last);
      const BoxCost cost = net.cost(first, last, out);
      plan.voxels += of * cost.voxels;
      plan.operations += of * cost.operations;
      plan.memory = std::max(plan.memory, cost.memory);
      plan.read += of * element * static_cast<double>(net.reads(first, last, out).size.numel());
      plan.written += of * element * static_cast<double>(out.size.numel());
    });
  }
  if (passes.size() > 2)
    plan.features =
        element * cells(net.input()) * static_cast<double>(net.channels(passes[passes.size() - 2]) - net.channels(0));
  const double ranks = static_cast<double>(division.parts[0] * division.parts[1] * division.parts[2]);
  const double turns = std::ceil(plan.tiles / ranks), idle = turns * ranks / plan.tiles;
  plan.seconds = plan.operations * idle / ranks / rates.operations + (plan.read + plan.written) / rates.disk +
                 turns * static_cast<double>(passes.size() - 1) * rates.tile;
  return plan;
}

InferencePlan of_mesh(const VolumeNet& net, const Division& division, const InferenceRates& rates) {
  const ShareCost cost = net.cost(division);
  InferencePlan plan{.way = InferenceWay::mesh, .passes = {0, net.layers()}, .division = division};
  const std::vector<Extents> places = places_of(division);
  plan.tiles = static_cast<double>(places.size());
  for (const Extents& at : places) {
    const Box box = net.share(division, at);
    for (int axis = 1; axis < box.at.rank() - 1; ++axis) {
      Index& most = plan.tile[static_cast<std::size_t>(axis - 1)];
      most = std::max(most, box.size[axis]);
    }
  }
  const double element = static_cast<double>(size_of(net.dtype()));
  plan.voxels = cost.voxels;
  plan.memory = cost.most.memory;
  plan.sent = cost.sent;
  plan.operations = cost.most.operations * plan.tiles;
  plan.read = element * static_cast<double>(net.input().numel());
  plan.written = element * static_cast<double>(net.output().numel());
  plan.seconds = cost.most.operations / rates.operations + cost.messages * rates.message + cost.most_sent / rates.link +
                 (plan.read + plan.written) / rates.disk;
  return plan;
}

/// Passes with nearly equal numbers of layers.
std::vector<int> even_passes(int layers, int passes) {
  std::vector<int> bounds;
  for (int p = 0; p <= passes; ++p) bounds.push_back(layers * p / passes);
  return bounds;
}

/// Memory of the tile with the largest surroundings.
double memory_of(const VolumeNet& net, const Extents& tile, const std::vector<int>& passes) {
  const TileGrid grid(net.output(), tile, net.granularity());
  const Extents& n = grid.counts();
  const Box box = grid.box(Extents{(n[0] - 1) / 2, (n[1] - 1) / 2, (n[2] - 1) / 2});
  double most = 0;
  for (std::size_t p = 0; p + 1 < passes.size(); ++p)
    most = std::max(most, net.cost(passes[p], passes[p + 1], of_pass(net, box, passes[p], passes[p + 1])).memory);
  return most;
}

/// Extents to try, from large to small: cubes, and boxes that are whole along the last axes.
std::vector<Extents> candidates(const VolumeNet& net, int whole_axes) {
  const int axes = net.output().rank() - 2;
  Index longest = 1;
  for (int s = 0; s < axes - whole_axes; ++s) longest = std::max(longest, net.output()[s + 1]);
  std::vector<Extents> all;
  for (double edge = static_cast<double>(longest);; edge /= std::pow(2, 0.25)) {
    Extents tile{1, 1, 1};
    bool least = true;
    for (int s = 0; s < axes; ++s) {
      const Index extent = net.output()[s + 1], grain = net.granularity()[static_cast<std::size_t>(s)];
      const Index whole = std::max<Index>(1, static_cast<Index>(edge) / grain) * grain;
      tile[static_cast<std::size_t>(s)] = s >= axes - whole_axes ? extent : std::min(extent, whole);
      least = least && (s >= axes - whole_axes || whole == grain);
    }
    const Extents even = TileGrid(net.output(), tile, net.granularity()).tile();
    if (all.empty() || all.back() != even) all.push_back(even);
    if (least) return all;
  }
}

struct Search {
  const VolumeNet& net;
  const Division& division;
  const InferenceLimits& limits;
  const InferenceRates& rates;
  double least = INFINITY;  // minimum bytes of all candidates
  Extents least_tile{1, 1, 1};

  bool fits(double memory, const Extents& tile) {
    if (memory < least) {
      least = memory;
      least_tile = tile;
    }
    return limits.memory <= 0 || memory <= limits.memory;
  }
  void keep(std::optional<InferencePlan>& best, const Extents& tile, const std::vector<int>& passes) {
    const InferencePlan plan = of_tiles(net, tile, passes, division, rates);
    if (!best || plan.seconds < best->seconds) best = plan;
  }
  std::optional<InferencePlan> tiles() {
    std::optional<InferencePlan> best;
    const bool given = limits.tile != Extents{0, 0, 0};
    std::vector<std::vector<int>> passes;
    if (!limits.passes.empty()) passes = {limits.passes};
    for (int n = 1; limits.passes.empty() && n <= (limits.one_pass ? 1 : net.layers()); n = std::max(n + 1, n * 5 / 4))
      passes.push_back(even_passes(net.layers(), n));
    for (const auto& bounds : passes) {
      if (given) {
        if (fits(memory_of(net, limits.tile, bounds), limits.tile)) keep(best, limits.tile, bounds);
        continue;
      }
      for (int whole = 0; whole < net.output().rank() - 2; ++whole) {
        int tried = 0;  // smaller tiles overlap more, but may be divided more evenly
        for (const Extents& tile : candidates(net, whole)) {
          if (!fits(memory_of(net, tile, bounds), tile)) continue;
          keep(best, tile, bounds);
          if (++tried == 5) break;
        }
      }
      if (best && bounds.size() > 4 && best->passes.size() + 3 < bounds.size()) break;  // more passes do not help
    }
    return best;
  }
};

void check_tile(const VolumeNet& net, const Extents& tile) {
  for (int s = 0; s < net.output().rank() - 2; ++s) {
    const auto a = static_cast<std::size_t>(s);
    const Index extent = net.output()[s + 1], halo = std::min(net.reach()[a], extent);
    check(tile[a] >= halo || tile[a] >= extent, "infer",
          "a tile of {} cells along axis {} is smaller than the halo of {} that the model reads around it: give at "
          "least {}, or --tile auto",
          tile[a], s, net.reach()[a], halo);
  }
}

}  // namespace

InferencePlan predict(const VolumeNet& net, InferenceWay way, const Extents& tile, const std::vector<int>& passes,
                      const Division& division, const InferenceRates& rates) {
  InferencePlan plan =
      way == InferenceWay::mesh ? of_mesh(net, division, rates) : of_tiles(net, tile, passes, division, rates);
  plan.least_voxels = voxels_without_overlap(net);
  return plan;
}

std::vector<InferencePlan> plan_inference(const VolumeNet& net, const std::vector<Axis>& mesh,
                                          const InferenceLimits& limits, const InferenceRates& rates) {
  const Division division = division_of(mesh, net.output().rank() - 2, nullptr);
  check(limits.way == "auto" || limits.way == "whole" || limits.way == "tiles" || limits.way == "mesh", "infer",
        "the way '{}' is none of auto, whole, tiles, mesh", limits.way);
  const bool given = limits.tile != Extents{0, 0, 0};
  if (given) check_tile(net, limits.tile);
  const Index ranks = division.parts[0] * division.parts[1] * division.parts[2];
  for (const Extents& at : places_of(division))
    (void)net.share(division, at);  // throws if the volume is too small for
                                    // the mesh
  Search search{net, division, limits, rates};
  std::vector<InferencePlan> plans;
  const auto allowed = [&](const char* way) { return limits.way == "auto" || limits.way == way; };
  const std::vector<int> once{0, net.layers()};
  Extents all{1, 1, 1};
  for (int s = 0; s < net.output().rank() - 2; ++s) all[static_cast<std::size_t>(s)] = net.output()[s + 1];
  if (allowed("whole") && !given && search.fits(memory_of(net, all, once), all))
    plans.push_back(of_tiles(net, all, once, division, rates));
  if (allowed("mesh") && !given && (ranks > 1 || limits.way == "mesh"))
    if (const InferencePlan plan = of_mesh(net, division, rates); search.fits(plan.memory, plan.tile))
      plans.push_back(plan);
  if (allowed("tiles"))
    if (const auto plan = search.tiles(); plan && (plan->way == InferenceWay::tiles || given || limits.way == "tiles"))
      plans.push_back(*plan);
  check(
      !plans.empty(), ErrorKind::out_of_memory, "infer",
      "{:.1f} MiB per rank are too little: {} needs at least {:.1f} MiB, for boxes of {} x {} x {}{}",
      limits.memory / 1048576, [&] { return limits.way == "auto" ? std::string("any way") : "way " + limits.way; },
      search.least / 1048576, search.least_tile[0], search.least_tile[1], search.least_tile[2],
      limits.way == "auto" ? "" : "; another --way may take less");
  for (InferencePlan& plan : plans) plan.least_voxels = voxels_without_overlap(net);
  std::ranges::stable_sort(plans, {}, &InferencePlan::seconds);
  return plans;
}

}  // namespace trireme
