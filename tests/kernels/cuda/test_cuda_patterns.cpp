// Which operations cuDNN joins to a convolution on a GPU that is only described (tests/cuda_devices): a table for all
// convolutions of ResNet-50 at batch 256. No GPU takes part.
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "kernels/cuda/conv_graph.h"
#include "tests/support/catch.h"
#include "tests/support/temporary.h"

namespace test_cuda_patterns {

using namespace trireme;
using namespace trireme::gpu;

namespace {

constexpr Index batch = 256;

struct Convolution {
  Index c_in, c_out, in, filter, stride;
};
constexpr Convolution resnet50[] = {
    {3, 64, 224, 7, 2},     {64, 64, 56, 1, 1},   {64, 64, 56, 3, 1},    {64, 256, 56, 1, 1},   {256, 64, 56, 1, 1},
    {256, 128, 56, 1, 1},   {128, 128, 56, 3, 2}, {128, 512, 28, 1, 1},  {256, 512, 56, 1, 2},  {512, 128, 28, 1, 1},
    {128, 128, 28, 3, 1},   {512, 256, 28, 1, 1}, {256, 256, 28, 3, 2},  {256, 1024, 14, 1, 1}, {512, 1024, 28, 1, 2},
    {1024, 256, 14, 1, 1},  {256, 256, 14, 3, 1}, {1024, 512, 14, 1, 1}, {512, 512, 14, 3, 2},  {512, 2048, 7, 1, 1},
    {1024, 2048, 14, 1, 2}, {2048, 512, 7, 1, 1}, {512, 512, 7, 3, 1}};

ConvShape shape_of(const Convolution& c) {
  ConvShape s;
  s.dims = 2;
  s.n = batch;
  s.c_in = c.c_in;
  s.c_out = c.c_out;
  const Index pad = (c.filter - 1) / 2, out = (c.in + 2 * pad - c.filter) / c.stride + 1;
  for (std::size_t d = 0; d < 2; ++d) {
    s.in[d] = c.in;
    s.filter[d] = c.filter;
    s.out[d] = out;
    s.options.stride[d] = c.stride;
    s.options.pad_begin[d] = s.options.pad_end[d] = pad;
  }
  return s;
}

/// The tensors around one convolution, and the steps that patterns are made of.
struct Site {
  Graph& g;
  ConvShape s;
  DType type;
  Layout x = channels_last(s.n, s.c_in, s.in, 2, type), y = channels_last(s.n, s.c_out, s.out, 2, type);
  Layout w = channels_last(s.c_out, s.c_in, s.filter, 2, type);

  Layout channels(Index c) const { return channels_last(1, c, {1, 1, 1}, 2, DType::f32); }
  static Layout in(Layout l, DType t) {
    l.type = t;
    return l;
  }
  Graph::Tensor pass(cudnnPointwiseMode_t mode, const Layout& like, DType t, Graph::Tensor a, Graph::Tensor b = -1) {
    const Graph::Tensor to = g.passing(in(like, t));
    g.pointwise(mode, to, a, b);
    return to;
  }
  /// relu(scale * x + bias), in x's type: what engines want before a convolution.
  Graph::Tensor normalised() {
    const Graph::Tensor a = g.tensor(in(channels(s.c_in), type)), b = g.tensor(in(channels(s.c_in), type));
    Graph::Tensor v = pass(CUDNN_POINTWISE_MUL, x, type, g.tensor(x), a);
    v = pass(CUDNN_POINTWISE_ADD, x, type, v, b);
    return pass(CUDNN_POINTWISE_RELU_FWD, x, type, v);
  }
  void forward_with_sums(Graph::Tensor from) {
    const Graph::Tensor to = g.tensor(y);
    g.convolve(Graph::Pass::forward, from, g.tensor(w), to, window(s));
    g.sums(to, g.tensor(channels(s.c_out)), g.tensor(channels(s.c_out)));
  }
  Graph::Tensor input_gradient() {
    const Graph::Tensor dx = g.passing(in(x, DType::f32));
    g.convolve(Graph::Pass::backward_input, dx, g.tensor(w), g.tensor(y), window(s));
    return dx;
  }
  /// The gradient that goes on below ReLU(BN(before)), and BN's own.
  void relu_and_norm_backward(Graph::Tensor dy) {
    const Graph::Tensor before = g.tensor(x), dx = g.tensor(x);
    const auto c = channels(s.c_in);
    const Graph::Tensor mean = g.tensor(c), inverse = g.tensor(c), scale = g.tensor(c), bias = g.tensor(c);
    Graph::Tensor v = pass(CUDNN_POINTWISE_ADD, x, DType::f32, before, mean);
    v = pass(CUDNN_POINTWISE_MUL, x, DType::f32, v, inverse);
    v = pass(CUDNN_POINTWISE_MUL, x, DType::f32, v, scale);
    v = pass(CUDNN_POINTWISE_ADD, x, DType::f32, v, bias);
    g.relu_backward(dx, dy, v);
    g.batch_norm_backward(
        {before, dx, mean, inverse, scale, g.tensor(c), g.tensor(c), g.tensor(c), g.tensor(c), g.tensor(c)});
  }
  /// of_dy * dy + of_x * y + of_nothing, in dy's type.
  Graph::Tensor norm_applied() {
    const auto c = in(channels(s.c_out), type);
    Graph::Tensor a = pass(CUDNN_POINTWISE_MUL, y, type, g.tensor(y), g.tensor(c));
    const Graph::Tensor b = pass(CUDNN_POINTWISE_MUL, y, type, g.tensor(y), g.tensor(c));
    a = pass(CUDNN_POINTWISE_ADD, y, type, a, b);
    return pass(CUDNN_POINTWISE_ADD, y, type, a, g.tensor(c));
  }
};

struct Pattern {
  const char *name, *what;
  std::function<void(Graph&, const ConvShape&, DType)> build;
};

/// A job as conv.cpp runs it.
Pattern job(const char* name, const char* what, ConvJob j) {
  return {name, what, [j](Graph& g, const ConvShape& s, DType type) {
            ConvJob here = j;
            here.shape = s;
            here.shape.options.relu = j.shape.options.relu;
            here.type = here.bias = type;
            build(g, here);
          }};
}

std::vector<Pattern> patterns() {
  ConvJob bias{.form = ConvForm::forward, .with_bias = true}, block = bias;
  bias.shape.options.relu = block.shape.options.relu = block.with_residual = true;
  ConvJob sums{.form = ConvForm::forward, .with_sums = true}, bias_sums = sums;
  bias_sums.with_bias = true;
  return {
      job("fwd", "y = conv(x)", {.form = ConvForm::forward}),
      job("fwd-sums", "y = conv(x), its sums and sums of squares", sums),
      job("bias-sums", "y = conv(x) + bias, its sums and sums of squares", bias_sums),
      job("dgrad", "dx = dgrad(dy)", {.form = ConvForm::backward_input}),
      job("dgrad+=", "dx += dgrad(dy), by beta", {.form = ConvForm::backward_input, .accumulate = true}),
      job("wgrad", "narrow dw = wgrad(x, dy)", {.form = ConvForm::backward_weight}),
      job("wgrad32", "f32 dw = identity(wgrad(x, dy))", {.form = ConvForm::backward_weight_wide}),
      job("bias-relu", "y = relu(conv(x) + bias)", bias),
      job("bias-add-relu", "y = relu(conv(x) + bias + residual)", block),
      {"w32-direct", "f32 dw = wgrad(x, dy), with no step behind it",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         g.convolve(Graph::Pass::backward_weight, g.tensor(at.x), g.tensor(Site::in(at.w, DType::f32)), g.tensor(at.y),
                    window(s));
       }},
      {"norm-fwd-sums", "y = conv(relu(a x + b)), its sums and sums of squares",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         at.forward_with_sums(at.normalised());
       }},
      {"dgrad-add", "dx = dgrad(dy) + other",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         const Graph::Tensor dx = at.input_gradient();
         g.pointwise(CUDNN_POINTWISE_ADD, g.tensor(at.x), dx, g.tensor(at.x));
       }},
      {"dgrad-relu", "dx = dgrad(dy) where x > 0",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         const Graph::Tensor dx = at.input_gradient();
         g.relu_backward(g.tensor(at.x), dx, g.tensor(at.x));
       }},
      {"dgrad-relu-bn", "dx = dgrad(dy) where bn(x) > 0, and batch norm's gradients",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         at.relu_and_norm_backward(at.input_gradient());
       }},
      {"norm-wgrad", "narrow dw = wgrad(relu(a x + b), dy)",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         g.convolve(Graph::Pass::backward_weight, at.normalised(), g.tensor(at.w), g.tensor(at.y), window(s));
       }},
      {"wgrad-dbn", "narrow dw = wgrad(x, a dy + b y + c)",
       [](Graph& g, const ConvShape& s, DType t) {
         Site at{g, s, t};
         g.convolve(Graph::Pass::backward_weight, g.tensor(at.x), g.tensor(at.w), at.norm_applied(), window(s));
       }},
  };
}

/// Engines for a pattern, and why when there are none.
struct Offer {
  std::size_t engines = 0;
  std::string why;
};
Offer offer(const Pattern& p, const Convolution& c, DType type, const Target& target) {
  Offer o;
  try {
    Graph g("pattern", DType::f32);
    p.build(g, shape_of(c), type);
    g.finish(target);
    o.engines = engines(g, target, {.whole = false, .alike = 64}, o.why).size();
  } catch (const Error& e) { o.why = e.what(); }
  return o;
}

Target described(const char* device) {
  // cuDNN looks for the driver by this library's name, and finds it opened.
  static void* const driver = dlopen(TRIREME_CUDA_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE(driver != nullptr);
  std::ifstream file(std::string(TRIREME_ROOT "/tests/cuda_devices/") + device + ".json");
  return Target(std::string(std::istreambuf_iterator<char>(file), {}), "pattern");
}

/// Rows of the table: convolutions; columns: patterns. Returns in how many convolutions each pattern has an engine.
std::map<std::string, int> print_table(const Target& target, const char* device, DType type) {
  const auto all = patterns();
  std::map<std::string, int> shapes;
  std::map<std::string, std::string> reasons;
  fmt::print("\n{}, {}, batch {}: engines for\n{:24}", device, name_of(type), batch, "");
  for (const Pattern& p : all) fmt::print(" {:>{}}", p.name, std::max<std::size_t>(4, std::strlen(p.name)));
  for (const Convolution& c : resnet50) {
    fmt::print("\n{:24}", fmt::format("{}x{}/{} {}->{} @{}", c.filter, c.filter, c.stride, c.c_in, c.c_out, c.in));
    for (const Pattern& p : all) {
      const Offer o = offer(p, c, type, target);
      fmt::print(" {:>{}}", o.engines == 0 ? "-" : std::to_string(o.engines),
                 std::max<std::size_t>(4, std::strlen(p.name)));
      shapes[p.name] += o.engines > 0;
      if (o.engines == 0) reasons.try_emplace(p.name, o.why);
    }
    std::fflush(stdout);
  }
  fmt::print("\n");
  for (const Pattern& p : all) {
    fmt::print("  {:14} {} of {} shapes: {}\n", p.name, shapes[p.name], std::size(resnet50), p.what);
    if (reasons.count(p.name)) fmt::print("  {:14} none at the first that has none: {}\n", "", reasons[p.name]);
  }
  return shapes;
}

/// What conv.cpp counts on. The table takes minutes for a type: the other narrow type and other devices are for who
/// asks for [table].
void check_table(DType type) {
  auto shapes = print_table(described("h200"), "H200", type);
  const int all = static_cast<int>(std::size(resnet50));
  for (const char* name : {"fwd", "dgrad", "dgrad+=", "wgrad", "bias-relu"}) {  // the others have a second way
    INFO(name);
    CHECK(shapes[name] == all);
  }
}

}  // namespace

TEST_CASE("cuDNN has engines for all that convolutions of ResNet-50 ask on a described H200", "[patterns]") {
  check_table(DType::bf16);
}

TEST_CASE("and in f16", "[.][table]") { check_table(DType::f16); }

TEST_CASE("what cuDNN joins to convolutions on a described A100", "[.][table]") {
  const Target target = described("a100");
  for (DType type : {DType::bf16, DType::f16}) print_table(target, "A100", type);
}

TEST_CASE("f32 that stays whole has engines without tensor cores, whose workspace the rules allow", "[patterns]") {
  const Target target = described("h200");
  for (ConvForm form : {ConvForm::forward, ConvForm::backward_input, ConvForm::backward_weight})
    for (const Convolution& c : resnet50) {
      const ConvJob job{.form = form, .shape = shape_of(c)};
      Graph g("whole", DType::f32);
      build(g, job);
      g.finish(target);
      std::string why;
      const EngineRules rules = rules_for(job);
      REQUIRE(rules.whole);
      std::set<Index> able;
      for (const Engine& e : engines(g, target, rules, why)) {
        CHECK_FALSE(e.compiled);
        if (Plan(g, target, e).workspace() <= rules.workspace) able.insert(e.number);
      }
      INFO(static_cast<int>(form) << " " << c.c_in << " " << c.c_out << " " << c.in << " " << c.filter);
      CHECK(able.size() >= 2);  // engine 0 is cuDNN's simplest
    }
}

TEST_CASE("sums beside a convolution: bf16 has only engines that add up in any order, f16 has others", "[patterns]") {
  const Target target = described("h200");
  for (DType type : {DType::bf16, DType::f16})
    for (bool deterministic : {true, false}) {
      const ConvJob job{.form = ConvForm::forward,
                        .shape = shape_of({64, 64, 56, 3, 1}),
                        .type = type,
                        .with_sums = true,
                        .deterministic = deterministic};
      Graph g("sums", DType::f32);
      build(g, job);
      g.finish(target);
      std::string why;
      const auto found = engines(g, target, rules_for(job), why);
      INFO(name_of(type) << " deterministic " << deterministic);
      CHECK(found.empty() == (type == DType::bf16 && deterministic));
      for (const Engine& e : found) CHECK((Plan(g, target, e).workspace() > 0) == !e.compiled);
    }
}

TEST_CASE("a plan is made again from its JSON, without compiling", "[patterns]") {
  const Target target = described("h200");
  int compiled = 0;
  for (const Pattern& p : patterns()) {
    if (p.name != std::string("fwd") && p.name != std::string("bias-add-relu") && p.name != std::string("fwd-sums"))
      continue;
    Graph g("pattern", DType::f32), unfinished = Graph("pattern", DType::f32);
    for (Graph* each : {&g, &unfinished}) p.build(*each, shape_of({64, 64, 56, 3, 1}), DType::bf16);
    g.finish(target);
    std::string why;
    const auto found = engines(g, target, {.whole = false}, why);
    REQUIRE_FALSE(found.empty());
    compiled += found.front().compiled;
    const Plan plan(g, target, found.front());
    const std::string json = plan.json();
    const Plan again(unfinished, target, json);
    CHECK(again.workspace() == plan.workspace());
    CHECK(again.json() == json);
    for (const std::string& damaged : {std::string("{}"), std::string("no plan"), json.substr(0, json.size() / 2)})
      CHECK_THROWS_AS(Plan(unfinished, target, damaged), Error);
  }
  CHECK(compiled == 2);  // both kinds have been tried
}

TEST_CASE("the folder of plans outlives processes and damage", "[patterns]") {
  const test::Temporary temporary;
  const std::string path = temporary / "below/plans";
  PlanKey one, two;
  one.numbers[0] = 1;
  two.numbers[31] = -2;
  const std::string text("{\"a\": \n 1}\0 2", 14);
  const PlanFolder first(path), second(path);
  CHECK_FALSE(first.find(one));
  first.keep(one, {0, text});
  second.keep(two, {1, ""});
  REQUIRE((second.find(one) && first.find(two)));
  CHECK((second.find(one)->json == text && second.find(one)->way == 0 && first.find(two)->way == 1));
  first.keep(one, {2, "other"});
  CHECK((second.find(one)->json == "other" && second.find(one)->way == 2));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path)) ++files;
  CHECK(files == 2);

  const std::string file = first.file_of(one), whole = test::slurp(file);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    test::spill(file, whole.substr(0, size));
    CHECK_FALSE(first.find(one));
    std::string changed = whole;
    changed[size] ^= 1;
    test::spill(file, changed);
    const auto found = first.find(one);
    CHECK((!found || found->json == "other"));  // the number of the way is the one thing that may change
  }
  test::spill(file, whole + "x");
  CHECK_FALSE(first.find(one));
  std::filesystem::copy_file(first.file_of(two), file, std::filesystem::copy_options::overwrite_existing);
  CHECK_FALSE(first.find(one));  // the file says whose it is
  first.keep(one, {0, text});
  CHECK(first.find(one)->json == text);

  const PlanFolder none(""), unwritable("/proc/none/plans");
  none.keep(one, {0, text});
  unwritable.keep(one, {0, text});
  CHECK_FALSE((none.find(one) || unwritable.find(one)));
}

TEST_CASE("engines that cuDNN compiles are measured where there is nothing else, or one of them", "[patterns]") {
  const Engine a{1, {}, false}, b{2, {}, false}, c{3, {}, false}, d{4, {}, false}, x{7, {}, true}, y{8, {}, true};
  using Ways = std::vector<std::vector<Engine>>;
  using Found = std::vector<std::pair<std::size_t, Engine>>;
  CHECK(candidates(Ways{{a, b, c, x}}) == Found{{0, a}, {0, b}, {0, c}});
  CHECK(candidates(Ways{{x, a, y, b, c}}) == Found{{0, a}, {0, b}, {0, x}, {0, c}});
  CHECK(candidates(Ways{{x, y}}) == Found{{0, x}, {0, y}});
  CHECK(candidates(Ways{{x, y}, {a, b, c, d}}) == Found{{1, a}, {1, b}, {0, x}, {1, c}, {1, d}});
  CHECK(candidates(Ways{{a, b, c}, {d, a, x}}) == Found{{0, a}, {1, d}, {1, x}, {0, b}, {1, a}, {0, c}});
  CHECK(candidates(Ways{{a}, {}}) == Found{{0, a}});
  CHECK(candidates(Ways{{}, {}}).empty());
}

}  // namespace test_cuda_patterns
