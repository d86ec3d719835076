// What checkpoints that are written behind training cost: how long the step waits for a save beside a copy of the same
// bytes in memory, and how long training takes with saves and without, one interval of each in turn.
//   checkpoint_stall DIRECTORY [MODEL [STEPS [ROUNDS]]]     saves each STEPS steps (resnet50, 8; batch 16, 64 x 64, SGD
//   with momentum)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "framework/io/checkpoint_writer.h"
#include "models/registry/models.h"
#include "trireme/trireme.h"
using namespace trireme;

int checkpoint_stall_main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "checkpoint_stall DIRECTORY [MODEL [STEPS [ROUNDS]]]\n");
    return 2;
  }
  const std::string run = std::string(argv[1]) + "/stall", model = argc > 2 ? argv[2] : "resnet50";
  const int steps = argc > 3 ? std::atoi(argv[3]) : 8, rounds = argc > 4 ? std::atoi(argv[4]) : 7;
  World world;
  ModelOptions options{.input = {64, 64, 3}, .classes = 1000};
  Step step(make_model(model, options), cross_entropy, Sgd{.lr = 0.01, .momentum = 0.9}, world);
  const Tensor x = Tensor::full({16, 64, 64, 3}, 0.1), y = Tensor::zeros({16}, DType::i64);
  for (int i = 0; i < 3; ++i) step(x, y).item();

  Index bytes = 0;
  for (const auto* flat : {&step.parameters().values()})
    for (const Tensor& block : flat->blocks()) bytes += block.view().bytes();
  for (const auto& [name, state] : step.optimizer().state()) bytes += state.numel() * size_of(state.dtype());
  for (const auto& buffer : step.parameters().buffers()) bytes += buffer.tensor.view().bytes();
  const std::vector<char> from(static_cast<std::size_t>(bytes), 1);
  std::vector<char> to(from.size(), 2);

  CheckpointWriter writer(nullptr);
  std::int64_t at = 0;
  std::vector<double> stalls, copies, with, without, written;
  for (int round = 0; round <= rounds; ++round) {  // the first prepares everything
    const auto copy = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    copies.push_back(since(copy));
    auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step(x, y).item();
    without.push_back(since(begin));
    begin = Clock::now();
    writer.save(run, step.parameters(), step.optimizer(), {.step = ++at},
                {.keep_last = 1, .shard = step.checkpoint_shard()});
    stalls.push_back(since(begin));
    for (int i = 0; i < steps; ++i) step(x, y).item();
    with.push_back(since(begin));
    const auto rest = Clock::now();
    writer.wait();
    written.push_back(writer.written().second - writer.written().first);
    if (round == 0)
      for (auto* v : {&stalls, &copies, &with, &without, &written}) v->clear();
    else if (since(rest) > 0.05)
      std::printf("the save was not done within %d steps: it would hold up the next one for %.2f s\n", steps,
                  since(rest));
  }
  std::vector<double> ratios, shares;
  for (std::size_t i = 0; i < stalls.size(); ++i) {
    ratios.push_back(stalls[i] / copies[i]);
    shares.push_back(100 * stalls[i] / with[i]);
  }
  std::printf("%s: %.1f MB of state; %d steps of %.0f ms between saves\n", model.c_str(),
              static_cast<double>(bytes) / 1e6, steps, 1e3 * median(without) / steps);
  std::printf("stall %.1f ms, copy of as many bytes %.1f ms: %.2f times it; %.2f %% of the interval\n",
              1e3 * median(stalls), 1e3 * median(copies), median(ratios), median(shares));
  std::printf("written in %.2f s; an interval with a save takes %.3f times one without\n", median(written),
              median(with) / median(without));
  std::filesystem::remove_all(run);
  return 0;
}
