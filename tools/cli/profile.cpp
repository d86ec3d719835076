#include "tools/cli/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/contracts/norm.h"
#include "parallel/model/dry_run.h"
#include "tools/training/time_table.h"

namespace trireme {
namespace {

/// "layer1.0.conv1.weight" -> "layer1.0.conv1".
std::string layer_name(const std::string& tensor) {
  const auto dot = tensor.rfind('.');
  return dot == std::string::npos ? tensor : tensor.substr(0, dot);
}

bool is_backward(std::string_view op) { return op.find("backward") != std::string_view::npos; }

/// The filter [O, ...] of a convolution, which is the output of its backward by the weight.
View filter_of(const LaunchWatch::Call& call) {
  if (call.operands.size() < 3) return {};
  return call.operands[std::string_view(call.op).ends_with("backward_weight") ? 0 : 2];
}

}  // namespace

Profile::Profile(const Parameters& parameters, Ceilings ceilings)
    : parameters_(parameters), ceilings_(ceilings), watch_([this](const LaunchWatch::Call& call) { see(call); }) {
  for (const auto& buffer : parameters.buffers()) buffers_[buffer.tensor.view().data] = layer_name(buffer.name);
}

std::string Profile::layer_of(const LaunchWatch::Call& call) const {
  const Index size = size_of(parameters_.dtype());
  for (const View& v : call.operands) {
    if (v.data == nullptr) continue;
    for (const FlatBuffer* flat : {&parameters_.values(), &parameters_.grads()}) {
      Index begin = 0;
      for (const Tensor& block : flat->blocks()) {
        const Index at = (v.as<const std::byte>() - block.data<const std::byte>()) / size;
        for (const auto& entry : parameters_.entries())
          if (begin + at >= entry.slice.begin && begin + at < entry.slice.end && at >= 0 && at < block.numel())
            return layer_name(entry.name);
        begin += block.numel();
      }
    }
    if (auto known = buffers_.find(v.data); known != buffers_.end()) return known->second;
  }
  return "";
}

Profile::Cost& Profile::row(const std::string& name) {
  const auto [at, fresh] = index_.try_emplace(name, rows_.size());
  if (fresh) rows_.push_back({name, {}});
  return rows_[at->second].cost;
}

void Profile::see(const LaunchWatch::Call& call) {
  seconds_ += call.seconds;
  vendor_ += call.vendor_seconds;
  Kind& of = kinds_[kernel_kind(call.op)];
  of.seconds += call.seconds;
  of.bytes += call.bytes;
  of.operations += operations_of(call);
  of.floor += std::max(call.bytes / ceilings_.bytes, operations_of(call) / ceilings_.operations);
  // The moments of a batch norm have no weight operand; the next call has one.
  if (call.op == std::string_view(kernel::BatchNormMoments::name)) {
    moments_ += call.seconds;
    return;
  }
  const std::string kind = kernel_kind(call.op);
  std::string name = kind == "optimizer" ? "" : layer_of(call);
  if (name.empty()) {
    name = std::string("(") + call.op + ")";
    for (const char* part : {"_backward", "_moments"})  // all kernels of a layer share a row
      if (auto tail = name.find(part); tail != std::string::npos) name = name.substr(0, tail) + ")";
    if (kind == "convolution") name += fmt::format(" {}", filter_of(call).shape);
  }
  Cost& cost = row(name);
  (is_backward(call.op) ? cost.backward : cost.forward) += call.seconds;
  cost.operations += operations_of(call);
  if (kind == "batch norm") cost.forward += std::exchange(moments_, 0.0);
}

}  // namespace trireme
