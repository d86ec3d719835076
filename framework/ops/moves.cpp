#include "framework/ops/moves.h"

#include <algorithm>
#include <array>
#include <memory>

#include "framework/autograd/node.h"
#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/contracts/move.h"
#include "kernels/core/named_range.h"

namespace trireme {
namespace {

std::vector<Tensor> packed(const Route& route, const Tensor& x, const Shape& origin) {
  const MemoryScope scope(MemoryKind::packed);
  std::vector<Tensor> sends;
  for (const auto& [peer, box] : route.sends) sends.push_back(cut(x, origin, box));
  return sends;
}

}  // namespace

Route route(std::span<const std::vector<Box>> have, std::span<const std::vector<Box>> want, int me) {
  Route r;
  const auto mine = static_cast<std::size_t>(me);
  const auto each = [](const std::vector<Box>& from, const std::vector<Box>& to, auto&& f) {
    for (std::size_t i = 0; i < from.size(); ++i)
      for (std::size_t k = 0; k < to.size(); ++k)
        if (const Box box = intersect(from[i], to[k]); !box.empty()) f(box, i, k);
  };
  for (std::size_t p = 0; p < have.size(); ++p) {
    if (p == mine) continue;
    const int peer = static_cast<int>(p);
    each(have[mine], want[p], [&](const Box& box, std::size_t i, std::size_t) {
      r.sends.push_back({peer, box});
      r.from.push_back(i);
    });
    each(have[p], want[mine], [&](const Box& box, std::size_t, std::size_t k) {
      r.recvs.push_back({peer, box});
      r.to.push_back(k);
    });
  }
  return r;
}

Route route(std::span<const Box> have, std::span<const Box> want, int me) {
  const auto lists = [](std::span<const Box> boxes) {
    std::vector<std::vector<Box>> all;
    for (const Box& box : boxes) all.push_back({box});
    return all;
  };
  return route(lists(have), lists(want), me);
}

Exchange::Exchange(const RankMesh& mesh, const RankMesh::Line& line, const Route& route, const Tensor& x,
                   const Shape& origin, MemoryKind use, const char* move)
    : Exchange(mesh, line, route, packed(route, x, origin), x.dtype(), x.device(), use, move) {}

Exchange::Exchange(const RankMesh& mesh, const RankMesh::Line& line, const Route& route,
                   const std::vector<Tensor>& sends, DType dtype, Device device, MemoryKind use, const char* move) {
  const NamedRange range(move);
  const MemoryScope scope(use);
  const auto rank = [&](const Route::Piece& piece) { return line.ranks[static_cast<std::size_t>(piece.peer)]; };
  for (const Route::Piece& piece : route.recvs) {
    Tensor values = Tensor::empty(piece.box.size, dtype, device);
    waits_.push_back(mesh.recv(values, rank(piece)));
    received_.push_back({piece.box, std::move(values)});
  }
  for (std::size_t i = 0; i < sends.size(); ++i) waits_.push_back(mesh.send(sends[i], rank(route.sends[i])));
}

const std::vector<Exchange::Received>& Exchange::wait() {
  for (const RankMesh::Wait& wait : waits_) wait();
  return received_;
}

Tensor cut(const Tensor& from, const Shape& origin, const Box& box) {
  const Tensor part = Tensor::empty(box.size, from.dtype(), from.device());
  copy_box(part, box.at, from, origin, box);
  return part;
}

void copy_box(const Tensor& to, const Shape& to_origin, const Tensor& values, const Shape& from_origin, const Box& box,
              bool add) {
  if (box.empty()) return;
  const Shape there = from(box.at, to_origin), here = from(box.at, from_origin);
  if (!add) return launch<kernel::CopyBox>(to, there, values, here, box.size);
  Shape zero = box.size;
  for (int i = 0; i < zero.rank(); ++i) zero[i] = 0;
  const Tensor sum = Tensor::empty(box.size, to.dtype(), to.device()), part = Tensor::like(sum);
  launch<kernel::CopyBox>(sum, zero, to, there, box.size);
  launch<kernel::CopyBox>(part, zero, values, here, box.size);
  add_into(sum, part);
  launch<kernel::CopyBox>(to, there, sum, zero, box.size);
}

namespace {

/// The mesh axes along which ranks must exchange data to get from one placement to another. Along the other axes each
/// rank already has its part.
AxisMask travelling(const ShardSpec& have, const ShardSpec& want) {
  AxisMask travel = 0;
  for (int dim = 0; dim < have.global_shape().rank(); ++dim)
    if (have.over(dim) != want.over(dim) || !(have.shares(dim) == want.shares(dim))) travel |= have.over(dim);
  return travel;
}

/// A move of blocks between the ranks of a line: each sends a message to each, with all boxes for it.
class Move {
 public:
  Move(const ShardSpec& have, const ShardSpec& want, AxisMask axes) : mesh_(have.mesh()), line_(mesh_.line(axes)) {
    std::vector<std::vector<Box>> from, to;
    for (const auto& place : line_.at) {
      from.push_back(have.boxes(place));
      to.push_back(want.boxes(place));
    }
    from_ = from[me()];
    to_ = to[me()];
    from_at_ = have.origins(from_);
    to_at_ = want.origins(to_);
    way_ = route(from, to, line_.me);
  }
  std::size_t me() const { return static_cast<std::size_t>(line_.me); }
  std::size_t ranks() const { return line_.ranks.size(); }

  /// Calls put(rank, values, from, to, box) for all boxes that this rank gets, its own first: copy_box()'s arguments.
  /// meanwhile: may compute while the messages travel; null: nothing.
  template <class F>
  void run(const Tensor& x, const char* move, F&& put, Gradients* meanwhile = nullptr) const {
    std::vector<Tensor> arriving, leaving;
    std::vector<RankMesh::Wait> waits;
    {
      const NamedRange range(move);
      const MemoryScope scope(MemoryKind::packed);
      for (const auto& [message, rank] : messages(x, way_.recvs, arriving)) waits.push_back(mesh_.recv(message, rank));
      const auto sends = messages(x, way_.sends, leaving);
      for (std::size_t i = 0; i < leaving.size(); ++i) {
        const Box& box = way_.sends[i].box;
        copy_box(leaving[i], box.at, x, from_at_[way_.from[i]], box);
      }
      for (const auto& [message, rank] : sends) waits.push_back(mesh_.send(message, rank));
    }
    if (meanwhile) meanwhile->run_kept();
    const NamedRange range(move);
    const MemoryScope scope(MemoryKind::packed);
    for (std::size_t i = 0; i < from_.size(); ++i)
      for (std::size_t k = 0; k < to_.size(); ++k)
        if (const Box box = intersect(from_[i], to_[k]); !box.empty()) put(me(), x, from_at_[i], to_at_[k], box);
    for (const RankMesh::Wait& wait : waits) wait();
    for (std::size_t i = 0; i < arriving.size(); ++i) {
      const auto& [peer, box] = way_.recvs[i];
      put(static_cast<std::size_t>(peer), arriving[i], box.at, to_at_[way_.to[i]], box);
    }
  }

 private:
  /// A message for each peer, with the values of its pieces, which follow one another.
  std::vector<std::pair<Tensor, int>> messages(const Tensor& like, const std::vector<Route::Piece>& pieces,
                                               std::vector<Tensor>& values) const {
    std::vector<std::pair<Tensor, int>> all;
    for (std::size_t i = 0, end; i < pieces.size(); i = end) {
      Index numel = 0, at = 0;
      for (end = i; end < pieces.size() && pieces[end].peer == pieces[i].peer; ++end)
        numel += pieces[end].box.size.numel();
      const Tensor message = Tensor::empty({numel}, like.dtype(), like.device());
      all.emplace_back(message, line_.ranks[static_cast<std::size_t>(pieces[i].peer)]);
      for (std::size_t k = i; k < end; ++k) {
        const Index from = std::exchange(at, at + pieces[k].box.size.numel());
        values.push_back(message.view_rows(from, at).reshape(pieces[k].box.size));
      }
    }
    return all;
  }

  const RankMesh& mesh_;
  RankMesh::Line line_;
  std::vector<Box> from_, to_;
  std::vector<Shape> from_at_, to_at_;
  Route way_;
};

/// x moved from the placements of `have` to the placements of `want`.
Tensor moved(const Tensor& x, const ShardSpec& have, const ShardSpec& want) {
  const AxisMask axes = travelling(have, want);
  const bool parts = (axes & want.placements().axes()) != 0;
  const Tensor y = Tensor::empty(want.block(), x.dtype(), x.device());
  Move(have, want, axes)
      .run(x, parts ? move_exchange : move_gather,
           [&](std::size_t, const Tensor& values, const Shape& from, const Shape& to, const Box& box) {
             copy_box(y, to, values, from, box);
           });
  return y;
}

bool lie_alike(const ShardSpec& a, const ShardSpec& b) {
  return a.placements() == b.placements() && a.shared_dim() == b.shared_dim() &&
         (a.shared_dim() < 0 || a.shares(a.shared_dim()) == b.shares(b.shared_dim()));
}

}  // namespace

Tensor relayout(const Tensor& x, const ShardSpec& to) {
  const ShardSpec::Ptr have = x.shard_spec() ? x.shard_spec()->shared_from_this() : to.with(x.shape(), {}),
                       want = to.shared_from_this();
  if (lie_alike(*have, *want)) return x;
  const Tensor in = plain(x);
  Tensor y = moved(in, *have, *want);
  if (needs_record("relayout", y, {&in}))
    y = record("relayout", std::move(y), {in}, [have, want](const Tensor& dy, Gradients& g) {
      if (g.needs_grad(0)) g.set_grad(0, moved(dy, *want, *have));
    });
  if (const RankMesh& mesh = want->mesh(); mesh.rows() >= 0 && (want->over(0) >> mesh.rows() & 1))
    y.impl()->batch = mesh.batch_of_own(y.impl()->batch);
  return want->divides() ? y.with_shard_spec(want) : y;
}

Tensor gathered(const Tensor& x) {
  return x.shard_spec() ? plain(relayout(x, *x.shard_spec()->with(x.shard_spec()->global_shape(), {}))) : x;
}

namespace {

// While the sum of a gradient travels (Backward::waits), a product that read the op's result computes its gradient of
// weights. Products themselves are not cut into pieces that travel one by one: on the CPU the bits of a row depend on
// the number of rows.

/// The last results of replicated() and collected() on this thread. Ops that read one tensor (queries, keys and values)
/// share a result, so that one move serves all of them, and one sum their gradients.
struct Shared {
  std::weak_ptr<detail::Node> from, to;
  std::weak_ptr<detail::Storage> block;
  std::size_t offset = 0;
  Shape shape = {};
  const RankMesh* mesh = nullptr;
  AxisMask axes = 0, gathered = 0;
};
thread_local std::array<Shared, 4> last_shared;
thread_local std::size_t next_shared = 0;

/// make(), recorded, or an earlier result for the same x that is still in use.
template <class F>
Tensor shared_result(const Tensor& x, const RankMesh& mesh, AxisMask axes, AxisMask gathered, F make) {
  const auto& node = x.impl()->node;
  for (const Shared& s : last_shared) {
    if (!node || node->leaf || s.mesh != &mesh || s.axes != axes || s.gathered != gathered || s.from.lock() != node)
      continue;
    const auto block = s.block.lock();
    auto maker = s.to.lock();
    if (!block || !maker) continue;
    Tensor y = detail::wrap(block, s.offset, s.shape, x.dtype());
    y.impl()->batch = x.impl()->batch;
    y.impl()->node = std::move(maker);
    return y;
  }
  Tensor y = make();
  const Tensor::Impl& made = *y.impl();
  if (made.node)
    last_shared[next_shared++ % last_shared.size()] = {node,       made.node, made.block, made.offset,
                                                       made.shape, &mesh,     axes,       gathered};
  return y;
}

}  // namespace

Tensor replicated(const Tensor& x, const ShardSpec::Mesh& mesh, AxisMask axes) {
  if (axes == 0 || !is_recorded_or_traced({&x})) return x;
  return shared_result(x, *mesh, axes, 0, [&] {
    Tensor y = x.detach();
    y.impl()->batch = x.impl()->batch;
    BackwardFn sums = [mesh, axes](const Tensor& dy, Gradients& g) {
      if (!g.needs_grad(0)) return;
      Tensor sum = is_uniquely_owned(dy) ? dy : dy.clone();
      const RankMesh::Wait wait = mesh->start_sum(sum, axes);
      g.run_kept();
      wait();
      g.set_grad(0, std::move(sum));
    };
    return record("replicated", std::move(y), {x}, Backward{.inputs = std::move(sums), .waits = true});
  });
}

Tensor summed(const Tensor& x, const RankMesh& mesh, AxisMask axes) {
  if (axes == 0) return x;
  Tensor y = x.detach();
  mesh.sum(y, axes);
  if (!needs_record("summed", y, {&x})) return y;
  return record("summed", std::move(y), {x}, [](const Tensor& dy, Gradients& g) { g.set_grad(0, dy); });
}

namespace {

/// This rank's part of the sum of the ranks' blocks, which are added in the order of the ranks.
Tensor scattered_sum(const Tensor& x, const ShardSpec& have, const ShardSpec& want, Gradients* meanwhile = nullptr) {
  const Move move(have, want, want.placements().axes() & ~have.placements().axes());
  const Shape part = want.block();
  std::vector<Tensor> terms(move.ranks());
  move.run(
      x, move_scatter,
      [&](std::size_t rank, const Tensor& values, const Shape& from, const Shape& to, const Box& box) {
        Tensor& term = terms[rank];
        if (rank != move.me() && values.shape() == part) {
          term = values;
          return;
        }
        if (!term) term = Tensor::empty(part, x.dtype(), x.device());
        copy_box(term, to, values, from, box);
      },
      meanwhile);
  if (part.numel() == 0) return Tensor::empty(part, x.dtype(), x.device());  // no rank sends it
  for (std::size_t i = 1; i < terms.size(); ++i) add_into(terms[0], terms[i]);
  return terms[0];
}

}  // namespace

Tensor scattered(const Tensor& x, const ShardSpec& have_given, const ShardSpec& to) {
  Tensor y = scattered_sum(x, have_given, to);
  if (!needs_record("scattered", y, {&x})) return y;
  return record("scattered", std::move(y), {x},
                [have = have_given.shared_from_this(), want = to.shared_from_this()](const Tensor& dy, Gradients& g) {
                  if (g.needs_grad(0)) g.set_grad(0, moved(dy, *want, *have));
                });
}

Tensor collected(const Tensor& x, const ShardSpec& to, AxisMask axes) {
  const ShardSpec::Ptr have = x.shard_spec() ? x.shard_spec()->shared_from_this() : nullptr,
                       want = to.shared_from_this();
  const AxisMask travel = have ? travelling(*have, *want) : 0, gathers = travel & ~to.placements().axes();
  if (travel == 0 || gathers != travel || (travel & ~axes) != 0 || have->shared_dim() >= 0 || to.shared_dim() >= 0 ||
      have->placements().without(travel) != to.placements() || have->mesh().rows() >= 0)
    return replicated(plain(relayout(x, to)), to.shared_mesh(), axes);
  return shared_result(x, have->mesh(), axes, travel, [&] {
    const Tensor in = plain(x);
    Tensor y = moved(in, *have, to);
    if (!needs_record("collected", y, {&in})) return y;
    BackwardFn sums = [have, want, rest = axes & ~travel](const Tensor& dy, Gradients& g) {
      if (!g.needs_grad(0)) return;
      Tensor sum = rest == 0 || is_uniquely_owned(dy) ? dy : dy.clone();
      have->mesh().sum(sum, rest);
      g.set_grad(0, scattered_sum(sum, *want, *have, &g));
    };
    const bool waits = in.device().kind != DeviceKind::cpu;  // a host's messages take time from its products
    return record("collected", std::move(y), {in}, Backward{.inputs = std::move(sums), .waits = waits});
  });
}

AxisMask spatial_axes(const ShardSpec& x) {
  AxisMask axes = 0;
  for (int dim = 1; dim < x.global_shape().rank() - 1; ++dim) axes |= x.over(dim);
  return axes;
}

Halo::Halo(const ShardSpec& has, const ShardSpec& out, const std::vector<Window>& windows, bool transposed)
    : mesh(has.shared_mesh()), line(mesh->line(spatial_axes(has))) {
  for (const auto& place : line.at) {
    have.push_back(has.box(place));
    const Box box = out.box(place);
    want.push_back(transposed ? transposed_patch(box, have.back(), windows, has.global_shape()).inputs
                              : patch(box, have.back(), windows, has.global_shape()).inputs);
  }
}

Tensor halo_exchange(const Tensor& x, const Halo& halo) {
  if (halo.have == halo.want) return x;
  const auto me = static_cast<std::size_t>(halo.line.me);
  const Box &mine = halo.have[me], &wide = halo.want[me];
  Tensor y = Tensor::empty(wide.size, x.dtype(), x.device());
  {
    Exchange exchange(*halo.mesh, halo.line, route(halo.have, halo.want, halo.line.me), x, mine.at);
    copy_box(y, wide.at, x, mine.at, intersect(mine, wide));
    for (const auto& [box, values] : exchange.wait()) copy_box(y, wide.at, values, box.at, box);
  }
  if (!needs_record("widened", y, {&x})) return y;
  return record("widened", std::move(y), {x}, [halo, mine, wide](const Tensor& dy, Gradients& g) {
    write_grad(g, 0, [&](const Tensor& dx) {
      Exchange exchange(*halo.mesh, halo.line, route(halo.want, halo.have, halo.line.me), dy, wide.at);
      launch<kernel::Fill>(dx, 0.0);
      copy_box(dx, mine.at, dy, wide.at, intersect(mine, wide));
      for (const auto& [box, values] : exchange.wait()) copy_box(dx, mine.at, values, box.at, box, true);
    });
  });
}

}  // namespace trireme
