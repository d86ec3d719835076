#include "framework/ops/place.h"

#include <algorithm>
#include <map>
#include <optional>

#include "framework/ops/help.h"

namespace trireme::ops {
namespace {

using Dim = Factors::Dim;

/// The words of an operand: "n..", "k", "(g i)".
std::vector<std::string_view> words_of(std::string_view operand) {
  std::vector<std::string_view> words;
  for (std::size_t at = operand.find_first_not_of(' '); at < operand.size(); at = operand.find_first_not_of(' ', at)) {
    const std::size_t end =
        std::min(operand.size(), operand[at] == '(' ? operand.find(')', at) + 1 : operand.find(' ', at));
    words.push_back(operand.substr(at, end - at));
    at = end;
  }
  return words;
}

/// Pieces of text between separators.
std::vector<std::string_view> pieces_of(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(separator, at);
    pieces.push_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) return pieces;
    at = end + separator.size();
  }
}

/// Reads a rule, with the numbers of dimensions that ".." stands for.
class Reader {
 public:
  explicit Reader(const OpRule& rule) : rule_(rule) {}

  /// rank: of the tensor; -1: as many as are known.
  std::vector<Dim> dims(std::string_view text, int rank) {
    const auto words = words_of(text);
    int open = -1, known = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i].ends_with(".."))
        ++known;
      else if (const auto at = lengths_.find(words[i][0]); at != lengths_.end())
        known += at->second;
      else
        open = static_cast<int>(i);
    }
    check(rank < 0 || (open < 0 ? known == rank : known <= rank), rule_.op, "an operand has {} axes, expected '{}'",
          rank, text);
    if (open >= 0) lengths_[words[static_cast<std::size_t>(open)][0]] = std::max(0, rank - known);
    std::vector<Dim> all;
    for (const std::string_view word : words) {
      if (word.ends_with("..")) {
        for (int i = 0; i < lengths_[word[0]]; ++i) all.push_back({number(word[0], i)});
        continue;
      }
      Dim dim;
      for (const char c : word)
        if (c != '(' && c != ')' && c != ' ') dim.push_back(number(c, 0));
      all.push_back(std::move(dim));
    }
    return all;
  }

  int number(char name, int index) {
    const auto [at, first] = numbers_.try_emplace({name, index}, static_cast<int>(factors.size()));
    if (first)
      factors.push_back({.extent = -1,
                         .whole = rule_.whole.find(name) != std::string_view::npos,
                         .sums = rule_.sums.find(name) != std::string_view::npos,
                         .window = rule_.windows.find(name) != std::string_view::npos});
    return at->second;
  }

  std::vector<Factors::Factor> factors;

 private:
  const OpRule& rule_;
  std::map<char, int> lengths_;
  std::map<std::pair<char, int>, int> numbers_;
};

}  // namespace

Factors factors_of(const OpRule& rule, const std::vector<Tensor>& operands, const Shape& result,
                   std::initializer_list<std::pair<char, Index>> sizes) {
  Reader reader(rule);
  Factors f{.late = rule.late, .stays = rule.stays};
  const auto sides = pieces_of(rule.dims, "->");
  const auto texts = pieces_of(sides[0], ",");
  for (const auto& [name, size] : sizes) reader.factors[static_cast<std::size_t>(reader.number(name, 0))].extent = size;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    f.in.emplace_back();
    if (!operands[i]) continue;
    const Shape& shape = global_shape(operands[i]);
    f.in.back() = reader.dims(texts[i], shape.rank());
    for (int d = 0; d < shape.rank(); ++d) {
      const Dim& dim = f.in.back()[static_cast<std::size_t>(d)];
      Index known = 1;
      Index* open = nullptr;
      for (const int n : dim) {
        Index& extent = reader.factors[static_cast<std::size_t>(n)].extent;
        if (extent < 0)
          open = &extent;
        else
          known *= extent;
      }
      if (open && known > 0) *open = shape[d] / known;
      check(open ? known > 0 && shape[d] % known == 0 : known == shape[d], rule.op,
            "operand {} is {}: its axis {} does not fit the other operands", i, shape, d);
    }
  }
  f.out = reader.dims(sides[1], -1);
  f.factors = std::move(reader.factors);
  f.result = result;
  if (result.rank() == 0)
    for (const Dim& dim : f.out) {
      Index extent = 1;
      for (const int n : dim) extent *= f.factors[static_cast<std::size_t>(n)].extent;
      f.result.push_back(extent);
    }
  return f;
}

Factors elementwise(const char* op, const std::vector<Tensor>& operands) {
  Factors f;
  for (const Tensor& t : operands)
    if (t) f.result = f.result.rank() == 0 && f.in.empty() ? global_shape(t) : broadcast(op, f.result, global_shape(t));
  for (int d = 0; d < f.result.rank(); ++d) {
    f.factors.push_back({.extent = f.result[d]});
    f.out.push_back({d});
  }
  for (const Tensor& t : operands) {
    f.in.emplace_back();
    if (!t) continue;
    const Shape& shape = global_shape(t);
    const int before = f.result.rank() - shape.rank();
    for (int d = 0; d < shape.rank(); ++d)
      f.in.back().push_back(shape[d] == f.result[d + before] ? Dim{d + before} : Dim{});
  }
  return f;
}

Factors same_dims(const std::vector<Tensor>& operands, const std::vector<int>& whole) {
  Factors f{.result = global_shape(operands[0])};
  for (int d = 0; d < f.result.rank(); ++d) {
    f.factors.push_back({.extent = f.result[d], .whole = std::ranges::count(whole, d) > 0});
    f.out.push_back({d});
  }
  f.in.assign(operands.size(), f.out);
  return f;
}

namespace {

/// Which factor each mesh axis divides, and how the ranks share it.
class Choice {
 public:
  Choice(const Factors& f, const std::vector<Tensor>& operands, const RankMesh& mesh)
      : f_(f), mesh_(mesh), parts_(f.factors.size(), 1), shares_(f.shares) {
    shares_.resize(f.factors.size());
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      const int best = choose(axis, operands);
      factor.push_back(best);
      if (best < 0) continue;
      parts_[at(best)] *= mesh.size(axis);
    }
    keep_one_kind_of_shares();
  }

  std::vector<int> factor;  ///< of each axis; -1: ranks along it do the same work

  /// The placements of a tensor with these dimensions.
  Placements placements(const std::vector<Dim>& dims) const {
    Placements p;
    for (int axis = 0; axis < mesh_.axes(); ++axis)
      for (std::size_t d = 0; d < dims.size(); ++d)
        if (factor[at(axis)] >= 0 && !dims[d].empty() && dims[d][0] == factor[at(axis)])
          p.dims[at(axis)] = static_cast<std::int8_t>(d);
    return p;
  }
  /// How a tensor with these dimensions lies.
  ShardSpec::Ptr spec(const ShardSpec::Mesh& mesh, const Shape& global, const std::vector<Dim>& dims) const {
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].empty()) continue;
      const int n = dims[d][0];
      if (std::ranges::find(factor, n) == factor.end()) continue;
      Shares shares = shares_[at(n)].times(f_.factors[at(n)].extent, inner(dims[d]));
      if (!shares.empty())
        return ShardSpec::make(mesh, global, placements(dims), std::move(shares), static_cast<int>(d));
    }
    return ShardSpec::make(mesh, global, placements(dims));
  }
  /// Axes whose ranks do different work.
  AxisMask axes() const {
    AxisMask all = 0;
    for (std::size_t axis = 0; axis < factor.size(); ++axis)
      if (factor[axis] >= 0) all |= 1u << axis;
    return all;
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  Index inner(const Dim& dim) const {
    Index size = 1;
    for (std::size_t i = 1; i < dim.size(); ++i) size *= f_.factors[at(dim[i])].extent;
    return size;
  }
  bool leads(const std::vector<Dim>& dims, int n) const {
    return std::ranges::any_of(dims, [n](const Dim& dim) { return !dim.empty() && dim[0] == n; });
  }
  bool is_inner(const std::vector<Dim>& dims, int n) const {
    return std::ranges::any_of(dims, [n](const Dim& dim) { return std::ranges::count(dim, n) > 0 && dim[0] != n; });
  }
  Index units(int n) const {
    const Shares& s = shares_[at(n)];
    Index least = f_.factors[at(n)].extent;
    for (const Shares::Range& r : s.ranges) least = std::min(least, r.extent / r.unit);
    return least;
  }
  /// Whether the op's dimensions allow that a mesh axis divides the factor.
  bool may_divide(int n) const {
    const Factors::Factor& factor = f_.factors[at(n)];
    if (factor.whole || (!factor.sums && !leads(f_.out, n)) || is_inner(f_.out, n)) return false;
    return std::ranges::none_of(f_.in, [&](const auto& dims) { return is_inner(dims, n); });
  }
  /// Whether each of so many ranks would have a share of the factor, in the result, too.
  bool suffices(int n, Index parts) const {
    const Shares& s = shares_[at(n)];
    if (!s.borders.empty()) return std::ssize(s.borders) - 1 == parts;
    if (units(n) < parts) return false;
    for (std::size_t d = 0; d < f_.out.size(); ++d)
      if (f_.factors[at(n)].window && !f_.out[d].empty() && f_.out[d][0] == n && f_.result[static_cast<int>(d)] < parts)
        return false;
    return true;
  }

  /// Whether operands that are never moved are divided along the axis where they have the factor.
  bool stays(int n, int axis, const std::vector<Tensor>& operands) const {
    for (std::size_t i = at(f_.stays); i < operands.size(); ++i) {
      if (!operands[i] || !leads(f_.in[i], n)) continue;
      const ShardSpec* spec = operands[i].shard_spec();
      const int d = spec ? spec->placements()[axis] : Placements::copy;
      if (d < 0 || f_.in[i][at(d)].empty() || f_.in[i][at(d)][0] != n) return false;
    }
    return true;
  }

  int choose(int axis, const std::vector<Tensor>& operands) {
    int best = -1;
    std::pair<bool, Index> most{false, -1};  // of a weight; elements
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const ShardSpec* spec = operands[i] ? operands[i].shard_spec() : nullptr;
      if (!spec || spec->placements()[axis] == Placements::copy) continue;
      const int d = spec->placements()[axis];
      const Dim& dim = f_.in[i][at(d)];
      if (dim.empty()) continue;
      const int n = dim[0];
      const std::pair rank{spec->weight(), spec->global_shape().numel()};
      if (rank <= most || !may_divide(n) || !stays(n, axis, operands)) continue;
      const Index parts = parts_[at(n)] * mesh_.size(axis), size = inner(dim);
      if (f_.shares.empty() && parts_[at(n)] == 1) {
        const Shares own = spec->shares(d);
        shares_[at(n)] = own.fits(size) ? own.divided_by(size) : Shares{};
      }
      if (!suffices(n, parts)) shares_[at(n)] = {};
      if (!suffices(n, parts)) continue;
      best = n;
      most = rank;
    }
    return best;
  }

  /// A ShardSpec has one dimension without even shares at most, and cells of a halo are found in even shares alone.
  void keep_one_kind_of_shares() {
    bool window = false;
    for (const int n : factor) window = window || (n >= 0 && f_.factors[at(n)].window);
    std::optional<int> kept;
    for (const int n : factor) {
      if (n < 0 || shares_[at(n)].empty() || n == kept) continue;
      if (window && !shares_[at(n)].ranges.empty())
        shares_[at(n)] = {};
      else if (kept)
        shares_[at(n)] = {};
      else
        kept = n;
    }
  }

  const Factors& f_;
  const RankMesh& mesh_;
  std::vector<Index> parts_;
  std::vector<Shares> shares_;
};

thread_local PlaceWatch* watching = nullptr;

/// The gradient of w reaches the plan's sum over `again` once: of ranks that find the same gradient, one brings it.
Tensor counted_once(const Tensor& w, const RankMesh& mesh, AxisMask again) {
  for (int i = 0; i < mesh.axes(); ++i)
    if ((again >> i & 1) && mesh.index(i) > 0 && is_recorded_or_traced({&w}))
      return record("counted", w.detach(), {w}, [](const Tensor&, Gradients& g) {
        write_grad(g, 0, [](const Tensor& dw) { launch<kernel::Fill>(dw, 0.0); });
      });
  return w;
}

}  // namespace

PlaceWatch::PlaceWatch() {
  check(!watching, "place", "this thread has a PlaceWatch already: end it first");
  watching = this;
}
PlaceWatch::~PlaceWatch() { watching = nullptr; }

Tensor placed_weight(const Tensor& w, const ShardSpec& to, AxisMask axes) {
  if (!w) return w;
  if (watching) watching->used(w, axes);
  const ShardSpec& has = *w.shard_spec();
  const RankMesh& mesh = has.mesh();
  // What this rank cuts out of its copy, for work of its own: the plan sums such gradients.
  const AxisMask cuts = to.placements().axes() & has.summed();
  const ShardSpec::Ptr before =
      to.with(to.global_shape(), to.placements().without(cuts),
              to.shared_dim() < 0 ? Shares{} : to.shares(to.shared_dim()), std::max(0, to.shared_dim()));
  Tensor in = counted_once(plain(relayout(w, *before)), mesh, has.summed() & ~axes);
  // Copies whose gradients the plan does not sum: each rank needs the whole.
  in = replicated(in, has.shared_mesh(), axes & ~has.summed() & ~to.placements().axes());
  if (cuts == 0) return in;
  const std::vector<Box> held = before->boxes(), mine = to.boxes();
  struct Piece {
    Shape from, to;  // positions of the two blocks in the whole
    Box box;
  };
  std::vector<Piece> pieces;
  Index found = 0;
  for (std::size_t i = 0; i < held.size(); ++i)
    for (std::size_t k = 0; k < mine.size(); ++k)
      if (const Box box = intersect(held[i], mine[k]); !box.empty()) {
        pieces.push_back({before->origins(held)[i], to.origins(mine)[k], box});
        found += box.size.numel();
      }
  check(found == to.block().numel(), "split", "a share of {} lies outside of this rank's part", to.global_shape());
  Tensor y = Tensor::empty(to.block(), in.dtype(), in.device());
  for (const Piece& p : pieces) copy_box(y, p.to, in, p.from, p.box);
  if (!needs_record("cut", y, {&in})) return y;
  return record("cut", std::move(y), {in}, [pieces = std::move(pieces)](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dw) {
      launch<kernel::Fill>(dw, 0.0);
      for (const Piece& p : pieces) copy_box(dw, p.from, dy, p.to, p.box);
    });
  });
}

void decides(const Factors& f, const std::vector<Tensor>& operands) {
  if (watching) watching->decide(f, operands);
}

Placed place(const char* op, const Factors& f, const std::vector<Tensor>& operands) {
  ShardSpec::Mesh mesh;
  for (const Tensor& t : operands)
    if (t && t.shard_spec() && !mesh) mesh = t.shard_spec()->shared_mesh();
  check(mesh != nullptr, op, "no operand is divided over ranks");
  decides(f, operands);
  const Choice choice(f, operands, *mesh);
  ShardSpec::Ptr out = choice.spec(mesh, f.result, f.out);
  const AxisMask sum = choice.axes() & ~out->placements().axes();
  std::vector<Tensor> blocks;
  std::vector<ShardSpec::Ptr> specs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Tensor& t = operands[i];
    const bool late = static_cast<int>(i) >= f.late && sum != 0;
    specs.push_back(nullptr);
    blocks.push_back(late ? t : Tensor());
    if (!t || late) continue;
    const ShardSpec::Ptr to = choice.spec(mesh, global_shape(t), f.in[i]);
    specs.back() = to;
    const ShardSpec* from = t.shard_spec();
    AxisMask divided = from ? from->placements().axes() : 0;
    if (divided != 0 && from->global_shape().rank() == 3) divided &= ~(from->over(1) & mesh->sequence());
    if (watching && divided != 0 && !from->weight() && to->placements().without(~divided) != from->placements())
      watching->gathers(from->global_shape().numel());
    if (from && from->weight())
      blocks.back() = placed_weight(t, *to, choice.axes());
    else
      blocks.back() = collected(t, *to, choice.axes() & ~to->placements().axes());
  }
  if (mesh->rows() >= 0)
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (const ShardSpec* to = specs[i].get(); to && blocks[i].rank() > 0 && !(to->over(0) >> mesh->rows() & 1) &&
                                                blocks[i].dim(0) == mesh->row_borders().back())
        blocks[i].impl()->batch = mesh->batch_of_all(blocks[i].impl()->batch);
  return {std::move(blocks), std::move(specs), std::move(out), sum};
}

Placed place(const OpRule& rule, const std::vector<Tensor>& operands, const Shape& result,
             std::initializer_list<std::pair<char, Index>> sizes) {
  return place(rule.op, factors_of(rule, operands, result, sizes), operands);
}

Tensor Placed::put(Tensor y) const {
  const RankMesh& mesh = out_->mesh();
  Shape global = out_->global_shape();
  for (int d = 0; d < y.rank() && y.rank() == global.rank(); ++d)
    if (out_->over(d) == 0) global[d] = y.dim(d);
  const int shared = std::max(0, out_->shared_dim());
  ShardSpec::Ptr spec =
      global == out_->global_shape() ? out_ : out_->with(global, out_->placements(), out_->shares(shared), shared);
  const AxisMask tokens = sum_ & mesh.sequence();
  if (tokens != 0 && spec->shared_dim() < 0 && y.rank() == 3 && spec->over(1) == 0 && y.dim(1) >= mesh.ranks(tokens)) {
    const ShardSpec::Ptr have = std::exchange(spec, spec->with(global, spec->placements().with(1, tokens)));
    y = scattered(summed(y, mesh, sum_ & ~tokens), *have, *spec);
  } else {
    y = summed(y, mesh, sum_);
  }
  // Where ranks start with rows of their own, a tensor without a ShardSpec would be taken for one of these rows.
  if (!spec->divides() && mesh.rows() < 0) return y;
  check(y.shape() == spec->block(), "split", "a block of {} was made where {} of {} belongs", y.shape(), spec->block(),
        global);
  return y.with_shard_spec(spec);
}

}  // namespace trireme::ops
