// Attention and rotary embeddings beside plain loops in f64: random shapes, strides and options, on any number of
// threads; numbers that are exact; queries that see nothing.
#include <limits>
#include <numeric>

#include "kernels/contracts/attention.h"
#include "kernels/core/runtime.h"
#include "tests/kernels/fenced.h"

namespace test_kernels_attention {

using namespace trireme;
using namespace trireme::test;

namespace {

using Numbers = std::vector<double>;

DType wide_type(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Shapes and options of a call. q, k and v lie in one block, from these elements on.
struct Problem {
  Index samples, queries, keys, heads, kv_heads, width;
  AttentionArgs args = {};
  Index k_at = 0, v_at = 0, elements = 0;
  std::vector<Index> starts = {}, lengths = {}, ids = {}, first_keys = {};

  void pack_side_by_side() {
    const Index token = (heads + 2 * kv_heads) * width;
    args.q = args.k = args.v = {0, token};
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
  std::size_t q(Index n, Index i, Index h) const {
    return static_cast<std::size_t>(n * (args.q.sample ? args.q.sample : queries * args.q.token) + i * args.q.token +
                                    h * width);
  }
  std::size_t k(Index n, Index j, Index g) const {
    return static_cast<std::size_t>(k_at + n * (args.k.sample ? args.k.sample : keys * args.k.token) +
                                    j * args.k.token + g * width);
  }
  std::size_t v(Index n, Index j, Index g) const {
    return static_cast<std::size_t>(v_at + n * (args.v.sample ? args.v.sample : keys * args.v.token) +
                                    j * args.v.token + g * width);
  }
  AttentionArgs with() {
    AttentionArgs all = args;
    const auto view = [&](std::vector<Index>& x) {
      return x.empty() ? View{} : View{x.data(), {samples}, DType::i64, cpu()};
    };
    all.q_starts = view(starts);
    all.lengths = view(lengths);
    all.samples = view(ids);
    if (!first_keys.empty()) all.first_keys = View{first_keys.data(), {samples, queries}, DType::i64, cpu()};
    return all;
  }
};

struct Results {
  Fenced o, stats, gradients;
  Results(const Problem& p, DType t)
      : o({p.samples, p.queries, p.heads, p.width}, t),
        stats({p.samples, p.heads, p.queries, 2}, wide_type(t)),
        gradients({p.elements}, t) {
    for (Fenced* f : {&o, &stats, &gradients}) f->forget();
  }
  std::vector<Numbers> all() { return {o.numbers(), stats.numbers(), gradients.numbers()}; }
};

void run_both(Problem& p, Fenced& qkv, Fenced& dout, Results& r) {
  const AttentionArgs args = p.with();
  const auto part = [&](const View& all, Index from, Index tokens, Index heads) {
    return View{all.as<char>() + from * size_of(all.dtype), {p.samples, tokens, heads, p.width}, all.dtype, cpu()};
  };
  const auto q = [&](Fenced& all) { return part(all.view(), 0, p.queries, p.heads); };
  const auto k = [&](Fenced& all) { return part(all.view(), p.k_at, p.keys, p.kv_heads); };
  const auto v = [&](Fenced& all) { return part(all.view(), p.v_at, p.keys, p.kv_heads); };
  run<kernel::Attention>(r.o.view(), r.stats.view(), q(qkv), k(qkv), v(qkv), args);
  run<kernel::AttentionBackward>(q(r.gradients), k(r.gradients), v(r.gradients), dout.view(), r.o.view(),
                                 r.stats.view(), q(qkv), k(qkv), v(qkv), args);
}

/// One row of probabilities by the definition, and what dropout multiplies them by.
struct Row {
  Numbers p, z;
  double m = -INFINITY, l = 0;
  Row(const Problem& a, const Numbers& x, Index n, Index h, Index i)
      : p(static_cast<std::size_t>(a.keys)), z(p.size(), 1.0) {
    const Index g = h / (a.heads / a.kv_heads);
    const AttentionPart& part = a.args.part;
    const Index query = part.queries.at(i),
                position = a.args.q_at + (a.starts.empty() ? 0 : a.starts[static_cast<std::size_t>(n)]) + query;
    const Index end = a.lengths.empty() ? part.keys.at(a.keys) : a.lengths[static_cast<std::size_t>(n)];
    const Index all = a.args.part.all_heads ? a.args.part.all_heads : a.heads, head = a.args.part.head_at + h;
    for (Index j = 0; j < a.keys; ++j) {
      double s = 0;
      for (Index d = 0; d < a.width; ++d)
        s += x[a.q(n, i, h) + static_cast<std::size_t>(d)] * x[a.k(n, j, g) + static_cast<std::size_t>(d)];
      s *= a.args.scale;
      const Index key = part.keys.at(j);
      if (a.args.alibi) s += alibi_slope(head, all) * static_cast<double>(key - position);
      const Index first = a.first_keys.empty() ? 0 : a.first_keys[static_cast<std::size_t>(n * a.queries + i)];
      const bool seen = key < end && (!a.args.causal || key <= position) &&
                        (a.args.window == 0 || key > position - a.args.window) && key >= first;
      p[static_cast<std::size_t>(j)] = seen ? s : -INFINITY;
      if (seen) m = std::max(m, s);
      const Index queries = part.all_queries ? part.all_queries : a.queries,
                  keys = part.all_keys ? part.all_keys : a.keys;
      const auto e = static_cast<std::uint64_t>((head * queries + query) * keys + key);
      const auto id = static_cast<std::uint64_t>(a.ids.empty() ? n : a.ids[static_cast<std::size_t>(n)]);
      if (a.args.dropout > 0)
        z[static_cast<std::size_t>(j)] =
            uniform_float(Philox{a.args.key()}(id, e / 4)[e % 4]) >= a.args.dropout ? 1 / (1 - a.args.dropout) : 0;
    }
    for (double& s : p) {
      s = std::isinf(s) ? 0 : std::exp(s - m);
      l += s;
    }
    for (double& s : p) s = l > 0 ? s / l : 0;
  }
};

/// o, stats and gradients, the latter NaN where nobody writes.
std::vector<Numbers> naive(const Problem& a, const Numbers& x, const Numbers& dout) {
  const auto width = static_cast<std::size_t>(a.width);
  Numbers o(dout.size()), stats, gradients(x.size(), std::nan(""));
  for (Index n = 0; n < a.samples; ++n) {
    const auto clear = [&](std::size_t at) { std::fill_n(gradients.begin() + static_cast<Index>(at), width, 0.0); };
    for (Index i = 0; i < a.queries; ++i)
      for (Index h = 0; h < a.heads; ++h) clear(a.q(n, i, h));
    for (Index j = 0; j < a.keys; ++j)
      for (Index g = 0; g < a.kv_heads; ++g) {
        clear(a.k(n, j, g));
        clear(a.v(n, j, g));
      }
  }
  for (Index n = 0; n < a.samples; ++n)
    for (Index h = 0; h < a.heads; ++h)
      for (Index i = 0; i < a.queries; ++i) {
        const Row row(a, x, n, h, i);
        const Index g = h / (a.heads / a.kv_heads);
        const auto at = static_cast<std::size_t>((n * a.queries + i) * a.heads + h) * width, q = a.q(n, i, h);
        stats.insert(stats.end(), {row.m, row.l});
        double all = 0;
        for (Index j = 0; j < a.keys; ++j)
          for (std::size_t d = 0, k = static_cast<std::size_t>(j); d < width; ++d)
            o[at + d] += row.p[k] * row.z[k] * x[a.v(n, j, g) + d];
        for (std::size_t d = 0; d < width; ++d) all += o[at + d] * dout[at + d];
        for (Index j = 0; j < a.keys; ++j) {
          const std::size_t k = a.k(n, j, g), v = a.v(n, j, g);
          const double p = row.p[static_cast<std::size_t>(j)], z = row.z[static_cast<std::size_t>(j)];
          double dp = 0;
          for (std::size_t d = 0; d < width; ++d) dp += dout[at + d] * x[v + d];
          const double slope = p * (dp * z - all) * a.args.scale;
          for (std::size_t d = 0; d < width; ++d) {
            gradients[v + d] += p * z * dout[at + d];
            gradients[k + d] += slope * x[q + d];
            gradients[q + d] += slope * x[k + d];
          }
        }
      }
  return {o, stats, gradients};
}

/// Elements that are unwritten, or infinite, must be so in both; else their distance relative to the largest.
double apart(const Numbers& got, const Numbers& expected) {
  double worst = 0, largest = 1e-300;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    if (got[i] == expected[i]) continue;
    worst = std::fmax(worst, std::isfinite(got[i]) ? std::fabs(got[i] - expected[i]) : INFINITY);
    largest = std::max(largest, std::isfinite(expected[i]) ? std::fabs(expected[i]) : 0.0);
  }
  return worst / std::max(largest, 1.0);
}

std::vector<Index> integers(Index n, Index from, Index to) {
  std::vector<Index> a;
  for (Index i = 0; i < n; ++i) a.push_back(pick(from, to));
  return a;
}

Problem drawn() {
  const Index kv_heads = pick(1, 2), most = pick(0, 2) == 0 ? 260 : 20;
  Problem p{.samples = pick(1, 3),
            .queries = pick(1, most),
            .keys = pick(1, most),
            .heads = kv_heads * pick(1, 3),
            .kv_heads = kv_heads,
            .width = pick(0, 2) == 0 ? pick(1, 40) : 8 * pick(1, 20)};
  AttentionArgs& a = p.args;
  a.causal = pick(0, 1) == 1;
  a.scale = 1 / std::sqrt(static_cast<double>(p.width));
  a.alibi = pick(0, 3) == 0;
  a.q_at = pick(0, 2) == 0 ? pick(-20, 200) : 0;
  a.dropout = pick(0, 3) == 0 ? 0.3 : 0;
  a.key = MaskKey(static_cast<std::uint64_t>(pick(0, 1 << 30)));
  if (pick(0, 1) == 0) {
    a.part.all_heads = p.heads + pick(0, 3);
    a.part.head_at = pick(0, a.part.all_heads - p.heads);
  }
  if (pick(0, 2) == 0) {
    p.keys = p.queries;
    p.pack_side_by_side();
  } else {
    p.lay_out(pick(0, 9), pick(0, 9));
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
    p.lengths[0] = pick(0, 1) * p.lengths[0];
  }
  if (pick(0, 1) == 0) p.ids = integers(p.samples, 0, 1000);
  return p;
}

/// Numbers of bf16, so that all types start from the same ones.
void fill(Fenced& x, const Numbers& from) {
  for (std::size_t i = 0; i < from.size(); ++i) x.set(static_cast<Index>(i), from[i]);
}
Numbers random_numbers(Index n, bool whole = false) {
  Numbers v;
  for (Index i = 0; i < n; ++i)
    v.push_back(whole ? static_cast<double>(pick(-2, 2))
                      : static_cast<double>(bf16(std::uniform_real_distribution<float>(-1.5f, 1.5f)(engine))));
  return v;
}

/// Runs f with 1, 2 and 3 threads.
template <class F>
void on_threads(F&& f) {
  const int before = threads();
  for (int n : {1, 2, 3}) {
    set_threads(n);
    f(n);
  }
  set_threads(before);
}

/// Bit for bit what the definition says, in f32 and f64.
void check_exact(Problem& p, const Numbers& qkv, const Numbers& dout) {
  const auto expected = naive(p, qkv, dout);
  for (DType t : {DType::f32, DType::f64})
    on_threads([&](int team) {
      INFO(name_of(t) << " on " << team << " threads");
      Fenced x({p.elements}, t), seed({static_cast<Index>(dout.size())}, t);
      Results r(p, t);
      fill(x, qkv);
      fill(seed, dout);
      Fenced dense(Shape{p.samples, p.queries, p.heads, p.width}, t);
      fill(dense, dout);
      run_both(p, x, dense, r);
      const auto got = r.all();
      for (std::size_t k = 0; k < got.size(); ++k) {
        INFO("output " << k);
        CHECK(apart(got[k], expected[k]) == 0);
      }
    });
}

/// A call of all types and teams, beside the definition.
void check_drawn(Problem& p) {
  INFO("N " << p.samples << " H " << p.heads << " G " << p.kv_heads << " D " << p.width << " Tq " << p.queries << " Tk "
            << p.keys << " causal " << p.args.causal << " alibi " << p.args.alibi << " dropout " << p.args.dropout
            << " q_at " << p.args.q_at << " window " << p.args.window);
  const Shape rows{p.samples, p.queries, p.heads, p.width};
  const Numbers qkv = random_numbers(p.elements), dout = random_numbers(rows.numel());
  const auto expected = naive(p, qkv, dout);
  for (DType t : all_types) {
    INFO(name_of(t));
    Fenced x({p.elements}, t), seed(rows, t);
    fill(x, qkv);
    fill(seed, dout);
    // Nothing of a key that no query sees counts, whatever it is.
    for (Index n = 0; n < p.samples && !p.lengths.empty(); ++n)
      for (Index j = p.args.part.keys.before(p.lengths[static_cast<std::size_t>(n)], p.keys); j < p.keys; ++j)
        for (Index d = 0; d < p.kv_heads * p.width; ++d) {
          x.set(static_cast<Index>(p.k(n, j, 0)) + d, std::nan(""));
          x.set(static_cast<Index>(p.v(n, j, 0)) + d, std::nan(""));
        }
    std::vector<Numbers> first;
    on_threads([&](int team) {
      spoil_scratch();
      Results r(p, t);
      run_both(p, x, seed, r);
      CHECK((r.o.fences_stand() && r.stats.fences_stand() && r.gradients.fences_stand()));
      const auto got = r.all();
      if (team == 1) first = got;
      for (std::size_t k = 0; k < got.size(); ++k) {
        INFO("output " << k << " on " << team << " threads");
        const double within = t == DType::f64 ? 1e-13 : t == DType::f32 ? 3e-6 : k == 1 ? 1e-4 : 2e-2;
        CHECK(apart(got[k], expected[k]) <= within);
        CHECK(std::memcmp(got[k].data(), first[k].data(), got[k].size() * sizeof(double)) == 0);
      }
    });
  }
}

/// A first key for each query, ascending: of documents of 1 to `longest` tokens in a text of all queries and keys.
std::vector<Index> documents(const Problem& p, Index longest) {
  std::vector<Index> first;
  for (Index n = 0; n < p.samples; ++n) {
    Index begin = 0, end = pick(1, longest);
    for (Index i = 0; i < p.queries; ++i) {
      const Index position =
          p.args.q_at + (p.starts.empty() ? 0 : p.starts[static_cast<std::size_t>(n)]) + p.args.part.queries.at(i);
      while (end <= position) begin = std::exchange(end, end + pick(1, longest));
      first.push_back(begin);
    }
  }
  return first;
}

}  // namespace

TEST_CASE("attention equals the definition for random shapes, strides and options, bit for bit on any team") {
  for (int round = 0; round < 60; ++round) {
    INFO("round " << round);
    Problem p = drawn();
    check_drawn(p);
  }
}

TEST_CASE("a query attends to keys of its document only") {
  const auto other_cases = std::exchange(engine, std::mt19937_64(28));
  for (int round = 0; round < 40; ++round) {
    Problem p = drawn();
    p.args.causal = true;
    const Index longest = round % 4 == 0 ? 1 : round % 4 == 1 ? 400 : pick(2, 90);
    p.first_keys = documents(p, longest);
    INFO("round " << round << ", documents of up to " << longest);
    check_drawn(p);
  }
  engine = other_cases;
}

TEST_CASE("a document has the bits that it has alone, and a query those that it has alone") {
  const auto other_cases = std::exchange(engine, std::mt19937_64(29));
  for (const DType t : all_types)
    for (const Index width : {24, 64}) {
      // Documents begin where tiles of keys do, since the keys of a tile are added in order.
      const std::vector<Index> begins{0, 96, 288, 384, 400};
      const Index tokens = begins.back();
      Fenced q({tokens, width}, t), k({tokens, width}, t), v({tokens, width}, t);
      for (Fenced* x : {&q, &k, &v}) fill(*x, random_numbers(tokens * width));
      const auto attend = [&](Index from, Index to, Index key, const std::vector<Index>& first) {
        const auto part = [&](Fenced& x, Index at, Index end) {
          return View{x.view().as<char>() + at * width * size_of(t), {1, end - at, 1, width}, t, cpu()};
        };
        Fenced o({1, to - from, 1, width}, t), stats({1, 1, to - from, 2}, wide_type(t));
        AttentionArgs args{.causal = true, .scale = 0.3, .q_at = from - key};
        if (!first.empty())
          args.first_keys = View{const_cast<Index*>(first.data() + from), {1, to - from}, DType::i64, cpu()};
        run<kernel::Attention>(o.view(), stats.view(), part(q, from, to), part(k, key, tokens), part(v, key, tokens),
                               args);
        return o.numbers();
      };
      std::vector<Index> first;
      for (std::size_t d = 0; d + 1 < begins.size(); ++d)
        first.insert(first.end(), static_cast<std::size_t>(begins[d + 1] - begins[d]), begins[d]);
      const Numbers all = attend(0, tokens, 0, first);
      const auto rows = [&](Index from, Index to) {
        return Numbers(all.begin() + from * width, all.begin() + to * width);
      };
      for (std::size_t d = 0; d + 1 < begins.size(); ++d)
        CHECK(attend(begins[d], begins[d + 1], begins[d], {}) == rows(begins[d], begins[d + 1]));
      for (const Index i : {0, 95, 96, 97, 300, 399}) CHECK(attend(i, i + 1, 0, first) == rows(i, i + 1));
    }
  engine = other_cases;
}

// Text is generated token by token, and evaluated whole.
TEST_CASE("a query alone has the bits that it has among others") {
  for (int round = 0; round < 60; ++round) {
    const Index samples = pick(1, 2), keys = pick(1, 3) == 1 ? pick(1, 20) : pick(1, 300), groups = pick(1, 2),
                heads = groups * pick(1, 3), width = pick(1, 2) == 1 ? 16 * pick(1, 5) : pick(1, 70),
                queries = pick(2, 60);
    for (const DType t : all_types) {
      INFO(name_of(t) << " N " << samples << " H " << heads << " G " << groups << " D " << width << " Tk " << keys);
      Fenced k({samples, keys, groups, width}, t), v({samples, keys, groups, width}, t);
      fill(k, random_numbers(k.view().numel()));
      fill(v, random_numbers(v.view().numel()));
      const Numbers one = random_numbers(samples * heads * width);
      Numbers all;
      for (Index n = 0; n < samples; ++n)
        for (Index i = 0; i < queries; ++i)
          all.insert(all.end(), one.begin() + n * heads * width, one.begin() + (n + 1) * heads * width);
      const auto outputs = [&](Index count, const Numbers& q) {
        Fenced x({samples, count, heads, width}, t), o({samples, count, heads, width}, t),
            stats({samples, heads, count, 2}, wide_type(t));
        fill(x, q);
        run<kernel::Attention>(o.view(), stats.view(), x.view(), k.view(), v.view(), AttentionArgs{.scale = 0.7});
        return o.numbers();
      };
      const Numbers alone = outputs(1, one), among = outputs(queries, all);
      for (Index n = 0; n < samples; ++n)
        CHECK(std::equal(alone.begin() + n * heads * width, alone.begin() + (n + 1) * heads * width,
                         among.begin() + n * queries * heads * width));
    }
  }
}

TEST_CASE("attention of scores far apart picks values: exact, and the scores get no gradient") {
  for (const bool causal : {false, true}) {
    Problem p{.samples = 2, .queries = 110, .keys = 110, .heads = 4, .kv_heads = 2, .width = 112};
    p.args.causal = causal;
    p.pack_side_by_side();
    // Key j is 64 e_j and a query 64 e_j: that key is 4096 ahead of all others.
    Numbers qkv = random_numbers(p.elements, true), dout = random_numbers(2 * 110 * 4 * 112, true);
    for (Index n = 0; n < 2; ++n)
      for (Index i = 0; i < p.queries; ++i) {
        for (Index h = 0; h < p.heads; ++h)
          for (Index d = 0, one = pick(0, i); d < p.width; ++d)
            qkv[p.q(n, i, h) + static_cast<std::size_t>(d)] = d == one ? 64 : 0;
        for (Index g = 0; g < p.kv_heads; ++g)
          for (Index d = 0; d < p.width; ++d) qkv[p.k(n, i, g) + static_cast<std::size_t>(d)] = d == i ? 64 : 0;
      }
    check_exact(p, qkv, dout);
  }
}

TEST_CASE("attention of equal scores is exact: all probabilities are a power of two") {
  for (const bool zero_keys : {false, true}) {
    Problem p{.samples = 2, .queries = 128, .keys = 128, .heads = 4, .kv_heads = 2, .width = 16};
    p.args.scale = 0.25;
    p.pack_side_by_side();
    Numbers qkv = random_numbers(p.elements, true);
    for (Index n = 0; n < 2; ++n)
      for (Index i = 0; i < p.queries; ++i)
        std::fill_n(qkv.begin() + static_cast<Index>(zero_keys ? p.k(n, i, 0) : p.q(n, i, 0)),
                    (zero_keys ? p.kv_heads : p.heads) * p.width, 0.0);
    check_exact(p, qkv, random_numbers(2 * 128 * 4 * 16, true));
  }
}

TEST_CASE("attention of operands that do not fit is refused by name") {
  const auto of = [](const Shape& s, DType t = DType::f32) { return Fenced(s, t); };
  Fenced q = of({2, 3, 4, 5}), k = of({2, 6, 2, 5}), stats = of({2, 4, 3, 2}), three = of({2, 6, 3, 5}),
         narrow = of({2, 3, 4, 5}, DType::bf16);
  const auto attend = [&](Fenced& a, Fenced& b, const AttentionArgs& args = {}) {
    Fenced o = of({2, 3, 4, 5});
    run<kernel::Attention>(o.view(), stats.view(), a.view(), b.view(), b.view(), args);
  };
  attend(q, k);
  CHECK_ERROR(attend(q, three), usage, 4, 3);
  CHECK_ERROR(attend(narrow, k), usage, "bf16", "f32");
  CHECK_ERROR(attend(q, k, {.dropout = 1}), usage, 1, 0);
  CHECK_ERROR(attend(q, k, {.q = {.token = 7}}), usage, 21, 7, "q");
  CHECK_ERROR(attend(q, k, {.part = {.head_at = 2, .all_heads = 5}}), usage, 2, 6, 5);
  CHECK_ERROR(attend(q, k, {.part = {.queries = {.first = 2}, .all_queries = 4}}), usage, 2, 5, 4);
  CHECK_ERROR(attend(q, k, {.part = {.keys = {.first = 3}, .all_keys = 8}}), usage, 3, 9, 8);
  CHECK_ERROR(attend(q, k, {.part = {.keys = {.step = 2}, .all_keys = 8}}), usage, 0, 11, 8);
  CHECK_ERROR(attend(q, k, {.window = 4}), usage, 4, "causal");
  std::vector<Index> two{1, 2, 3};
  CHECK_ERROR(attend(q, k, {.lengths = View{two.data(), {3}, DType::i64, cpu()}}), usage, "i64", "[3]", 2, "[2]");
  std::vector<Index> first{0, 2, 2, 0, 1, 0};
  const View starts{first.data(), {2, 3}, DType::i64, cpu()};
  CHECK_ERROR(attend(q, k, {.first_keys = starts}), usage, "first_keys", "causal");
  CHECK_ERROR(attend(q, k, {.causal = true, .first_keys = View{two.data(), {3}, DType::i64, cpu()}}), usage, "[3]",
              "[2, 3]");
  CHECK_ERROR(attend(q, k, {.causal = true, .first_keys = starts}), usage, 1, 0, "query 2", "sample 1");
}

TEST_CASE("one query has the bits of the same query among others") {
  for (const DType type : {DType::f32, DType::f64})
    for (const Index width : {1, 2, 8, 24, 64})
      for (const Index keys : {1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 96, 97, 99, 110, 200}) {
        INFO(name_of(type) << ", D " << width << ", " << keys << " keys");
        const auto attend = [&](Index queries) {
          Problem p{.samples = 1, .queries = queries, .keys = keys, .heads = 1, .kv_heads = 1, .width = width};
          p.args.scale = 0.3;
          p.lay_out(0, 0);
          engine.seed(static_cast<unsigned>(keys));
          Numbers numbers = random_numbers(p.elements + 3 * width);  // of 3 queries, the keys and the values
          numbers.erase(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>((4 - queries) * width));
          Fenced x({p.elements}, type), seed({1, queries, 1, width}, type);
          fill(x, Numbers(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(p.elements)));
          fill(seed, random_numbers(queries * width));
          Results r(p, type);
          run_both(p, x, seed, r);
          const Numbers o = r.o.numbers();
          return Numbers(o.end() - static_cast<std::ptrdiff_t>(width), o.end());
        };
        CHECK(attend(1) == attend(4));
      }
}

TEST_CASE("rotary embeddings equal the definition, in place too, and turn back") {
  for (DType t : all_types)
    for (int round = 0; round < 40; ++round) {
      const Index n = pick(1, 3), tokens = pick(1, 9), heads = pick(1, 4), width = pick(2, 40),
                  rotated = 2 * pick(1, width / 2);
      const bool interleaved = pick(0, 1) == 1, own = pick(0, 1) == 1;
      INFO(name_of(t) << " D " << width << " R " << rotated << " interleaved " << interleaved);
      const Shape s{n, tokens, heads, width};
      const Shape of_table = own ? Shape{n, tokens, rotated} : Shape{tokens, rotated};
      Fenced x(s, t), y(s, t), back(s, t), table(of_table, wide_type(t));
      fill(x, random_numbers(s.numel()));
      const Index pairs = rotated / 2;
      for (Index i = 0; i < of_table.numel(); ++i) {
        const double angle = static_cast<double>(i / rotated * 7 + i % pairs);
        table.set(i, i % rotated < pairs ? std::cos(angle) : std::sin(angle));
      }
      const Numbers in = x.numbers(), turns = table.numbers();
      Numbers expected = in;
      for (Index i = 0; i < s.numel(); i += width)
        for (Index k = 0; k < pairs; ++k) {
          const auto a = static_cast<std::size_t>(i + (interleaved ? 2 * k : k)),
                     b = a + static_cast<std::size_t>(interleaved ? 1 : pairs);
          const Index token = i / width / heads % (own ? n * tokens : tokens);
          const auto at = static_cast<std::size_t>(token * rotated + k);
          const double c = turns[at], sine = turns[at + static_cast<std::size_t>(pairs)];
          expected[a] = in[a] * c - in[b] * sine;
          expected[b] = in[b] * c + in[a] * sine;
        }
      const double within = t == DType::f64 ? 1e-15 : t == DType::f32 ? 5e-7 : 1e-2;
      y.forget();
      run<kernel::Rope>(y.view(), x.view(), table.view(), interleaved, false);
      CHECK(apart(y.numbers(), expected) <= within);
      run<kernel::Rope>(back.view(), y.view(), table.view(), interleaved, true);
      CHECK(apart(back.numbers(), in) <= 3 * within);
      run<kernel::Rope>(x.view(), x.view(), table.view(), interleaved, false);
      CHECK(x.numbers() == y.numbers());
      CHECK((x.fences_stand() && y.fences_stand() && back.fences_stand()));
    }
}

}  // namespace test_kernels_attention
