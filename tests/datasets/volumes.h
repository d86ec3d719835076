// What tests of volumes share: random shapes and boxes, and boxes cut out of tensors by plain loops.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "datasets/volumes/voxel_type.h"
#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace trireme::test {

inline Index random_number(std::mt19937_64& dice, Index least, Index most) {
  return least + static_cast<Index>(dice() % static_cast<std::uint64_t>(most - least + 1));
}
/// Two to four axes.
inline Shape random_array(std::mt19937_64& dice, Index most) {
  Shape array;
  for (Index axes = random_number(dice, 2, 4); axes > 0; --axes) array.push_back(random_number(dice, 1, most));
  return array;
}
/// Of at least one voxel, inside a shape of any number of axes.
inline Box random_part(std::mt19937_64& dice, const Shape& shape) {
  Box box{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) {
    box.at[i] = random_number(dice, 0, shape[i] - 1);
    box.size[i] = random_number(dice, 1, shape[i] - box.at[i]);
  }
  return box;
}
/// The box's elements of a row-major array of shape [a, b, c, d].
template <class T>
std::vector<T> cut(const std::vector<T>& all, const Shape& shape, const Box& box) {
  std::vector<T> some;
  for (Index i = 0; i < box.size[0]; ++i)
    for (Index j = 0; j < box.size[1]; ++j)
      for (Index k = 0; k < box.size[2]; ++k)
        for (Index l = 0; l < box.size[3]; ++l)
          some.push_back(all[static_cast<std::size_t>(
              (((box.at[0] + i) * shape[1] + box.at[1] + j) * shape[2] + box.at[2] + k) * shape[3] + box.at[3] + l)]);
  return some;
}
/// Numbers that the type holds, its least and largest among them, but no integer that f64 does not.
inline std::vector<double> voxels(std::mt19937_64& dice, const VoxelType& type, Index n) {
  const bool is_signed = type.code[0] == 'i' || type.code[0] == 'f';
  const double bits = type.code == "b1"   ? 1
                      : type.code == "f2" ? 11
                                          : std::min<double>(8.0 * static_cast<double>(type.size), 53);
  const double top = std::exp2(bits - (is_signed ? 1 : 0)) - 1, low = is_signed ? -top - 1 : 0;
  std::vector<double> all(static_cast<std::size_t>(n));
  for (double& v : all)
    v = dice() % 8 == 0 ? (dice() % 2 ? top : low)
                        : std::floor(low + (top - low) * static_cast<double>(dice() >> 11) * 0x1p-53);
  if (!type.is_integer() && type.code != "f2")
    for (double& v : all) v = static_cast<float>(v / 1024);
  return all;
}
/// The volume cut into boxes that share no voxel, at random.
inline std::vector<Box> pieces_of(std::mt19937_64& dice, const Shape& shape) {
  std::vector<Box> all{{shape, shape}};
  for (int i = 0; i < shape.rank(); ++i) all[0].at[i] = 0;
  for (int round = 0; round < 12; ++round) {
    Box& one = all[dice() % all.size()];
    const int axis = static_cast<int>(dice() % static_cast<std::uint64_t>(shape.rank()));
    if (one.size[axis] < 2) continue;
    Box other = one;
    const Index first = random_number(dice, 1, one.size[axis] - 1);
    other.at[axis] += first;
    other.size[axis] -= first;
    one.size[axis] = first;
    all.push_back(other);
  }
  std::shuffle(all.begin(), all.end(), dice);
  return all;
}

}  // namespace trireme::test
