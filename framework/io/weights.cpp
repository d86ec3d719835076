#include "framework/io/weights.h"

#include <map>
#include <set>

#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "framework/tensor/shard_spec.h"
#include "kernels/contracts/move.h"

namespace trireme {
namespace {

/// Not to be told from the shapes: O,3,3,3 is the same in both layouts.
bool swapped(const StoredTensor& t) { return t.layout == FileLayout::filter && t.tensor.rank() > 2; }

/// Shape in the file, of the whole tensor: O,spatial...,I -> O,I,spatial....
Shape file_shape(const StoredTensor& t) {
  const Shape& s = t.tensor.shard_spec() ? t.tensor.shard_spec()->global_shape() : t.tensor.shape();
  if (!swapped(t)) return s;
  Shape f{s[0], s[-1]};
  for (int i = 1; i + 1 < s.rank(); ++i) f.push_back(s[i]);
  return f;
}

/// to[o][j][i] = from[o][i][j], converting: a filter's two inner groups of axes change places.
template <class To, class From>
void swap_inner(To* to, const From* from, Index outer, Index rows, Index columns) {
  for (Index o = 0; o < outer; ++o, to += rows * columns, from += rows * columns)
    for (Index j = 0; j < columns; ++j)
      for (Index i = 0; i < rows; ++i) to[j * rows + i] = static_cast<To>(from[i * columns + j]);
}

Tensor to_file_layout(const StoredTensor& t) {
  Tensor from = (is_part(t.tensor) ? t.tensor.shard_spec()->gather(t.tensor) : t.tensor).to(cpu());
  Tensor to = Tensor::empty(file_shape(t), from.dtype());
  const Shape& s = from.shape();
  Index outer = 1, rows = 1, columns = s.numel();
  if (swapped(t)) outer = s[0], rows = s.product(1, s.rank() - 1), columns = s[-1];
  dispatch_any(from.dtype(), [&]<class T>(T) { swap_inner(to.data<T>(), from.data<T>(), outer, rows, columns); });
  return to;
}

void from_file_layout(const StoredTensor& t, const Tensor& from) {
  if (is_part(t.tensor)) {  // all of it, and then this holder's part
    const Tensor whole = Tensor::empty(t.tensor.shard_spec()->global_shape(), t.tensor.dtype());
    from_file_layout({t.name, whole, t.layout}, from);
    Shape origin = t.tensor.shape();
    for (int i = 0; i < origin.rank(); ++i) origin[i] = 0;
    return launch<kernel::CopyBox>(t.tensor, origin, whole.to(t.tensor.device()), t.tensor.shard_spec()->offset(),
                                   t.tensor.shape());
  }
  const Shape& s = t.tensor.shape();
  Tensor to = t.tensor.device().kind == DeviceKind::cpu ? t.tensor : Tensor::empty(s, t.tensor.dtype());
  Index outer = 1, rows = 1, columns = s.numel();
  if (swapped(t)) outer = s[0], rows = s[-1], columns = s.product(1, s.rank() - 1);
  dispatch_any(to.dtype(), [&]<class To>(To) {
    dispatch_any(from.dtype(),
                 [&]<class From>(From) { swap_inner(to.data<To>(), from.data<From>(), outer, rows, columns); });
  });
  if (to.id() != t.tensor.id()) t.tensor.copy_from(to);
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

/// The file's tensors by the names the run knows: as they are, or without "module." (DataParallel) and "model."
/// (Lightning).
std::map<std::string, const Tensor*> by_known_name(const std::set<std::string>& known, const SafetensorsFile& file,
                                                   const std::string& source) {
  std::map<std::string, const Tensor*> found;
  for (auto& [name, tensor] : file.tensors) {
    std::string_view rest = name;
    for (std::string_view prefix : {"module.", "model."})
      if (!known.contains(std::string(rest)) && rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
    std::string key(known.contains(std::string(rest)) ? rest : std::string_view(name));
    check(found.try_emplace(key, &tensor).second, "weights", "{} holds \"{}\" twice, with and without a prefix", source,
          key);
  }
  return found;
}

Tensor part(const FlatBuffer& flat, const Parameters::Entry& e) {
  return flat.rows(e.slice.begin, e.slice.end).reshape(e.tensor.shape()).with_shard_spec(e.tensor.impl()->shard_spec);
}

}  // namespace

std::vector<StoredTensor> stored_weights(const Parameters& p) {
  std::vector<StoredTensor> all;
  for (auto& e : p.entries()) all.push_back({e.name, e.tensor, e.layout});
  for (auto& b : p.buffers()) all.push_back({b.name, b.tensor, b.layout});
  return all;
}

std::vector<StoredTensor> stored_state(const Parameters& p, const std::string& name, const FlatBuffer& flat) {
  NoGrad no_grad;
  check(flat.numel() == p.size(), "weights", "state \"{}\" has {} elements, the parameters have {}", name, flat.numel(),
        p.size());
  std::vector<StoredTensor> all;
  for (auto& e : p.entries()) all.push_back({name + "/" + e.name, part(flat, e), e.layout});
  return all;
}

std::vector<NamedTensor> export_tensors(const std::vector<StoredTensor>& stored) {
  NoGrad no_grad;
  std::vector<NamedTensor> all;
  for (auto& t : stored) all.push_back({t.name, to_file_layout(t)});
  return all;
}

Import::Import(std::vector<StoredTensor> targets, const SafetensorsFile& file, const std::string& source) {
  std::set<std::string> known;
  for (auto& t : targets) known.insert(t.name);
  auto found = by_known_name(known, file, source);
  std::vector<std::string> missing, unexpected, different;
  for (auto& t : targets) {
    auto at = found.find(t.name);
    if (at == found.end()) {
      if (!is_counter(t.name)) missing.push_back(t.name);
      continue;
    }
    const Tensor& from = *at->second;
    bool convertible = from.dtype() == t.tensor.dtype() || (is_float(from.dtype()) && is_float(t.tensor.dtype()));
    if (from.shape() != file_shape(t))
      different.push_back(fmt::format("{} {} (the model has {})", t.name, from.shape(), file_shape(t)));
    else if (!convertible)
      different.push_back(fmt::format("{} of type {} (the model has {})", t.name, from.dtype(), t.tensor.dtype()));
    pairs_.emplace_back(std::move(t), &from);
  }
  for (auto& [name, tensor] : found)
    if (!known.contains(name) && !is_counter(name)) unexpected.push_back(name);
  check(
      missing.empty() && unexpected.empty() && different.empty(), "weights", "{} does not fit the model{}{}{}", source,
      [&] { return listing("missing", missing); }, [&] { return listing("unexpected", unexpected); },
      [&] { return listing("of another shape or type", different); });
}

void Import::apply() const {
  for (auto& [to, from] : pairs_) from_file_layout(to, *from);
}

std::vector<NamedTensor> export_weights(const Parameters& p, std::optional<std::int64_t> batches) {
  std::vector<NamedTensor> all = export_tensors(stored_weights(p));
  if (!batches) return all;
  constexpr std::string_view mean = "running_mean";
  for (const auto& b : p.buffers())
    if (b.name.ends_with(mean)) {
      const Tensor count = Tensor::empty({}, DType::i64);
      *count.data<std::int64_t>() = *batches;
      all.push_back({b.name.substr(0, b.name.size() - mean.size()) + counter, count});
    }
  return all;
}

void import_weights(Parameters& p, const SafetensorsFile& file, const std::string& source) {
  Import(stored_weights(p), file, source).apply();
}

std::vector<std::string> import_but_head(Parameters& p, const SafetensorsFile& file, const std::string& source) {
  const std::string& last = p.entries().back().name;
  const std::string head = last.substr(0, last.rfind('.') + 1);
  std::vector<StoredTensor> targets = stored_weights(p);
  std::set<std::string> known;
  for (auto& t : targets) known.insert(t.name);
  const auto found = by_known_name(known, file, source);
  std::vector<std::string> left;
  std::set<const void*> unused;
  std::erase_if(targets, [&](const StoredTensor& t) {
    const auto at = found.find(t.name);
    if (!t.name.starts_with(head) || at == found.end() || at->second->shape() == file_shape(t)) return false;
    left.push_back(t.name), unused.insert(at->second);
    return true;
  });
  SafetensorsFile rest;
  for (auto& t : file.tensors)
    if (!unused.contains(&t.tensor)) rest.tensors.push_back(t);
  Import(std::move(targets), rest, source).apply();
  return left;
}

}  // namespace trireme
