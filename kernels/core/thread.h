// start_thread: starts a std::thread or std::jthread, or throws Error if the system refuses another thread.
#pragma once
#include <system_error>
#include <thread>

#include "kernels/core/error.h"

namespace trireme {

/// Starts a thread with the arguments of its constructor. who: the name at the beginning of the error: "loader".
template <class Thread = std::thread, class... A>
Thread start_thread(std::string_view who, A&&... a) {
  try {
    return Thread(std::forward<A>(a)...);
  } catch (const std::system_error& e) {
    fail(ErrorKind::out_of_memory, who,
         "the system starts no further thread ({}), for lack of memory or by its limits: use fewer threads, or raise "
         "the "
         "limits (ulimit -u, ulimit -v)",
         e.code().message());
  }
}

}  // namespace trireme
