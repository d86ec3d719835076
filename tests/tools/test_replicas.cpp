// Weights and running statistics that several ranks hold are compared, tensor by tensor.
#include "tools/training/replicas.h"

#include "framework/layers/init.h"
#include "framework/layers/layers.h"
#include "parallel/comm/world/mesh.h"
#include "tests/support/catch.h"

namespace test_replicas {

using namespace trireme;

namespace {

/// Changes the lowest bit of the first number of a tensor on one rank of a step, then compares.
void compare_flipped(const std::string& mesh, const std::string& strategy, int rank, const std::string& name) {
  const std::vector<Axis> axes = parse_mesh(mesh);
  World::threads(ranks_of(axes), [&](World& world) {
    Module model = Sequential{Conv2d(1, 4, 3), BatchNorm(4), flatten, LayerNorm(16), Linear(16, 6), relu, Linear(6, 5)};
    initialize(model, 1);
    Mesh m(world, axes);
    Step step(model, cross_entropy, Sgd{.lr = 0.1}, m, parse_strategy(strategy));
    const Tensor x = normal({4, 4, 4, 1}, 0, 1, 7);
    const RankShare share = step.shard();
    const Index begin = 4 * share.rank / share.size, end = 4 * (share.rank + 1) / share.size;
    step(x.rows(begin, end).clone(), Tensor::zeros({end - begin}, DType::i64));
    compare_replicas(step, world, 1);
    if (world.rank() == rank) {
      for (const auto& e : step.parameters().entries())
        if (e.name == name) *e.tensor.view().as<std::byte>() ^= std::byte{1};
      for (const auto& b : step.parameters().buffers())
        if (b.name == name) *b.tensor.view().as<std::byte>() ^= std::byte{1};
    }
    compare_replicas(step, world, 1);
  });
}

}  // namespace

TEST_CASE("a tensor that several ranks hold and whose bits differ is named with the ranks") {
  CHECK_NOTHROW(compare_flipped("data=2", "data_parallel", 0, "none"));
  CHECK_ERROR(compare_flipped("data=3", "data_parallel", 2, "4.weight"), internal, "4.weight", "rank 2", 2);
  CHECK_ERROR(compare_flipped("data=3", "data_parallel", 1, "1.running_mean"), internal, "1.running_mean", "rank 1", 2);
  CHECK_ERROR(compare_flipped("data=3,shard=2", "data_parallel | zero(1, axis=shard)", 2, "3.weight"), internal,
              "3.weight", "rank 2", 2);
  // Ranks that divide weights hold other weights alike.
  CHECK_NOTHROW(compare_flipped("tensor=2", "tensor", 0, "none"));
  CHECK_ERROR(compare_flipped("tensor=3", "tensor", 1, "3.bias"), internal, "3.bias", "rank 1", 2);
  CHECK_ERROR(compare_flipped("tensor=2,data=3", "tensor | data_parallel", 4, "4.weight"), internal, "4.weight",
              "rank");
  CHECK_ERROR(compare_flipped("pipe=2,data=3", "pipeline(micro=2, partition=even) | data_parallel", 4, "4.weight"),
              internal, "4.weight", "rank");
}

}  // namespace test_replicas
