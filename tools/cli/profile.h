// Profile: where the time of a training step or an evaluation goes, by layer and by kind of work. Kernel calls are seen
// as they are launched; which layer they belong to is told by the weights among their operands.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "framework/tensor/launch.h"

namespace trireme {

class Profile {
 public:
  struct Cost {
    double forward = 0, backward = 0;  ///< seconds
    double operations = 0;             ///< multiplications and additions of products and convolutions
  };
  /// What the machine can do at most, measured: bytes and operations a second.
  struct Ceilings {
    double bytes = 0, operations = 0;
  };
  /// A kind of work: "convolution". Its floor is the time in which no machine with these ceilings could do it faster:
  /// per kernel, the longer of its operands moved once and its operations.
  struct Kind {
    double seconds = 0, bytes = 0, operations = 0, floor = 0;
  };
  struct Row {
    std::string name;  ///< a layer: "layer1.0.conv1"; or a kernel, where no weight tells the layer
    Cost cost;
  };

  /// Watches this thread's kernel calls while it lives; parameters must outlive it.
  Profile(const Parameters& parameters, Ceilings ceilings);

  const std::vector<Row>& layers() const { return rows_; }  ///< in the order first met
  const std::map<std::string, Kind>& kinds() const { return kinds_; }
  double seconds() const { return seconds_; }        ///< in kernels
  double vendor_seconds() const { return vendor_; }  ///< of them in the vendor's library, changes of layout not counted

 private:
  void see(const LaunchWatch::Call&);
  std::string layer_of(const LaunchWatch::Call&) const;
  Cost& row(const std::string& name);

  const Parameters& parameters_;
  std::map<const void*, std::string> buffers_;  // address -> layer
  std::vector<Row> rows_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, Kind> kinds_;
  Ceilings ceilings_;
  double seconds_ = 0, vendor_ = 0, moments_ = 0;  // moments_: of a batch norm that has not shown its name yet
  LaunchWatch watch_;
};

}  // namespace trireme
