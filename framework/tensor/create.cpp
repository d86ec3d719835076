#include "framework/tensor/create.h"

#include <algorithm>
#include <cmath>

#include "framework/tensor/launch.h"

namespace trireme {
namespace {

/// Element i is value(i), computed in f64.
template <class F>
Tensor counted(Index count, DType dtype, F&& value) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<double>(i));
  return Tensor::of(values, {count}, dtype);
}

}  // namespace

Tensor ones(const Shape& shape, DType dtype, Device device) { return Tensor::full(shape, 1, dtype, device); }

Tensor arange(Index end) {
  Tensor t = Tensor::empty({end}, DType::i64);
  for (Index i = 0; i < end; ++i) t.data<Index>()[i] = i;
  return t;
}

Tensor arange(double begin, double end, double step, DType dtype) {
  check(std::isfinite(begin) && std::isfinite(end) && std::isfinite(step) && step != 0, "arange",
        "cannot count from {} to {} by {}, expected finite numbers and a step other than 0", begin, end, step);
  check((end - begin) / step >= 0, "arange", "steps of {} do not lead from {} to {}", step, begin, end);
  return counted(static_cast<Index>(std::ceil((end - begin) / step)), dtype,
                 [=](double i) { return begin + i * step; });
}

Tensor linspace(double begin, double end, Index count, DType dtype) {
  check(count >= 0, "linspace", "{} numbers", count);
  // From both ends, as PyTorch does: symmetric to the last bit.
  const double last = static_cast<double>(count - 1), step = (end - begin) / std::max(last, 1.0);
  return counted(count, dtype, [=](double i) { return 2 * i < last + 1 ? begin + i * step : end - (last - i) * step; });
}

Tensor eye(Index n, DType dtype) { return one_hot(arange(n), n, dtype); }

Tensor one_hot(const Tensor& ids, Index classes, DType dtype) {
  check(ids.defined() && ids.dtype() == DType::i64, "one_hot", "got ids of another type, expected i64");
  check(classes >= 0, "one_hot", "{} classes", classes);
  Shape shape = ids.shape();
  shape.push_back(classes);
  const auto values = ids.to_vector<Index>();
  const Tensor y = Tensor::zeros(shape, dtype);
  const Tensor one = ones({1}, dtype);
  const auto size = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(values[i] >= 0 && values[i] < classes, ErrorKind::data, "one_hot", "id {} is {}, but there are {} classes", i,
          values[i], classes);
    const std::size_t at = (i * static_cast<std::size_t>(classes) + static_cast<std::size_t>(values[i])) * size;
    std::copy_n(one.data<std::byte>(), size, y.data<std::byte>() + at);
  }
  return y.to(ids.device());
}

}  // namespace trireme
