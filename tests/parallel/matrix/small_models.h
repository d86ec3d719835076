// Every bundled model in a small size, with data and a loss.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "datasets/core/tensors.h"
#include "framework/layers/layers.h"
#include "parallel/strategies/strategy.h"

namespace trireme::test {

/// Values of single samples that layers of a model see on any rank, in any micro-batch, for example dropout masks. A
/// run that sees a sample several times (copies, recomputation) must see the same bits. Thread-safe.
class Records {
 public:
  using Key = std::tuple<std::string, std::uint64_t, std::int64_t>;  ///< of what, step, sample
  /// The values of each row of `rows`, whose batch names their samples. Ranks that divide the tensor must call
  /// together.
  void add(const std::string& what, const Tensor& rows) { add(what, rows, false); }
  /// 1 where a row is not 0, as "mask of " + what.
  void add_mask(const std::string& what, const Tensor& rows) { add("mask of " + what, rows, true); }
  void record(bool on) { on_ = on; }          ///< off at first: values of dry runs are undefined
  std::map<Key, std::vector<double>> take();  ///< what was recorded, and forgets it
  std::string conflict() const;               ///< what had different bits since the last take(); "": nothing

 private:
  void add(const std::string& what, const Tensor& rows, bool mask);
  mutable std::mutex mutex_;
  std::map<Key, std::vector<double>> seen_;
  std::string conflict_;
  std::atomic<bool> on_ = false;
};

/// A bundled model in f64: the same operations as in its usual size, on fewer channels, tokens or pixels.
struct SmallModel {
  std::string name;              ///< of the registry, or of its family
  std::function<Module()> make;  ///< with tensors of its own each time, and values that depend on names alone
  Sample data;                   ///< one batch
  Loss loss;
  bool batch_norm = false,                ///< statistics of micro-batches are part of the model
      large = false;                      ///< a run takes more than a tenth of a second
  std::shared_ptr<Records> records = {};  ///< of the layers and of `each`; null: none
  Loss each = {};                         ///< the loss of each label, for a model with records
};

/// A model of these layers, with start values, for images [height, width, channels] and `classes` labels of each.
SmallModel small_model(const std::string& name, const Shape& image, const std::function<Module()>& make,
                       Index classes = 5);

/// All bundled models. Batches have 7 rows, so that 2, 3 and 4 ranks have unequal shares.
std::vector<SmallModel> small_models();
/// Sets all weights: to normal values of variance 1 / fan-in, and vectors near 1 (scales) or 0 (biases). The values
/// depend on the order of the tensors alone. No gradient of such a model is zero by its start.
void set_start(Module&);

}  // namespace trireme::test
