// Every ordered pair of strategies, "a | b": trains, saves, is loaded under another pair and trained on, and equals the
// serial run in all that a run is made of, or is refused by a text that is known. TRIREME_TEST_ALL=1: on every mesh of
// 1, 2, 3, 4 and 8 ranks; else each pair on its smallest.
#include "framework/checkpoint.h"
#include "framework/metrics.h"
#include "framework/safetensors.h"
#include "tests/pairs.h"
#include "tests/temporary.h"
#include "tests/training.h"

using namespace trireme;
using namespace trireme::test;

namespace {

/// What a run has come to: the files of its checkpoint, where it stands, and what it says.
struct Stand {
  std::vector<std::pair<std::string, std::vector<double>>> tensors;  ///< weights, buffers and optimizer state by name
  std::vector<double> losses;
  /// Outputs for samples that were not trained on: before the leg, where sums of integers are exact, and behind it.
  std::vector<double> before, after;
  std::int64_t step = 0, epoch = 0, batch = 0;
};

/// Where a leg of a run begins and how long it is.
struct Leg {
  std::string from, to;  ///< run directories; from: "" for the start
  int steps = 2;
};

/// Outputs for all rows, on every rank; each rank computes those of its share of them.
std::vector<double> outputs(Step& step, World& world, const Setup& s) {
  const Inference inference;
  const Index rows = 6, classes = 5;
  const bool divided = step.divided();
  const Shard shard = divided ? Shard(step.shard().rank(), step.shard().size()) : Shard();
  Loader loader(Dataset(std::make_shared<Noise>(rows, s.shape, s.integers)),
                {.batch = rows, .shard = shard, .workers = 0, .dtype = s.dtype, .training = false});
  Tensor sums = Tensor::zeros({rows, classes + 1}, DType::f64);
  for (auto& batch : loader) {
    const Tensor logits = divided ? whole(step.model()(batch.x)) : step.model()(batch.x);
    const auto values = logits.to_vector(), ids = batch.samples.to_vector();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      double* row = sums.data<double>() + static_cast<Index>(ids[i]) * (classes + 1);
      for (std::size_t j = 0; j < static_cast<std::size_t>(classes); ++j)
        row[j] = values[i * static_cast<std::size_t>(classes) + j];
      row[classes] = 1;
    }
  }
  world.comm().all_reduce(sums).wait();
  auto all = sums.to_vector();
  for (std::size_t i = 0; i < all.size(); ++i) all[i] /= all[i / 6 * 6 + 5];  // ranks that computed the row
  return all;
}

Stand train_leg(const Setup& s, World& world, const Arrangement& how, const Leg& leg) {
  Module model = s.model();
  if (!s.integers) initialize(model, 1);
  if (!leg.from.empty() || world.rank() > 0)  // the start is rank 0's, or the checkpoint's
    model.visit(Visit([&](const Leaf& leaf) {
      if (leaf.use != Use::buffer) fill_integers(*leaf.tensor, 77, 3);
    }));
  convert(model, s.dtype);
  Mesh mesh(world, how.mesh);
  Strategy strategy = parse_strategy(how.strategy);
  strategy.norm_scope = NormScope::global;
  Step step(model, s.loss, s.recipe, mesh, strategy, {.seed = 5, .optimizer = s.optimizer});
  TrainState at{.seed = 5};
  if (!leg.from.empty()) {
    step.gather();
    std::vector<double> numbers(3, 0);
    if (world.main() || step.divided()) {
      at = load_latest(leg.from, step.parameters(), &step.optimizer()).value().state;
      numbers = {static_cast<double>(at.step), static_cast<double>(at.epoch), static_cast<double>(at.batch)};
    }
    const Tensor shared = Tensor::of(numbers, {3}, DType::f64);
    world.comm().broadcast(shared, 0).wait();
    numbers = shared.to_vector();
    at.step = static_cast<Index>(numbers[0]), at.epoch = static_cast<Index>(numbers[1]);
    at.batch = static_cast<Index>(numbers[2]);
    if (!step.divided()) broadcast_state(step.parameters(), world), broadcast_state(step.optimizer(), world);
  }
  Loader loader(Dataset(std::make_shared<Noise>(s.samples, s.shape, s.integers)), {.batch = s.batch,
                                                                                   .shuffle = true,
                                                                                   .seed = 3,
                                                                                   .epoch = at.epoch,
                                                                                   .shard = step.shard(),
                                                                                   .workers = 0,
                                                                                   .dtype = s.dtype,
                                                                                   .start_batch = at.batch});
  Stand stand;
  stand.before = outputs(step, world, s);
  std::vector<Tensor> losses;
  for (auto& [x, y] : loader) {
    losses.push_back(step(x, y));
    ++at.step, ++at.batch;
    if (static_cast<int>(losses.size()) == leg.steps) break;
  }
  for (auto& loss : losses) stand.losses.push_back(loss.item());
  step.gather();
  stand.after = outputs(step, world, s);
  const std::string path = save_checkpoint(leg.to, step.parameters(), step.optimizer(), at, {.write = world.main()});
  if (!world.main()) return {};
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    for (auto& [name, tensor] : read_safetensors(path + "/" + file).tensors)
      stand.tensors.emplace_back(file + (": " + name), tensor.to_vector());
  const TrainState saved = verify_checkpoint(path);
  stand.step = saved.step, stand.epoch = saved.epoch, stand.batch = saved.batch;
  return stand;
}

/// What differs by more than `tolerance`, relative to the largest value beside it; "" when nothing does.
std::string difference(const Stand& a, const Stand& b, double tolerance) {
  const auto differs = [&](const std::vector<double>& x, const std::vector<double>& y) {
    if (x.size() != y.size()) return true;
    double scale = 0;
    for (double v : y) scale = std::max(scale, std::abs(v));
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!(std::abs(x[i] - y[i]) <= tolerance * scale)) return true;  // NaN differs
    return false;
  };
  if (a.step != b.step || a.epoch != b.epoch || a.batch != b.batch) return "the cursor";
  if (differs(a.losses, b.losses)) return "the losses";
  if (a.tensors.size() != b.tensors.size()) return "the number of tensors";
  std::string names;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].first != b.tensors[i].first) return "the name " + a.tensors[i].first;
    if (differs(a.tensors[i].second, b.tensors[i].second)) names += " " + a.tensors[i].first;
  }
  if (!names.empty()) return names.substr(1);
  if (differs(a.before, b.before)) return "the outputs before";
  tolerance = std::max(tolerance, 1e-12);  // of fractions that are too long by now
  return differs(a.after, b.after) ? "the outputs behind" : "";
}

/// Outcomes of a table: how many arrangements are equal, and how many are refused by each text.
struct Count {
  int all = 0, equal = 0;
  std::map<std::string, int> refused;
  std::vector<std::string> wrong;
};

/// The serial run with micro-batches that was saved after its first leg, or went on with others from there.
class References {
 public:
  explicit References(const Setup& s) : s_(s) {}
  const Stand& first(int micros) { return get(micros, 0); }
  const Stand& second(int micros, int then) { return get(micros, then); }

 private:
  const Stand& get(int micros, int then) {
    auto [at, added] = stands_.try_emplace({micros, then});
    if (added) {
      if (then > 0) get(micros, 0);
      World world;
      const int now = then > 0 ? then : micros;
      const Arrangement serial{
          {{"data", 1}}, now > 1 ? "accumulate(micro=" + std::to_string(now) + ")" : "serial", now};
      at->second =
          train_leg(s_, world, serial, {.from = then > 0 ? folder(micros, 0) : "", .to = folder(micros, then)});
    }
    return at->second;
  }
  std::string folder(int micros, int then) const {
    return folder_ / (std::to_string(micros) + "_" + std::to_string(then));
  }
  const Setup& s_;
  Temporary folder_;
  std::map<std::pair<int, int>, Stand> stands_;
};

/// Each arrangement trains, is saved, and goes on under the next of them that is not refused.
Count compare(const Setup& s, const std::vector<Arrangement>& all, double tolerance) {
  References references(s);
  Count count;
  Temporary folder;
  std::string saved;  // by the arrangement before
  const Arrangement* saver = nullptr;
  const auto leg = [&](const Arrangement& how, const Leg& what, const Stand& reference, const std::string& name) {
    try {
      const Stand got = on_ranks(how.ranks(), [&](World& world) { return train_leg(s, world, how, what); });
      const std::string found = difference(got, reference, tolerance);
      if (!found.empty()) count.wrong.push_back(name + ": " + found + " differ");
      return true;
    } catch (const std::exception& e) {
      const std::string text = known_refusal(e.what());
      if (text.empty()) count.wrong.push_back(name + ": " + e.what());
      if (!text.empty()) ++count.refused[text];
      return false;
    }
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Arrangement& how = all[i];
    const std::string to = folder / std::to_string(i), on = to + "_on";
    const std::size_t wrong = count.wrong.size();
    ++count.all;
    if (!leg(how, {.from = "", .to = to}, references.first(how.micros), how.text())) continue;
    if (saver != nullptr)
      leg(how, {.from = saved, .to = on}, references.second(saver->micros, how.micros),
          how.text() + ", from a checkpoint of " + saver->text());
    count.equal += count.wrong.size() == wrong;
    std::filesystem::remove_all(on);
    if (saver != nullptr) std::filesystem::remove_all(saved);
    saver = &how, saved = to;
  }
  return count;
}

bool in_full() { return std::getenv("TRIREME_TEST_ALL") != nullptr; }

std::vector<Arrangement> table() {
  const auto rows = strategy_texts();
  std::vector<Arrangement> all;
  for (auto& a : rows)
    for (auto& b : rows) {
      if (!in_full()) all.push_back(smallest(a, b));
      // These share out updates along the axes that gradients are summed over, whatever they are called.
      const bool shares = b.text.starts_with("zero") || b.text == "central_storage";
      if (!in_full() && shares && a.text.starts_with("spatial"))
        all.push_back({{{a.axis, 2}}, all.back().strategy, all.back().micros});
      for (int ranks : {1, 2, 3, 4, 8})
        if (in_full())
          for (auto& how : arrangements(a, b, ranks)) all.push_back(how);
    }
  return all;
}

/// Sums stay exact: three layers deep, three steps of 1/8, and momentum 1/2.
Setup exact() {
  return {.model =
              [] {
                return with_integers(Sequential{Conv2d(1, 4, 3), relu, MaxPool(2), Dropout(0.5), flatten, Linear(36, 8),
                                                relu, Linear(8, 5)});
              },
          .loss = pattern_loss,
          .recipe = Sgd{.lr = 0.125, .momentum = 0.5},
          .samples = 20,
          .batch = 8,
          .shape = {8, 8, 1},
          .integers = true};
}
Setup normed() {
  return {.model =
              [] {
                return Sequential{Conv2d(1, 4, 3, {.bias = false}),
                                  BatchNorm(4),
                                  relu,
                                  MaxPool(2),
                                  flatten,
                                  Linear(36, 8),
                                  relu,
                                  Dropout(0.5),
                                  Linear(8, 5)};
              },
          .recipe = Adam{.lr = 0.01},
          .samples = 20,
          .batch = 8,
          .shape = {8, 8, 1}};
}

/// How many arrangements of table() are equal, and how many are refused by which text.
std::string counts() {
  if (in_full())
    return R"(835 of 1907 are equal
56 refused: ' uses only '
63 refused: already: only one strategy may do so
510 refused: it deals out the parts of a plan that is still serial
21 refused: one_weird brings the rows of all ranks together, which stages of a pipeline have at
72 refused: one_weird gathers the batch of all ranks and goes with no other split of layers
50 refused: ranks would work
51 refused: stages of a model of
80 refused: the plan's updates are shared already: use one of zero and central_storage, once
61 refused: wants micro-batches that divide by the
12 refused: where updates would be shared out
96 refused: write zero or central_storage last
)";
  return R"(108 of 233 are equal
8 refused: ' uses only '
14 refused: already: only one strategy may do so
65 refused: it deals out the parts of a plan that is still serial
4 refused: one_weird brings the rows of all ranks together, which stages of a pipeline have at
6 refused: one_weird gathers the batch of all ranks and goes with no other split of layers
16 refused: the plan's updates are shared already: use one of zero and central_storage, once
4 refused: where updates would be shared out
8 refused: write zero or central_storage last
)";
}

void judge(const Count& count, const std::string& expected) {
  std::string wrong, text = std::to_string(count.equal) + " of " + std::to_string(count.all) + " are equal\n";
  for (auto& line : count.wrong) wrong += line + "\n";
  for (auto& [what, times] : count.refused) text += std::to_string(times) + " refused: " + what + "\n";
  CHECK(wrong == "");
  CHECK(text == expected);
}

}  // namespace

TEST_CASE("every pair of strategies trains, saves and loads as the serial run does, bit by bit") {
  if (threads_only()) return;
  judge(compare(exact(), table(), 0), counts());
}

TEST_CASE("every pair of strategies trains, saves and loads a network with batch norm as accumulation does") {
  if (threads_only()) return;
  judge(compare(normed(), table(), 1e-11), counts());
}
