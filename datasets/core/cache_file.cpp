#include "datasets/core/cache_file.h"

#include <algorithm>
#include <cstring>

#include "datasets/core/loader.h"
#include "framework/io/json.h"

namespace trireme {
namespace {

constexpr std::string_view op = "cache", format = "trireme cache 1";

/// safetensors' type names are Trireme's in capitals.
std::string name_in_files(DType dtype) {
  std::string name(name_of(dtype));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return name;
}

/// The tensors of a sample or a batch, by their names in the file.
std::map<std::string, Tensor> by_name(const Sample& s) {
  std::map<std::string, Tensor> all;
  for (const auto& [name, t] : {std::pair<std::string, Tensor>("x", s.x), {"y", s.y}}) {
    if (!t) continue;
    all[name] = t.to(cpu());
    for (const auto& [field, other] : t.fields()) all[name + "." + field] = other.to(cpu());
  }
  return all;
}
std::span<const std::byte> bytes_of(const Tensor& t) {
  return {t.data<std::byte>(), static_cast<std::size_t>(t.view().bytes())};
}

/// Types and shapes of a sample's tensors.
using Layout = std::map<std::string, std::pair<DType, Shape>>;
Layout layout_of(const Sample& s) {
  Layout all;
  for (const auto& [name, t] : by_name(s)) all[name] = {t.dtype(), t.shape()};
  return all;
}
std::string in_words(const Layout& layout) {
  std::string text;
  for (const auto& [name, of] : layout)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", name, of.first, of.second);
  return text;
}

/// The file's tensors in order. Types with larger elements come first, so that all tensors are aligned. Among equal
/// types the larger tensor comes later: the last tensor is written sequentially, all others by random access.
std::vector<SafetensorsEntry> entries_of(const Layout& layout, Index size) {
  std::vector<std::pair<DType, SafetensorsEntry>> all;
  for (const auto& [name, of] : layout) {
    Shape shape{size};
    for (const Index extent : of.second) shape.push_back(extent);
    all.push_back(
        {of.first,
         {name, name_in_files(of.first), {shape.begin(), shape.end()}, 0, checked_bytes(op, shape, of.first)}});
  }
  std::ranges::stable_sort(all, {},
                           [](auto& e) { return std::pair(-static_cast<Index>(size_of(e.first)), e.second.end); });
  std::vector<SafetensorsEntry> entries;
  std::size_t end = 0;
  for (auto& [type, e] : all) {
    e.begin = end;
    e.end = end += e.end;
    entries.push_back(std::move(e));
  }
  return entries;
}
std::map<std::string, std::string> metadata_of(const Dataset& data) {
  return {{"format", std::string(format)},
          {"source", json_text(data->name(), NotUtf8::replaced)},
          {"fingerprint", data->fingerprint()}};
}

class CacheFile final : public TensorSource {
 public:
  CacheFile(Dataset data, Dataset rows) : data_(std::move(data)), rows_(std::move(rows)) {}
  std::string name() const override { return "cache of " + data_->name(); }
  Index size() const override { return rows_->size(); }
  Index classes() const override { return data_->classes(); }
  PixelScale scale() const override { return data_->scale(); }
  std::vector<std::string> class_names() const override { return data_->class_names(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  BadSamples bad() const override { return data_->bad(); }
  Sample sample(Index id, const AugmentKey&) const override {
    check_id(id);
    return sample_of(rows_, id);
  }
  Sample batch(std::span<const std::int64_t> ids, const AugmentKey&) const override {
    return rows_->tensors()->batch(ids);
  }

 private:
  Dataset data_, rows_;  // rows: the data set of the file's tensors
};

bool same_entries(std::vector<SafetensorsEntry> a, std::vector<SafetensorsEntry> b) {
  std::ranges::sort(a, {}, &SafetensorsEntry::name);
  std::ranges::sort(b, {}, &SafetensorsEntry::name);
  return std::ranges::equal(a, b, [](const SafetensorsEntry& e, const SafetensorsEntry& f) {
    return e.name == f.name && e.dtype == f.dtype && e.shape == f.shape && e.begin == f.begin;
  });
}
bool same_bytes(const Sample& a, const Sample& b) {
  const auto equal = [](const auto& s, const auto& t) {
    return s.first == t.first && std::ranges::equal(bytes_of(s.second), bytes_of(t.second));
  };
  return std::ranges::equal(by_name(a), by_name(b), equal);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  fail(ErrorKind::data, op, "{}: {}; delete the file to write it again, or name another file", path, why);
}
MappedSafetensors open_mapped(const std::string& path) try { return MappedSafetensors(path); } catch (const Error& e) {
  refuse(path, fmt::format("is damaged, or no cache of samples ({})", e.what()));
}

/// x or y of the file with its fields; undefined if it has none.
Tensor with_fields(const std::map<std::string, Tensor>& all, const std::string& name) {
  if (!all.contains(name)) return {};
  Tensor t = all.at(name);
  for (const auto& [other, field] : all)
    if (other.starts_with(name + ".")) t = t.with(other.substr(name.size() + 1), field);
  return t;
}

}  // namespace

void write_cache_file(const Dataset& data, const std::string& path) {
  const Sample first = sample_of(data, 0);
  check(bool(first.x), ErrorKind::data, op, "the samples of {} have no x", [&] { return data->name(); });
  const Layout layout = layout_of(first);
  const auto entries = entries_of(layout, data->size());
  const std::string header = encode_safetensors_header(entries, metadata_of(data));
  const Dataset alike = map_samples(data, [&](const Sample& s, Index id, const AugmentKey&) {
    const Layout other = layout_of(s);
    check(
        other == layout, ErrorKind::data, op,
        "sample {} of {} is {}, the first one {}: a file holds samples of one shape", id, [&] { return data->name(); },
        [&] { return in_words(other); }, [&] { return in_words(layout); });
    return s;
  });
  const SafetensorsEntry& last = entries.back();
  const Index bytes = static_cast<Index>(last.end) / data->size();  // per sample
  const Index batch = std::clamp<Index>((Index{8} << 20) / std::max<Index>(bytes, 1), 1, 256);
  replace_file(path, header.size() + last.end, [&](FileWriter& file) {
    file.write(std::as_bytes(std::span(header)));
    const std::vector<std::byte> room(std::min<std::size_t>(last.begin, std::size_t{1} << 20));
    for (std::size_t left = last.begin, n = 0; left > 0; left -= n)
      file.write(std::span(room).first(n = std::min(left, room.size())));
    std::size_t done = 0;  // samples written
    for (const Batch& b : Loader(alike, {.batch = batch, .workers = 2})) {
      const auto tensors = by_name({b.x, b.y});
      for (const SafetensorsEntry& e : entries) {
        const auto rows = bytes_of(tensors.at(e.name));
        if (&e == &last)
          file.write(rows);
        else
          file.overwrite(header.size() + e.begin + (e.end - e.begin) / static_cast<std::size_t>(data->size()) * done,
                         rows);
      }
      done += static_cast<std::size_t>(b.rows());
    }
  });
}

Dataset open_cache_file(Dataset data, const std::string& path) {
  const MappedSafetensors file = open_mapped(path);
  const std::map<std::string, std::string> expected = metadata_of(data);
  const auto check_member = [&](const std::string& key) {
    const auto at = file.header().metadata.find(key);
    const std::string found = at == file.header().metadata.end() ? "nothing" : at->second, &ours = expected.at(key);
    if (found != ours) refuse(path, fmt::format("its {} is {}, expected {}", key, found, ours));
  };
  check_member("format");
  check_member("source");
  const Index size = data->size();
  const Sample first = sample_of(data, 0);
  const Layout layout = layout_of(first);
  if (!same_entries(file.header().entries, entries_of(layout, size)))
    refuse(path, fmt::format("does not hold {} samples of {}", size, in_words(layout)));
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& e : file.header().entries) {
    const Tensor& t = tensors[e.name] = file.tensor(e, layout.at(e.name).first);
    if (t.dtype() == DType::boolean && std::ranges::any_of(bytes_of(t), [](std::byte b) { return b > std::byte{1}; }))
      refuse(path, "is damaged: a truth value is neither 0 nor 1");
  }
  auto rows = TensorDataset(with_fields(tensors, "x"), with_fields(tensors, "y"));
  for (const Index id : {Index{0}, size - 1})
    if (!same_bytes(sample_of(rows, id), id == 0 ? first : sample_of(data, id)))
      refuse(path, fmt::format("its sample {} is not that of {} now", id, data->name()));
  check_member("fingerprint");  // a change in other samples
  return std::make_unique<CacheFile>(std::move(data), std::move(rows));
}

}  // namespace trireme
