#include "datasets/core/loader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "datasets/core/pixels.h"
#include "datasets/core/random_stream.h"
#include "framework/autograd/tape.h"
#include "framework/tensor/launch.h"
#include "kernels/contracts/elementwise.h"
#include "kernels/core/thread.h"

namespace trireme {

std::vector<std::int64_t> epoch_order(Index n, bool shuffle, std::uint64_t seed, Index epoch) {
  check(n >= 0 && n <= std::numeric_limits<std::uint32_t>::max(), "loader",
        "{} samples, at most 2^32 - 1 can be put in order", n);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  if (!shuffle) return order;

  const Philox random = random_stream(seed, RandomStream::shuffle, epoch);
  std::array<std::uint32_t, 4> words{};
  std::uint64_t drawn = 0;
  const auto word = [&] {
    if (drawn % 4 == 0) words = random(0, drawn / 4);
    return words[drawn++ % 4];
  };
  // Lemire, "Fast random integer generation in an interval" (2019): unbiased, seldom divides.
  const auto below = [&](std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{word()} * bound;
    if (static_cast<std::uint32_t>(product) < bound)
      for (const std::uint32_t unfair = -bound % bound; static_cast<std::uint32_t>(product) < unfair;)
        product = std::uint64_t{word()} * bound;
    return product >> 32;
  };
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(static_cast<std::uint32_t>(i))]);
  return order;
}

Sampler weighted_sampler(const std::vector<double>& weights, Index size) {
  std::vector<double> ends;
  double all = 0;
  for (const double w : weights) {
    check(w >= 0 && std::isfinite(w), "weighted_sampler", "a weight is {}, expected at least 0", w);
    ends.push_back(all += w);
  }
  check(all > 0 && std::isfinite(all) && size >= 0, "weighted_sampler",
        "weights add up to {}, {} samples are asked for", all, size);
  const Index last = std::upper_bound(ends.begin(), ends.end(), std::nextafter(all, 0)) - ends.begin();
  return {size, [ends, all, size, last](std::uint64_t seed, Index epoch) {
            const Philox random = random_stream(seed, RandomStream::weighted, epoch);
            std::vector<std::int64_t> ids;
            for (Index i = 0; i < size; ++i) {
              const auto words = random(0, static_cast<std::uint64_t>(i));
              const double u = (static_cast<double>(words[0]) * 4294967296.0 + words[1]) * 0x1p-64;
              const auto at = std::upper_bound(ends.begin(), ends.end(), u * all) - ends.begin();
              ids.push_back(std::min<Index>(at, last));  // the last sample with a weight
            }
            return ids;
          }};
}

/// State that all iterators of a loader share.
struct Loader::Impl {
  Impl(Dataset data, LoaderOptions opts) : dataset(std::move(data)), options(std::move(opts)) {
    check(bool(dataset), "loader", "there is no dataset");
    size = options.sampler.order ? options.sampler.size : dataset->size();
    check(size > 0, ErrorKind::data, "loader", "dataset {} is empty", [&] { return dataset->name(); });
    check(options.batch >= 1, "loader", "batch is {}, it must be at least 1", options.batch);
    const auto [rank, ranks, microbatches] = options.shard;
    check(ranks >= 1 && rank >= 0 && rank < ranks, "loader", "shard is rank {} of {}, the rank must lie in [0, ranks)",
          rank, ranks);
    check(
        ranks <= size, "loader", "{} ranks share the {} samples of {}: use at most {} ranks", ranks, size,
        [&] { return dataset->name(); }, size);
    check(microbatches >= 1 && microbatches <= options.batch, "loader",
          "{} micro-batches of a batch of {}: use at most {}, or a larger batch", microbatches, options.batch,
          options.batch);
    check(options.workers >= 0, "loader", "workers is {}, it must not be negative", options.workers);
    check(options.workers == 0 || options.prefetch >= 1, "loader",
          "prefetch is {}, it must be at least 1 (or workers 0)", options.prefetch);
    batches = size / options.batch + (size % options.batch != 0 ? 1 : 0);
    check(options.start_batch >= 0 && options.start_batch <= batches, "loader",
          "start_batch is {}, an epoch has {} batches", options.start_batch, batches);
    check(options.start_sample >= 0 && options.start_sample <= size, "loader",
          "start_sample is {}, an epoch has {} samples", options.start_sample, size);
    check(options.start_batch == 0 || options.start_sample == 0, "loader",
          "start_batch is {} and start_sample is {}: give one of them", options.start_batch, options.start_sample);
    epoch = options.epoch;
    skip = options.start_sample > 0 ? options.start_sample : std::min(options.start_batch * options.batch, size);
    if (dataset->tensors()) return;
    check(!options.collate, "loader", "collate is for data sets of tensors");
    shape = dataset->shape();
    // Bytes are copied to the device and converted there. f64 is converted on the host, in f64.
    in_bytes = options.device.kind != DeviceKind::cpu && options.dtype != DType::f64;
    read_as = in_bytes ? DType::u8 : options.dtype;
    convert = pixel_converter(dataset->scale(), shape, read_as);
    if (!in_bytes || options.dtype == DType::u8) return;
    const PixelFactors factors = pixel_factors(dataset->scale(), shape);
    const auto there = [this](const std::vector<double>& v) {
      return Tensor::of(v, {std::ssize(v)}).to(options.device);
    };
    alpha = there(factors.alpha);
    shift = there(factors.shift);
  }
  /// Converts a batch to its final form: on options.device, in options.dtype.
  void hand_out(Batch& batch) const {
    if (options.device == batch.x.device()) return;
    const Tensor read = batch.x.to(options.device);
    batch.x = read;
    batch.y = batch.y ? batch.y.to(options.device) : batch.y;
    if (read.dtype() == options.dtype || dataset->tensors()) return;
    batch.x = Tensor::empty(read.shape(), options.dtype, options.device);
    launch<kernel::Normalize>(batch.x, read, alpha, shift);
  }
  /// Reads a share of the global batch that begins at sample `begins` of the epoch.
  Batch make(const std::vector<std::int64_t>& order, Index of_epoch, Index begins, const RankShare& share) const {
    const AugmentKey draw{options.seed, of_epoch};
    Batch batch;
    batch.share = share;
    batch.index = begins / options.batch;
    batch.global = std::min(options.batch, size - begins);
    const auto cuts = stretches(batch.global, share);
    Index rows = 0;
    for (auto& [begin, end] : cuts) {
      if (share.microbatches > 1) batch.microbatches.push_back(end - begin);
      rows += end - begin;
    }
    const std::int64_t* ids = order.data() + begins;
    batch.samples = Tensor::empty({rows}, DType::i64);
    auto* sample = batch.samples.data<std::int64_t>();
    for (auto& [begin, end] : cuts) sample = std::copy(ids + begin, ids + end, sample);
    if (dataset->tensors()) {
      const auto mine = batch.samples.view().span<const std::int64_t>();
      const Sample made = collated(mine, {ids, static_cast<std::size_t>(batch.global)}, draw);
      check(made.x && made.x.rank() > 0 && made.x.dim(0) == rows, ErrorKind::data, "loader",
            "{} rows were made of {} samples", made.x && made.x.rank() > 0 ? made.x.dim(0) : 0, rows);
      batch.x = made.x;
      batch.y = made.y;
      return batch;
    }
    Shape all{rows};
    for (Index extent : shape) all.push_back(extent);
    batch.x = Tensor::empty(all, read_as);
    batch.y = Tensor::empty({rows}, DType::i64);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.numel()));
    const Index row_bytes = shape.numel() * size_of(read_as);
    Index row = 0;
    for (auto& [begin, end] : cuts)
      for (Index at = begin; at < end; ++at, ++row) {
        batch.y.data<std::int64_t>()[row] = dataset->read(ids[at], pixels, draw);
        convert(pixels, batch.x.data<std::byte>() + row * row_bytes);
      }
    return batch;
  }
  /// ids: of this rank's rows; global: of all rows of the global batch.
  Sample collated(std::span<const std::int64_t> ids, std::span<const std::int64_t> global,
                  const AugmentKey& draw) const {
    if (!options.collate || ids.empty()) return dataset->tensors()->batch(ids, draw);
    const auto read = [&](std::span<const std::int64_t> some) {
      std::vector<Sample> samples;
      for (const Index id : some) samples.push_back(dataset->tensors()->sample(id, draw));
      return samples;
    };
    const std::vector<Sample> mine = read(ids);
    return options.collate(mine, [&] { return ids.size() == global.size() ? mine : read(global); });
  }
  /// Whether a field of x (of_x) or y has a row for each sample. A field that is complete in each batch may have the
  /// same number of rows by chance; a batch of no samples shows the difference.
  bool has_row_per_sample(bool of_x, const Tensor& t, const std::string& name) {
    const Tensor& field = t.at(name);
    if (field.rank() == 0 || field.dim(0) != t.dim(0)) return false;
    if (options.collate) return true;
    if (!no_samples) no_samples = dataset->tensors()->batch({}, {});
    const Tensor& none = of_x ? no_samples->x : no_samples->y;
    return !none || !none.fields().contains(name) || none.at(name).dim(0) == 0;
  }
  /// The ids of an epoch.
  std::vector<std::int64_t> order_of(Index of_epoch) const {
    if (!options.sampler.order) return epoch_order(size, options.shuffle, options.seed, of_epoch);
    auto order = options.sampler.order(options.seed, of_epoch);
    check(std::ssize(order) == size, "loader", "the sampler gave {} ids for an epoch of {}", order.size(), size);
    for (const Index id : order)
      check(id >= 0 && id < dataset->size(), "loader", "the sampler gave id {}, there are {} samples", id,
            dataset->size());
    return order;
  }
  /// The rows of a share of a global batch, one range per micro-batch.
  static std::vector<std::pair<Index, Index>> stretches(Index global, const RankShare& mine) {
    std::vector<std::pair<Index, Index>> all;
    for (int k = 0; k < mine.microbatches; ++k) {
      const auto [begin, end] = share(global, k, mine.microbatches);
      const auto [from, to] = share(end - begin, mine.rank, mine.size);
      all.emplace_back(begin + from, begin + to);
    }
    return all;
  }

  Dataset dataset;
  LoaderOptions options;
  Index size = 0, batches = 0;
  Shape shape;
  PixelConverter convert;
  bool in_bytes = false;
  DType read_as = DType::f32;  // the type of x on the host
  Tensor alpha, shift;
  std::optional<Sample> no_samples;  // a batch of no samples, made on first use
  Index epoch = 0, skip = 0;         // of the next begin(); skip: in samples
};

namespace {

/// Makes batches in worker threads and returns them in the order of add(). Workers run at most `prefetch` batches ahead
/// of the consumer. An exception in a worker is rethrown to the consumer in place of that batch.
class ReadAhead {
 public:
  using Item = std::pair<Index, RankShare>;  // a batch of the pass
  using Make = std::function<Batch(const Item&)>;
  ReadAhead(Make make, std::vector<Item> items, int workers, int prefetch)
      : make_(std::move(make)), items_(std::move(items)), slots_(static_cast<std::size_t>(std::max(prefetch, 1))) {
    for (int i = 0; i < std::min(workers, prefetch); ++i)
      threads_.push_back(start_thread<std::jthread>("loader", [this](std::stop_token stop) { work(stop); }));
  }
  ~ReadAhead() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }
  void add(const Item& item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(item);
    }
    room_.notify_one();
  }
  bool done() const { return taken_ == std::ssize(items_); }
  Batch next() {
    if (threads_.empty()) return make_(items_[static_cast<std::size_t>(taken_++)]);
    Slot got;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return slot(taken_).full; });
      got = std::exchange(slot(taken_), {});
      ++taken_;
    }
    room_.notify_all();
    if (got.error) std::rethrow_exception(got.error);
    return std::move(got.batch);
  }

 private:
  struct Slot {
    bool full = false;
    Batch batch;
    std::exception_ptr error;
  };
  Slot& slot(Index index) { return slots_[static_cast<std::size_t>(index) % slots_.size()]; }
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, stop,
                 [this] { return claimed_ < std::ssize(items_) && claimed_ - taken_ < std::ssize(slots_); });
      if (stop.stop_requested()) return;
      const Index mine = claimed_++;
      const Item item = items_[static_cast<std::size_t>(mine)];
      lock.unlock();
      Slot made{.full = true, .batch = {}, .error = nullptr};
      try {
        made.batch = make_(item);
      } catch (...) { made.error = std::current_exception(); }
      lock.lock();
      slot(mine) = std::move(made);
      ready_.notify_all();
    }
  }

  Make make_;
  std::vector<Item> items_;
  Index claimed_ = 0, taken_ = 0;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any room_;
  std::condition_variable ready_;
  std::vector<std::jthread> threads_;  // last member: threads end before the others are destroyed
};

}  // namespace

/// A pass over the rest of an epoch. Shares the loader's state, so the loader may be moved or destroyed.
struct Loader::Iterator::State {
  /// whole: iterate over this rank's shares of all batches.
  State(std::shared_ptr<Impl> impl, bool whole) : loader(std::move(impl)), epoch(loader->epoch) {
    const LoaderOptions& o = loader->options;
    auto order = loader->order_of(epoch);
    const Index start = std::exchange(loader->skip, 0), left = loader->size - start;
    count = left / o.batch + (left % o.batch != 0 ? 1 : 0);
    auto make = [impl = loader.get(), order = std::move(order), of = epoch, start,
                 size = o.batch](const ReadAhead::Item& item) {
      return impl->make(order, of, start + item.first * size, item.second);
    };
    std::vector<ReadAhead::Item> all;
    for (Index k = 0; whole && k < count; ++k) all.emplace_back(k, o.shard);
    source.emplace(std::move(make), std::move(all), o.workers, o.prefetch);
  }
  bool done() const { return !source; }
  void advance() {
    batch = {};
    if (source->done()) {
      source.reset();
      loader->epoch = epoch + 1;
      return;
    }
    try {
      batch = source->next();
      loader->hand_out(batch);
    } catch (...) {
      source.reset();
      throw;
    }
    const LoaderOptions& o = loader->options;
    const auto context = std::make_shared<BatchContext>(
        BatchContext{.training = o.training,
                     .seed = o.seed,
                     .step = static_cast<std::uint64_t>(epoch * loader->batches + batch.index),
                     .samples = batch.samples,
                     .global_batch = batch.global,
                     .microbatches = batch.microbatches,
                     .share = batch.share,
                     .calls = std::make_shared<RandomCalls>()});
    for (Tensor* t : {&batch.x, &batch.y}) {
      if (!*t) continue;
      t->impl()->batch = context;
      if (!t->impl()->fields) continue;
      auto fields = std::make_shared<std::map<std::string, Tensor>>();
      for (const auto& [name, field] : t->fields()) {
        Tensor own = field.detach();  // a field that is complete in each batch is shared with the data set
        own.impl()->batch = loader->has_row_per_sample(t == &batch.x, *t, name) ? context : nullptr;
        fields->emplace(name, std::move(own));
      }
      t->impl()->fields = std::move(fields);
    }
  }

  std::shared_ptr<Impl> loader;
  Index epoch, count = 0;  // count: batches in the pass
  std::optional<ReadAhead> source;
  Batch batch;
};

Loader::Loader(Dataset dataset, LoaderOptions options)
    : impl_(std::make_shared<Impl>(std::move(dataset), std::move(options))) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

Index Loader::batches() const { return impl_->batches; }
const LoaderOptions& Loader::options() const { return impl_->options; }
void Loader::set_epoch(Index epoch) { impl_->epoch = epoch; }

Loader::Iterator Loader::begin() {
  Iterator first;
  first.state = std::make_shared<Iterator::State>(impl_, true);
  first.state->advance();
  return first;
}
Loader::Iterator Loader::end() { return {}; }

Loader::Pass Loader::pass() { return {std::make_shared<Iterator::State>(impl_, false)}; }
bool Loader::Pass::done() const { return !state->source || state->source->done(); }
void Loader::Pass::add(Index batch, const RankShare& share) {
  check(0 <= batch && batch < state->count, "loader", "batch {} of a pass of {}", batch, state->count);
  check(state->source.has_value(), "loader", "the pass has ended with an error");
  state->source->add({batch, share});
}
Batch& Loader::Pass::next() {
  check(!done(), "loader", "no batch is left that was added to the pass");
  state->advance();
  return state->batch;
}

Batch& Loader::Iterator::operator*() const { return state->batch; }
Loader::Iterator& Loader::Iterator::operator++() {
  state->advance();
  return *this;
}
bool Loader::Iterator::operator==(const Iterator& other) const {
  const auto done = [](const Iterator& i) { return i.state == nullptr || i.state->done(); };
  return done(*this) == done(other);
}

}  // namespace trireme
