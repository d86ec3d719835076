#include "parallel/inference/infer.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "framework/io/file.h"
#include "framework/layers/inference.h"
#include "framework/tensor/memory_tracker.h"
#include "parallel/comm/call.h"
#include "parallel/inference/feature_file.h"

namespace trireme {
namespace {

constexpr double commit_seconds = 0.5;  // between syncs, so that small tiles do not wait for the disk each time

std::uint32_t checksum(const Tensor& t) {
  return crc32({t.data<std::byte>(), static_cast<std::size_t>(t.view().bytes())});
}

/// Sum of a number over all ranks. A collective call.
double sum_over(World& world, double mine) {
  const Tensor sum = Tensor::scalar(mine, DType::f64);
  world.comm().all_reduce(sum).wait();
  return sum.item();
}

/// Computes the tiles of one rank.
class TileRun {
 public:
  TileRun(World& world, const VolumeNet& net, const InferencePlan& plan, const InferenceFiles& files,
          const InferenceRun& run)
      : world_(world),
        net_(net),
        plan_(plan),
        files_(files),
        run_(run),
        grid_(net.output(), plan.tile, net.granularity()) {
    if (plan.passes.size() > 2) {
      check(run.parts == 1, "infer",
            "tiles of several passes depend on each other, but parts of a job array do not wait; leave out --part, or "
            "give "
            "more memory");
      std::vector<Index> bounds;
      for (std::size_t p = 0; p + 1 < plan.passes.size(); ++p) bounds.push_back(net.channels(plan.passes[p]));
      if (world.main()) FeatureFile(run.features, net.input(), bounds, net.dtype());
      world.comm().barrier();
      features_.emplace(run.features, net.input(), bounds, net.dtype());
    }
    if (!run.journal.empty()) journal_.emplace(run.journal, fmt::format("{}.{}", run.writer, world.rank()), run.data());
    world.comm().barrier();  // all ranks have read which tiles were finished before
    const auto [first, end] = even_share(grid_.size(), static_cast<int>(run.parts), static_cast<int>(run.part));
    Index left = 0;
    for (int pass = 0; pass < passes(); ++pass) {
      auto& mine = mine_.emplace_back();
      for (Index tile = first; tile < end; ++tile) {
        if (journal_ && journal_->done(pass, tile))
          ++kept_;
        else if (left++ % world.size() == world.rank())
          mine.push_back(tile);
      }
      progress_.all += std::ssize(mine);
    }
  }

  InferenceResult operator()() {
    const auto begin = std::chrono::steady_clock::now();
    for (int pass = 0; pass < passes() && !stopped_; ++pass) {
      for (const Index tile : mine_[static_cast<std::size_t>(pass)]) {
        if (stopped_ = run_.stop && run_.stop(); stopped_) break;
        compute(pass, tile);
        ++progress_.done;
        progress_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (journal_) journal_->commit([&] { sync(pass); }, commit_seconds);
        if (run_.progress) run_.progress(progress_);
      }
      if (journal_) journal_->commit([&] { sync(pass); });
      stopped_ = agreed(stopped_);  // also waits until all ranks have written what the next pass reads
    }
    InferenceResult result{.kept = kept_, .stopped = stopped_};
    result.computed = static_cast<Index>(sum_over(world_, static_cast<double>(progress_.done)));
    if (journal_) {
      journal_->read_again();
      for (Index tile = 0; tile < grid_.size(); ++tile) result.missing += !journal_->done(passes() - 1, tile);
    }
    return result;
  }

 private:
  int passes() const { return static_cast<int>(plan_.passes.size()) - 1; }
  bool agreed(bool mine) { return sum_over(world_, mine ? 1 : 0) > 0; }

  void sync(int pass) {
    if (pass + 1 < passes())
      features_->sync();
    else
      files_.sync();
  }

  Tensor read(const Box& box) const {
    Box of_volume = box;
    of_volume.size[-1] = net_.channels(0);
    if (box.size[-1] == net_.channels(0)) return files_.read(box);
    const Tensor all = Tensor::empty(box.size, net_.dtype());
    copy_box(all, box.at, files_.read(of_volume), box.at, of_volume);
    features_->read(box, all, box.at);
    return all;
  }

  void compute(int pass, Index tile) {
    const int first = plan_.passes[static_cast<std::size_t>(pass)],
              last = plan_.passes[static_cast<std::size_t>(pass) + 1];
    const bool is_last = pass + 1 == passes();
    Box out = grid_.box(tile);
    if (!is_last) {
      out.at[-1] = net_.channels(first);
      out.size[-1] = net_.channels(last) - net_.channels(first);
    }
    const Tensor values = net_.run(
        first, last, [this](const Box& box) { return read(box); }, out);
    if (!is_last) features_->write(out, values);
    const Tensor written = is_last ? files_.write(out, values) : values;
    if (journal_) journal_->note(pass, tile, checksum(written));
  }

  World& world_;
  const VolumeNet& net_;
  const InferencePlan& plan_;
  const InferenceFiles& files_;
  const InferenceRun& run_;
  TileGrid grid_;
  std::optional<FeatureFile> features_;
  std::optional<TileJournal> journal_;
  std::vector<std::vector<Index>> mine_;  // tiles by pass
  InferenceProgress progress_;
  Index kept_ = 0;
  bool stopped_ = false;
};

InferenceResult run_mesh(World& world, const std::vector<Axis>& axes, const VolumeNet& net,
                         const InferenceFiles& files) {
  InferenceResult result{.computed = world.size()};
  if (world.size() == 1) {
    const Box all = whole_box(net.output());
    files.write(all, net.run(0, net.layers(), files.read, all));
    files.sync();
    return result;
  }
  Mesh mesh(world, axes);
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  const Grid grid(mesh, names, {});
  const Division division = division_of(axes, net.output().rank() - 2, &grid);
  const Tensor y = net.run(division, grid, files.read);
  if (const Box box = net.share(division, place_of(division, grid.place())); !box.empty()) files.write(box, y);
  files.sync();
  for (const auto& [axis, count] : mesh.meter().counted()) result.sent += static_cast<double>(count.bytes);
  result.sent = sum_over(world, result.sent);
  return result;
}

}  // namespace

InferenceResult infer(World& world, const std::vector<Axis>& mesh, const VolumeNet& net, const InferencePlan& plan,
                      const OpenFiles& open, const InferenceRun& run) {
  const MemoryTracker tracker;
  const MemoryScope scope(tracker);
  const Inference inference;
  const InferenceFiles files = open(world);
  InferenceResult result;
  if (plan.way == InferenceWay::mesh) {
    result = run_mesh(world, mesh, net, files);
  } else {
    result = TileRun(world, net, plan, files, run)();
  }
  const Tensor most = Tensor::scalar(static_cast<double>(tracker.peak()), DType::f64);
  world.comm().all_reduce(most, ReduceOp::max).wait();
  result.memory = most.item();
  return result;
}

MissingTiles missing_tiles(const VolumeNet& net, const InferencePlan& plan, const TileJournal& journal, Index parts) {
  const TileGrid grid(net.output(), plan.tile, net.granularity());
  const int last = static_cast<int>(plan.passes.size()) - 2;
  MissingTiles all;
  for (Index part = 0; part < parts; ++part) {
    const auto [first, end] = even_share(grid.size(), static_cast<int>(parts), static_cast<int>(part));
    Index missing = 0;
    for (Index tile = first; tile < end; ++tile) missing += !journal.done(last, tile);
    if (missing > 0) all.parts.emplace_back(part, missing);
    all.missing += missing;
  }
  return all;
}

void verify_tiles(const VolumeNet& net, const InferencePlan& plan, const TileJournal& journal,
                  const InferenceFiles& files) {
  const TileGrid grid(net.output(), plan.tile, net.granularity());
  const int last = static_cast<int>(plan.passes.size()) - 2;
  for (Index tile = 0; tile < grid.size(); ++tile) {
    const Box box = grid.box(tile);
    check(checksum(files.read_result(box)) == journal.checksum(last, tile), ErrorKind::data, "infer",
          "the voxels of {} from {} on differ from the computed ones, because something else has written to the file; "
          "remove "
          "the partial result and its folder of tiles to start again",
          box.size, box.at);
  }
}

}  // namespace trireme
