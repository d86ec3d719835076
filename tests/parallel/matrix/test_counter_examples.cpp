// Models on which a rule for dividing layers that looks right gives wrong gradients. Each is exact under a strategy or
// refused by it.
#include <iostream>

#include "models/text/llama.h"
#include "tests/parallel/matrix/runs.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_counter_examples {

using namespace trireme;
using namespace trireme::test;

namespace {

struct Way {
  std::string strategy, mesh;
  bool runs = true;  ///< false: it may be refused
  int microbatches = 1;
};

void judge(const SmallModel& m, const std::vector<Way>& ways, double clip = 0) {
  if (threads_only()) return;
  Comparison comparison({.clip = clip});
  for (const Way& way : ways) {
    const MatrixCell cell = comparison.run(m, way.strategy, way.mesh, way.microbatches);
    const bool good = cell.wrong.empty() && (cell.refused.empty() || !way.runs);
    if (!good || std::getenv("MATRIX_SHOW") != nullptr)
      std::cout << m.name << "; " << way.strategy << "; " << way.mesh << "; " << cell.text() << "\n";
    CHECK(good);
  }
}
std::vector<Way> on_axis(const std::string& strategy, const std::string& axis, bool runs = true) {
  std::vector<Way> all;
  for (const char* ranks : {"2", "3", "4"}) all.push_back({strategy, axis + "=" + ranks, runs});
  return all;
}

/// Adds a table that has an extent of its input: positions of an image's rows, columns and channels.
struct Positions {
  explicit Positions(const Shape& shape) : table(Tensor::zeros(shape)) {}
  Tensor operator()(const Tensor& x) const { return x + table.to(x.dtype()); }
  void visit(const StateVisitor& v) { v("table", table, StateKind::weight, Init::normal(0.5)); }
  Tensor table;
};

/// Queries, keys and values of one x, and a sum of products of all three.
struct Projections {
  Linear query{12, 8}, key{12, 8}, value{12, 8}, out{8, 12};
  Tensor operator()(const Tensor& x) const { return x + out(query(x) * sigmoid(key(x)) + value(x)); }
  void visit(const StateVisitor& v) { v("query", query, "key", key, "value", value, "out", out); }
};

/// Two layers read one tensor, and masks are drawn for both results.
struct Branches {
  Linear left{12, 8}, right{12, 8}, out{8, 12};
  Dropout first{0.4};
  Dropout2d second{0.4};
  Tensor operator()(const Tensor& x) const { return out(first(left(x)) + second(right(x))); }
  void visit(const StateVisitor& v) { v("left", left, "right", right, "out", out, "first", first, "second", second); }
};

/// A residual, added to a product whose sum is cut, before and after an activation.
struct Residual {
  Linear wide{12, 20}, narrow{20, 12};
  Tensor operator()(const Tensor& x) const { return relu(x + narrow(relu(wide(x)))) + narrow(tanh(wide(x))); }
  void visit(const StateVisitor& v) { v("wide", wide, "narrow", narrow); }
};

/// No Sequential: one part of a plan, with convolutions and dense layers.
struct Net {
  Conv2d conv = Conv2d(3, 8, 3, {.pad = 1});
  BatchNorm norm = BatchNorm(8);
  Linear fc = Linear(8 * 36, 12), head = Linear(12, 5);
  Tensor operator()(const Tensor& x) const { return head(relu(fc(flatten(relu(norm(conv(x))))))); }
  void visit(const StateVisitor& v) { v("conv", conv, "norm", norm, "fc", fc, "head", head); }
};

}  // namespace

TEST_CASE("a table of positions has the factor that ranks divide") {
  const auto with = [](const Shape& table) {
    return small_model("positions " + to_string(table), {6, 6, 3}, [table] {
      return Sequential{Conv2d(3, 4, 3, {.pad = 1}), Positions(table), Conv2d(4, 3, 3), relu, flatten, Linear(48, 5)};
    });
  };
  for (const Shape& table : {Shape{6, 6, 4}, Shape{6, 1, 4}, Shape{1, 6, 1}, Shape{4}, Shape{1}}) {
    std::vector<Way> ways = on_axis("spatial", "h");
    ways.push_back({"spatial", "h=2,w=2"});
    ways.push_back({"spatial | data_parallel", "data=2,h=2"});
    for (const Way& way : on_axis("tensor", "tensor", false)) ways.push_back(way);
    ways.push_back({"tensor | spatial", "tensor=2,h=2", false});
    judge(with(table), ways);
  }
}

TEST_CASE("one layer is used before and after an axis of the image collapses") {
  const auto twice = [](const std::string& name, const std::function<Module()>& layer) {
    return small_model(name + " twice", {12, 6, 3}, [layer] {
      const Module same = layer();
      return Sequential{Conv2d(3, 4, 3, {.pad = 1}),
                        same,
                        relu,
                        Conv2d(4, 4, 3, {.stride = 4, .pad = 1}),
                        same,
                        AvgPool(2),
                        same,
                        flatten,
                        Linear(4, 5)};
    });
  };
  for (const SmallModel& m : {twice("convolution", [] { return Conv2d(4, 4, 3, {.pad = 1}); }),
                              twice("LayerNorm", [] { return LayerNorm(4); }), twice("PReLU", [] { return PReLU(4); }),
                              twice("BatchNorm", [] { return BatchNorm(4); })})
    judge(m, {{"spatial", "h=2"},
              {"spatial", "h=3"},
              {"spatial", "h=4"},
              {"spatial", "w=3"},
              {"spatial", "h=2,w=2"},
              {"spatial", "h=2,w=3"},
              {"spatial | data_parallel", "data=2,h=3"},
              {"tensor", "tensor=2", false},
              {"tensor | spatial", "tensor=2,h=3", false}});
}

TEST_CASE("gradients of what column-cut queries, keys and values read are summed once") {
  const SmallModel m = small_model("projections", {2, 2, 3}, [] {
    return Sequential{flatten, Projections(), Projections(), relu, Linear(12, 5)};
  });
  std::vector<Way> ways = on_axis("tensor", "tensor");
  for (const char* table : {"place(1.query.*+1.key.*+1.value.*) | place(1.out.weight, dim=1)",
                            "place(1.query.weight+1.key.weight+1.value.weight, dim=1)",
                            "place(1.query.*+1.value.*) | place(1.key.weight, dim=-1)",
                            "place(1.query.*, whole=true) | place(1.key.*+1.value.*)"})
    for (const Way& way : on_axis("tensor | " + std::string(table), "tensor")) ways.push_back(way);
  ways.push_back({"tensor | data_parallel", "data=2,tensor=3"});
  for (const Way& way : on_axis("one_weird_trick", "data", false)) ways.push_back(way);
  judge(m, ways);
}

TEST_CASE("masks of all results of one tensor are drawn from its sample ids") {
  const SmallModel m = small_model("branches", {2, 2, 3}, [] {
    // A norm that each rank computes whole: both layers read the same tensor.
    return Sequential{flatten, Linear(12, 12), LayerNorm(12), Branches(), relu, Linear(12, 5)};
  });
  const SmallModel images = small_model("dropped channels", {6, 6, 3}, [] {
    return Sequential{Conv2d(3, 4, 3), Dropout2d(0.4), relu, flatten, Linear(64, 5)};
  });
  std::vector<Way> ways = on_axis("one_weird_trick", "data");
  ways.push_back({"data_parallel(axis=replica) | one_weird_trick", "replica=2,data=2"});
  for (const Way& way : on_axis("tensor", "tensor")) ways.push_back(way);
  ways.push_back({"tensor | data_parallel", "data=2,tensor=2"});
  judge(m, ways);
  judge(images, ways);
}

TEST_CASE("a residual is added to a partial sum once") {
  const SmallModel m = small_model("residual", {2, 2, 3}, [] {
    return Sequential{flatten, Residual(), Residual(), Linear(12, 5)};
  });
  std::vector<Way> ways = on_axis("tensor", "tensor");
  for (const Way& way : on_axis("tensor | place(1.wide.weight+1.narrow.weight+2.wide.weight, dim=1)", "tensor"))
    ways.push_back(way);
  ways.push_back({"tensor | zero(3)", "data=2,tensor=2"});
  for (const Way& way : on_axis("one_weird_trick", "data", false)) ways.push_back(way);
  judge(m, ways);
}

TEST_CASE("a bias and an activation that are fused with a product come after its sum") {
  const SmallModel dense = small_model("dense", {2, 2, 3}, [] {
    return Sequential{flatten, Linear(12, 8), relu, Linear(8, 9), relu, Linear(9, 7), gelu, Linear(7, 5)};
  });
  std::vector<Way> ways = on_axis("tensor", "tensor");
  for (const Way& way : on_axis("place(*.weight, dim=1)", "tensor")) ways.push_back(way);
  judge(dense, ways);
  const SmallModel images = small_model("convolutions", {8, 8, 4}, [] {
    return Sequential{Conv2d(4, 6, 3),
                      relu,
                      Conv2d(6, 4, 3, {.pad = 1}),
                      relu,
                      MaxPool(2),
                      Dropout(0.3),
                      Conv2d(4, 6, 2),
                      BatchNorm(6),
                      relu,
                      flatten,
                      Linear(24, 5)};
  });
  ways = on_axis("tensor", "tensor");
  for (const Way& way : on_axis("tensor | place(0.weight+2.weight+6.weight+10.weight, dim=-1)", "tensor"))
    ways.push_back(way);
  ways.push_back({"tensor | spatial", "tensor=2,h=2"});
  judge(images, ways);
}

TEST_CASE("the norm by which gradients are clipped counts each element once") {
  const SmallModel net = small_model("clipped", {6, 6, 3}, [] {
    return Sequential{Conv2d(3, 4, 3), BatchNorm(4),  relu, Conv2d(4, 4, 1), relu,
                      flatten,         Linear(64, 8), relu, Linear(8, 5)};
  });
  judge(net,
        {{"data_parallel", "data=3"},
         {"spatial", "h=2,w=2"},
         {"tensor", "tensor=3"},
         {"tensor", "tensor=4"},
         {"one_weird_trick", "data=3", false},
         {"zero(3)", "data=3"},
         {"spatial | data_parallel", "data=2,h=2"},
         {"tensor | data_parallel", "data=2,tensor=2"},
         {"tensor | spatial", "tensor=2,h=2"},
         {"tensor | zero(1)", "data=2,tensor=2"},
         {"tensor | zero(3)", "data=2,tensor=2"},
         {"place(6.weight, axis=a) | place(8.weight, dim=1, axis=b)", "a=2,b=2"},
         {"place(6.weight+8.weight, axis=a) | place(6.weight, dim=1, axis=b)", "a=2,b=2"},
         {"spatial | zero(3)", "h=3"},
         {"one_weird_trick | zero(1)", "data=2"},
         {"one_weird_trick | zero(3)", "data=3"},
         {"one_weird_trick | central_storage", "data=3"},
         {"data_parallel(axis=replica) | one_weird_trick", "replica=2,data=2"},
         {"data_parallel(axis=replica) | one_weird_trick | zero(2)", "replica=2,data=3"},
         {"pipeline(micro=2, partition=even) | tensor", "pipe=2,tensor=2", true, 2},
         {"pipeline(micro=2, partition=even) | spatial", "pipe=2,h=2", true, 2},
         {"pipeline(micro=2, partition=even) | zero(3)", "pipe=2,data=2", true, 2},
         {"pipeline(micro=2, partition=even) | tensor | data_parallel", "pipe=2,tensor=2,data=2", true, 2}},
        0.05);
}

TEST_CASE("models that are no Sequential are divided per tensor") {
  const SmallModel net = small_model("net", {6, 6, 3}, [] { return Module(Net()); });
  judge(net, {{"one_weird_trick", "data=2", false},
              {"one_weird_trick", "data=3", false},
              {"one_weird_trick | zero(1)", "data=2"},
              {"one_weird_trick | zero(3)", "data=3"},
              {"data_parallel(axis=replica) | one_weird_trick", "replica=2,data=2", false},
              {"tensor", "tensor=3"},
              {"spatial", "h=3"},
              {"tensor | data_parallel", "data=2,tensor=2"},
              {"data_parallel", "data=3"},
              {"zero(3)", "data=3"}});
}

TEST_CASE("ops that read more than their own block see the whole") {
  const auto between = [](const std::string& name, const std::function<Module()>& layer) {
    return small_model(name, {6, 6, 3}, [layer] {
      return Sequential{Conv2d(3, 8, 3, {.pad = 1}), layer(), relu, Conv2d(8, 4, 3), flatten, Linear(64, 5)};
    });
  };
  for (const SmallModel& m :
       {between("GroupNorm", [] { return GroupNorm(2, 8); }), between("InstanceNorm", [] { return InstanceNorm(8); }),
        between("LayerNorm", [] { return LayerNorm(8); }), between("Dropout2d", [] { return Dropout2d(0.5); }),
        between("Dropout", [] { return Dropout(0.5); }),
        between("cumsum", [] { return Module([](const Tensor& x) { return scale(cumsum(x, 1), 0.2); }); }),
        between("softmax", [] { return Module([](const Tensor& x) { return softmax(x); }); })})
    judge(m, {{"spatial", "h=2", false},
              {"spatial", "w=3", false},
              {"spatial", "h=2,w=2", false},
              {"tensor", "tensor=2", false},
              {"tensor", "tensor=3", false},
              {"tensor | spatial", "tensor=2,h=2", false}});
}

TEST_CASE("a batch norm of rows that every rank has counts them once") {
  const SmallModel m = small_model("norm of dense layers", {2, 2, 3}, [] {
    return Sequential{flatten, Linear(12, 8), BatchNorm(8), relu, Linear(8, 6), BatchNorm(6), Linear(6, 5)};
  });
  std::vector<Way> ways = on_axis("one_weird_trick", "data");
  for (const char* mesh : {"replica=2,data=2", "replica=3,data=2", "replica=2,data=3"})
    ways.push_back({"data_parallel(axis=replica) | one_weird_trick", mesh});
  for (const char* strategy : {"data_parallel", "zero(3)"}) ways.push_back({strategy, "data=3"});
  for (const Way& way : on_axis("tensor", "tensor")) ways.push_back(way);
  ways.push_back({"tensor | data_parallel", "data=2,tensor=2"});
  judge(m, ways);
}

TEST_CASE("an axis of the mesh has one use") {
  const SmallModel m = small_model("dense", {2, 2, 3}, [] {
    return Sequential{flatten, Linear(12, 8), relu, Linear(8, 5)};
  });
  judge(m, {{"tensor(axis=data) | data_parallel", "data=2", false},
            {"tensor | local_sgd(axis=tensor, every=1)", "tensor=2", false},
            {"pipeline(micro=2, partition=even) | tensor(axis=pipe)", "pipe=2", false, 2}});
}

TEST_CASE("fewer groups of keys and values than ranks") {
  for (const Index groups : {1, 2}) {
    SmallModel m;
    for (SmallModel& bundled : small_models())
      if (bundled.name == "llama") m = std::move(bundled);
    m.name += " of groups " + std::to_string(groups);
    m.make = [groups] {
      Module model = convert(Module(llama({.layers = 2,
                                           .heads = 4,
                                           .kv_heads = groups,
                                           .width = 24,
                                           .hidden = 36,
                                           .positions = 10,
                                           .vocabulary = 17})),
                             DType::f64);
      set_start(model);
      return model;
    };
    std::vector<Way> ways = on_axis("tensor", "tensor", false);
    ways.push_back({"tensor | data_parallel", "data=2,tensor=2", false});
    ways.push_back({"data_parallel", "data=3"});
    judge(m, ways);
  }
}

}  // namespace test_counter_examples
