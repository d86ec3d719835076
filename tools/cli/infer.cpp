// trireme infer: applies a model to a volume that may be larger than memory.
#include "parallel/inference/infer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "datasets/core/fingerprint.h"
#include "datasets/volumes/volume_writer.h"
#include "framework/ops/ops.h"
#include "tools/cli/infer_plan.h"
#include "tools/cli/signals.h"
#include "tools/training/console.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Identity of a run, stored in the journal. A later run may continue only with the same identity.
Json identity_of(const InferenceSubject& s, const InferCommand& c) {
  Fingerprint files;
  add_volume(files, c.volume, true);
  const Json all{{"model", c.model},
                 {"weights", s.weights},
                 {"volume", fs::weakly_canonical(c.volume).string()},
                 {"volume's content or time of change", files.text()},
                 {"dtype", c.dtype},
                 {"result", c.result},
                 {"dilations", c.dilations},
                 {"mean", *c.mean},
                 {"std", *c.std},
                 {"extents", fmt::format("{}", s.whole)}};
  return parse_json(json_text(all, NotUtf8::replaced, 1));  // in the form that is read back from the file
}
Json about(const InferenceSubject& s, const InferCommand& c, const InferencePlan& p) {
  return {{"run", identity_of(s, c)}, {"tile", p.tile}, {"passes", p.passes}, {"parts", c.parts}};
}

/// The plan of the run whose journal is in the folder.
InferencePlan plan_under_way(const Json& there, const InferenceSubject& s, const InferCommand& c,
                             const Division& division, double memory, const InferenceLimits& limits) {
  const std::string folder = c.out + ".tiles";
  const Json mine = identity_of(s, c);
  for (const auto& [key, value] : mine.items())
    check(there.contains("run") && there["run"].value(key, Json()) == value, "infer",
          "{} holds tiles of another run (its {} differs); use the same value, or remove the folder and {}.partial",
          folder, key, c.out);
  Extents tile{0, 0, 0};
  std::vector<int> passes;
  try {
    tile = there.at("tile").get<Extents>();
    passes = there.at("passes").get<std::vector<int>>();
  } catch (const Json::exception&) { passes.clear(); }
  check(passes.size() > 1 && passes.front() == 0 && passes.back() == s.net->layers() &&
            std::ranges::adjacent_find(passes, std::greater_equal<>()) == passes.end() && std::ranges::min(tile) > 0,
        ErrorKind::data, "infer", "{} is damaged; remove it and {}.partial to start again", folder, c.out);
  const TileGrid grid(s.net->output(), limits.tile, s.net->granularity());
  check(
      limits.tile == Extents{0, 0, 0} || grid.tile() == tile, "infer",
      "{} holds tiles of {}; continue with these (--tile auto), or remove the folder and {}.partial", folder,
      [&] { return shape_text(tile, s.whole.rank() - 2); }, c.out);
  const InferencePlan plan = predict(*s.net, InferenceWay::tiles, tile, passes, division);
  check(plan.memory <= memory, ErrorKind::out_of_memory, "infer",
        "{} holds tiles that take {:.1f} MiB, but only {:.1f} MiB are available", folder, plan.memory / 1048576,
        memory / 1048576);
  return plan;
}

Box in_file(const Box& box, int axes) {
  if (axes == 2) return box;
  return {{box.at[1], box.at[2], box.at[3], box.at[4]}, {box.size[1], box.size[2], box.size[3], box.size[4]}};
}

/// The cells of a box of the padded volume, or of its result, that are in the volume, of these extents.
Box without_padding(Box box, const Shape& before, const Shape& extents) {
  for (int axis = 1; axis < before.rank() - 1; ++axis) box.at[axis] -= before[axis];
  return intersect(box, whole_box(extents));
}

/// The same cells, placed in the padded volume.
Box with_padding(Box box, const Shape& before) {
  for (int axis = 1; axis < before.rank() - 1; ++axis) box.at[axis] += before[axis];
  return box;
}

/// Calls found(index) for each element, in row-major order, that is NaN or infinite.
template <class Found>
void each_not_finite(const Tensor& floats, const Found& found) {
  const auto find = [&](auto numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (!std::isfinite(numbers[i])) found(static_cast<Index>(i));
  };
  const View all = floats.view();
  if (all.dtype == DType::f64)
    find(all.span<const double>());
  else
    find(all.span<const float>());
}

bool is_labels(const InferCommand& c) { return c.result == "labels"; }

/// The box of the output file: with the result's channels as the last axis.
Box of_result(Box box, const InferCommand& c) {
  if (is_labels(c)) box.size[-1] = 1;
  return box;
}

Tensor result_of(const Tensor& logits, const InferCommand& c) {
  if (c.result == "logits") return logits;
  if (c.result == "probabilities") return softmax(logits);
  Shape shape = logits.shape();
  shape[-1] = 1;
  each_not_finite(logits, [](Index) {
    fail(ErrorKind::numerics, "infer",
         "the model's output is NaN or infinite, so it has no class; give weights of a training that did not diverge");
  });
  return argmax(logits).reshape(shape);
}

VolumeOptions file_options(const InferenceSubject& s, const InferCommand& c) {
  const Shape& y = s.result;
  const Index channels = is_labels(c) ? 1 : y[-1];
  Shape array = y.rank() == 5 ? Shape{y[1], y[2], y[3]} : channels > 1 ? Shape{1, y[1], y[2]} : Shape{y[1], y[2]};
  if (channels > 1) array.push_back(channels);
  return {.array = array,
          .type = is_labels(c)       ? (y[-1] > 256 ? "uint16" : "uint8")
                  : c.dtype == "f64" ? "float64"
                                     : "float32"};
}

InferenceFiles files_of(const InferenceSubject& s, const InferCommand& c, const std::shared_ptr<VolumeWriter>& writer) {
  const int axes = s.whole.rank() - 2;
  const DType dtype = s.net->dtype();
  InferenceFiles files;
  files.read = [&s, axes, dtype](const Box& box) {
    const Box inner = without_padding(box, s.before, s.whole), placed = with_padding(inner, s.before);
    const Tensor raw = s.volume.read(in_file(inner, axes), dtype);
    const Tensor voxels = (dtype == DType::f32 ? s.scale(raw) : (raw - s.scale.mean) / s.scale.std).reshape(inner.size);
    if (placed == box) return voxels;
    const Tensor all = Tensor::full(box.size, 0, dtype);
    copy_box(all, box.at, voxels, placed.at, placed);
    return all;
  };
  files.write = [writer, axes, &s, &c](const Box& box, const Tensor& values) {
    const Box inner = without_padding(box, s.before, s.result), placed = with_padding(inner, s.before);
    const Tensor y = result_of(placed == box ? values : cut(values, box.at, placed), c);
    writer->write(in_file(of_result(inner, c), axes), y);
    return y;
  };
  files.sync = [writer] { writer->sync(); };
  files.read_result = [&s, &c, axes, dtype](const Box& given) {
    const Box box = of_result(without_padding(given, s.before, s.result), c);
    return open_volume(c.out + ".partial").read(in_file(box, axes), is_labels(c) ? DType::i64 : dtype);
  };
  return files;
}

/// Whether a signal has asked to stop. Stays true.
bool stop_asked(std::optional<Signals>& signals) {
  static std::atomic<bool> asked = false;
  if (signals && signals->take() == "stop") asked = true;
  return asked;
}

/// True for exactly one caller, which joins the parts.
bool is_first_to_join(const std::string& folder) {
  const int fd = ::open((folder + "/joined").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

std::string missing_text(const MissingTiles& missing, Index parts) {
  std::string text;
  for (std::size_t i = 0; i < missing.parts.size() && i < 8; ++i)
    text += fmt::format("{}{} of part {}/{}", i > 0 ? ", " : "", missing.parts[i].second, missing.parts[i].first + 1,
                        parts);
  return text + (missing.parts.size() > 8 ? ", ..." : "");
}

void check_options(const InferCommand& c) {
  std::error_code none;
  for (const auto& [name, value] : {std::pair{"--weights", c.weights}, {"--volume", c.volume}})
    if (value.empty())
      throw OptionError(fmt::format("infer: give {} FILE{}", name,
                                    name == std::string_view("--weights") ? ", or a run directory" : ""));
  if (c.out.empty() && !c.plan)
    throw OptionError("infer: no output is given; use --out FILE, or --plan for the expected time and memory");
  if (!c.out.empty() && !c.out.ends_with(".npy") && !c.out.ends_with(".raw"))
    throw OptionError(fmt::format("--out is {}, expected NAME.npy, or NAME.raw (with a .json next to it)", c.out));
  for (const std::string& written : {c.out, c.out + ".partial"})
    if (!c.out.empty() && fs::exists(written, none) && fs::equivalent(c.volume, written, none))
      throw OptionError(fmt::format("--volume {} and --out {} are the same file; give another --out", c.volume, c.out));
  if (!c.plan && (c.measure || !c.cluster.empty()))
    throw OptionError(
        fmt::format("infer: {} is for --plan; leave it out, or add --plan", c.measure ? "--measure" : "--cluster"));
  if (c.result != "logits" && c.result != "labels" && c.result != "probabilities")
    throw OptionError(fmt::format("--result is '{:.20}', expected logits, labels or probabilities", c.result));
  if (!c.out.empty() && fs::exists(c.out) && !fs::exists(c.out + ".tiles"))
    throw OptionError(fmt::format("{} exists already; remove it, or give another --out", c.out));
}

/// Prints a summary at the end.
void tell(const InferenceSubject& s, const InferCommand& c, const InferencePlan& p, const InferenceResult& r,
          double seconds, Console& console) {
  const int axes = s.whole.rank() - 2;
  console.result(fmt::format(
      "computed:      {} box{} of {} in {}, {} from an earlier run; predicted {} (assumed rates)", r.computed,
      r.computed == 1 ? "" : "es", shape_text(p.tile, axes), seconds_text(seconds), r.kept, seconds_text(p.seconds)));
  console.result(fmt::format(
      "memory:        {:.1f} MiB of tensors per rank predicted, {:.1f} MiB used{}", p.memory / 1048576,
      r.memory / 1048576,
      r.sent > 0 ? fmt::format("; {:.1f} MB exchanged, {:.1f} predicted", r.sent / 1e6, p.sent / 1e6) : ""));
  console.result("result:        " + c.out);
}

/// Whether another process has finished the result and removed the folder of tiles.
bool finished_by_another(const std::string& out, Console& console) {
  if (!fs::exists(out) || fs::exists(out + ".partial")) return false;
  TileJournal::remove(out + ".tiles");
  console.result(fmt::format("result:        {} was finished before", out));
  return true;
}

/// Renames the result once all tiles are finished. Called by one rank.
int join(const InferenceSubject& s, const InferCommand& c, const InferencePlan& p, const InferenceRun& run,
         const InferenceFiles& files, VolumeWriter& writer, Console& console) {
  const std::string folder = c.out + ".tiles";
  if (p.way != InferenceWay::mesh) {
    if (finished_by_another(c.out, console)) return 0;
    const TileJournal journal(folder, fmt::format("join-{}", ::getpid()), run.data());
    const MissingTiles missing = missing_tiles(*s.net, p, journal, c.parts);
    if (missing.missing > 0) {
      const std::string lacking = missing_text(missing, c.parts);
      check(!c.join, "infer", "{} tiles are not finished yet; run their parts first: {}", missing.missing, lacking);
      console.result(
          fmt::format("part {}/{} is done; {} tiles are missing: {}", c.own_part, c.parts, missing.missing, lacking));
      return 0;
    }
    if (c.join) verify_tiles(*s.net, p, journal, files);
    if (c.parts > 1 && !c.part.empty() && !is_first_to_join(folder)) {
      console.result("all parts are done; another process joins them (if it was killed, use --join)");
      return 0;
    }
  }
  writer.finish();
  TileJournal::remove(folder);
  if (c.parts > 1)
    console.result(fmt::format("all {} parts are finished{}", c.parts, c.join ? ", and their tiles are correct" : ""));
  return 1;
}

/// Minimum of a number over all ranks. A collective call.
double least_of(World& world, double mine) {
  const Tensor least = Tensor::scalar(-mine, DType::f64);
  world.comm().all_reduce(least, ReduceOp::max).wait();
  return -least.item();
}

/// Throws for NaN and infinite voxels, which would spoil all results within the model's reach. Reads this part of the
/// volume in boxes as large as tiles. A collective call.
void check_finite(World& world, const InferenceSubject& s, const Extents& tile, Index part, Index parts) {
  const VoxelType& type = s.volume.type();
  if (type.is_integer()) return;
  const TileGrid grid(s.whole, tile, {1, 1, 1});
  const auto [first, end] = even_share(grid.size(), static_cast<int>(parts), static_cast<int>(part));
  double count = 0, least = INFINITY;  // least: first voxel in row-major order
  const Shape& all = s.volume.shape();
  for (Index i = first + world.rank(); i < end; i += world.size()) {
    const Box box = in_file(grid.box(i), s.whole.rank() - 2);
    each_not_finite(s.volume.read(box, type.size > 4 ? DType::f64 : DType::f32), [&](Index at) {
      Index place[4];
      for (int axis = 4; axis-- > 0; at /= box.size[axis]) place[axis] = box.at[axis] + at % box.size[axis];
      ++count;
      least = std::min(least,
                       static_cast<double>(((place[0] * all[1] + place[1]) * all[2] + place[2]) * all[3] + place[3]));
    });
  }
  const Tensor sum = Tensor::scalar(count, DType::f64);
  world.comm().all_reduce(sum).wait();
  least = least_of(world, least);
  if (sum.item() == 0) return;
  Shape place = all;
  auto at = static_cast<Index>(least);
  for (int axis = 4; axis-- > 0; at /= all[axis]) place[axis] = at % all[axis];
  fail(ErrorKind::data, "infer",
       "{}: voxels that are NaN or infinite: {:.0f}, the first at {} of [depth, height, width, channels]; give finite "
       "numbers (numpy.nan_to_num() replaces others)",
       s.volume.path(), sum.item(), place);
}

/// Computes and writes this rank's part.
int infer_with(World& world, const std::vector<Axis>& mesh, const InferenceSubject& s, const InferCommand& c,
               const std::vector<InferencePlan>& plans, double memory, const PlanRates& rates,
               std::optional<Signals>& signals) {
  const int ranks = ranks_of(mesh);
  check(
      world.size() == ranks, "infer", "{} processes were started, but the mesh {} has {} ranks; start that many",
      world.size(), [&] { return c.mesh.empty() ? std::string("of none") : c.mesh; }, ranks);
  Console console(!world.main(), "auto", 10);
  if (world.main()) print_plans(s, plans, memory, rates, console);
  if (c.plan) return 0;
  InferencePlan plan = plans.front();
  const Index part = c.part.empty() ? 0 : c.own_part - 1, parts = c.part.empty() ? 1 : c.parts;
  if (!c.join) check_finite(world, s, plan.tile, part, parts);
  const std::string folder = c.out + ".tiles";
  // Before the journal: if the disk has no room for the result, no journal is left.
  const auto writer = std::make_shared<VolumeWriter>(c.out, file_options(s, c));
  if (plan.way != InferenceWay::mesh) {  // another part may have started first
    const Json there = TileJournal::begin(folder, about(s, c, plan));
    plan = plan_under_way(there, s, c, plan.division, memory, {});
  }
  InferenceFiles opened;
  const auto open = [&](World&) { return opened = files_of(s, c, writer); };
  const InferenceRun run{.journal = plan.way == InferenceWay::mesh ? "" : folder,
                         .volume = c.out + ".partial",
                         .features = folder + "/features",
                         .writer = fmt::format("part-{}-of-{}", c.own_part, c.parts),
                         .part = part,
                         .parts = parts,
                         .progress =
                             [&](const InferenceProgress& p) {
                               const double left =
                                   p.seconds / static_cast<double>(p.done) * static_cast<double>(p.all - p.done);
                               console.progress("infer", p.done, p.all, seconds_text(left) + " left");
                             },
                         .stop = [&] { return c.join || stop_asked(signals); }};
  const auto begin = std::chrono::steady_clock::now();
  const InferenceResult result = infer(world, mesh, *s.net, plan, open, run);
  console.finish();
  if (!world.main()) return 0;
  if (result.stopped && !c.join) {
    console.result("stopped; the same command continues with the missing tiles");
    return preempted_status;
  }
  if (join(s, c, plan, run, opened, *writer, console) == 1)
    tell(s, c, plan, result, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), console);
  console.check_results();
  return 0;
}

}  // namespace

void add_options(CLI::App& command, InferCommand& c) {
  command.add_option("run", c.run, "run directory, for its model, newest weights and scale of voxels")
      ->type_name("RUN");
  command.add_option("--mean", c.mean, "the model sees (voxel - mean) / std (default: the run's, or 0)")
      ->type_name("X");
  command
      .add_option("--std", c.std,
                  "divisor of voxels; 0: the largest value of 8- and 16-bit integers, and 1 for floats (default: the "
                  "run's, or 0)")
      ->type_name("X");
  command.add_option("--model", c.model, "without a run: model, for example msd (default) or unet3d")
      ->type_name("MODEL");
  command.add_option("--weights", c.weights, "safetensors file")->type_name("FILE");
  command
      .add_option("--volume", c.volume,
                  "volume: .npy, raw numbers with a .json, TIFF or Zarr; a 2-D model is applied to each slice")
      ->type_name("FILE");
  command.add_option("--out", c.out, "file to write, .npy or .raw")->type_name("FILE");
  command.add_option("--mesh", c.mesh, "ranks along the axes of the volume, d=4,h=2 (default: one rank)")
      ->type_name("MESH");
  command.add_option("--tile", c.tile, "extents of a tile of the result, 64 or 16,64,64 (default: auto)")
      ->type_name("N");
  command.add_option("--way", c.way, "whole, tiles or mesh (default: auto, the fastest that fits)")->type_name("WAY");
  command.add_option("--memory", c.memory, "memory of a rank for tensors, 4GiB (default: free memory)")
      ->type_name("BYTES");
  command.add_option("--result", c.result, "result: logits (default), labels or probabilities")->type_name("WHAT");
  command.add_option("--dtype", c.dtype, "element type: f32 (default) or f64")->type_name("TYPE");
  command.add_option("--dilations", c.dilations, "msd: dilations of the layers in turn (default: 1 to 10)")
      ->type_name("N,N,...");
  command.add_option("--part", c.part, "job array: compute part K of N parts of the tiles, 3/8")->type_name("K/N");
  command.add_flag("--join", c.join, "compute nothing; check the tiles of all parts, and name the result");
  command.add_flag("--plan", c.plan, "print the expected time and memory, and exit");
  command.add_flag("--measure", c.measure, "with --plan: measure operations per second on this machine");
  command.add_option("--cluster", c.cluster, "with --plan: simulate every rank and message of the mesh on a cluster")
      ->type_name("FILE");
}

/// Parses "3/8" to 3 and 8.
static void read_part(InferCommand& c) {
  if (c.part.empty()) return;
  const auto slash = c.part.find('/');
  if (slash == std::string::npos)
    throw OptionError(fmt::format("--part is '{:.40}', expected K/N, for example 3/8", c.part));
  c.parts = numbers_of("--part", c.part.substr(slash + 1), 1)[0];
  c.own_part = numbers_of("--part", c.part.substr(0, slash), 1)[0];
  if (c.own_part > c.parts)
    throw OptionError(fmt::format("--part is {}, expected 1/{} to {}/{}", c.part, c.parts, c.parts, c.parts));
}

int infer_command(int argc, char** argv, InferCommand c) {
  complete_from_run(c);
  check_options(c);
  const std::vector<Axis> mesh = c.mesh.empty() ? std::vector<Axis>{} : parse_mesh(c.mesh);
  const int ranks = ranks_of(mesh);
  read_part(c);
  if (Console console(false, "auto", 10); !c.out.empty() && !c.plan && finished_by_another(c.out, console)) return 0;
  const InferenceSubject s = inference_subject(c);
  const int axes = s.whole.rank() - 2;
  InferenceLimits limits{.memory = memory_of(c, ranks), .way = c.way, .one_pass = c.parts > 1};
  if (c.tile != "auto") {
    const std::vector<Index> given = numbers_of("--tile", c.tile, static_cast<std::size_t>(axes));
    check(std::ssize(given) == 1 || std::ssize(given) == axes, "infer",
          "--tile {} has {} numbers for {} axes; give one number, or one per axis", c.tile, given.size(), axes);
    for (std::size_t i = 0; i < static_cast<std::size_t>(axes); ++i)
      limits.tile[i] = std::min(given[given.size() > 1 ? i : 0], s.net->output()[static_cast<int>(i) + 1]);
  }
  if (c.parts > 1 && c.way == "auto") limits.way = "tiles";
  const std::string folder = c.out + ".tiles";
  const Json there = c.out.empty() ? parse_json("") : TileJournal::about(folder);
  check(!c.join || there.is_object(), ErrorKind::file, "infer",
        "{} is missing, where parts record their tiles; start the parts first", folder);
  const Division division = division_of(mesh, axes, nullptr);
  const PlanRates rates = rates_for(s, c, mesh);
  const auto planned = [&](double memory) {
    InferenceLimits within = limits;
    within.memory = memory;
    std::vector<InferencePlan> plans = plan_inference(*s.net, mesh, within, rates.rates);
    if (rates.simulated) sort_by(plans, rates);
    return plans;
  };
  std::vector<InferencePlan> plans;
  if (there.is_object()) {
    plans = {plan_under_way(there, s, c, division, limits.memory, limits)};
    const Index parts = there.value("parts", Index{1});
    check(c.part.empty() || parts == c.parts, "infer",
          "{} is of {} part{}, but --part is {}; use the same number of parts", folder, parts, parts == 1 ? "" : "s",
          c.part);
    c.parts = parts;
  } else {
    plans = planned(limits.memory);
  }
  std::optional<Signals> signals;  // the ways without tiles cannot continue later, so a signal stops them at once
  if (plans.front().way == InferenceWay::tiles) signals.emplace();
  return World::run(argc, argv, ranks, [&](World& world) {
    const double least = least_of(world, limits.memory);  // processes on several hosts must choose the same plan
    const bool again = least < limits.memory && !there.is_object();
    return infer_with(world, mesh, s, c, again ? planned(least) : plans, least, rates, signals);
  });
}

}  // namespace trireme
