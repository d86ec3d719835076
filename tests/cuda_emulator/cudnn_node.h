// A descriptor of the emulated cuDNN: attributes by name, as they were set. What one holds of another is shared, and
// never changes once finished.
#pragma once
#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/core/view.h"

namespace emulator::dnn {
using trireme::DType;
using trireme::Index;

/// What the real library would answer with a status, and why.
struct Refusal : std::runtime_error {
  Refusal(cudnnStatus_t why, const std::string& text) : std::runtime_error(text), status(why) {}
  cudnnStatus_t status;
};
inline void demand(bool holds, cudnnStatus_t status, const std::string& text) {
  if (!holds) throw Refusal(status, text);
}

struct Node;
using NodePtr = std::shared_ptr<const Node>;

struct Attribute {
  cudnnBackendAttributeType_t type;
  Index count = 0;
  std::vector<std::byte> bytes;
  std::vector<NodePtr> nodes;  ///< of CUDNN_TYPE_BACKEND_DESCRIPTOR
};

struct Node {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  template <class T>
  std::vector<T> list(cudnnBackendAttributeName_t name) const {
    const Attribute& a = attributes.at(name);
    std::vector<T> values(static_cast<std::size_t>(a.count));
    demand(a.bytes.size() == values.size() * sizeof(T), CUDNN_STATUS_INTERNAL_ERROR, "an attribute of another size");
    std::memcpy(values.data(), a.bytes.data(), a.bytes.size());
    return values;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    return list<T>(name).front();
  }
  /// False where it was not set.
  bool flag(cudnnBackendAttributeName_t name) const {
    return has(name) && attributes.at(name).bytes.front() != std::byte{0};
  }
  /// A real number that came as float or double.
  double real(cudnnBackendAttributeName_t name, double otherwise) const {
    if (!has(name)) return otherwise;
    return attributes.at(name).type == CUDNN_TYPE_DOUBLE ? value<double>(name) : double{value<float>(name)};
  }
  const Node& node(cudnnBackendAttributeName_t name) const { return *attributes.at(name).nodes.front(); }
  const std::vector<NodePtr>& nodes(cudnnBackendAttributeName_t name) const { return attributes.at(name).nodes; }
};

/// Bytes of one value of an attribute.
std::size_t size_of(cudnnBackendAttributeType_t);
/// Throws Refusal unless descriptors of this type take such an attribute.
void check_set(const Node&, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, Index count);
/// Throws Refusal when something that it must have is missing, or is a descriptor of a wrong type.
void check_complete(const Node&);
/// Throws Refusal when something is missing or does not fit; works out what can be asked of the descriptor afterwards.
void finish(Node&);

/// One that cuDNN makes by itself, with attributes that nobody sets.
template <class T>
void put(Node& n, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  Attribute a{type, std::ssize(values), std::vector<std::byte>(values.size() * sizeof(T)), {}};
  if (!values.empty()) std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  n.attributes[name] = std::move(a);
}
inline void put(Node& n, cudnnBackendAttributeName_t name, std::vector<NodePtr> nodes) {
  n.attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(nodes), {}, std::move(nodes)};
}

}  // namespace emulator::dnn
