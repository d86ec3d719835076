#include "parallel/runtime/pipeline_p2p.h"

#include "parallel/split/grid.h"

namespace trireme {
namespace {

constexpr Index most_ranges = 8;
// Of one tensor: type, rank, divided or not; of each dimension the extents of the block and of the whole; of each mesh
// axis the dimension that it divides; the ranges of the dimension that has some.
constexpr Index header = 3 + 2 * Shape::max_rank + RankMesh::max_axes + 2 + 2 * most_ranges;

}  // namespace

void PipelineP2P::send(const Route& route, const std::vector<Tensor>& tensors, std::vector<Work>& works) {
  for (auto& t : tensors) works.push_back(route.comm->send(t.detach(), route.peer, route.tag));
}

void PipelineP2P::receive(const Route& route, const std::vector<TensorMeta>& metas, std::vector<Tensor>& arriving,
                          std::vector<Work>& works) {
  for (auto& meta : metas) {
    arriving.push_back(Tensor::empty(meta.shape, meta.dtype, meta.device).with_shard_spec(meta.shard_spec));
    works.push_back(route.comm->recv(arriving.back(), route.peer, route.tag));
  }
}

PipelineP2P::Key PipelineP2P::key(const Route& route, const Shape& input) {
  Key key{route.part};
  key.insert(key.end(), input.begin(), input.end());
  return key;
}

void PipelineP2P::send_meta(const Route& route, const Shape& input, const std::vector<Tensor>& tensors,
                            std::vector<Work>& works) {
  if (!metas_.try_emplace(key(route, input)).second) return;
  const Tensor text = Tensor::zeros({static_cast<Index>(tensors.size()) * header}, DType::i64);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    const ShardSpec* spec = t.shard_spec();
    auto* out = text.data<std::int64_t>() + static_cast<Index>(i) * header;
    *out++ = static_cast<std::int64_t>(t.dtype());
    *out++ = t.rank();
    *out++ = spec != nullptr;
    for (int d = 0; d < t.rank(); ++d) {
      *out++ = t.dim(d);
      *out++ = spec ? spec->global_shape()[d] : 0;
    }
    if (!spec) continue;
    for (const std::int8_t dim : spec->placements().dims) *out++ = dim;
    const int shared = spec->shared_dim();
    const auto ranges = shared < 0 ? std::vector<Shares::Range>{} : spec->shares(shared).ranges;
    check(std::ssize(ranges) <= most_ranges, "pipeline",
          "a tensor of {} ranges would cross a cut between stages, at most {} can: cut elsewhere", ranges.size(),
          most_ranges);
    *out++ = shared;
    *out++ = std::ssize(ranges);
    for (const Shares::Range& r : ranges) {
      *out++ = r.extent;
      *out++ = r.unit;
    }
  }
  const TrafficMeter::Pause setup(meter_);
  works.push_back(route.comm->send(text, route.peer, route.tag));
}

const std::vector<PipelineP2P::TensorMeta>* PipelineP2P::find_meta(const Route& route, const Shape& input) const {
  auto at = metas_.find(key(route, input));
  return at == metas_.end() ? nullptr : &at->second;
}

void PipelineP2P::recv_meta(const Route& route, const Shape& input, std::size_t tensors) {
  const Tensor text = Tensor::empty({static_cast<Index>(tensors) * header}, DType::i64);
  route.comm->recv(text, route.peer, route.tag).wait();
  std::vector<TensorMeta> metas;
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto* in = text.data<std::int64_t>() + static_cast<Index>(i) * header;
    TensorMeta meta{static_cast<DType>(in[0]), {}, {}, route.device};
    const bool divided = in[2] == 1;
    const auto rank = static_cast<int>(in[1]);
    Shape whole;
    in += 3;
    for (int d = 0; d < rank; ++d) {
      meta.shape.push_back(*in++);
      whole.push_back(*in++);
    }
    if (divided) {
      Placements placements;
      for (std::int8_t& dim : placements.dims) dim = static_cast<std::int8_t>(*in++);
      const auto shared = static_cast<int>(*in++);
      Shares shares;
      shares.ranges.resize(static_cast<std::size_t>(*in++));
      for (Shares::Range& r : shares.ranges) {
        r.extent = *in++;
        r.unit = *in++;
      }
      meta.shard_spec = ShardSpec::make(grid_, whole, placements, std::move(shares), std::max(0, shared));
    }
    metas.push_back(std::move(meta));
  }
  metas_[key(route, input)] = std::move(metas);
}

}  // namespace trireme
