// Barriers of a block, and what the lanes of a warp do together.
#pragma once
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "emulator/types.h"

namespace emulator {

/// Where a thread waits, for messages and to tell one meeting from another.
struct Site {
  const char* what;
  const char* file;
  unsigned line;
};
inline Site site(const char* what, const std::source_location& at) { return {what, at.file_name(), at.line()}; }

/// Waits for all threads of the block; how many of them came with `vote`.
int meet_block(bool vote, Site);
/// Waits for the lanes in mask. Each leaves a value and names the lane whose value it wants.
std::uint64_t meet_warp(unsigned mask, std::uint64_t value, int source, Site);
/// The lanes of mask that came with `vote`.
unsigned vote_warp(unsigned mask, bool vote, Site);
/// This thread's place in its warp.
int lane();
/// Writes text to stderr and ends the process: for what no CUDA call could report.
[[noreturn]] void die(const char* text, std::size_t number = 0);

template <class T>
T exchange(unsigned mask, T value, int source, Site s) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = meet_warp(mask, bits, source, s);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// CUDA takes these alone.
template <class T>
concept Exchangeable = std::is_arithmetic_v<T> && sizeof(T) >= 4;

}  // namespace emulator

using EmulatorHere = std::source_location;

inline void __syncthreads(EmulatorHere at = EmulatorHere::current()) {
  emulator::meet_block(false, emulator::site("__syncthreads", at));
}
inline int __syncthreads_count(int vote, EmulatorHere at = EmulatorHere::current()) {
  return emulator::meet_block(vote != 0, emulator::site("__syncthreads_count", at));
}
inline int __syncthreads_or(int vote, EmulatorHere at = EmulatorHere::current()) {
  return emulator::meet_block(vote != 0, emulator::site("__syncthreads_or", at)) > 0;
}
inline int __syncthreads_and(int vote, EmulatorHere at = EmulatorHere::current()) {
  return emulator::meet_block(vote == 0, emulator::site("__syncthreads_and", at)) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EmulatorHere at = EmulatorHere::current()) {
  emulator::meet_warp(mask, 0, emulator::lane(), emulator::site("__syncwarp", at));
}

template <emulator::Exchangeable T>
T __shfl_sync(unsigned mask, T v, int from, int width = warpSize, EmulatorHere at = EmulatorHere::current()) {
  const int first = emulator::lane() & ~(width - 1);
  return emulator::exchange(mask, v, first | (from & (width - 1)), emulator::site("__shfl_sync", at));
}
template <emulator::Exchangeable T>
T __shfl_xor_sync(unsigned mask, T v, int with, int width = warpSize, EmulatorHere at = EmulatorHere::current()) {
  const int self = emulator::lane(), last = self | (width - 1);
  const int from = self ^ with;
  return emulator::exchange(mask, v, from > last ? self : from, emulator::site("__shfl_xor_sync", at));
}
template <emulator::Exchangeable T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = warpSize, EmulatorHere at = EmulatorHere::current()) {
  const int self = emulator::lane(), first = self & ~(width - 1);
  const int from = self - static_cast<int>(by);
  return emulator::exchange(mask, v, from < first ? self : from, emulator::site("__shfl_up_sync", at));
}
template <emulator::Exchangeable T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = warpSize, EmulatorHere at = EmulatorHere::current()) {
  const int self = emulator::lane(), last = self | (width - 1);
  const int from = self + static_cast<int>(by);
  return emulator::exchange(mask, v, from > last ? self : from, emulator::site("__shfl_down_sync", at));
}
inline unsigned __ballot_sync(unsigned mask, int vote, EmulatorHere at = EmulatorHere::current()) {
  return emulator::vote_warp(mask, vote != 0, emulator::site("__ballot_sync", at));
}
inline int __any_sync(unsigned mask, int vote, EmulatorHere at = EmulatorHere::current()) {
  return emulator::vote_warp(mask, vote != 0, emulator::site("__any_sync", at)) != 0;
}
inline int __all_sync(unsigned mask, int vote, EmulatorHere at = EmulatorHere::current()) {
  return emulator::vote_warp(mask, vote == 0, emulator::site("__all_sync", at)) == 0;
}
/// CUDA promises no more than that the caller is among them.
inline unsigned __activemask() { return 1u << emulator::lane(); }
