// MNIST (LeCun, Cortes and Burges, 1998) and Fashion-MNIST (Xiao, Rasul and Vollgraf, arXiv 1708.07747): the same four
// IDX files, of samples [28, 28, 1] in 10 classes.
#pragma once
#include "datasets/core/dataset.h"

namespace trireme {

/// split: "train" or "test". root: folder of the four files (plain or .gz); "" searches $TRIREME_DATA/mnist, the
/// installed data folder, then the source tree's datasets/mnist. Throws Error with the file and its fault.
Dataset Mnist(const std::string& split, const std::string& root = "");
/// As above, for Zalando's Fashion-MNIST; the default folder is of Debian's package dataset-fashion-mnist.
Dataset FashionMnist(const std::string& split, const std::string& root = "");

}  // namespace trireme
