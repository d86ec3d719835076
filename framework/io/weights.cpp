#include "framework/io/weights.h"

#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/ops/moves.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

/// Whether axes are permuted in files. The shapes do not show it: O,3,3,3 is the same in both.
bool swapped(FileLayout layout, int rank) {
  return (layout == FileLayout::filter && rank > 2) || (layout == FileLayout::transposed && rank == 2);
}
/// The axis in memory that is the first in files.
int first_axis(FileLayout layout, int rank) { return layout == FileLayout::transposed && rank == 2 ? 1 : 0; }

Shape file_shape(const StoredTensor& t) { return in_file(t.whole, t.layout); }

/// Of a file's order of axes, O,I,spatial..., memory's: O,spatial...,I.
Shape in_memory(const Shape& f, FileLayout layout) {
  if (!swapped(layout, f.rank())) return f;
  if (layout == FileLayout::transposed) return {f[1], f[0]};
  Shape s{f[0]};
  for (int i = 2; i < f.rank(); ++i) s.push_back(f[i]);
  s.push_back(f[1]);
  return s;
}

StoredTensor stored(const std::string& name, const Tensor& t, FileLayout layout) {
  if (const ShardSpec* spec = t.shard_spec()) return {name, t, layout, spec->global_shape(), spec->boxes()[0].at};
  return {name, t, layout, t.shape(), from(t.shape(), t.shape())};
}

/// A tensor of a rank, box by box: of a fused weight it has rows of each part.
std::vector<StoredTensor> by_box(StoredTensor t) {
  const ShardSpec* spec = t.tensor.shard_spec();
  const std::vector<Box> boxes = spec ? spec->boxes() : std::vector<Box>{};
  if (boxes.size() < 2) return {std::move(t)};
  std::vector<StoredTensor> all;
  Index row = 0;
  for (const Box& box : boxes) {
    const Index end = row + box.size[0];
    all.push_back({t.name, plain(t.tensor).view_rows(row, end), t.layout, t.whole, box.at});
    row = end;
  }
  return all;
}

/// A tensor in memory as [outer, rows, columns], which files store as [outer, columns, rows].
struct Groups {
  Groups(const Shape& s, FileLayout layout) : columns(s.numel()) {
    if (!swapped(layout, s.rank())) return;
    if (layout == FileLayout::filter) outer = s[0];
    columns = s[-1];
    rows = s.product(layout == FileLayout::filter ? 1 : 0, s.rank() - 1);
  }
  Index outer = 1, rows = 1, columns;
};
/// to[o][j][i] = from[o][i][j], converting: two groups of axes change places.
template <class To, class From>
void swap_inner(To* to, const From* from, Index outer, Index rows, Index columns) {
  for (Index o = 0; o < outer; ++o, to += rows * columns, from += rows * columns)
    for (Index j = 0; j < columns; ++j)
      for (Index i = 0; i < rows; ++i) to[j * rows + i] = static_cast<To>(from[i * columns + j]);
}

Tensor to_file_layout(const StoredTensor& t) {
  const Tensor values = (is_part(t.tensor) ? gathered(t.tensor) : t.tensor).to(cpu());
  const Shape& s = values.shape();
  const Tensor to = Tensor::empty(in_file(s, t.layout), values.dtype());
  const Groups g(s, t.layout);
  dispatch_any(values.dtype(),
               [&]<class T>(T) { swap_inner(to.data<T>(), values.data<T>(), g.outer, g.rows, g.columns); });
  return to;
}

/// values: of a box of the whole tensor, as the file has them.
void from_file_layout(const StoredTensor& t, const Box& box, const Tensor& values) {
  const Box mine{t.at, t.tensor.shape()};
  const bool direct = box == mine && t.tensor.device().kind == DeviceKind::cpu;
  const Tensor to = direct ? t.tensor : Tensor::empty(box.size, t.tensor.dtype());
  const Groups g(box.size, t.layout);
  dispatch_any(to.dtype(), [&]<class To>(To) {
    dispatch_any(values.dtype(),
                 [&]<class From>(From) { swap_inner(to.data<To>(), values.data<From>(), g.outer, g.columns, g.rows); });
  });
  if (direct) return;
  if (box == mine) return t.tensor.copy_from(to);
  const Box both = intersect(mine, box);
  launch<kernel::CopyBox>(t.tensor, from(both.at, mine.at), to.to(t.tensor.device()), from(both.at, box.at), both.size);
}

/// At most eight lines under a heading; nothing for an empty list.
std::string listing(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return "";
  std::string text = fmt::format("; {} {}: ", names.size(), what);
  for (std::size_t i = 0; i < names.size() && i < most; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > most ? text + fmt::format(" and {} more", names.size() - most) : text;
}

constexpr const char* counter = "num_batches_tracked";
bool is_counter(std::string_view name) { return name.ends_with(counter); }
/// Whether a tensor of a file may be ignored: a constant in Hugging Face's older files (attention masks, positions), or
/// part of BERT's next-sentence head.
bool is_left_out(std::string_view name, const Shape& shape) {
  return (name.ends_with(".attn.bias") && shape.rank() == 4) || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".position_ids") ||
         name.starts_with("bert.pooler.dense.") || name.starts_with("cls.seq_relationship.");
}

/// The run's name for a file's tensor: unchanged, without "module." (DataParallel) and "model." (Lightning), or with
/// the prefix that Hugging Face's files of models without a head omit. If no name matches, the file's own name.
std::string known_name(std::string_view name, const std::set<std::string>& known) {
  std::string rest(name);
  for (const std::string prefix : {"module.", "model."})
    if (!known.contains(rest) && rest.starts_with(prefix)) rest.erase(0, prefix.size());
  for (const std::string prefix : {"", "transformer.", "model.", "bert.", "vit."})
    if (known.contains(prefix + rest)) return prefix + rest;
  for (const auto& [old, now] : {std::pair<std::string, const char*>{".gamma", ".weight"}, {".beta", ".bias"}})
    if (rest.ends_with(old) && known.contains(rest.substr(0, rest.size() - old.size()) + now))
      return rest.substr(0, rest.size() - old.size()) + now;
  return std::string(name);
}

/// The pieces; those of experts, which files have apart, as boxes of the tensor that the run has for all of them.
std::vector<SafetensorsPiece> with_lists(const std::vector<StoredTensor>& targets, std::vector<SafetensorsPiece> pieces,
                                         const std::string& source) {
  std::set<std::string> known;
  for (auto& t : targets)
    if (t.layout == FileLayout::listed) known.insert(t.name);
  std::map<std::string, std::set<Index>> found;  // indexes by name
  for (std::size_t i = 0; i < pieces.size() && !known.empty(); ++i) {
    SafetensorsPiece& p = pieces[i];
    for (std::size_t from = 0, end; from < p.name.size(); from = end + 1) {
      end = std::min(p.name.find('.', from), p.name.size());
      const std::string number = p.name.substr(from, end - from);
      if (number.empty() || number.size() > 6 || number.find_first_not_of("0123456789") != number.npos) continue;
      const std::string name = p.name.substr(0, from) + "*" + p.name.substr(end);
      if (!known.contains(known_name(name, known))) continue;
      const Index index = std::stoll(number);
      found[name].insert(index);
      const auto longer = [](const Shape& s, Index first) {
        Shape all{first};
        for (const Index n : s) all.push_back(n);
        return all;
      };
      p.rows = [rows = p.rows, size = p.box.size, shape = longer(p.box.size, 1)](Index begin, Index end) {
        return rows(0, size.rank() > 0 ? size[0] : 1).reshape(shape).rows(begin, end);
      };
      p.name = name;
      p.shape = longer(p.shape, 0);
      p.box = {longer(p.box.at, index), longer(p.box.size, 1)};
      break;
    }
  }
  for (SafetensorsPiece& p : pieces) {
    const auto at = found.find(p.name);
    if (at == found.end()) continue;
    p.shape[0] = std::ssize(at->second);
    check(*at->second.rbegin() + 1 == p.shape[0], ErrorKind::data, "weights",
          "{} has {} tensors \"{}\" with numbers up to {}, expected all from 0 on: use the whole file", source,
          p.shape[0], p.name, *at->second.rbegin());
  }
  return pieces;
}

/// A tensor of the file: its name there, and its boxes.
struct Found {
  std::string name;
  std::vector<const SafetensorsPiece*> boxes = {};
};

/// The file's tensors by their names in the run.
std::map<std::string, Found> by_known_name(const std::vector<StoredTensor>& targets,
                                           const std::vector<SafetensorsPiece>& pieces, const std::string& source) {
  std::set<std::string> known;
  for (auto& t : targets) known.insert(t.name);
  std::map<std::string, Found> found;
  std::set<std::string_view> entries;
  for (auto& p : pieces) {
    const std::string key = known_name(p.name, known);
    Found& here = found.try_emplace(key, Found{p.name}).first->second;
    check(here.name == p.name && entries.insert(p.entry).second, ErrorKind::data, "weights",
          "{} holds \"{}\" twice, with and without a prefix", source, key);
    here.boxes.push_back(&p);
  }
  return found;
}

bool same_numbers(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype() &&
      std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(a.view().bytes())) == 0)
    return true;
  return a.to_vector() == b.to_vector();
}

/// The pieces with each shared tensor under the name of its entry; PyTorch's files have it under all names.
std::vector<SafetensorsPiece> tied(const Parameters& p, std::vector<SafetensorsPiece> pieces,
                                   const std::string& source) {
  const auto ties = p.ties();
  std::set<std::string> known;
  for (const auto& e : p.entries()) known.insert(e.name);
  for (const auto& b : p.buffers()) known.insert(b.name);
  for (const auto& [other, entered] : ties) known.insert(other);
  for (const auto& [other, entered] : ties) {
    const auto is_named = [&](const std::string& name) {
      return [&](const SafetensorsPiece& t) { return known_name(t.name, known) == name; };
    };
    const auto named = [&](const std::string& name) {
      std::vector<SafetensorsPiece> boxes;
      std::ranges::copy_if(pieces, std::back_inserter(boxes), is_named(name));
      return boxes;
    };
    const auto a = named(entered), b = named(other);
    if (b.empty()) continue;
    if (a.empty()) {
      for (SafetensorsPiece& t : pieces)
        if (is_named(other)(t)) t.name = entered;
      continue;
    }
    const auto whole = [](const std::vector<SafetensorsPiece>& boxes) {
      return assembled(boxes).tensors.front().tensor;
    };
    check(a[0].shape == b[0].shape && same_numbers(whole(a), whole(b)), ErrorKind::data, "weights",
          "{}: '{}' and '{}' differ, but the model has one tensor for both: build the model with two (arch.tied 0)",
          source, a[0].name, b[0].name);
    std::erase_if(pieces, is_named(other));
  }
  return pieces;
}

/// Appends the boxes of an entry that are in `which`, from a flat buffer that has the slices `kept`, packed.
void add_boxes(std::vector<StoredTensor>& to, const std::string& name, const Parameters::Entry& e,
               const FlatBuffer& flat, const std::vector<Slice>& kept, const std::vector<Slice>& which) {
  const StoredTensor all = stored(name, e.tensor, e.layout);
  const std::size_t before = to.size();
  const ShardSpec* spec = e.tensor.shard_spec();
  Slice own{e.slice.begin, e.slice.begin};
  for (const Box& part : spec ? spec->boxes() : std::vector<Box>{{all.at, all.whole}}) {
    own = {own.end, own.end + part.size.numel()};
    for (const Slice& w : which) {
      Index position = 0;
      for (const Slice& k : kept) {
        const Slice here{std::max({w.begin, k.begin, own.begin}), std::min({w.end, k.end, own.end})};
        Index at = position + here.begin - k.begin;
        position += k.size();
        if (here.size() <= 0) continue;
        for (const Box& b : boxes_of(part.size, here.begin - own.begin, here.end - own.begin)) {
          const Index n = b.size.numel();
          Shape place = part.at;
          for (int i = 0; i < place.rank(); ++i) place[i] += b.at[i];
          to.push_back({name, flat.rows(at, at + n).reshape(b.size), e.layout, all.whole, place});
          at += n;
        }
      }
    }
  }
  if (to.size() > before) return;
  to.push_back(all);
  if (e.tensor.numel() > 0) to.back().tensor = Tensor::empty({0}, e.tensor.dtype());
}

}  // namespace

Shape in_file(const Shape& s, FileLayout layout) {
  if (!swapped(layout, s.rank())) return s;
  if (layout == FileLayout::transposed) return {s[1], s[0]};
  Shape f{s[0], s[-1]};
  for (int i = 1; i + 1 < s.rank(); ++i) f.push_back(s[i]);
  return f;
}

std::vector<StoredTensor> stored_weights(const Parameters& p) {
  std::vector<StoredTensor> all;
  for (auto& e : p.entries()) all.push_back(stored(e.name, e.tensor, e.layout));
  for (auto& b : p.buffers()) all.push_back(stored(b.name, b.tensor, b.layout));
  return all;
}

std::vector<StoredTensor> stored_weights(const Parameters& p, const std::vector<Slice>& which,
                                         const std::vector<bool>& buffers) {
  const NoGrad no_grad;
  std::vector<StoredTensor> all;
  for (auto& e : p.entries()) add_boxes(all, e.name, e, p.values(), {{0, p.size()}}, which);
  for (std::size_t i = 0; i < p.buffers().size(); ++i) {
    const Parameters::Buffer& b = p.buffers()[i];
    const StoredTensor whole = stored(b.name, b.tensor, b.layout);
    if (buffers.at(i)) {
      for (StoredTensor& part : by_box(whole)) {
        part.tensor = plain(part.tensor);
        all.push_back(std::move(part));
      }
    } else {
      all.push_back(whole);
      all.back().tensor = Tensor::empty({0}, b.tensor.dtype());
    }
  }
  return all;
}

std::vector<StoredTensor> stored_state(const Parameters& p, const std::string& name, const FlatBuffer& flat) {
  const NoGrad no_grad;
  check(flat.numel() == p.size(), ErrorKind::data, "weights", "state \"{}\" has {} elements, the parameters have {}",
        name, flat.numel(), p.size());
  std::vector<StoredTensor> all;
  for (auto& e : p.entries())
    all.push_back(stored(
        name + "/" + e.name,
        flat.rows(e.slice.begin, e.slice.end).reshape(e.tensor.shape()).with_shard_spec(e.tensor.impl()->shard_spec),
        e.layout));
  return all;
}

std::vector<StoredTensor> stored_state(const Parameters& p, const std::string& name, const FlatBuffer& flat,
                                       const std::vector<Slice>& kept, const std::vector<Slice>& which) {
  const NoGrad no_grad;
  std::vector<StoredTensor> all;
  for (auto& e : p.entries()) add_boxes(all, name + "/" + e.name, e, flat, kept, which);
  return all;
}

std::vector<NamedTensor> export_tensors(const std::vector<StoredTensor>& stored) {
  NoGrad no_grad;
  std::vector<NamedTensor> all;
  for (auto& t : stored) {
    const Tensor values = to_file_layout(t);
    if (t.layout != FileLayout::listed) {
      all.push_back({t.name, values});
      continue;
    }
    const std::size_t star = t.name.find('*');
    for (Index i = 0; i < values.dim(0); ++i)
      all.push_back({t.name.substr(0, star) + std::to_string(i) + t.name.substr(star + 1),
                     values.rows(i, i + 1).reshape(values.shape().without(0))});
  }
  return all;
}

TensorToWrite to_write(const StoredTensor& t) {
  const NoGrad no_grad;
  if (is_part(t.tensor)) return NamedTensor{t.name, to_file_layout(t)};
  const Tensor values = t.tensor.detach().to(cpu());
  const Shape& s = values.shape();
  if (!swapped(t.layout, s.rank())) return NamedTensor{t.name, values};
  StoredTensor host = t;
  host.tensor = values;
  return {{t.name, values.reshape(in_file(s, t.layout))}, [host] { return to_file_layout(host); }};
}

Import::Import(std::vector<StoredTensor> targets, const std::vector<SafetensorsPiece>& given,
               const std::string& source) {
  const std::vector<SafetensorsPiece> pieces = with_lists(targets, given, source);
  const auto found = by_known_name(targets, pieces, source);
  std::set<std::string_view> known;
  std::vector<std::string> missing, unexpected, different;
  for (auto& t : targets) {
    if (!known.insert(t.name).second) continue;  // another box of the same
    const auto at = found.find(t.name);
    if (at == found.end()) {
      if (!is_counter(t.name)) missing.push_back(t.name);
      continue;
    }
    const SafetensorsPiece& its = *at->second.boxes.front();
    const bool convertible = its.dtype == t.tensor.dtype() || (is_float(its.dtype) && is_float(t.tensor.dtype()));
    if (its.shape != file_shape(t))
      different.push_back(fmt::format("{} {} (the model has {})", t.name, its.shape, file_shape(t)));
    else if (!convertible)
      different.push_back(fmt::format("{} of type {} (the model has {})", t.name, its.dtype, t.tensor.dtype()));
  }
  for (auto& [name, of_file] : found)
    if (!known.contains(name) && !is_counter(name) && !is_left_out(name, of_file.boxes.front()->shape))
      unexpected.push_back(name);
  check(
      missing.empty() && unexpected.empty() && different.empty(), ErrorKind::data, "weights",
      "{} does not fit the model{}{}{}{}", source, [&] { return listing("missing", missing); },
      [&] { return listing("unexpected", unexpected); }, [&] { return listing("of another shape or type", different); },
      different.empty() ? "" : ": build the model with the file's sizes");
  std::vector<StoredTensor> parts;
  for (StoredTensor& t : targets)
    for (StoredTensor& part : by_box(std::move(t))) parts.push_back(std::move(part));
  for (const StoredTensor& t : parts) {
    const auto at = found.find(t.name);
    if (t.tensor.numel() == 0 || at == found.end()) continue;
    for (const SafetensorsPiece* p : at->second.boxes) {
      Box box{in_memory(p->box.at, t.layout), in_memory(p->box.size, t.layout)};
      const Box both = intersect(box, {t.at, t.tensor.shape()});
      if (both.empty()) continue;
      const int rank = box.size.rank(), axis = first_axis(t.layout, rank);
      const Index begin = rank > 0 ? both.at[axis] - box.at[axis] : 0, n = rank > 0 ? both.size[axis] : 1;
      if (rank > 0) {
        box.at[axis] += begin;
        box.size[axis] = n;
      }
      if (is_float(p->dtype))
        copies_.push_back({t, box, [rows = p->rows, begin, n] { return rows(begin, begin + n); }});
      else  // a number may not fit
        copies_.push_back({t, box, [values = p->rows(begin, begin + n)] { return values; }});
    }
  }
}

void Import::apply() const {
  for (auto& [to, box, values] : copies_) from_file_layout(to, box, values());
}

std::vector<NamedTensor> batch_counters(const std::vector<StoredTensor>& tensors, std::int64_t batches) {
  constexpr std::string_view mean = "running_mean";
  std::vector<NamedTensor> all;
  for (const auto& t : tensors) {
    const bool begins = is_part(t.tensor) || (t.tensor.numel() > 0 && t.at == from(t.at, t.at));
    if (!t.name.ends_with(mean) || !begins) continue;
    const Tensor count = Tensor::empty({}, DType::i64);
    *count.data<std::int64_t>() = batches;
    all.push_back({t.name.substr(0, t.name.size() - mean.size()) + counter, count});
  }
  return all;
}

std::vector<NamedTensor> export_weights(const Parameters& p, std::optional<std::int64_t> batches) {
  const auto tensors = stored_weights(p);
  std::vector<NamedTensor> all = export_tensors(tensors);
  if (batches)
    for (auto& count : batch_counters(tensors, *batches)) all.push_back(std::move(count));
  return all;
}

void import_weights(Parameters& p, const SafetensorsFile& file, const std::string& source) {
  Import(stored_weights(p), tied(p, pieces_of(file), source), source).apply();
}
void import_weights(Parameters& p, const std::string& path) {
  Import(stored_weights(p), tied(p, open_safetensors(path), path), path).apply();
}

std::vector<std::string> import_but_head(Parameters& p, const SafetensorsFile& file, const std::string& source) {
  const auto [checked, left] = Import::but_head(p, stored_weights(p), pieces_of(file), source);
  checked.apply();
  return left;
}

std::pair<Import, std::vector<std::string>> Import::but_head(const Parameters& p, std::vector<StoredTensor> targets,
                                                             std::vector<SafetensorsPiece> pieces,
                                                             const std::string& source) {
  // Names have no prefix if the model is a single layer.
  const std::string& last = p.entries().back().name;
  const std::string head = last.substr(0, last.rfind('.') + 1);
  const auto is_of_head = [&](const std::string& name) {
    return head.empty() ? name.find('.') == name.npos : name.starts_with(head);
  };
  pieces = tied(p, std::move(pieces), source);
  const auto found = by_known_name(targets, pieces, source);
  std::vector<std::string> left;
  std::set<std::string> unused;
  std::erase_if(targets, [&](const StoredTensor& t) {
    const auto at = found.find(t.name);
    if (!is_of_head(t.name) || at == found.end()) return false;
    const Shape mine = file_shape(t), &its = at->second.boxes.front()->shape;
    if (std::ranges::is_permutation(its, mine))
      return false;  // equal, or with its axes in another order: no new classes
    if (unused.insert(at->second.name).second) left.push_back(t.name);
    return true;
  });
  std::erase_if(pieces, [&](const SafetensorsPiece& piece) { return unused.contains(piece.name); });
  return {Import(std::move(targets), pieces, source), left};
}

}  // namespace trireme
