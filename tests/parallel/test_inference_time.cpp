// What inference is predicted to take: every rank and message in virtual time, against runs of the same there, and
// against closed forms.
#include <algorithm>

#include "models/vision/unet.h"
#include "parallel/inference/inference_time.h"
#include "parallel/inference/slice_net.h"
#include "tests/parallel/volume_nets.h"

namespace test_inference_time {

using namespace trireme;
using namespace trireme::test;

namespace {

DenseNet dense_net(const Shape& volume, int depth) {
  DenseLayers net;
  const int axes = volume.rank() - 2;
  for (int i = 0; i < depth; ++i) {
    Shape filter{1};
    for (int s = 0; s < axes; ++s) filter.push_back(3);
    filter.push_back(i + 1);
    net.weight.push_back(Tensor::full(filter, 0.1));
    net.bias.push_back(Tensor::zeros({1}));
    net.dilations.push_back(i % 10 + 1);
  }
  net.tail = axes == 2 ? Module(Conv2d(depth + 1, 2, 1)) : Module(Conv3d(depth + 1, 2, 1));
  return DenseNet(net, volume, DType::f32);
}

ChainNet unet_net(const Shape& volume) {
  return ChainNet(unet({.input = volume.without(0), .classes = 2}, 2), volume, DType::f32);
}

/// Seconds until the last rank has done what infer() does, in virtual time, where computing takes none; and its bytes.
std::pair<double, double> run_in_virtual_time(const VolumeNet& net, const std::vector<Axis>& mesh,
                                              const Cluster& cluster) {
  std::mutex mutex;
  Nanoseconds last = 0;
  World::virtual_time(ranks_of(mesh), cluster, [&](World& world) {
    Mesh ranks(world, mesh);
    std::vector<std::string> names;
    for (const Axis& axis : mesh) names.push_back(axis.name);
    const Grid grid(ranks, names, {});
    const Division division = division_of(mesh, net.output().rank() - 2, &grid);
    const Nanoseconds begin = world.comm().clock()->now();
    if (ranks_of(mesh) > 1) (void)net.run(division, grid, [](const Box& box) { return Tensor::zeros(box.size); });
    const std::lock_guard lock(mutex);
    last = std::max(last, world.comm().clock()->now() - begin);
  });
  const InferencePlan plan =
      predict(net, InferenceWay::mesh, {}, {0, net.layers()}, division_of(mesh, net.output().rank() - 2, nullptr));
  return {1e-9 * static_cast<double>(last), plan.sent};
}

void compare(const VolumeNet& net, const std::vector<Axis>& mesh) {
  Cluster cluster = two_nodes((ranks_of(mesh) + 1) / 2);
  cluster.flops = 1e30;
  const SimulatedInference simulated = simulate_mesh(net, mesh, cluster);
  const auto [seconds, sent] = run_in_virtual_time(net, mesh, cluster);
  CHECK(simulated.computing == 0);
  CHECK(simulated.seconds == seconds);
  CHECK(simulated.sent == sent);
  CHECK((simulated.messages > 0) == (sent > 0));
}

}  // namespace

TEST_CASE("ranks with halos take in the simulation what a run of them takes in virtual time") {
  for (unsigned seed = 0; seed < (brief() ? 6u : 20u); ++seed) {
    auto random = seeded(seed);
    const int axes = static_cast<int>(draw(random, 2, 3));
    std::vector<Axis> mesh = random_mesh(random, axes, static_cast<int>(draw(random, 1, 9)));
    std::ranges::shuffle(mesh, random);
    INFO("seed " << seed);
    compare(dense_net(random_volume(random, axes, 1), static_cast<int>(draw(random, 1, 14))), mesh);
  }
  compare(unet_net({1, 64, 48, 1}), {{"w", 2}, {"h", 3}});
  compare(SliceNet(std::make_shared<DenseNet>(dense_net({1, 20, 30, 1}, 4)), 5), {{"w", 2}, {"d", 3}});
  compare(unet_net({1, 32, 32, 16, 1}), {{"h", 2}, {"d", 2}});
}

TEST_CASE("closed forms of simulated inference") {
  const DenseNet net = dense_net({1, 64, 40, 1}, 10);
  const Link link{.latency = 1e-6, .bandwidth = 1e9};
  Cluster cluster{.nodes = {{.devices = 64}}, .inside = link, .between = link, .flops = 1e9};
  // Alone: the operations, those of taps beyond the border left out.
  double operations = 64.0 * 40 * 2 * 11 * 2;  // of the last layer
  for (Index i = 0; i < 10; ++i)
    operations += 2.0 * static_cast<double>((i + 1) * (3 * 64 - 2 * (i + 1)) * (3 * 40 - 2 * (i + 1)));
  const SimulatedInference alone = simulate_mesh(net, {}, cluster);
  CHECK(alone.seconds == Approx(operations / 1e9).epsilon(1e-6));
  CHECK(alone.computing == alone.seconds);
  CHECK(alone.messages == 0);
  // Two halves: behind each layer but the last one message from each, of as many rows as the farthest layer reads.
  const SimulatedInference two = simulate_mesh(net, {{"h", 2}}, cluster);
  CHECK(two.messages == 2 * 9);
  CHECK(two.sent == 2 * 9 * 10 * 40 * 4);
  CHECK(two.computing == Approx(operations / 2e9).epsilon(1e-6));
  CHECK(two.seconds == Approx(two.computing + 9 * (1e-6 + 10 * 40 * 4 / 1e9)).epsilon(1e-6));
  // A device of half the speed makes all wait; jitter makes it later still.
  cluster.nodes = {{.devices = 1}, {.devices = 1, .speed = 0.5}};
  CHECK(simulate_mesh(net, {{"h", 2}}, cluster).computing == Approx(operations / 1e9).epsilon(1e-6));
  CHECK(rates_of(cluster, 2).operations == 0.5e9);
  CHECK(rates_of(cluster, 2).link == Approx(1e9));
  CHECK_ERROR(rates_of(cluster, 3), usage, 3, 2);
  CHECK_THROWS_AS(simulate_mesh(net, {{"h", 3}}, cluster), Error);
  cluster.nodes = {{.devices = 2}};
  cluster.jitter = 0.3;
  CHECK(simulate_mesh(net, {{"h", 2}}, cluster).seconds > two.seconds);
}

TEST_CASE("a volume of 2048 x 1024 x 1024 and 100 layers over 64 ranks is simulated") {
  const DenseNet net = dense_net({1, 2048, 1024, 1024, 1}, 100);
  const std::vector<Axis> mesh{{"d", 4}, {"h", 4}, {"w", 4}};
  const Cluster cluster{.nodes = {{.count = 8, .devices = 8}},
                        .inside = {.latency = 2e-6, .bandwidth = 10e9},
                        .between = {.latency = 5e-6, .bandwidth = 10e9},
                        .flops = 1e12};
  const SimulatedInference r = simulate_mesh(net, mesh, cluster);
  const InferencePlan plan = predict(net, InferenceWay::mesh, {}, {0, 100}, division_of(mesh, 3, nullptr));
  CHECK(r.sent == plan.sent);
  CHECK(r.seconds > r.computing);
  CHECK(r.seconds < 1.5 * r.computing);
  CHECK(plan.memory < 17e9);
}

TEST_CASE("what is measured is a smaller volume of the same model") {
  CHECK(shape_to_measure(dense_net({1, 40, 60, 1}, 3)) == Shape{1, 40, 60, 1});
  CHECK(shape_to_measure(dense_net({1, 2048, 1024, 1024, 1}, 100)) == Shape{1, 48, 48, 48, 1});
  CHECK(measured_operations(dense_net({1, 16, 16, 1}, 2)) > 0);
}

}  // namespace test_inference_time
