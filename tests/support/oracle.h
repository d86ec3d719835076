// An oracle that nobody here wrote: a Python script of this folder over PyTorch or NumPy. Arrays travel as
// .npy files of f64.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "tests/support/distance.h"

namespace trireme::test {

/// What tests lacked so far, such as an oracle's packages: with anything here the program counts as skipped.
const std::vector<std::string>& missing();
/// Of a test, or a part of one, that cannot run: adds to missing() what it lacks, and counts as the test's assertion.
void note_missing(const std::string& what);

/// Parent of the folder tests/.
std::filesystem::path root();

/// Which Python runs a script: the distribution's (PyTorch, onnx), or that of build/oracles, where `tools/setup
/// --oracles` puts what the distribution lacks (tests/oracles/requirements.txt) next to the distribution's PyTorch.
/// tools/test names the latter Python in TRIREME_ORACLE_PYTHON.
enum class Python : std::uint8_t { distribution, oracles };

/// A folder of arrays, shared with a script and removed at the end.
class Oracle {
 public:
  Oracle();
  ~Oracle();
  Oracle(const Oracle&) = delete;

  void put(const std::string& name, const Tensor&) const;
  void put(const std::string& name, const std::vector<double>& values) const;
  /// Leaves a text file for the script.
  void note(const std::string& name, const std::string& text) const;
  /// Runs tests/<script> <folder> <arguments>. False, noted as missing, when the packages are not there (the script
  /// ends with 77); throws Error when it fails.
  bool run(const std::string& script, const std::string& arguments = "", Python = Python::distribution) const;
  const std::filesystem::path& folder() const { return folder_; }
  /// An array that the script left, flattened.
  std::vector<double> get(const std::string& name) const;
  /// Same, in the shape it was written.
  Tensor tensor(const std::string& name, DType = DType::f64) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace trireme::test
