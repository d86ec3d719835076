// A mixed-scale dense network over a picture or volume that does not fit: ranks that exchange halos layer by layer,
// beside tiles that overlap by what the model reaches, with the same kernels and the same memory for a rank.
//   inference [--extents 2048,2048] [--depth 100] [--mesh h=2,w=2] [--memory 536870912] [--rounds 3]
// A round measures operations per second on a small volume, runs the first whole, and the middle tile of the second,
// which is reached on all sides, on one thread; all tiles take their predicted work over that tile's. Times are those
// of cores, not of a clock on the wall.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <sstream>

#include "bench/measure.h"
#include "framework/layers/inference.h"
#include "framework/layers/layers.h"
#include "kernels/core/runtime.h"
#include "parallel/inference/dense_net.h"
#include "parallel/inference/infer.h"
#include "parallel/inference/inference_time.h"

using namespace trireme;

namespace {

/// Seconds that cores have worked for this process, waits that spin among them.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Shape shape_of(const std::string& text) {
  Shape shape{1};
  std::stringstream words(text);
  for (std::string word; std::getline(words, word, ',');) shape.push_back(std::stoll(word));
  shape.push_back(1);
  return shape;
}

DenseLayers network(const Shape& volume, int depth) {
  const int axes = volume.rank() - 2;
  DenseLayers net;
  for (int i = 0; i < depth; ++i) {
    Shape filter{1};
    for (int s = 0; s < axes; ++s) filter.push_back(3);
    filter.push_back(i + 1);
    net.weight.push_back(Init::normal(0.1).make(filter, static_cast<std::uint64_t>(i)));
    net.bias.push_back(Tensor::zeros({1}));
    net.dilations.push_back(i % 10 + 1);
  }
  if (axes == 2)
    net.tail = Conv2d(depth + 1, 2, 1);
  else
    net.tail = Conv3d(depth + 1, 2, 1);
  return net;
}

Tensor zeros(const Box& box) { return Tensor::zeros(box.size); }

/// Core seconds of the ranks with halos, as threads.
double halos(const DenseNet& net, const std::vector<Axis>& mesh, const InferencePlan& plan, InferenceResult& result) {
  const double begin = now();
  World::threads(ranks_of(mesh), [&](World& world) {
    const InferenceResult r = infer(world, mesh, net, plan, [](World&) {
      return InferenceFiles{.read = zeros, .write = [](const Box&, const Tensor& y) { return y; }};
    });
    if (world.main()) result = r;
  });
  return now() - begin;
}

double middle_tile(const DenseNet& net, const InferencePlan& plan, double& share) {
  const TileGrid grid(net.output(), plan.tile, net.granularity());
  const Extents n = grid.counts();
  const Box box = grid.box(Extents{n[0] / 2, n[1] / 2, n[2] / 2});
  share = net.cost(0, net.layers(), box).operations / plan.operations;
  const Inference inference;
  const double begin = now();
  (void)net.run(0, net.layers(), zeros, box);
  return now() - begin;
}

}  // namespace

int inference_main(int argc, char** argv) {
  std::string extents = "2048,2048", mesh_text = "h=2,w=2";
  int depth = 100, rounds = 3;
  double memory = 536870912;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--extents") extents = argv[i + 1];
    if (option == "--mesh") mesh_text = argv[i + 1];
    if (option == "--depth") depth = std::stoi(argv[i + 1]);
    if (option == "--memory") memory = std::stod(argv[i + 1]);
    if (option == "--rounds") rounds = std::stoi(argv[i + 1]);
  }
  try {
    const Shape volume = shape_of(extents);
    const DenseNet net(network(volume, depth), volume, DType::f32);
    const std::vector<Axis> mesh = parse_mesh(mesh_text);
    const InferencePlan divided = plan_inference(net, mesh, {.memory = memory, .way = "mesh"}).front();
    const InferencePlan tiles = plan_inference(net, mesh, {.memory = memory, .way = "tiles", .one_pass = true}).front();
    fmt::print(
        "halos: {:.1f} MiB a rank, {:.1f} MB exchanged; tiles: {} of {}, {:.1f} MiB, {:.1f} x the voxels, {:.1f} x the "
        "operations\n",
        divided.memory / 1048576, divided.sent / 1e6, tiles.tiles, fmt::join(tiles.tile, " x "), tiles.memory / 1048576,
        tiles.voxels / tiles.least_voxels, tiles.operations / divided.operations);
    const Shape few = shape_to_measure(net);
    const DenseNet small(network(few, depth), few, DType::f32);
    std::vector<double> ratios, halo_seconds, tile_seconds, predicted;
    for (int round = 0; round < rounds; ++round) {
      InferenceResult result;
      set_threads(1);
      const double expected = divided.operations / measured_operations(small);
      set_threads(cores());
      const double a = halos(net, mesh, divided, result);
      set_threads(1);
      double share = 1;
      const double b = middle_tile(net, tiles, share) / share;
      set_threads(cores());
      halo_seconds.push_back(a);
      tile_seconds.push_back(b);
      ratios.push_back(b / a);
      predicted.push_back(expected / a);
      fmt::print(
          "round {}: halos {:.2f} core seconds ({:.2f} predicted, {:.1f} MiB taken), tiles {:.2f}: {:.1f} times as "
          "many\n",
          round, a, expected, result.memory / 1048576, b, b / a);
    }
    fmt::print(
        "median: halos {:.2f}, tiles {:.2f}: {:.1f} times [{:.1f}, {:.1f}]; halos predicted over measured {:.2f}\n",
        median(halo_seconds), median(tile_seconds), median(ratios), *std::ranges::min_element(ratios),
        *std::ranges::max_element(ratios), median(predicted));
  } catch (const std::exception& e) {
    fmt::print(stderr, "inference: {}\n", e.what());
    return 1;
  }
  return 0;
}
