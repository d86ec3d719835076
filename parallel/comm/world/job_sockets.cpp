#include "parallel/comm/world/job_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr std::size_t longest_line = 64 << 10, most_unsent = 1 << 20;

/// An IPv4 or IPv6 address and its size.
struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};
Address address_of(const std::string& text, int port) {
  Address a;
  auto& six = reinterpret_cast<sockaddr_in6&>(a.bytes);
  auto& four = reinterpret_cast<sockaddr_in&>(a.bytes);
  if (::inet_pton(AF_INET6, text.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<std::uint16_t>(port));
    a.size = sizeof six;
  } else if (::inet_pton(AF_INET, text.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<std::uint16_t>(port));
    a.size = sizeof four;
  }
  return a;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void LineSocket::send(const std::string& line) {
  if (!socket_) return;
  if (out_.size() + line.size() < most_unsent) {
    out_ += line;
    out_ += '\n';
  }
  while (!out_.empty()) {
    const ssize_t sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) close();
    if (sent <= 0) return;
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<std::string> LineSocket::receive() {
  std::vector<std::string> lines;
  std::array<char, 16384> part;
  while (socket_) {
    const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got > 0) in_.append(part.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = in_.find('\n', begin)) != in_.npos; begin = end + 1)
      lines.push_back(in_.substr(begin, end - begin));
    in_.erase(0, begin);
    if (got <= 0 || in_.size() > longest_line) close();
  }
  return lines;
}

Listener listen_anywhere(bool loopback) {
  const auto open = [&](const std::string& address) -> Listener {
    Address a = address_of(address, 0);
    Listener l{.socket = Descriptor(::socket(a.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
    const int no = 0;
    if (a.get()->sa_family == AF_INET6)
      ::setsockopt(l.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);  // also IPv4
    if (!l.socket || ::bind(l.socket.get(), a.get(), a.size) != 0 || ::listen(l.socket.get(), 1024) != 0 ||
        ::getsockname(l.socket.get(), a.get(), &a.size) != 0)
      return Listener{};
    l.port = ntohs(a.get()->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a.bytes).sin6_port
                                                  : reinterpret_cast<sockaddr_in&>(a.bytes).sin_port);
    return l;
  };
  Listener l = open(loopback ? "127.0.0.1" : "::");
  if (!l.socket && !loopback) l = open("0.0.0.0");
  check(static_cast<bool>(l.socket), ErrorKind::communicator, "job monitor", "cannot listen: {}",
        [&] { return std::strerror(errno); });
  return l;
}

void ensure_open_files(std::int64_t more) {
  std::error_code none;
  const std::filesystem::directory_iterator files("/proc/self/fd", none), end;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto needed = static_cast<rlim_t>(more + (none ? 64 : std::distance(files, end))), wished = needed + 256;
  check(limit.rlim_max >= needed, "open files",
        "{} more are needed, {} in all, and the hard limit is {}: raise it (ulimit -Hn {}, or nofile in limits.conf)",
        more, needed, limit.rlim_max, wished);
  if (limit.rlim_cur >= wished) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wished));
  check(::setrlimit(RLIMIT_NOFILE, &limit) == 0, ErrorKind::internal, "open files",
        "the limit cannot be raised to {}: {}", limit.rlim_cur, [&] { return std::strerror(errno); });
}

LineSocket accept_from(const Listener& l) {
  return LineSocket(Descriptor(::accept4(l.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

LineSocket connect_to(const std::vector<std::string>& addresses, int port) {
  for (const std::string& text : addresses) {
    Address a = address_of(text, port);
    if (a.size == 0) continue;
    Descriptor d(::socket(a.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!d) continue;
    if (::connect(d.get(), a.get(), a.size) != 0) {
      if (errno != EINPROGRESS) continue;
      pollfd writable{d.get(), POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof error;
      if (::poll(&writable, 1, 2000) != 1 || ::getsockopt(d.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error)
        continue;
    }
    return LineSocket(std::move(d));
  }
  return LineSocket(Descriptor());
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> all;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return all;
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (i->ifa_addr->sa_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text.data(), text.size());
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& a = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&a)) continue;
      ::inet_ntop(AF_INET6, &a, text.data(), text.size());
    }
    if (text[0] != 0) all.emplace_back(text.data());
  }
  ::freeifaddrs(first);
  return all;
}

std::string random_token() {
  std::array<std::uint64_t, 2> bits{};
  check(::getrandom(bits.data(), sizeof bits, 0) == sizeof bits, ErrorKind::internal, "job monitor",
        "the system gives no random numbers");
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

bool equal_tokens(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  int differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

}  // namespace trireme
