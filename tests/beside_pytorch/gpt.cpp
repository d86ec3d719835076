// A GPT of two blocks whose head is the token embedding, trained eight steps: AdamW that decays matrices alone, a
// clipped gradient, a linear warm-up and then half a cosine.
#include <trireme/trireme.h>

#include <cmath>
using namespace trireme;

constexpr Index width = 32, heads = 4, length = 12, vocabulary = 50;

struct Block {
  LayerNorm norm1{width}, norm2{width};
  Linear qkv{width, 3 * width}, out{width, width}, up{width, 4 * width}, down{4 * width, width};

  Tensor operator()(Tensor x) const {
    const Index b = x.dim(0), t = x.dim(1), d = x.dim(2);
    const auto [q, k, v] = unbind<3>(permute(qkv(norm1(x)).reshape({b, t, 3, heads, -1}), {2, 0, 3, 1, 4}));
    const Tensor future = triu(ones({t, t}), 1) > 0;
    const Tensor scores = masked_fill(matmul(q, transpose(k, -1, -2)) / std::sqrt(d / heads), future, -INFINITY);
    x += out(transpose(matmul(softmax(scores), v), 1, 2).reshape({b, t, d}));
    return x + down(gelu(up(norm2(x))));
  }
  void visit(const StateVisitor& v) {
    v("norm1", norm1, "qkv", qkv, "out", out, "norm2", norm2, "up", up, "down", down);
  }
};

struct Model {
  Embedding tokens{vocabulary, width}, positions{length, width};
  Sequential blocks{Block(), Block()};
  LayerNorm norm{width};

  Tensor operator()(const Tensor& ids) const {
    const Tensor x = tokens(ids) + positions(arange(ids.dim(1)));
    return linear(norm(blocks(x)), tokens.weight);
  }
  void visit(const StateVisitor& v) { v("tokens", tokens, "positions", positions, "blocks", blocks, "norm", norm); }
};

int main() {
  Module model = convert(Model(), DType::f64);
  Parameters parameters(model);
  import_weights(parameters, "start.safetensors");
  const Tensor ids = read_npy("ids.npy");
  const Tensor x = slice(ids, 1, 0, -1), y = slice(ids, 1, 1);
  const AdamW rule{.lr = linear(0.001, 0.01, 3).then(3, cosine(0.01, 10)), .beta2 = 0.95, .weight_decay = 0.1};
  Optimizer adamw(parameters, rule, {.clip_norm = 1, .decay_biases = false});
  for (int step = 0; step < 8; ++step) {
    const Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    const double norm = adamw.grad_norm();
    adamw.step();
    fmt::print("{} {}\n", loss.item(), norm);
  }
  write_safetensors("end.safetensors", export_weights(parameters));
}
