#include "parallel/runtime/pipeline_p2p.h"

#include "parallel/split/sharded_ops.h"

namespace trireme {
namespace {

constexpr Index header = 3 + 3 * Shape::max_rank;  // of one tensor: type, rank, extents; divided or not, whole, layout

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
  auto* out = text.data<std::int64_t>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto base = static_cast<Index>(i) * header;
    out[base] = static_cast<std::int64_t>(tensors[i].dtype()), out[base + 1] = tensors[i].rank();
    for (int d = 0; d < tensors[i].rank(); ++d) out[base + 2 + d] = tensors[i].dim(d);
    const auto* sharding = static_cast<const ShardedOps*>(tensors[i].shard_spec());
    if (!sharding) continue;
    auto* rest = out + base + 2 + Shape::max_rank;
    *rest++ = 1;
    for (int d = 0; d < tensors[i].rank(); ++d)
      rest[d] = sharding->global_shape()[d], rest[Shape::max_rank + d] = sharding->layout()[d];
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
  const auto* in = text.data<std::int64_t>();
  std::vector<TensorMeta> metas;
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto base = static_cast<Index>(i) * header;
    TensorMeta meta{static_cast<DType>(in[base]), {}, {}, route.device};
    for (Index d = 0; d < in[base + 1]; ++d) meta.shape.push_back(in[base + 2 + d]);
    if (const auto* rest = in + base + 2 + Shape::max_rank; *rest++ == 1) {
      Shape whole;
      Layout layout;
      for (int d = 0; d < meta.shape.rank(); ++d)
        whole.push_back(rest[d]), layout[d] = static_cast<int>(rest[Shape::max_rank + d]);
      meta.shard_spec = ShardedOps::make(grid_, whole, layout);
    }
    metas.push_back(std::move(meta));
  }
  metas_[key(route, input)] = std::move(metas);
}

}  // namespace trireme
