// Profile: time of a training step or an evaluation, by layer and by kind of work. Profile watches kernel launches. The
// weights among a kernel's operands identify its layer.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/optim/parameters.h"
#include "framework/tensor/launch.h"
#include "parallel/profile/ceilings.h"

namespace trireme {

class Profile {
 public:
  struct Cost {
    double forward = 0, backward = 0;  ///< seconds
    double operations = 0;             ///< multiplications and additions of products and convolutions
  };
  /// A kind of work, for example "convolution". Its floor is a lower bound of its time on a machine with these
  /// ceilings: per kernel, the longer of moving its operands once and of its operations.
  struct Kind {
    double seconds = 0, bytes = 0, operations = 0, floor = 0;
  };
  struct Row {
    std::string name;  ///< a layer: "layer1.0.conv1"; or a kernel, if no weight identifies the layer
    Cost cost;
  };

  /// Watches this thread's kernel launches during its lifetime. parameters must outlive it.
  Profile(const Parameters& parameters, Ceilings ceilings);

  const std::vector<Row>& layers() const { return rows_; }  ///< in the order of first use
  const std::map<std::string, Kind>& kinds() const { return kinds_; }
  double seconds() const { return seconds_; }        ///< in kernels
  double vendor_seconds() const { return vendor_; }  ///< part in the vendor's library, without changes of layout

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
  double seconds_ = 0, vendor_ = 0, moments_ = 0;  // moments_: of a batch norm whose layer is not known yet
  LaunchWatch watch_;
};

}  // namespace trireme
