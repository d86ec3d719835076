// What ops take from the StepContext: shares of a global batch give what the whole batch gives, and ops refuse what
// does not fit.
#include "framework/autograd/step_context.h"
#include "framework/layers/inference.h"

#include <barrier>
#include <cmath>
#include <mutex>
#include <thread>

#include "framework/autograd/tape.h"
#include "framework/ops/ops.h"
#include "kernels/core/random.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

namespace test_pass {

using namespace trireme;
using test::distance;
using Values = std::vector<double>;

namespace {

Tensor numbers(const Shape& shape, std::uint64_t key, double low = -1, double high = 1) {
  Values v(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = low + (high - low) * uniform_float(Philox{key}(0, i)[0]);
  return Tensor::of(v, shape, DType::f64);
}
Tensor ids(Index begin, Index end) {
  Values v;
  for (Index i = begin; i < end; ++i) v.push_back(static_cast<double>(100 + 7 * i));
  return Tensor::of(v, {end - begin}, DType::i64);
}

/// Sums in place over the threads of one group.
class Summing {
 public:
  explicit Summing(int members) : members_(members), barrier_(members) {}
  int members() const { return members_; }
  void operator()(View v) {
    const auto mine = v.span<double>();
    {
      std::lock_guard lock(mutex_);
      total_.resize(mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) total_[i] += mine[i];
    }
    barrier_.arrive_and_wait();
    std::copy(total_.begin(), total_.end(), mine.begin());
    barrier_.arrive_and_wait();
    {
      std::lock_guard lock(mutex_);
      total_.clear();
    }
    barrier_.arrive_and_wait();
  }

 private:
  int members_;
  std::barrier<> barrier_;
  std::mutex mutex_;
  Values total_;
};

/// One of the threads, to batch norm. A sum is under way until it is waited for.
class Member final : public NormRanks {
 public:
  Member(Summing& all, int rank) : all_(all), rank_(rank) {}
  int size() const override { return all_.members(); }
  Wait gather(const Tensor& to, const Tensor& from) const override {
    return [=, this] {
      const Index n = from.numel();
      for (Index i = 0; i < to.numel(); ++i) to.data<double>()[i] = i / n == rank_ ? from.data<double>()[i % n] : 0;
      all_(to.view());
    };
  }
  Wait sum(const Tensor& x) const override {
    return [=, this] { all_(x.view()); };
  }

 private:
  Summing& all_;
  int rank_;
};

/// What a rank, or the serial run, ends with.
struct Result {
  double loss = 0;
  Values dx, dgamma, dbeta, dw, mean, var;
};

/// Rows [begin, end) of a batch of 10 through batch norm, dropout, a linear layer and a loss with ignored labels.
Result share(Index begin, Index end, Summing* summing, int rank = 0) {
  StepContext context;
  context.batch.seed = 3;
  context.batch.step = 4;
  context.batch.global_batch = 10;
  context.batch.samples = ids(begin, end);
  if (summing) {
    context.ignored = 2;
    context.norm = std::make_shared<Member>(*summing, rank);
  }
  StepScope scope(context);
  const Tensor all = numbers({10, 2, 2, 3}, 1, 999, 1001);  // far from 0: squares must not cancel
  const Tensor labels = Tensor::of(Values{0, 1, 2, 3, 1, 2, 0, 3, 1, 1}, {10}, DType::i64);
  Tensor x = all.rows(begin, end), gamma = numbers({3}, 2), beta = numbers({3}, 3), w = numbers({4, 12}, 4);
  const Tensor mean = Tensor::zeros({3}, DType::f64), var = Tensor::full({3}, 1, DType::f64);
  for (Tensor* t : {&x, &gamma, &beta, &w}) t->require_grad();
  const Tensor h = batch_norm(x, gamma, beta, mean, var, {.relu = true});
  const Tensor loss =
      cross_entropy_with({.ignore_index = 2})(linear(flatten(dropout(h, 0.5, 9)), w), labels.rows(begin, end));
  loss.backward();
  return {loss.item(),          x.grad().to_vector(), gamma.grad().to_vector(), beta.grad().to_vector(),
          w.grad().to_vector(), mean.to_vector(),     var.to_vector()};
}

void add_to(Values& sum, const Values& part) {
  sum.resize(part.size());
  for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
}

}  // namespace

TEST_CASE("ranks with batch norm's global scope, dropout and ignored labels add up to the serial run") {
  const Result serial = share(0, 10, nullptr);
  const std::vector<Index> cuts{0, 3, 3, 8, 10};  // one rank has no rows
  const auto ranks = static_cast<int>(cuts.size()) - 1;
  Summing summing(ranks);
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < results.size(); ++r)
    threads.emplace_back([&, r] { results[r] = share(cuts[r], cuts[r + 1], &summing, static_cast<int>(r)); });
  for (auto& t : threads) t.join();
  Result sum;
  for (const Result& r : results) {
    sum.loss += r.loss;
    sum.dx.insert(sum.dx.end(), r.dx.begin(), r.dx.end());
    add_to(sum.dgamma, r.dgamma);
    add_to(sum.dbeta, r.dbeta);
    add_to(sum.dw, r.dw);
    CHECK(distance(r.mean, serial.mean) < 1e-12);
    CHECK(distance(r.var, serial.var) < 1e-12);
  }
  CHECK(std::abs(sum.loss - serial.loss) < 1e-12);
  CHECK(distance(sum.dx, serial.dx) < 1e-11);
  CHECK(distance(sum.dgamma, serial.dgamma) < 1e-11);
  CHECK(distance(sum.dbeta, serial.dbeta) < 1e-11);
  CHECK(distance(sum.dw, serial.dw) < 1e-11);
}

TEST_CASE("ignored labels that others have must be known") {
  const Loss ignoring = cross_entropy_with({.ignore_index = 2}), whole = cross_entropy_with({.ignore_index = -1});
  const Tensor logits = numbers({4, 3}, 1), labels = Tensor::of(Values{0, 2, 1, 2}, {4}, DType::i64);
  CHECK(ignoring.ignored()(labels) == 2);
  CHECK(whole.ignored()(labels) == 0);
  CHECK_FALSE(Loss(cross_entropy).ignored());
  CHECK_FALSE(cross_entropy_with({.ignore_index = CrossEntropyOptions::ignore_none}).ignored());
  CHECK(!Loss());
  StepContext context;
  context.batch.samples = ids(0, 4);
  context.batch.global_batch = 8;
  const auto loss = [&] {
    const StepScope scope(context);
    return ignoring(logits, labels).item();
  };
  CHECK_ERROR(loss(), usage, 4, 8);
  const double mean = ignoring(logits, labels).item();
  context.ignored = 2 + 4;
  CHECK(std::abs(loss() - mean) < 1e-15);
  context.ignored = 2 + 2;
  CHECK(std::abs(loss() - mean / 2) < 1e-15);
}

TEST_CASE("batch norm of one value per channel is refused in training, as nothing could be learnt from it") {
  const auto normed = [](const Shape& shape, bool training) {
    StepContext context;
    context.batch.training = training;
    const StepScope scope(context);
    const Tensor x = numbers(shape, 1), gamma = numbers({3}, 2), beta = numbers({3}, 3);
    const Tensor mean = Tensor::zeros({3}, DType::f64), var = Tensor::full({3}, 1, DType::f64);
    return batch_norm(x, gamma, beta, mean, var, {}).numel();
  };
  CHECK_ERROR(normed({1, 3}, true), usage, "batch_norm", 1);
  CHECK_ERROR(normed({1, 1, 1, 3}, true), usage, "batch_norm", "[1, 1, 1, 3]");
  CHECK(normed({1, 3}, false) == 3);
  CHECK(normed({1, 2, 1, 3}, true) == 6);
  CHECK(normed({2, 3}, true) == 6);
  CHECK(normed({0, 3}, true) == 0);
}

TEST_CASE("dropout's mask belongs to the sample, the step, the seed and the layer") {
  const Tensor x = Tensor::full({40, 50}, 1);
  const auto mask = [&](std::uint64_t seed, std::uint64_t step, std::uint64_t layer, Index begin = 0, Index end = 40) {
    StepContext context;
    context.batch.seed = seed;
    context.batch.step = step;
    context.batch.samples = ids(begin, end);
    StepScope scope(context);
    return dropout(x.rows(begin, end), 0.25, layer).to_vector();
  };
  const Values whole = mask(1, 2, 3);
  Values parts = mask(1, 2, 3, 0, 13);
  const Values rest = mask(1, 2, 3, 13, 40);
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == whole);
  CHECK(mask(2, 2, 3) != whole);
  CHECK(mask(1, 3, 3) != whole);
  CHECK(mask(1, 2, 4) != whole);
  Index kept = 0;
  for (const double v : whole) {
    CHECK((v == 0 || std::abs(v - 4. / 3) < 1e-6));
    kept += v != 0;
  }
  CHECK(std::abs(static_cast<double>(kept) - 1500) < 5 * std::sqrt(2000 * 0.25 * 0.75));
}

TEST_CASE("scopes nest and end") {
  CHECK(StepContext::current().batch.training);
  StepContext outer;
  outer.batch.step = 7;
  StepScope scope(outer);
  {
    const Inference eval;
    CHECK_FALSE(StepContext::current().batch.training);
    CHECK(StepContext::current().batch.step == 7);
    std::thread([] { CHECK(StepContext::current().batch.step == 0); }).join();
  }
  CHECK(StepContext::current().batch.training);
  CHECK(StepContext::current().batch.step == 7);
}

TEST_CASE("ops refuse what does not fit, naming it") {
  const auto t = [](const Shape& s) { return Tensor::zeros(s); };
  const auto label = [](double v) { return Tensor::of(Values{0, v}, {2}, DType::i64); };
  CHECK_ERROR(conv(t({1, 4, 4, 3}), t({8, 3, 3, 64})), usage, "conv", 3, 64);
  CHECK_ERROR(conv(t({1, 2, 4, 3}), t({8, 3, 3, 3})), usage, "conv", 2, "axis 0");
  CHECK_ERROR(conv(t({1, 4, 4, 3}), t({8, 3, 3, 3}), t({7})), usage, "conv", "bias", "[7]", "[8]");
  CHECK_ERROR(conv(t({4, 3}), t({8, 3})), usage, "conv", "1 to 3");
  CHECK_ERROR(conv(t({1, 4, 4, 3}), t({8, 3, 3, 3}), {}, {.stride = {0, 1, 1}}), usage, "conv", "stride", 0);
  CHECK_ERROR(linear(t({2, 5}), t({3, 4})), usage, "linear", "[2, 5]", "[3, 4]");
  CHECK_ERROR(matmul(t({2, 5}), t({4, 3})), usage, "matmul", "[2, 5]", "[4, 3]");
  CHECK_ERROR(max_pool(t({1, 2, 2, 1}), {.window = {3, 3}}), usage, "max_pool", "[1, 2, 2, 1]");
  CHECK_ERROR(max_pool(t({1, 4, 4, 1}), {.window = {2, 2}, .pad_begin = {2, 0}}), usage, "max_pool", "window");
  CHECK_ERROR(bias_relu_pool_dropout(t({1, 4, 4, 1}), {}, {.window = {2, 2}}, 0, 0), usage, "overlap");
  CHECK_ERROR(cross_entropy(t({2, 3}), label(3)), data, "cross_entropy", 3);
  CHECK_ERROR(cross_entropy(t({2, 3}), label(-100)), data, "cross_entropy", -100);
  CHECK_ERROR(cross_entropy(t({2, 3}), t({2})), usage, "cross_entropy", "labels", "i64");
  CHECK_ERROR(cross_entropy(t({2, 3}), Tensor::zeros({3}, DType::i64)), usage, "labels", "[2]", "[3]");
  CHECK_ERROR(mse_loss(t({2, 3}), t({2, 1})), usage, "[2, 3]", "[2, 1]");
  CHECK_ERROR(dropout(t({2, 3}), 1, 0), usage, "dropout", "[0, 1)");
  CHECK_ERROR(concat({t({2, 3}), t({3, 3})}, 1), usage, "concat", "[2, 3]", "[3, 3]", 1);
  CHECK_ERROR(split(t({2, 3}), {1, 1}, 1), usage, "split", 2, 3);
  CHECK_ERROR(permute(t({2, 3}), {0, 0}), usage, "permute", "[0, 0]", "[2, 3]");
  CHECK_ERROR(pad(t({2}), {-1}, {0}), usage, "pad");
  CHECK_ERROR(relu(Tensor::zeros({2}, DType::u8)), usage, "relu", "u8", "f32, f64, bf16, f16");
  CHECK_ERROR(relu({}), usage, "relu", "undefined");
  CHECK_ERROR(batch_norm(t({2, 3}), t({3}), t({3}), t({2}), t({3})), usage, "running_mean", "[2]", "[3]");
  StepContext context;
  context.batch.samples = ids(0, 5);
  StepScope scope(context);
  CHECK_ERROR(dropout(t({4, 2}), 0.5, 0), usage, "dropout", 5, 4);
}

}  // namespace test_pass
