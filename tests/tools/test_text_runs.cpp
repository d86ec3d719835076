// The Trainer on text: a small GPT under every kind of strategy, resumed or not, evaluated without its logits; what is
// refused.
#include <cmath>
#include <fstream>
#include <numbers>

#include "datasets/text/tokens.h"
#include "framework/layers/inference.h"
#include "kernels/core/random.h"
#include "tests/tools/trainer_runs.h"
#include "tools/training/from_options.h"

namespace test_text_runs {

using namespace trireme;
using namespace trireme::test;

namespace {

/// Words of a few letters, drawn from a vocabulary of 40, two bytes for one of the letters; not of whole windows.
std::string some_text(Index words) {
  std::string text;
  const Philox random{3};
  for (Index w = 0; w < words; ++w) {
    const std::uint64_t word = random(1, static_cast<std::uint64_t>(w))[0] % 40;
    for (std::uint64_t i = 0; i < 2 + word % 4; ++i) {
      const std::uint32_t letter = random(2 + word, i)[0] % 9;
      text += letter == 8 ? std::string("é") : std::string(1, static_cast<char>('a' + letter));
    }
    text += w % 9 == 8 ? '\n' : ' ';
  }
  return text;
}
std::string write_text(const std::filesystem::path& path, const std::string& text = some_text(1000)) {
  std::ofstream(path) << text;
  return path;
}
TrainerOptions small_gpt(const std::filesystem::path& dir, const std::string& text) {
  TrainerOptions o = options_for_run(dir);
  o.model = "gpt2";
  o.epochs = 2;
  o.seed = 3;
  o.arch.layers = 2;
  o.arch.heads = 2;
  o.arch.width = 16;
  o.arch.dropout = 0.1;
  o.arch.bias = 0;
  o.data.name = "text";
  o.data.root = text;
  o.data.tokenizer = "chars";
  o.data.context = 12;
  o.data.batch = 12;
  o.data.eval_batch = 7;
  o.data.windows = 60;
  o.optim.name = "adamw";
  o.optim.lr = 0.01;
  o.optim.schedule = "cosine";
  o.optim.warmup_steps = 3;
  o.optim.beta2 = 0.95;
  o.optim.min_lr = 0.001;
  o.optim.clip_norm = 1;
  o.optim.weight_decay = 0.1;
  return o;
}
void check_same(const Run& run, const Run& serial) {
  REQUIRE(run.losses.size() == serial.losses.size());
  for (const auto& [step, loss] : serial.losses) CHECK(std::abs(run.losses.at(step) - loss) < 1e-12 * loss);
  CHECK(std::abs(run.end.loss - serial.end.loss) < 1e-12 * serial.end.loss);
}
void refused(const TrainerOptions& options, const std::string& value, ErrorKind kind = ErrorKind::usage) {
  World::threads(
      1, [&](World& world) { CHECK_THROWS_MATCHES(Trainer({}, options, world), Error, ErrorMatcher(kind, value)); });
}

}  // namespace

TEST_CASE("a GPT on text has the losses of the serial run on any number of ranks, under every kind of strategy") {
  const test::Temporary folder;
  const std::string text = write_text(folder / "text.txt");
  const Run serial = train(small_gpt(folder / "serial", text));
  REQUIRE(serial.losses.size() == 10);
  CHECK(serial.losses.at(10) < serial.losses.at(1) - 0.1);
  int runs = 0;
  for (const auto& [ranks, mesh, strategy] : std::vector<std::tuple<int, std::string, std::string>>{
           {2, "", ""},
           {4, "", "data_parallel"},
           {1, "", "accumulate(micro=3)"},
           {3, "", "data_parallel | zero(3)"},
           {2, "pipe=2", "pipeline(micro=2, partition=even)"},
           {4, "pipe=2,data=2", "pipeline(micro=3, partition=even) | data_parallel"}}) {
    INFO(strategy << " on " << ranks);
    TrainerOptions o = small_gpt(folder / std::to_string(runs++), text);
    o.parallel.mesh = mesh;
    o.parallel.strategy = strategy;
    check_same(train(o, ranks), serial);
  }
}

TEST_CASE("a run on text goes on where it was stopped, with windows, schedule and tokenizer of its own") {
  const test::Temporary folder;
  const std::string text = write_text(folder / "text.txt");
  const Run whole = train(small_gpt(folder / "whole", text));
  TrainerOptions o = small_gpt(folder / "parts", text);
  o.run.max_steps = 3;  // in mid-epoch
  Run parts = train(o, 2);
  CHECK(parts.losses.size() == 3);
  o.run.max_steps = 0;
  o.run.resume = "yes";
  const Run rest = train(o);
  CHECK(rest.losses.begin()->first == 4);
  parts.losses.insert(rest.losses.begin(), rest.losses.end());
  parts.end = rest.end;
  check_same(parts, whole);
  o.data.context = 11;
  o.arch.layers = 1;
  o.optim.min_lr = 0;
  for (const char* name :
       {"data.context is 11, but the run has 12", "arch.layers is 1, but the run has 2", "optim.min_lr"})
    refused(o, name);
}

TEST_CASE("a run on text does not go on with another text, and keeps the characters it knows") {
  const test::Temporary folder;
  const std::string text = write_text(folder / "text.txt");
  TrainerOptions o = small_gpt(folder / "run", text);
  o.run.max_steps = 3;
  train(o);
  o.run.max_steps = 0;
  o.run.resume = "yes";
  const std::string kept = slurp(folder / "run/tokenizer.json");
  write_text(text, some_text(999));
  for (const int ranks : {1, 2}) CHECK_ERROR(train(o, ranks), data, "train data");
  write_text(text, some_text(1000) + "zz");
  refused(o, "U+007A", ErrorKind::data);
  std::string fewer = some_text(1000);
  std::ranges::replace(fewer, 'b', 'a');  // without one of the characters all behind it would have other ids
  write_text(text, fewer);
  refused(o, "train data", ErrorKind::data);
  o.run.override = true;
  CHECK(train(o).losses.begin()->first == 4);
  CHECK(slurp(folder / "run/tokenizer.json") == kept);
  o.run.override = false;  // from now on that is its text
  CHECK(train(o).losses.empty());
}

TEST_CASE("evaluation on text: perplexity, bits per byte, each token once, the same without logits") {
  const test::Temporary folder;
  const std::string words = some_text(1000), path = write_text(folder / "text.txt", words);
  TrainerOptions o = small_gpt(folder / "run", path);
  o.epochs = 1;
  const Run run = train(o, 2);
  const auto evals = lines_of(folder / "run", "eval");
  REQUIRE(evals.size() == 1);
  CHECK(evals[0].at("test_loss").get<double>() == run.end.loss);
  CHECK(evals[0].at("test_perplexity").get<double>() == std::exp(run.end.loss));
  CHECK(evals[0].at("tokens_per_s").get<double>() == Approx(12 * evals[0].at("images_per_s").get<double>()));
  CHECK((!evals[0].contains("test_top1") && !evals[0].contains("train_top1")));
  std::ifstream table(folder / "run/metrics.csv");
  std::string head;
  std::getline(table, head);
  CHECK(head.ends_with(",test_perplexity,test_bits_per_byte,tokens_per_s"));

  // The same by hand, from whole logits, of the text's last tenth.
  const Dataset test = make_dataset(o, "test");
  const TextSource& source = *text_of(test);
  const Tokenizer tokenizer = open_tokenizer(folder / "run/tokenizer.json");
  CHECK(tokenizer.vocabulary() == test->classes());
  Index characters = 0;
  for (const char c : words) characters += (c & 0xC0) != 0x80;
  const Index split = static_cast<Index>(static_cast<double>(characters) * 0.9);
  std::vector<Index> ids = tokenizer.encode(words);
  ids.erase(ids.begin(), ids.begin() + split);
  CHECK(std::ssize(ids) == source.tokens());
  Module model = make_model(o, options_for(*test));
  Parameters parameters(model);
  REQUIRE(load_latest(folder / "run", parameters, nullptr));
  double sum = 0;
  {
    const Inference inference;
    for (Index begin = 0; begin + 1 < std::ssize(ids); begin += 12) {
      const Index end = std::min<Index>(begin + 12, std::ssize(ids) - 1), n = end - begin;
      const Tensor x = Tensor::from(std::vector<Index>(ids.begin() + begin, ids.begin() + end)).reshape({1, n});
      const std::vector<double> p = log_softmax(model(x)).to_vector();
      for (Index t = 0; t < n; ++t)
        sum -= p[static_cast<std::size_t>(t * test->classes() + ids[static_cast<std::size_t>(begin + t + 1)])];
    }
  }
  const double mean = sum / static_cast<double>(ids.size() - 1);
  CHECK(std::abs(mean - run.end.loss) < 1e-12);
  const double bits = mean / std::numbers::ln2 * static_cast<double>(ids.size()) / static_cast<double>(source.bytes());
  CHECK(std::abs(result_of(run.end.metrics, "bits_per_byte") - bits) < 1e-11);
  CHECK(source.bytes() == std::ssize(tokenizer.decode(ids)));
  // With a metric of predictions these are made.
  World::threads(2, [&](World& world) {
    const Evaluation other = evaluate(model, test, world, {.batch = 5, .dtype = DType::f64, .metrics = {TopK{.k = 3}}});
    expect(std::abs(other.loss - mean) < 1e-12 && !other.is_classified());
    expect(other.metrics.size() == 3 && other.metrics[1].name == "perplexity");
  });
}

TEST_CASE("warm-up and cosine are nanoGPT's") {
  TrainerOptions o;
  o.epochs = 8;
  o.optim.lr = 1e-3;
  o.optim.min_lr = 1e-4;
  o.optim.schedule = "cosine";
  o.optim.warmup_steps = 100;
  const Schedule rate = make_schedule(o, 250);
  for (std::int64_t step = 0; step < 2300; ++step) {
    const double share = std::min(1.0, static_cast<double>(step - 100) / 1900);
    const double expected = step < 100 ? 1e-3 * static_cast<double>(step + 1) / 101
                                       : 1e-4 + 0.5 * (1 + std::cos(std::numbers::pi * share)) * 9e-4;
    CHECK(std::abs(rate(step) - expected) < 1e-15);
  }
  o.optim.schedule = "linear";
  CHECK(make_schedule(o, 250)(2000) == Approx(1e-4));
  CHECK(make_schedule(o, 250)(100) == Approx(1e-3));
  o.optim.schedule = "step";
  o.optim.step_epochs = 1;
  o.optim.gamma = 0.5;
  CHECK(make_schedule(o, 250)(0) == Approx(1e-3 / 101));
  CHECK(make_schedule(o, 250)(250) == Approx(5e-4));
  o.optim.name = "adamw";
  o.optim.beta1 = 0.8;
  o.optim.beta2 = 0.95;
  CHECK(contains("beta1=0.8, beta2=0.95").match(to_string(make_optimizer(o, 10))));
  o.optim.beta1 = o.optim.beta2 = 0;
  CHECK(contains("beta1=0.9, beta2=0.999").match(to_string(make_optimizer(o, 10))));
}

TEST_CASE("settings of text models that cannot be are refused by name") {
  const test::Temporary folder;
  const std::string text = write_text(folder / "text.txt");
  int runs = 0;
  const auto with = [&](const std::string& why, auto&& change, ErrorKind kind = ErrorKind::usage) {
    TrainerOptions o = small_gpt(folder / std::to_string(runs++), text);
    change(o);
    refused(o, why, kind);
  };
  with("3 heads do not divide a width of 128", [](auto& o) {
    o.arch.heads = 3;
    o.arch.width = 128;
  });
  with("arch.positions is 8, and samples have 12 tokens", [](auto& o) { o.arch.positions = 8; });
  with("arch.vocabulary is 5", [](auto& o) { o.arch.vocabulary = 5; });
  with("arch.kv_heads is 1", [](auto& o) { o.arch.kv_heads = 1; });
  with("arch.activation", [](auto& o) { o.arch.activation = "swish"; });
  with("optim.warmup_steps and optim.warmup_epochs", [](auto& o) { o.optim.warmup_epochs = 1; });
  with("optim.warmup_epochs is -1", [](auto& o) { o.optim.warmup_epochs = -1; });
  with("optim.step_epochs is -0.5", [](auto& o) { o.optim.step_epochs = -0.5; });
  with("optim.step_epochs is 0", [](auto& o) {
    o.optim.schedule = "step";
    o.optim.step_epochs = 0;
  });
  with("optim.gamma is -0.1", [](auto& o) { o.optim.gamma = -0.1; });
  with("optim.milestones", [](auto& o) { o.optim.milestones = {1, -1}; });
  with("mnist are pictures", [](auto& o) { o.data.name = "mnist"; });
  with("mlp takes pictures", [](auto& o) {
    o.model = "mlp";
    o.arch = {};
  });
  with("the next token", [](auto& o) { o.model = "bert"; });
  with("mlp has one size", [](auto& o) {
    o.model = "mlp";
    o.data.name = "synthetic";
  });
  with(
      "a window of 1048576", [](auto& o) { o.data.context = 1 << 20; }, ErrorKind::data);
  with("use data.windows", [](auto& o) { o.data.limit = 10; });
  with("use data.windows", [](auto& o) { o.data.augment = true; });
  with(
      "chekpoint", [](auto& o) { o.data.tokenizer = "chekpoint"; }, ErrorKind::file);
  with("there is no 'test_top1'", [](auto& o) { o.checkpoint.best = "test_top1"; });
  // Weights of another model: positions, vocabulary.
  TrainerOptions o = small_gpt(folder / "whole", text);
  o.epochs = 1;
  (void)train(o);
  const std::string weights = find_latest(folder / "whole")->path + "/model.safetensors";
  with(
      "wpe",
      [&](auto& o) {
        o.weights = weights;
        o.data.context = 8;
      },
      ErrorKind::data);
  with(
      "wte",
      [&](auto& o) {
        o.weights = weights;
        o.data.tokenizer = "bytes";
      },
      ErrorKind::data);
  o.run.dir = folder / "again";
  o.weights = weights;
  o.data.context = 8;
  o.arch.positions = 12;
  (void)train(o);
}

}  // namespace test_text_runs
