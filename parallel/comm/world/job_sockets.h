// Sockets of a JobMonitor: lines of text over TCP between processes that have the job's token.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// Owns an open file descriptor and closes it.
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
  /// Sends as much as fits; the next call sends the rest. While more than 1 MiB waits to be sent, new lines are
  /// dropped.
  void send(const std::string& line);
  /// Lines received since the last call, without line ends. A line of more than 64 KiB closes the connection.
  std::vector<std::string> receive();
  bool open() const { return static_cast<bool>(socket_); }
  void close() { socket_ = Descriptor(); }
  int descriptor() const { return socket_.get(); }

 private:
  Descriptor socket_;
  std::string in_, out_;
};

/// A listening TCP socket and its port.
struct Listener {
  Descriptor socket;
  int port = 0;
};
/// Listens on a port that the system chooses, on the loopback only or on all addresses of this host. Throws Error.
Listener listen_anywhere(bool loopback);
/// The next connection; not open() if there is none.
LineSocket accept_from(const Listener&);
/// Ensures that this process can open that many more files: raises its soft limit (RLIMIT_NOFILE), to 256 more than
/// needed if the hard limit allows it. Throws Error (usage) with both numbers if the hard limit is too low.
void ensure_open_files(std::int64_t more);
/// Connects to the first address ("127.0.0.1", "fd00::1") that answers; each is tried for two seconds. Not open() if
/// none answers.
LineSocket connect_to(const std::vector<std::string>& addresses, int port);
/// The addresses of this host's active interfaces, without the loopback.
std::vector<std::string> own_addresses();
/// 128 random bits from the system, as 32 hexadecimal digits.
std::string random_token();
/// Compares in constant time, so that the duration does not reveal the first difference.
bool equal_tokens(const std::string& a, const std::string& b);

}  // namespace trireme
