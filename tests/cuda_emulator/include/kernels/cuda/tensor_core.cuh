// What kernels/cuda/tensor_core.cuh asks of the hardware in its assembler, by the lanes of a warp in C++. Found in its
// place.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace trireme::gpu {
namespace emulated {

constexpr int most_warps = 32;
inline int warp_number() { return static_cast<int>(threadIdx.x) / warp; }
inline void meet(const char* what, const EmulatorHere& at) {
  emulator::meet_warp(0xffffffffu, 0, emulator::lane(), emulator::site(what, at));
}
template <class T>
float element_of(unsigned both, int place) {
  return wide(std::bit_cast<T>(static_cast<unsigned short>(both >> (16 * place))));
}
template <class T>
unsigned pair_of(T first, T second) {
  return std::bit_cast<unsigned short>(first) | static_cast<unsigned>(std::bit_cast<unsigned short>(second)) << 16;
}

}  // namespace emulated

template <class T>
unsigned two_elements(float first, float second) {
  return emulated::pair_of(rounded<T>(first), rounded<T>(second));
}

template <class T>
void multiply_tiles(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                    EmulatorHere at = EmulatorHere::current()) {
  struct Tiles {
    float a[16][16], b[8][16];
  };
  static thread_local Tiles all[emulated::most_warps];
  Tiles& tiles = all[emulated::warp_number()];
  const int g = emulator::lane() / 4, t = emulator::lane() % 4;
  for (int place = 0; place < 2; ++place) {
    for (int i = 0; i < 4; ++i)
      tiles.a[g + i % 2 * 8][2 * t + i / 2 * 8 + place] = emulated::element_of<T>(a[i], place);
    tiles.b[g][2 * t + place] = emulated::element_of<T>(b0, place);
    tiles.b[g][2 * t + 8 + place] = emulated::element_of<T>(b1, place);
  }
  emulated::meet("mma.sync", at);
  for (int i = 0; i < 4; ++i) {
    const float *row = tiles.a[g + i / 2 * 8], *column = tiles.b[2 * t + i % 2];
    float sum = 0;
    for (int k = 0; k < 16; ++k) sum += row[k] * column[k];
    c[i] += sum;
  }
  emulated::meet("mma.sync", at);
}

namespace emulated {
template <bool transposed, class T>
void load_matrices(unsigned (&to)[4], const T* row, const EmulatorHere& at) {
  static thread_local const T* all[most_warps][warp];
  auto& rows = all[warp_number()];
  const int lane = emulator::lane(), g = lane / 4, t = lane % 4;
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) emulator::die("ldmatrix wants addresses of 16 bytes");
  rows[lane] = row;
  meet("ldmatrix", at);
  for (int i = 0; i < 4; ++i) {
    const T* const* matrix = rows + 8 * i;
    to[i] =
        transposed ? pair_of(matrix[2 * t][g], matrix[2 * t + 1][g]) : pair_of(matrix[g][2 * t], matrix[g][2 * t + 1]);
  }
  meet("ldmatrix", at);
}
}  // namespace emulated
template <class T>
void load_matrices(unsigned (&to)[4], const T* row, EmulatorHere at = EmulatorHere::current()) {
  emulated::load_matrices<false>(to, row, at);
}
template <class T>
void load_transposed(unsigned (&to)[4], const T* row, EmulatorHere at = EmulatorHere::current()) {
  emulated::load_matrices<true>(to, row, at);
}

}  // namespace trireme::gpu
