// An operation graph of the emulated cuDNN as its interpreter sees it.
#pragma once
#include <array>

#include "tests/cuda_emulator/cudnn_node.h"

namespace emulator::dnn {

struct Tensor {
  Index id = 0, alignment = 1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<Index> dims, strides;
  bool passing = false;  ///< virtual

  explicit Tensor(const Node&);
  Index count() const;
  /// The channels of one place lie side by side.
  bool channels_last() const { return dims.size() < 2 || strides[1] == 1 || dims[1] == 1; }
  /// Bytes from the first element to the end of the last.
  std::size_t span() const;
};
DType dtype(cudnnDataType_t);

using Triple = std::array<Index, 3>;

/// One convolution, of any direction; x and y stand for dx and dy, and w for dw. Missing spatial axes: extent 1.
struct Convolution {
  Tensor x, w, y;
  cudnnBackendDescriptorType_t direction;
  cudnnDataType_t compute;
  bool turned = false;  ///< CUDNN_CONVOLUTION: the filter is read backwards
  double alpha = 1, beta = 0;
  Triple begin{0, 0, 0}, end{0, 0, 0}, stride{1, 1, 1}, dilation{1, 1, 1};

  explicit Convolution(const Node&);
  Index groups() const { return x.dims[1] / w.dims[1]; }
  const Tensor& written() const;
};
bool is_convolution(const Node&);

/// What the operation reads and writes.
struct Operands {
  std::vector<Tensor> read, written;
};
Operands operands(const Node& operation);

}  // namespace emulator::dnn
