#include "framework/io/checkpoint_manifest.h"

#include <limits>

#include "framework/io/json.h"

namespace trireme::detail {
namespace {

constexpr char manifest_op[] = "checkpoint", manifest_file[] = "/manifest.json";
constexpr std::size_t most_manifest_bytes = std::size_t{16} << 20;
constexpr std::array<const char*, file_kinds> stems{"model", "optimizer", "rank"};

/// The manifest's text: its own CRC covers all its other members.
std::string render(Json manifest) {
  manifest.erase("crc32");
  std::string text = json_text(manifest);
  manifest["crc32"] = crc32(std::as_bytes(std::span(text)));
  return json_text(manifest, NotUtf8::fails, 2) + "\n";
}

TrainState state_of(const Json& manifest) {
  TrainState s;
  s.step = manifest.at("step");
  s.epoch = manifest.at("epoch");
  s.batch = manifest.at("batch");
  s.seed = manifest.at("seed");
  if (manifest.contains("samples")) s.samples = manifest.at("samples").get<std::int64_t>();
  s.partition = manifest.value("partition", "");
  s.norm_rows = manifest.value("norm_rows", "");
  s.program = manifest.value("program", "");
  s.config = manifest.at("config");
  for (auto& [name, value] : manifest.at("metrics").items())  // JSON has no NaN: it was written as null
    s.metrics[name] = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  return s;
}

/// Any change of its text is found.
Json parse(const std::string& path) {
  std::string text = read_text(path, most_manifest_bytes);
  Json manifest = parse_json(text, 8);
  check(manifest.is_object() && render(manifest) == text, ErrorKind::data, manifest_op, "{} is damaged", path);
  const bool known = manifest.at("version") == 1 || manifest.at("version") == 2;
  check(manifest.at("format") == "trireme checkpoint" && known, ErrorKind::data, manifest_op,
        "{} is of version {}, this program reads versions 1 and 2", path,
        [&] { return json_text(manifest.at("version")); });
  return manifest;
}

}  // namespace

Json describe(const Parameters& p, const Optimizer& o, const TrainState& s) {
  Json manifest{{"format", "trireme checkpoint"},
                {"version", 1},
                {"step", s.step},
                {"epoch", s.epoch},
                {"batch", s.batch},
                {"seed", s.seed},
                {"config", s.config},
                {"config_crc32", crc32(std::as_bytes(std::span(s.config)))},
                {"metrics", s.metrics},
                {"parameters", p.count()},
                {"dtype", name_of(p.dtype())},
                {"optimizer", o.name()},
                {"optimizer_steps", o.steps()}};
  if (s.samples) manifest["samples"] = *s.samples;
  if (!s.partition.empty()) manifest["partition"] = s.partition;
  if (!s.norm_rows.empty()) manifest["norm_rows"] = s.norm_rows;
  if (!s.program.empty()) manifest["program"] = s.program;
  return manifest;
}

std::string file_name(CheckpointFile kind, std::size_t number, std::size_t files) {
  if (files == 1 && kind != local_file) return fmt::format("{}.safetensors", stems[kind]);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stems[kind], number, files);
}
std::string index_name(CheckpointFile kind) { return fmt::format("{}.safetensors.index.json", stems[kind]); }

Manifest read_manifest(const std::string& directory, int rank, int ranks) {
  const std::string path = directory + manifest_file;
  try {
    const Json manifest = parse(path);
    Manifest about{state_of(manifest), manifest.at("optimizer"), manifest.at("optimizer_steps"), {}, {}};
    about.layout = manifest.value("layout", "");
    int turn = 0;
    for (const auto& [name, file] : manifest.at("files").items()) {
      check(name.find('/') == name.npos, ErrorKind::data, manifest_op, "{}: '{}' is no file of its folder", path, name);
      if (turn++ % ranks == rank) verify_file(directory, {name, file.at("bytes"), file.at("crc32")});
      for (std::size_t kind = 0; kind < file_kinds; ++kind)
        if (name.starts_with(stems[kind]) && name.ends_with(".safetensors"))
          about.files[kind].push_back(directory + "/" + name);
    }
    return about;
  } catch (const Json::exception& e) { fail(ErrorKind::data, manifest_op, "{} is not a manifest: {}", path, e.what()); }
}

void write_manifest(const std::string& directory, const std::vector<ShardFile>& files, Json manifest,
                    const std::string& layout) {
  for (const ShardFile& f : files) manifest["files"][f.name] = {{"bytes", f.bytes}, {"crc32", f.crc}};
  if (files.size() > 2) manifest["version"] = 2;  // more than model.safetensors and optimizer.safetensors
  if (!layout.empty()) manifest["layout"] = layout;
  std::string text;
  try {
    text = render(std::move(manifest));
  } catch (const Json::exception&) { fail(manifest_op, "the configuration or a metric's name is not UTF-8"); }
  check(text.size() <= most_manifest_bytes, manifest_op,
        "the configuration makes a manifest of {} bytes, at most {} are allowed", text.size(),
        std::size_t{most_manifest_bytes});
  write_new_file(directory + manifest_file, text);
  sync_directory(directory);
}

}  // namespace trireme::detail
