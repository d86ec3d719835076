// The functions of the emulated cuDNN: they hold a caller's descriptors, and turn refusals into statuses.
#include <cudnn.h>
#include <emulator/device_access.h>

#include <algorithm>

#include "tests/cuda_emulator/cudnn_node.h"
#include "tests/cuda_emulator/cudnn_run.h"

struct cudnnContext {
  int device;
  cudaStream_t stream;
};

namespace emulator::dnn {
namespace {

/// What a cudnnBackendDescriptor_t points to.
struct Held {
  std::shared_ptr<Node> node;
};

Node& open(cudnnBackendDescriptor_t d) {
  demand(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is null");
  return *static_cast<Held*>(d)->node;
}

std::string& last_words() {
  thread_local std::string words;
  return words;
}

template <class F>
cudnnStatus_t answer(const F& f) {
  try {
    f();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& r) {
    last_words() = r.what();
    return r.status;
  }
}

void set(Node& n, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Index count, const void* values) {
  demand(!n.finished, CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is finalized: nothing may be set any more");
  demand(count == 0 || values != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the values are null");
  check_set(n, name, type, count);
  Attribute a{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (Index i = 0; i < count; ++i) {
      const auto d = static_cast<const cudnnBackendDescriptor_t*>(values)[i];
      demand(open(d).finished, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor inside is not finalized");
      a.nodes.push_back(static_cast<Held*>(d)->node);
    }
  } else {
    const auto* first = static_cast<const std::byte*>(values);
    a.bytes.assign(first, first + static_cast<std::size_t>(count) * size_of(type));
  }
  n.attributes[name] = std::move(a);
}

void get(const Node& n, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Index room, Index* count,
         void* values) {
  demand(n.finished, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  demand(room >= 0, CUDNN_STATUS_BAD_PARAM, "room for fewer than no values");
  demand(n.has(name), CUDNN_STATUS_BAD_PARAM, "the descriptor has no such attribute");
  const Attribute& a = n.attributes.at(name);
  demand(a.type == type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute is of another type");
  if (count != nullptr) *count = a.count;
  const Index given = std::min(room, a.count);
  if (given == 0 || values == nullptr) return;
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(values, a.bytes.data(), static_cast<std::size_t>(given) * size_of(type));
    return;
  }
  for (Index i = 0; i < given; ++i) {
    const auto to = static_cast<cudnnBackendDescriptor_t*>(values)[i];
    const NodePtr& from = a.nodes[static_cast<std::size_t>(i)];
    demand(!open(to).finished && open(to).type == from->type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
           "values are returned in fresh descriptors of their type");
    *static_cast<Held*>(to)->node = *from;
  }
}

}  // namespace
}  // namespace emulator::dnn

using namespace emulator::dnn;  // NOLINT: what follows has the names of the real library

std::size_t cudnnGetVersion() { return 91900; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (static_cast<int>(status) / 1000) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4: return "CUDNN_STATUS_INTERNAL_ERROR";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

void cudnnGetLastErrorString(char* text, std::size_t most) {
  if (most == 0) return;
  const std::size_t n = std::min(most - 1, last_words().size());
  std::memcpy(text, last_words().data(), n);
  text[n] = 0;
  last_words().clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return answer([&] {
    int device = 0;
    demand(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
    demand(cudaGetDevice(&device) == cudaSuccess, CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
    *handle = new cudnnContext{device, nullptr};
  });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return answer([&] {
    demand(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
    demand(emulator::device_of(stream) == handle->device, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
           "the stream belongs to another device than the handle");
    // Nothing says that the real one does not look at what it had.
    demand(emulator::is_live(handle->stream), CUDNN_STATUS_BAD_PARAM, "the stream that the handle had is gone");
    handle->stream = stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Held{std::make_shared<Node>(Node{type})};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Held*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  return answer([&] { set(open(descriptor), name, type, count, values); });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t room, std::int64_t* count,
                                       void* values) {
  return answer([&] { get(open(descriptor), name, type, room, count, values); });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return answer([&] {
    Node& n = open(descriptor);
    finish(n);
    n.finished = true;
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return answer([&] {
    demand(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is null");
    const Node &p = open(plan), &v = open(pack);
    demand(p.finished && v.finished, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan or pack is not finalized");
    demand(p.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && v.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
           CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a plan and a pack are expected");
    int device = -1;
    demand(cudaGetDevice(&device) == cudaSuccess && device == handle->device, CUDNN_STATUS_BAD_PARAM,
           "the current device is not the handle's");
    execute(p, v, handle->stream);
  });
}
