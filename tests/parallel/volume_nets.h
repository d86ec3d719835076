// Models over volumes for tests: random ones, their volumes and meshes, and inference with files in memory.
#pragma once
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "framework/layers/inference.h"
#include "framework/layers/layers.h"
#include "framework/ops/mixed_scale.h"
#include "parallel/inference/chain_net.h"
#include "parallel/inference/dense_net.h"
#include "parallel/inference/infer.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace trireme::test {

inline std::mt19937_64 seeded(unsigned seed) { return std::mt19937_64(seed); }
inline Index draw(std::mt19937_64& random, Index low, Index high) {
  return std::uniform_int_distribution<Index>(low, high)(random);
}

/// Whole numbers, of which most of a large filter are 0, so that sums stay exact in f32; or any numbers.
inline Tensor filled(std::mt19937_64& random, const Shape& shape, DType dtype, bool whole, Index nonzero = 0) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& v : values)
    v = whole ? static_cast<double>(draw(random, -1, 1)) : std::uniform_real_distribution<>(-0.4, 0.4)(random);
  if (whole && nonzero > 0) {
    std::vector<double> few(values.size(), 0);
    for (Index i = 0; i < nonzero * shape[0]; ++i)
      few[static_cast<std::size_t>(draw(random, 0, shape.numel() - 1))] = 1;
    values = few;
  }
  return Tensor::of(values, shape, dtype);
}

inline void fill_state(Module& model, std::mt19937_64& random, bool whole) {
  for (const NamedState& state : named_tensors(model)) {
    const Shape& shape = state.tensor->shape();
    Tensor values = filled(random, shape, DType::f64, whole, shape.rank() > 1 ? 4 : 0);
    if (state.name.ends_with("running_var")) values = abs(values) + 0.5;
    if (!whole && state.name.ends_with("weight") && shape.rank() == 1) values = values + 1;
    state.tensor->copy_from(values.to(state.tensor->dtype()));
  }
}

inline Module conv_layer(int axes, Index in, Index out, Index kernel, const ConvLayerOptions& o) {
  return axes == 2 ? Module(Conv2d(in, out, kernel, o)) : Module(Conv3d(in, out, kernel, o));
}

/// A random row of convolutions, poolings and skip connections.
inline Module random_chain(std::mt19937_64& random, int axes, Index channels) {
  Sequential net;
  Index c = channels;
  for (Index layer = draw(random, 2, 4); layer > 0; --layer) {
    const Index next = draw(random, 1, 3), kernel = 2 * draw(random, 0, 1) + 1;
    switch (draw(random, 0, 6)) {
      case 0:
        net.add(conv_layer(axes, c, next, 3, {.stride = 2, .pad = draw(random, 0, 1)}));
        c = next;
        break;
      case 1: net.add(MaxPool(2)); break;
      case 2: {
        const ConvTransposeLayerOptions o{.stride = 2, .pad = draw(random, 0, 1)};
        const Index k = draw(random, 2, 3);
        net.add(axes == 2 ? Module(ConvTranspose2d(c, next, k, o)) : Module(ConvTranspose3d(c, next, k, o)));
        c = next;
        break;
      }
      case 3: {
        const std::string name = "skip" + std::to_string(layer);
        const Index d = draw(random, 1, 3);
        net.add(Stash{name}).add(conv_layer(axes, c, c, 3, {.pad = d, .dilation = d})).add(relu);
        if (draw(random, 0, 1) == 0)
          net.add(AddStashed(name));
        else {
          net.add(ConcatStashed(name));
          c *= 2;
        }
        break;
      }
      default: {
        const Index d = axes == 2 ? draw(random, 1, 10) : draw(random, 1, 4);
        const Index pad = draw(random, 0, 2) == 0 ? 0 : d * (kernel / 2);
        net.add(conv_layer(axes, c, next, kernel, {.pad = pad, .dilation = d})).add(relu);
        c = next;
      }
    }
  }
  return net;
}

inline Tensor evaluated(const Module& model, const Tensor& x) {
  const Inference inference;
  return model(x);
}

/// Largest difference over the largest number; 0: the same numbers.
inline double distance(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
  const std::vector<double> u = a.to_vector(), v = b.to_vector();
  double most = 0, size = 1e-300;
  for (std::size_t i = 0; i < u.size(); ++i) {
    most = std::max(most, std::abs(u[i] - v[i]));
    size = std::max(size, std::abs(v[i]));
  }
  return most == 0 ? 0 : most / size;
}
inline double allowed(bool whole, DType dtype) { return whole ? 0 : dtype == DType::f64 ? 1e-11 : 1e-5; }

inline Shape random_volume(std::mt19937_64& random, int axes, Index channels) {
  Shape shape{1};
  for (int i = 0; i < axes; ++i) shape.push_back(axes == 2 ? draw(random, 21, 45) : draw(random, 9, 18));
  shape.push_back(channels);
  return shape;
}

inline Box random_box(std::mt19937_64& random, const Shape& shape) {
  Box box = whole_box(shape);
  for (int axis = 1; axis < shape.rank() - 1; ++axis) {
    box.at[axis] = draw(random, 0, shape[axis] - 1);
    box.size[axis] = draw(random, 1, shape[axis] - box.at[axis]);
  }
  return box;
}

inline ReadBox reader(const Tensor& x) {
  return [x](const Box& box) { return cut(x, whole_box(x.shape()).at, box); };
}

/// Files in memory; write adds to a tensor that is 0 at first.
inline OpenFiles in_memory(const Tensor& x, const Tensor& y, std::atomic<int>* written = nullptr) {
  return [=](World&) {
    InferenceFiles files;
    files.read = reader(x);
    files.write = [=](const Box& box, const Tensor& values) {
      copy_box(y, whole_box(y.shape()).at, values, box.at, box);
      if (written) ++*written;
      return values;
    };
    files.read_result = reader(y);
    return files;
  };
}

inline std::vector<Axis> random_mesh(std::mt19937_64& random, int axes, int ranks) {
  std::vector<Axis> mesh{{"h", 1}, {"w", 1}};
  if (axes == 3) mesh.insert(mesh.begin(), {"d", 1});
  for (int factor = 2; ranks > 1;) {
    if (ranks % factor != 0) {
      ++factor;
      continue;
    }
    mesh[static_cast<std::size_t>(draw(random, 0, axes - 1))].size *= factor;
    ranks /= factor;
  }
  return mesh;
}

/// What ranks make of the plan, brought together.
inline Tensor inferred(const VolumeNet& net, const std::vector<Axis>& mesh, const InferencePlan& plan, const Tensor& x,
                       const InferenceRun& run = {}, InferenceResult* result = nullptr) {
  return on_ranks(ranks_of(mesh), [&](World& world) {
    const Tensor y = Tensor::zeros(net.output(), net.dtype());
    const InferenceResult r = infer(world, mesh, net, plan, in_memory(x, y), run);
    if (result && world.main()) *result = r;
    world.comm().all_reduce(y).wait();
    return y;
  });
}

inline Extents extents_of(const Shape& s) {
  Extents e{1, 1, 1};
  for (int axis = 1; axis < s.rank() - 1; ++axis) e[static_cast<std::size_t>(axis - 1)] = s[axis];
  return e;
}

struct Dense {
  DenseLayers layers;
  Module model;
};
/// A mixed-scale dense network, and the same as a model.
inline Dense random_dense(std::mt19937_64& random, int axes, Index channels, int depth, DType dtype, bool whole) {
  Dense net;
  DenseLayers& l = net.layers;
  Index c = channels;
  for (int i = 0; i < depth; ++i) {
    const Index outputs = draw(random, 1, 2);
    Shape filter{outputs};
    for (int s = 0; s < axes; ++s) filter.push_back(3);
    filter.push_back(c);
    l.weight.push_back(filled(random, filter, dtype, whole, 3));
    l.bias.push_back(filled(random, {outputs}, dtype, whole));
    l.dilations.push_back(draw(random, 1, 10));
    c += outputs;
  }
  l.tail = conv_layer(axes, c, 2, 1, {});
  fill_state(l.tail, random, whole);
  net.model = [l](const Tensor& x) { return l.tail(mixed_scale_dense(x, l.weight, l.bias, l.dilations)); };
  return net;
}

}  // namespace trireme::test
