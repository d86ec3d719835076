#include "tools/training/run_clock.h"

#include <algorithm>
#include <chrono>

namespace trireme {
namespace {

constexpr char clock_name[] = "virtual.clock", turns_name[] = "virtual.turns";
std::string message_name(std::size_t i) { return fmt::format("virtual.message.{}", i); }

Tensor of_integers(const std::vector<std::int64_t>& values) {
  const Tensor x = Tensor::empty({std::ssize(values)}, DType::i64);
  std::ranges::copy(values, x.view().span<std::int64_t>().begin());
  return x;
}
/// Throws Error for a tensor of another type, or with fewer than `least` elements.
std::span<const std::int64_t> integers(const Tensor& x, Index least) {
  check(x.dtype() == DType::i64 && x.numel() >= least, ErrorKind::data, "resume", "{} {} is no state of a clock",
        x.dtype(), x.shape());
  return x.view().span<std::int64_t>();
}

}  // namespace

Nanoseconds RunClock::now() const {
  if (simulated_) return simulated_->now();
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::map<std::string, Tensor> to_tensors(const VirtualState& state) {
  std::map<std::string, Tensor> found;
  found[clock_name] = of_integers({state.clock, state.link});
  std::vector<std::int64_t> turns;
  for (const VirtualState::Turn& t : state.turns)
    turns.insert(turns.end(), {static_cast<std::int64_t>(t.communicator), t.receiver, t.tag, t.sender});
  if (!turns.empty()) found[turns_name] = of_integers(turns);
  for (std::size_t i = 0; i < state.messages.size(); ++i) {
    const VirtualState::Message& m = state.messages[i];
    found[message_name(i)] =
        of_integers({static_cast<std::int64_t>(m.communicator), m.receiver, m.sender, m.tag, m.arrival});
    if (m.payload) found[message_name(i) + ".payload"] = m.payload;
  }
  return found;
}

VirtualState from_tensors(const std::map<std::string, Tensor>& tensors) {
  check(tensors.contains(clock_name), ErrorKind::data, "resume", "the checkpoint holds no clock of this rank");
  const auto clock = integers(tensors.at(clock_name), 2);
  VirtualState state{.clock = clock[0], .link = clock[1], .messages = {}, .turns = {}};
  const auto rank = [](std::int64_t number) { return static_cast<int>(number); };
  if (const auto at = tensors.find(turns_name); at != tensors.end())
    for (auto t = integers(at->second, 4); t.size() >= 4; t = t.subspan(4))
      state.turns.push_back({static_cast<std::uint64_t>(t[0]), rank(t[1]), rank(t[2]), rank(t[3])});
  for (std::size_t i = 0; tensors.contains(message_name(i)); ++i) {
    const auto head = integers(tensors.at(message_name(i)), 5);
    const auto payload = tensors.find(message_name(i) + ".payload");
    state.messages.push_back({static_cast<std::uint64_t>(head[0]), rank(head[1]), rank(head[2]), rank(head[3]), head[4],
                              payload == tensors.end() ? Tensor() : payload->second});
  }
  return state;
}

}  // namespace trireme
