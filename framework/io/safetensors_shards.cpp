#include "framework/io/safetensors_shards.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "framework/io/element_type.h"
#include "framework/io/json.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr char shards_op[] = "safetensors";
constexpr std::size_t most_index_bytes = std::size_t{1} << 28;

Shape origin(const Shape& like) {
  Shape s = like;
  for (int i = 0; i < s.rank(); ++i) s[i] = 0;
  return s;
}

/// Rows [begin, end) of an entry, as an entry.
SafetensorsEntry rows_of(SafetensorsEntry e, Index begin, Index end) {
  if (e.shape.empty() || e.shape[0] == 0) return e;
  const std::size_t each = (e.end - e.begin) / static_cast<std::size_t>(e.shape[0]);
  e.end = e.begin + each * static_cast<std::size_t>(end);
  e.begin += each * static_cast<std::size_t>(begin);
  e.shape[0] = end - begin;
  return e;
}

/// "path: "entry"", for messages.
std::string source(const std::string& path, const std::string& entry) { return fmt::format("{}: \"{}\"", path, entry); }
auto source(const SafetensorsPiece& p) {
  return [&p] { return source(p.path, p.entry); };
}

/// No name that a file gives may lead out of its folder.
void check_plain(const std::string& where, const std::string& name) {
  const bool plain = !name.empty() && name[0] != '.' && name.find('/') == name.npos;
  check(plain, ErrorKind::data, shards_op, "{}: '{}' is no file of its folder", where, name);
}

Shape shape_in(const Json& list) {
  const auto extents = list.get<std::vector<Index>>();
  return Shape(extents);
}

void add_pieces(std::vector<SafetensorsPiece>& to, const std::string& path) {
  const SafetensorsHeader header = SafetensorsReader(path).header();
  const auto text = header.metadata.find("slices");
  const Json slices = text == header.metadata.end() ? Json::object() : parse_json(text->second, 8);
  check(slices.is_object(), ErrorKind::data, shards_op, "{}: the metadata \"slices\" is no JSON object", path);
  for (const SafetensorsEntry& e : header.entries) {
    const ElementType* type = find_element_type(e.dtype);
    const Shape size(e.shape);
    SafetensorsPiece p{e.name, size, {origin(size), size}, type ? type->becomes : DType::u8};
    p.path = path;
    p.entry = e.name;
    if (const auto slice = slices.find(e.name); slice != slices.end()) {
      p.name = slice->at("tensor");
      p.shape = shape_in(slice->at("shape"));
      p.box.at = shape_in(slice->at("offset"));
      bool inside = p.shape.rank() == size.rank() && p.box.at.rank() == size.rank();
      for (int i = 0; inside && i < size.rank(); ++i)
        inside = p.box.at[i] >= 0 && p.box.at[i] <= p.shape[i] && size[i] <= p.shape[i] - p.box.at[i];
      check(inside, ErrorKind::data, shards_op, "{} {} is not inside the tensor {} at {}", source(p), size, p.shape,
            p.box.at);
      checked_bytes(shards_op, p.shape, p.dtype);
    }
    // Opened again for each read: the files of a thousand ranks cannot all be open.
    p.rows = [path, e, at = header.data_offset](Index begin, Index end) {
      return load_entry(FileReader(path), at, rows_of(e, begin, end));
    };
    to.push_back(std::move(p));
  }
}

/// Throws Error unless each element is in one box. Boxes are compared only with those that have rows in common.
void check_complete(std::vector<const SafetensorsPiece*> boxes) {
  const auto begin = [](const SafetensorsPiece* p) { return p->box.at.rank() > 0 ? p->box.at[0] : 0; };
  const auto end = [&](const SafetensorsPiece* p) { return p->box.at.rank() > 0 ? begin(p) + p->box.size[0] : 1; };
  const SafetensorsPiece& first = *boxes.front();
  Index found = 0;
  for (const SafetensorsPiece* p : boxes) {
    check(p->shape == first.shape && p->dtype == first.dtype, ErrorKind::data, shards_op,
          "{} belongs to a tensor {} {}, but {} to a tensor {} {}", source(*p), p->shape, p->dtype, source(first),
          first.shape, first.dtype);
    check(p == &first || p->shape.numel() > 0, ErrorKind::data, shards_op, "{} and {} hold the same elements",
          source(*p), source(first));
    found += p->box.size.numel();
  }
  std::ranges::stable_sort(boxes, {}, begin);
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t j = i + 1; j < boxes.size() && begin(boxes[j]) < end(boxes[i]); ++j)
      check(intersect(boxes[i]->box, boxes[j]->box).empty(), ErrorKind::data, shards_op,
            "{} and {} hold the same elements", source(*boxes[i]), source(*boxes[j]));
  check(found == first.shape.numel(), ErrorKind::data, shards_op, "{} of {} elements of \"{}\" are in no file",
        first.shape.numel() - found, first.shape.numel(), first.name);
}

std::map<std::string, std::vector<const SafetensorsPiece*>> by_name(const std::vector<SafetensorsPiece>& pieces) {
  std::map<std::string, std::vector<const SafetensorsPiece*>> found;
  for (const SafetensorsPiece& p : pieces) found[p.name].push_back(&p);
  return found;
}

Tensor whole_of(const std::vector<const SafetensorsPiece*>& boxes) {
  const SafetensorsPiece& first = *boxes.front();
  const auto all = [](const SafetensorsPiece& p) { return p.rows(0, p.box.size.rank() > 0 ? p.box.size[0] : 1); };
  if (boxes.size() == 1) return all(first);
  const Tensor whole = Tensor::empty(first.shape, first.dtype);
  for (const SafetensorsPiece* p : boxes)
    launch<kernel::CopyBox>(whole, p->box.at, all(*p), origin(p->box.at), p->box.size);
  return whole;
}

}  // namespace

SafetensorsFile assembled(const std::vector<SafetensorsPiece>& pieces) {
  SafetensorsFile file;
  for (const auto& [name, boxes] : by_name(pieces)) file.tensors.push_back({name, whole_of(boxes)});
  return file;
}

std::vector<SafetensorsPiece> pieces_of(const SafetensorsFile& file) {
  std::vector<SafetensorsPiece> pieces;
  for (const auto& [name, tensor] : file.tensors)
    pieces.push_back({name,
                      tensor.shape(),
                      {origin(tensor.shape()), tensor.shape()},
                      tensor.dtype(),
                      "",
                      name,
                      [t = tensor](Index begin, Index end) { return t.rank() > 0 ? t.view_rows(begin, end) : t; }});
  return pieces;
}

std::vector<SafetensorsPiece> open_shards(const std::vector<std::string>& paths) {
  std::vector<SafetensorsPiece> pieces;
  for (const std::string& path : paths) try {
      add_pieces(pieces, path);
    } catch (const Json::exception& e) {
      fail(ErrorKind::data, shards_op, "{}: the metadata \"slices\" is malformed: {}", path, e.what());
    }
  for (const auto& [name, boxes] : by_name(pieces)) check_complete(boxes);
  return pieces;
}

void SafetensorsShard::add(TensorToWrite box, const Shape& shape, const Shape& at) {
  const Shape size = box.tensor.shape();
  if (size != shape) {
    std::vector<std::string> ranges;
    for (int i = 0; i < at.rank(); ++i) ranges.push_back(fmt::format("{}:{}", at[i], at[i] + size[i]));
    const std::string name = std::exchange(box.name, fmt::format("{}[{}]", box.name, fmt::join(ranges, ", ")));
    boxes.push_back({name, shape, {at, size}, box.tensor.dtype(), "", box.name});
  }
  tensors.push_back(std::move(box));
}

ShardFile write_shard(const std::string& folder, const std::string& name, const SafetensorsShard& shard) {
  std::map<std::string, std::string> metadata{{"format", "pt"}};  // as PyTorch's loaders expect
  Json slices;
  for (const SafetensorsPiece& p : shard.boxes)
    slices[p.entry] = {{"tensor", p.name},
                       {"shape", std::vector(p.shape.begin(), p.shape.end())},
                       {"offset", std::vector(p.box.at.begin(), p.box.at.end())}};
  if (!slices.empty()) metadata["slices"] = json_text(slices, NotUtf8::replaced);  // such names are refused below
  const SafetensorsWriter writer(shard.tensors, metadata);
  FileWriter file(folder + "/" + name, writer.size());
  writer.write([&](auto bytes) { file.write(bytes); });
  file.finish();
  return {name, file.size(), file.crc()};
}

std::string shard_index(const std::vector<SafetensorsPiece>& pieces, const std::vector<ShardFile>& files) {
  Json index{{"metadata", {{"total_size", std::size_t{0}}}}};
  std::size_t total = 0;
  for (const SafetensorsPiece& p : pieces) {
    total += checked_bytes(shards_op, p.box.size, p.dtype);
    index["weight_map"][p.entry] = fs::path(p.path).filename().string();
  }
  index["metadata"]["total_size"] = total;
  for (const ShardFile& f : files) index["metadata"]["files"][f.name] = {{"bytes", f.bytes}, {"crc32", f.crc}};
  return json_text(index, NotUtf8::fails, 2) + "\n";
}

void verify_file(const std::string& folder, const ShardFile& expected) {
  const std::string& name = expected.name;
  check_plain(folder, name);
  const std::string path = folder + "/" + name;
  const std::size_t bytes = FileReader(path).size();
  check(bytes == expected.bytes, ErrorKind::data, shards_op, "{} has {} bytes, expected are {}", path, bytes,
        expected.bytes);
  check(crc32_of_file(path) == expected.crc, ErrorKind::data, shards_op,
        "{} is damaged, or of another checkpoint: its CRC differs", path);
}

namespace {
std::vector<SafetensorsPiece> open_indexed(const std::string& index) try {
  const Json about = parse_json(read_text(index, most_index_bytes), 8);
  check(about.is_object() && about.contains("weight_map") && about["weight_map"].is_object(), ErrorKind::data,
        shards_op, "{} is no index of safetensors files: it has no weight_map", index);
  const std::string folder = fs::path(index).parent_path().empty() ? "." : fs::path(index).parent_path().string();
  std::set<std::string> paths, wanted;
  for (const auto& [name, file] : about["weight_map"].items()) {
    const std::string text = file;
    check_plain(index, text);
    const std::string path = folder + "/" + text;
    paths.insert(path);
    wanted.insert(source(path, name));
  }
  if (const auto files = about.value("/metadata/files"_json_pointer, Json::object()); files.is_object())
    for (const auto& [name, what] : files.items()) verify_file(folder, {name, what.at("bytes"), what.at("crc32")});
  std::vector<SafetensorsPiece> pieces = open_shards({paths.begin(), paths.end()});
  for (const SafetensorsPiece& p : pieces) wanted.erase(source(p.path, p.entry));
  check(wanted.empty(), ErrorKind::data, shards_op, "{}: there is no {}", index, [&] { return *wanted.begin(); });
  return pieces;
} catch (const Json::exception& e) { fail(ErrorKind::data, shards_op, "{} is malformed: {}", index, e.what()); }
}  // namespace

std::vector<SafetensorsPiece> open_safetensors(const std::string& path) {
  return path.ends_with(".json") ? open_indexed(path) : open_shards({path});
}

SafetensorsFile read_indexed(const std::string& index) { return assembled(open_indexed(index)); }

}  // namespace trireme
