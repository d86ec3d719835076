// A CUDA device made of host memory and fibers. Found in place of NVIDIA's header, it lets g++ compile Trireme's CUDA
// backend, kernels and all, and the tests run it where there is no GPU.
//
// What a passing test proves: the kernels' arithmetic and indexing; that the threads of a block and the lanes of a warp
// all meet at each barrier, shuffle and vote; that results do not hang on the order in which threads run between
// barriers (run it with several TRIREME_EMULATOR_ORDERs); that nothing is read before it was written (it is NaN), no
// block of device memory is written beyond its ends or after it was freed, that loads are aligned, and that the host
// keeps its hands off the device's memory. What it does not prove: anything about true concurrency (blocks run one
// after the other, threads by turns), the memory model, occupancy, spills, speed, or what NVIDIA's libraries do. Shared
// memory is not NaN but keeps what the block before left there; pointers inside structs are not looked at; a kernel can
// follow one to the host's memory. Work on a stream is done when it is asked for, unless TRIREME_EMULATOR_ASYNC=1 gives
// each stream a thread.
//
// Environment: TRIREME_EMULATOR_DEVICES (2), TRIREME_EMULATOR_MEMORY (bytes of each device, 4 GiB),
// TRIREME_EMULATOR_ORDER (forward, backward, shuffled:SEED), TRIREME_EMULATOR_DRIVER (13000: the CUDA it knows; 0: there
// is none), TRIREME_EMULATOR_CARD (90: its compute capability), TRIREME_EMULATOR_FENCE=0 (the host may touch device
// memory), TRIREME_EMULATOR_VIRTUAL=0 (the devices have no virtual memory management), TRIREME_EMULATOR_PEERS=1 (they
// may reach one another's memory), TRIREME_EMULATOR_ALONE=0 (cuDNN has engines for a forward convolution only with a step behind it).
#pragma once
#include "emulator/api.h"
#include "emulator/intrinsics.h"
#include "emulator/launch.h"
#include "emulator/types.h"
#include "emulator/warp.h"
