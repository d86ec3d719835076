#include "parallel/runtime/pipeline_p2p.h"

#include "parallel/split/sharded_ops.h"

namespace trireme {
namespace {

// For one tensor: type, rank, whether it is divided; for each axis the extents of block and whole, and the layout.
constexpr Index header = 3 + 3 * Shape::max_rank;

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
    const auto* sharding = static_cast<const ShardedOps*>(t.shard_spec());
    auto* out = text.data<std::int64_t>() + static_cast<Index>(i) * header;
    *out++ = static_cast<std::int64_t>(t.dtype());
    *out++ = t.rank();
    *out++ = sharding != nullptr;
    for (int d = 0; d < t.rank(); ++d) {
      *out++ = t.dim(d);
      *out++ = sharding ? sharding->global_shape()[d] : 0;
      *out++ = sharding ? sharding->layout()[d] : 0;
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
    Shape whole;
    Layout layout;
    for (int d = 0; d < in[1]; ++d) {
      meta.shape.push_back(in[3 + 3 * d]);
      whole.push_back(in[4 + 3 * d]);
      layout[d] = static_cast<int>(in[5 + 3 * d]);
    }
    if (in[2] == 1) meta.shard_spec = ShardedOps::make(grid_, whole, layout);
    metas.push_back(std::move(meta));
  }
  metas_[key(route, input)] = std::move(metas);
}

}  // namespace trireme
