// Attention and rotary embeddings on a CUDA device beside the CPU's f64: random shapes and options, numbers that are
// exact, rows that see nothing.
#include <limits>

#include "framework/ops/ops.h"
#include "kernels/contracts/attention.h"
#include "tests/framework/case_outcome.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/no_device.h"

namespace test_cuda_attention {

using namespace trireme;
using namespace trireme::test;

namespace {

DType wide_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
double accuracy(DType t) { return t == DType::f64 ? 1e-11 : t == DType::f32 ? 2e-5 : t == DType::f16 ? 5e-3 : 4e-2; }

/// Shapes and options of a call. q, k and v lie in one block, from these elements on.
struct Problem {
  Index samples, queries, keys, heads, kv_heads, width;
  AttentionArgs args = {};
  Index k_at = 0, v_at = 0, elements = 0;
  Array starts = {}, lengths = {}, ids = {}, first_keys = {};

  void pack_side_by_side() {
    const Index token = (heads + 2 * kv_heads) * width;
    args.q = args.k = args.v = {queries * token, token};
    k_at = heads * width;
    v_at = k_at + kv_heads * width;
    elements = samples * queries * token;
  }
  /// One behind the other, with gaps.
  void lay_out(Index token_gap, Index sample_gap) {
    const auto place = [&](TokenStrides& by, Index tokens, Index of_token) {
      by.token = of_token + token_gap;
      by.sample = tokens * by.token + sample_gap;
      return samples * by.sample;
    };
    k_at = place(args.q, queries, heads * width);
    v_at = k_at + place(args.k, keys, kv_heads * width);
    elements = v_at + place(args.v, keys, kv_heads * width);
  }
  /// Calls f(element) for the key, then the value's elements of tokens that do not count.
  template <class F>
  void each_hidden(F f) {
    for (Index n = 0; n < samples; ++n)
      for (Index j = lengths.shape.rank() > 0 ? static_cast<Index>(lengths.get(n)) : keys; j < keys; ++j)
        for (Index d = 0; d < kv_heads * width; ++d) {
          f(k_at + n * args.k.sample + j * args.k.token + d);
          f(v_at + n * args.v.sample + j * args.v.token + d);
        }
  }
};

struct Results {
  Array o, stats, gradients;
};

/// Forward and backward, of arrays that `there` makes views of.
template <class There>
void run_both(DeviceKind kind, const Problem& p, There there, Results& r, Array& qkv, Array& dout) {
  AttentionArgs args = p.args;
  auto starts = p.starts, lengths = p.lengths, ids = p.ids, first_keys = p.first_keys;
  const auto starts_there = there(starts), lengths_there = there(lengths), ids_there = there(ids),
             first_there = there(first_keys), in = there(qkv), seed = there(dout), o = there(r.o),
             stats = there(r.stats), out = there(r.gradients);
  args.q_starts = starts_there.view();
  args.lengths = lengths_there.view();
  args.samples = ids_there.view();
  args.first_keys = first_there.view();
  const auto part = [&](const View& all, Index from, Index tokens, Index heads) {
    return View{all.as<char>() + from * size_of(all.dtype), {p.samples, tokens, heads, p.width}, all.dtype, all.device};
  };
  const auto q = [&](const View& all) { return part(all, 0, p.queries, p.heads); };
  const auto k = [&](const View& all) { return part(all, p.k_at, p.keys, p.kv_heads); };
  const auto v = [&](const View& all) { return part(all, p.v_at, p.keys, p.kv_heads); };
  Kernel<kernel::Attention>::on(kind)(o.view(), stats.view(), q(in.view()), k(in.view()), v(in.view()), args);
  Kernel<kernel::AttentionBackward>::on(kind)(q(out.view()), k(out.view()), v(out.view()), seed.view(), o.view(),
                                              stats.view(), q(in.view()), k(in.view()), v(in.view()), args);
  o.fetch();
  stats.fetch();
  out.fetch();
}

struct Here {
  Array* array;
  View view() const { return array->view(); }
  void fetch() const {}
};

Results results_for(const Problem& p, DType type) {
  Results r{Array({p.samples, p.queries, p.heads, p.width}, type),
            Array({p.samples, p.heads, p.queries, 2}, wide_type(type)), Array({p.elements}, type)};
  for (Index i = 0; i < p.elements; ++i) r.gradients.set(i, 77);  // of gaps, which nobody writes
  return r;
}
Results on_cpu(const Problem& p, Array& qkv, Array& dout) {
  Results r = results_for(p, DType::f64);
  Array in = as_f64(qkv), seed = as_f64(dout);
  run_both(
      DeviceKind::cpu, p, [](Array& a) { return Here{&a}; }, r, in, seed);
  return r;
}
Results on_device(const Problem& p, Array& qkv, Array& dout) {
  Results r = results_for(p, qkv.type);
  const Index shift = pick(0, 2) / 2;
  run_both(
      DeviceKind::cuda, p, [&](Array& a) { return DeviceArray(a, is_float(a.type) ? shift : 0); }, r, qkv, dout);
  return r;
}

bool finite(Array& a) {
  for (Index i = 0; i < a.size(); ++i)
    if (!std::isfinite(a.get(i))) return false;
  return true;
}
/// Everything that the device computed, beside the CPU.
void check_near(Problem& p, Array& qkv, Array& dout) {
  p.each_hidden([&](Index i) { qkv.set(i, 0); });
  Results expected = on_cpu(p, qkv, dout);
  // Keys and values that do not count are not read.
  p.each_hidden([&](Index i) { qkv.set(i, std::numeric_limits<double>::quiet_NaN()); });
  Results got = on_device(p, qkv, dout);
  CHECK((finite(expected.o) && finite(expected.gradients) && finite(got.o) && finite(got.gradients)));
  agree(got.o, expected.o, accuracy(qkv.type));
  agree(got.stats, expected.stats, qkv.type == DType::f64 ? 1e-11 : 2e-4);
  agree(got.gradients, expected.gradients, accuracy(qkv.type));
}

Array integers(Index n, Index from, Index to) {
  Array a({n}, DType::i64);
  for (Index i = 0; i < n; ++i) a.set(i, static_cast<double>(pick(from, to)));
  return a;
}

/// A call with options drawn at random.
Problem drawn() {
  const Index kv_heads = pick(1, 2), most = pick(0, 2) == 0 ? 150 : 20;
  Problem p{.samples = pick(1, 3),
            .queries = pick(1, most),
            .keys = pick(1, most),
            .heads = kv_heads * pick(1, 3),
            .kv_heads = kv_heads,
            .width = pick(0, 2) == 0 ? pick(1, 40) : 8 * pick(1, 20)};
  if (pick(0, 19) == 0) p.width = pick(129, 260);
  AttentionArgs& a = p.args;
  a.causal = pick(0, 1) == 1;
  a.scale = 1 / std::sqrt(static_cast<double>(p.width));
  a.alibi = pick(0, 3) == 0;
  a.q_at = pick(0, 2) == 0 ? pick(-3, 80) : 0;
  a.dropout = pick(0, 2) == 0 ? 0.3 : 0;
  a.key = MaskKey(static_cast<std::uint64_t>(pick(0, 1 << 30)));
  if (pick(0, 1) == 0) {
    a.part.all_heads = p.heads + pick(0, 3);
    a.part.head_at = pick(0, a.part.all_heads - p.heads);
  }
  if (pick(0, 2) == 0) {
    p.keys = p.queries;
    p.pack_side_by_side();
  } else {
    p.lay_out(pick(0, 1) * 8, pick(0, 3) == 0 ? 3 : 16);
  }
  if (p.queries % 3 == 0) {  // parts of more queries and keys
    const auto part = [](Index count, Index& all) {
      TokenMap map{.first = pick(0, 3), .step = pick(0, 2) == 0 ? pick(2, 4) : 1};
      if (pick(0, 1) == 0) {
        map.turn = pick(0, count);
        map.jump = pick(0, 9);
      }
      all = map.at(count - 1) + pick(1, 5);
      return map;
    };
    a.part.queries = part(p.queries, a.part.all_queries);
    a.part.keys = part(p.keys, a.part.all_keys);
  }
  if (a.causal && pick(0, 1) == 0) a.window = pick(1, most);
  if (pick(0, 1) == 0) p.starts = integers(p.samples, 0, 30);
  if (pick(0, 1) == 0) {
    p.lengths = integers(p.samples, 0, p.keys);
    p.lengths.set(0, 0);
  }
  if (pick(0, 1) == 0) p.ids = integers(p.samples, 0, 1000);
  return p;
}

}  // namespace

TEST_CASE("attention on a device equals the CPU's for random shapes and options") {
  if (no_device()) return;
  for (DType t : device_types)
    for (int round = 0; round < 60; ++round) {
      Problem p = drawn();
      INFO(name_of(t) << " round " << round << ": N " << p.samples << " H " << p.heads << " G " << p.kv_heads << " D "
                      << p.width << " Tq " << p.queries << " Tk " << p.keys << " causal " << p.args.causal);
      Array qkv = filled({p.elements}, t, false), dout = filled({p.samples, p.queries, p.heads, p.width}, t, false);
      check_near(p, qkv, dout);
    }
}

TEST_CASE("on a device a query attends to keys of its document only") {
  if (no_device()) return;
  const auto other_cases = std::exchange(engine, std::mt19937_64(28));
  for (DType t : device_types)
    for (int round = 0; round < 30; ++round) {
      Problem p = drawn();
      p.args.causal = true;
      const Index longest = round % 4 == 0 ? 1 : round % 4 == 1 ? 200 : pick(2, 60);
      p.first_keys = Array({p.samples, p.queries}, DType::i64);
      for (Index n = 0; n < p.samples; ++n) {
        Index begin = 0, end = pick(1, longest);
        for (Index i = 0; i < p.queries; ++i) {
          const Index start = p.starts.shape.rank() > 0 ? static_cast<Index>(p.starts.get(n)) : 0;
          while (end <= p.args.q_at + start + p.args.part.queries.at(i))
            begin = std::exchange(end, end + pick(1, longest));
          p.first_keys.set(n * p.queries + i, static_cast<double>(begin));
        }
      }
      INFO(name_of(t) << " round " << round << ": N " << p.samples << " H " << p.heads << " G " << p.kv_heads << " D "
                      << p.width << " Tq " << p.queries << " Tk " << p.keys << " documents of up to " << longest);
      Array qkv = filled({p.elements}, t, false), dout = filled({p.samples, p.queries, p.heads, p.width}, t, false);
      check_near(p, qkv, dout);
    }
  engine = other_cases;
}

TEST_CASE("attention of whole numbers on a device is exact") {
  if (no_device()) return;
  for (DType t : device_types)
    for (bool causal : {false, true}) {
      INFO(name_of(t) << (causal ? " causal" : ""));
      // Each query finds one key at a distance that leaves no other a share.
      Problem p{.samples = 2, .queries = 100, .keys = 100, .heads = 2, .kv_heads = 1, .width = 104};
      p.args.causal = causal;
      p.lay_out(0, 0);
      Array qkv({p.elements}, t), dout = filled({p.samples, p.queries, p.heads, p.width}, t);
      for (Index i = p.v_at; i < p.elements; ++i) qkv.set(i, static_cast<double>(pick(-2, 2)));
      for (Index n = 0; n < p.samples; ++n)
        for (Index i = 0; i < p.queries; ++i) {
          qkv.set(p.k_at + n * p.args.k.sample + i * p.args.k.token + i, 64);
          for (Index h = 0; h < p.heads; ++h)
            qkv.set(n * p.args.q.sample + i * p.args.q.token + h * p.width + pick(0, i), 64);
        }
      Results got = on_device(p, qkv, dout), expected = on_cpu(p, qkv, dout);
      agree(got.o, expected.o, 0);
      agree(got.stats, expected.stats, 0);
      agree(got.gradients, expected.gradients, 0);
    }
}

TEST_CASE("attention of equal scores on a device is exact") {
  if (no_device()) return;
  for (DType t : device_types)
    for (bool zero_keys : {false, true}) {
      INFO(name_of(t) << (zero_keys ? " k = 0" : " q = 0"));
      // Probabilities are 1 / 128.
      Problem p{.samples = 2, .queries = 70, .keys = 128, .heads = 4, .kv_heads = 2, .width = 16};
      p.args.scale = 0.25;
      p.lay_out(0, 0);
      Array qkv = filled({p.elements}, t), dout = filled({p.samples, p.queries, p.heads, p.width}, t);
      for (Index i = zero_keys ? p.k_at : 0; i < (zero_keys ? p.v_at : p.k_at); ++i) qkv.set(i, 0);
      Results got = on_device(p, qkv, dout), expected = on_cpu(p, qkv, dout);
      if (is_half(t)) {  // rounds scores' gradients; the others' sums are exact until the last step
        const auto rounded = [&](Array& a) {
          Array there(a.shape, t);
          for (Index i = 0; i < a.size(); ++i) there.set(i, a.get(i));
          return there;
        };
        expected.o = rounded(expected.o);
        expected.gradients = rounded(expected.gradients);
        for (Index i = 0; i < p.v_at; ++i) {
          got.gradients.set(i, 0);
          expected.gradients.set(i, 0);
        }
      }
      agree(got.o, expected.o, 0);
      agree(got.stats, expected.stats, 0);
      agree(got.gradients, expected.gradients, 0);
    }
}

TEST_CASE("rotary embeddings on a device equal the CPU's, in place too") {
  if (no_device()) return;
  for (DType t : device_types)
    for (int round = 0; round < 40; ++round) {
      const Index samples = pick(1, 3), tokens = pick(1, 9), heads = pick(1, 4),
                  width = pick(0, 1) ? 16 * pick(1, 4) : pick(2, 40);
      const Index rotated = pick(0, 1) ? width / 2 * 2 : std::max<Index>(2, width / 4 * 2);
      const bool interleaved = pick(0, 1) == 1, inverse = pick(0, 1) == 1, in_place = pick(0, 1) == 1;
      INFO(name_of(t) << " D " << width << " R " << rotated << " interleaved " << interleaved);
      const Shape s{samples, tokens, heads, width};
      Array x = filled(s, t, false), y(s, t);
      Array table = pick(0, 1) ? filled({tokens, rotated}, wide_type(t), false)
                               : filled({samples, tokens, rotated}, wide_type(t), false);
      Array expected(s, DType::f64), wide = as_f64(x), wide_table = as_f64(table);
      run<kernel::Rope>(expected.view(), wide.view(), wide_table.view(), interleaved, inverse);
      if (in_place) {
        const DeviceArray there(x, pick(0, 1)), table_there(table, 0);
        Kernel<kernel::Rope>::on(DeviceKind::cuda)(there.view(), there.view(), table_there.view(), interleaved,
                                                   inverse);
        there.fetch();
        agree(x, expected, accuracy(t));
      } else {
        run_there<kernel::Rope>(y, x, table, interleaved, inverse);
        agree(y, expected, accuracy(t));
      }
    }
}

TEST_CASE("a step of a small transformer on a device equals the CPU's") {
  if (no_device()) return;
  constexpr Index samples = 2, tokens = 70, width = 48, heads = 6, groups = 2, size = width / heads, ids = 37;
  const Shape shapes[] = {{ids, width},      {width}, {width}, {(heads + 2 * groups) * size, width},
                          {width, width},    {width}, {width}, {4 * width, width},
                          {width, 4 * width}};
  std::vector<Array> start;
  for (const Shape& s : shapes) start.push_back(filled(s, DType::bf16, false));
  Values now, next;
  for (Index i = 0; i < samples * tokens; ++i) {
    now.push_back(static_cast<double>(pick(0, ids - 1)));
    next.push_back(static_cast<double>(pick(0, ids - 1)));
  }
  const auto step = [&](DType type, Device device) {
    const StepScope scope(a_pass(samples));
    std::vector<Tensor> w;
    for (Array& a : start) {
      Values values;
      for (Index i = 0; i < a.size(); ++i) values.push_back(a.get(i) / 8);
      w.push_back(Tensor::of(values, a.shape, type).to(device));
      w.back().require_grad();
    }
    const Tensor x = Tensor::of(now, {samples, tokens}, DType::i64).to(device),
                 y = Tensor::of(next, {samples, tokens}, DType::i64).to(device),
                 table = rope_table(tokens, size).to(type == DType::f64 ? type : DType::f32).to(device);
    Tensor h = dropout(take(w[0], x), 0.1, 1);
    const Tensor qkv = linear(layer_norm(h, w[1], w[2]), w[3]).reshape({samples, tokens, heads + 2 * groups, size});
    const auto parts = split(qkv, {heads, groups, groups}, 2);
    const Tensor o =
        attention(rope(parts[0], table), rope(parts[1], table), parts[2], {.causal = true, .dropout = 0.1, .layer = 2});
    h = add(h, linear(o.reshape({samples, tokens, width}), w[4]));
    h = add(h, linear(gelu_tanh(linear(rms_norm(h, w[5]), w[7])), w[8]));
    const Tensor loss = linear_cross_entropy(layer_norm(h, w[6]), w[0], y);
    loss.backward();
    std::vector<Values> all{loss.to_vector()};
    for (const Tensor& t : w) all.push_back(t.grad().to_vector());
    return all;
  };
  const auto exact = step(DType::f64, cpu());
  for (auto [type, within] :
       {std::pair{DType::f64, 1e-11}, {DType::f32, 1e-5}, {DType::bf16, 5e-2}, {DType::f16, 1e-2}}) {
    const auto got = step(type, cuda());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO(name_of(type) << " " << i);
      CHECK(relative(got[i], exact[i]) < within);
    }
  }
}

}  // namespace test_cuda_attention
