// Sockets of a JobMonitor: lines of text over TCP between processes that know the job's token.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// An open descriptor; closes it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A connection that never blocks.
class LineSocket {
 public:
  explicit LineSocket(Descriptor d) : socket_(std::move(d)) {}
  /// Sends what fits; the rest goes with the next call. Beyond 1 MiB that nobody reads, lines are dropped whole.
  void send(const std::string& line);
  /// Lines that have come since the last call, without their ends. A line of more than 64 KiB closes the connection.
  std::vector<std::string> receive();
  bool open() const { return static_cast<bool>(socket_); }
  void close() { socket_ = Descriptor(); }
  int descriptor() const { return socket_.get(); }

 private:
  Descriptor socket_;
  std::string in_, out_;
};

struct Listener {
  Descriptor socket;
  int port = 0;
};
/// On a port that the system chooses; of the loopback alone, or of all of this host's addresses. Throws Error.
Listener listen_anywhere(bool loopback);
/// The next connection, or one that is not open.
LineSocket accept_from(const Listener&);
/// Sees to it that this process can open that many files more: raises its soft limit (RLIMIT_NOFILE), to 256 above
/// that where the hard limit allows it. Throws Error (usage) that names both numbers where the hard limit is too low.
void ensure_open_files(std::int64_t more);
/// Tries each address ("127.0.0.1", "fd00::1") for two seconds; not open where none answers.
LineSocket connect_to(const std::vector<std::string>& addresses, int port);
/// Of this host's interfaces that are up, but the loopback.
std::vector<std::string> own_addresses();
/// 128 bits from the system, as 32 hexadecimal digits.
std::string random_token();
/// In a time that does not tell where they differ.
bool equal_tokens(const std::string& a, const std::string& b);

}  // namespace trireme
