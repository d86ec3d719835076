// A vision transformer with a class token: its loss, the norm of each gradient, and its ONNX file.
#include <trireme/trireme.h>

#include <cmath>
using namespace trireme;

constexpr Index width = 24, heads = 3;

struct Block {
  LayerNorm norm1{width}, norm2{width};
  Linear qkv{width, 3 * width}, out{width, width}, up{width, 4 * width}, down{4 * width, width};

  Tensor operator()(Tensor x) const {
    const Index b = x.dim(0), t = x.dim(1), d = x.dim(2);
    const auto parts = unbind(permute(qkv(norm1(x)).reshape({b, t, 3, heads, -1}), {2, 0, 3, 1, 4}));
    const Tensor &q = parts[0], &k = parts[1], &v = parts[2];
    const Tensor scores = matmul(q, transpose(k, -1, -2)) / std::sqrt(d / heads);
    x += out(transpose(matmul(softmax(scores), v), 1, 2).reshape({b, t, d}));
    return x + down(gelu(up(norm2(x))));
  }
  void visit(const StateVisitor& v) {
    v("norm1", norm1, "qkv", qkv, "out", out, "norm2", norm2, "up", up, "down", down);
  }
};

struct Model {
  Conv2d patches{3, width, 8, {.stride = 8}};
  Tensor token = Tensor::zeros({1, 1, width}), positions = normal({1, 17, width}, 0, 0.02, 1);
  Sequential blocks{Block(), Block()};
  LayerNorm norm{width};
  Linear head{width, 10};

  Tensor operator()(const Tensor& x) const {
    const Tensor first = expand(token, {x.dim(0), 1, width}), rest = patches(x).reshape({x.dim(0), -1, width});
    return head(select(norm(blocks(concat({first, rest}, 1) + positions)), 1, 0));
  }
  void visit(const StateVisitor& v) {
    v("patches", patches, "blocks", blocks, "norm", norm, "head", head);
    v("token", token, StateKind::weight);
    v("positions", positions, StateKind::weight);
  }
};

int main() {
  Module model = convert(Model(), DType::f64);
  Parameters parameters(model);
  import_weights(parameters, "start.safetensors");
  const Tensor x = read_npy("x.npy"), loss = cross_entropy(model(x), read_npy("y.npy"));
  loss.backward();
  fmt::print("{}\n", loss.item());
  for (auto& e : parameters.entries()) fmt::print("{} {}\n", e.name, sqrt(sum(square(e.tensor.grad()))).item());
  export_onnx(model, parameters, {32, 32, 3}, "ours.onnx");
}
