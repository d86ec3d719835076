#include "fence.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>

#include "settings.h"

// Known to the linker only under AddressSanitizer.
extern "C" [[gnu::weak]] void __asan_init();

namespace emulator {
namespace {

/// The key of device memory, or -1. Threads that start later, and those that were there before, have no right to it.
int key() {
  static const int made = [] {
    if (!settings().fence || __asan_init != nullptr) return -1;
    return pkey_alloc(0, PKEY_DISABLE_ACCESS);
  }();
  return made;
}

thread_local int depth = 0;  // of DeviceAccess

constexpr int protection_key_fault = 4, general_protection = 0x80;  // si_code

/// Who had the signal before.
struct sigaction previous_fault, previous_trap;

void put(const char* text) {
  std::size_t n = 0;
  while (text[n] != 0) ++n;
  (void)!write(2, text, n);
}
void put_address(std::uintptr_t v) {
  char text[2 + 16 + 1] = "0x";
  for (int i = 0; i < 16; ++i) text[2 + i] = "0123456789abcdef"[v >> (60 - 4 * i) & 15];
  put(text);
}

/// Says what it can, and lets whoever was here before have the fault: it happens again on return.
void on_fault(int, siginfo_t* about, void*) {
  if (about->si_code == protection_key_fault) {
    put("emulator: the host touched device memory at ");
    put_address(reinterpret_cast<std::uintptr_t>(about->si_addr));
    put(", outside a kernel, a copy or a library's call\n");
  } else if (depth > 0) {
    put("emulator: a kernel or a copy touched what is no memory, ");
    if (about->si_code == general_protection)
      put("or took several elements at once from an address that is no multiple of their size\n");
    else {
      put_address(reinterpret_cast<std::uintptr_t>(about->si_addr));
      put("\n");
    }
  }
  sigaction(SIGSEGV, &previous_fault, nullptr);
}
/// Kernels are compiled with checks of alignment that trap.
void on_trap(int, siginfo_t*, void*) {
  if (depth > 0) put("emulator: a kernel took data at an address that is no multiple of its size\n");
  sigaction(SIGILL, &previous_trap, nullptr);
}

void explain(int signal, void (*how)(int, siginfo_t*, void*), struct sigaction& previous) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == how) return;
  previous = now;
  struct sigaction ours {};
  ours.sa_sigaction = how;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(signal, &ours, nullptr);
}

}  // namespace

void fence(void* pages, std::size_t bytes) {
  if (key() >= 0) pkey_mprotect(pages, bytes, PROT_READ | PROT_WRITE, key());
}
bool fenced() { return key() >= 0; }

void explain_faults() {
  if (__asan_init != nullptr) return;  // it explains better
  static std::mutex& mutex = *new std::mutex;
  std::lock_guard lock(mutex);
  explain(SIGSEGV, on_fault, previous_fault);
  explain(SIGILL, on_trap, previous_trap);
}

DeviceAccess::DeviceAccess() : before_(0) {
  ++depth;
  if (key() < 0) return;
  before_ = pkey_get(key());
  if (before_ != 0) pkey_set(key(), 0);
}
DeviceAccess::~DeviceAccess() {
  --depth;
  if (before_ != 0) pkey_set(key(), static_cast<unsigned>(before_));
}

}  // namespace emulator
