#include "parallel/comm/communicator.h"

#include <cstring>

#include "framework/ops/help.h"
#include "kernels/core/runtime.h"
#include "kernels/formulas/pointwise.h"
#include "parallel/comm/call.h"
#include "parallel/comm/flight_recorder.h"
#include "parallel/comm/reduce.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double checked(double seconds, std::string_view name) {
  check(seconds >= 0, name, "the deadline is {} s, expected 0 or more", seconds);
  return seconds;
}

/// Several operations as one, and a function to run after them.
struct Joined final : Work::State {
  Joined(std::vector<Work> w, std::function<void()> f) : works(std::move(w)), then(std::move(f)) {
    if (!then) State::give_up();  // each of the works settles itself
  }
  bool wait(double seconds) override {
    if (failure) std::rethrow_exception(failure);
    const auto start = Clock::now();
    try {
      EventCount* const count = events();
      const bool simulated = count && count->simulated();
      if (simulated && seconds < collective_timeout().count() && !count->poll(seconds, [&] { return all_done(); }))
        return false;
      for (; at < works.size(); ++at) {
        const std::chrono::duration<double> gone = at == 0 || simulated ? Clock::duration() : Clock::now() - start;
        if (!works[at].wait_for(std::max(0.0, seconds - gone.count()))) return false;
      }
      if (then) std::exchange(then, nullptr)();
    } catch (...) {
      failure = std::current_exception();
      then = nullptr;
      throw;
    }
    return true;
  }
  bool done() override {
    if (failure) return true;
    if (!all_done()) return false;
    try {
      return wait(0);
    } catch (...) { return true; }  // wait() throws it again
  }
  std::string late(double seconds) override { return works[at].state()->late(seconds); }
  /// Null also if only `then` is left, because all works were done from the start or waited for elsewhere.
  EventCount* events() override { return at < works.size() ? works[at].state()->events() : nullptr; }
  void give_up() override {
    State::give_up();
    for (std::size_t i = at; i < works.size(); ++i) works[i].state()->give_up();
  }

  bool all_done() {
    for (std::size_t i = at; i < works.size(); ++i)
      if (!works[i].done()) return false;
    return true;
  }

  std::vector<Work> works;
  std::size_t at = 0;  // index of the first work that was not waited for
  std::function<void()> then;
  std::exception_ptr failure;
};

}  // namespace

bool Work::State::wait(double seconds) {
  if (!poll_until(
          seconds, [&] { return done(); }, events()))
    return false;
  finish();
  return true;
}

void Work::State::settle() {
  if (given_up_ || std::uncaught_exceptions() > unwinding_) return;
  const FlightRecorder::Wait waiting;
  try {
    wait(collective_timeout().count());
  } catch (...) {}
}

Work::Work(std::shared_ptr<State> state) {
  if (State* const s = state.get()) state_ = {s, [owner = std::move(state)](State* last) { last->settle(); }};
}

bool Work::wait_for(double seconds) {
  const FlightRecorder::Wait waiting;
  if (state_ && !state_->wait(checked(seconds, "wait_for"))) return false;
  state_.reset();
  return true;
}

void Work::wait(double seconds) {
  if (state_) wait_or_throw(checked(seconds, "wait"));
}

void Work::wait_or_throw(double seconds) {
  if (seconds < 0) seconds = collective_timeout().count();
  const FlightRecorder::Wait waiting;
  if (!state_->wait(seconds)) {
    state_->give_up();
    throw Error(state_->late(seconds), std::source_location::current(), ErrorKind::communicator);
  }
  state_.reset();
}

void fail_ended(std::string_view op, const AbortReason& why) { fail(why.kind, op, "ended because of {}", why.text); }

std::size_t wait_any(std::span<Work> works) { return wait_any(works, collective_timeout().count()); }

std::size_t wait_any(std::span<Work> works, double seconds) {
  check(!works.empty(), "wait_any", "got no operation to wait for");
  checked(seconds, "wait_any");
  std::size_t first = 0;
  const auto any_done = [&] {
    for (first = 0; first < works.size(); ++first)
      if (works[first].done()) return true;
    return false;
  };
  if (any_done()) return first;
  const FlightRecorder::Wait waiting;
  EventCount* events = works[0].state()->events();
  for (const Work& work : works)
    if (work.state()->events() != events) events = nullptr;
  if (poll_until(seconds, any_done, events)) return first;
  fail(ErrorKind::communicator, "wait_any", "none of {} operations is done; the first: {}", works.size(),
       works[0].state()->late(seconds));
}

Work when_all(std::vector<Work> works, std::function<void()> then) {
  std::erase_if(works, [](const Work& work) { return work.state() == nullptr; });
  if (!then && works.size() < 2) return works.empty() ? Work{} : works[0];
  return Work(std::make_shared<Joined>(std::move(works), std::move(then)));
}

Work Communicator::collective(CallKind kind, Tensor out, Tensor in, std::span<const Index> counts, int root,
                              ReduceOp op) {
  const Call call = collective_call(kind, out, in, counts, root, op, rank(), size());
  const bool to_root = kind == CallKind::reduce || kind == CallKind::gather;
  const bool from_root = kind == CallKind::scatter || kind == CallKind::broadcast;
  if (rank() != root && to_root) out = {};
  if (rank() != root && from_root) in = {};
  if (rank() == root && kind == CallKind::broadcast) out = {};
  if (size() == 1) {  // a single rank gets its own data
    if (out.defined() && call.count > 0 && out.view().data != in.view().data) copy_block(out.view(), in.view());
    return {};
  }
  const FlightEntry entry(to_string(call));
  Work sum = start(call, out, in, counts);
  if (!call.average || !out.defined() || out.numel() == 0) return sum;
  return when_all({std::move(sum)}, [out, ranks = size()] {
    if (out.device().kind == DeviceKind::cpu) return divide(out.view().data, out.numel(), out.dtype(), ranks);
    ops::zip_into<pointwise::Div>(out, out, Tensor::scalar(ranks, out.dtype(), out.device()));
  });
}

Work Communicator::send(const Tensor& x, int to, int tag) {
  const Call call = message_call(CallKind::send, x, to, tag, size());
  const FlightEntry entry(to_string(call));
  return start(call, {}, x, {});
}

Work Communicator::recv(const Tensor& x, int from, int tag) {
  const Call call = message_call(CallKind::recv, x, from, tag, size());
  const FlightEntry entry(to_string(call));
  return start(call, x, {}, {});
}

void Communicator::meet(const Call& call) {
  const FlightEntry entry(to_string(call));
  if (size() > 1) start(call, {}, {}, {}).wait();
  if (const AbortReason why = ended(); !why.empty()) fail_ended(name_of(call.kind), why);
}

void Communicator::barrier() { meet({CallKind::barrier}); }

// Messages to channels: the header has one tag, the payload (if it has elements) the next one. Both arrive in sending
// order, so headers and payloads match.

namespace {

int header_tag(int channel) { return message_tags + 2 * channel; }
void check_channel(std::string_view name, int channel) {
  check(channel >= 0 && channel < message_channels, name, "the channel is {}, expected one in [0, {})", channel,
        message_channels);
}
Call part_of_message(CallKind kind, const Tensor& x, int peer, int tag) {
  return {kind, x.numel(), x.dtype(), ReduceOp::sum, peer, tag};
}

}  // namespace

struct Communicator::AnyReceive final : Work::State {
  AnyReceive(Communicator& c, ReceivedMessage& m, int number) : comm(c), message(m), channel(number) { give_up(); }

  /// Takes the next header, if there is one, and starts to receive its payload.
  bool match() {
    if (matched) return true;
    int& next = comm.next_sender_[channel];
    const int from = comm.probe(header_tag(channel), next);
    if (from < 0) return false;
    next = (from + 1) % comm.size();
    const Tensor head = Tensor::empty({sizeof(MessageHeader)}, DType::u8);
    comm.start(part_of_message(CallKind::recv, head, from, header_tag(channel)), head, {}, {}).wait();
    std::memcpy(&message.header, head.view().data, sizeof(MessageHeader));
    matched = true;  // not set earlier: the job may be aborted while the header is in transit
    const Tensor x = Tensor::empty({message.header.bytes / size_of(message.header.type)}, message.header.type);
    message.payload = x;
    if (x.numel() > 0)
      payload = comm.start(part_of_message(CallKind::recv, x, from, header_tag(channel) + 1), x, {}, {});
    return true;
  }
  bool done() override { return match() ? payload.done() : !comm.ended().empty(); }
  void finish() override {
    if (!matched) fail_ended(what(), comm.ended());
    payload.wait();
  }
  std::string what() const { return fmt::format("recv_any of channel {}", channel); }
  std::string late(double seconds) override {
    return late_text(fmt::format("{}: rank {} of {} has", what(), comm.rank(), comm.size()), seconds,
                     matched ? fmt::format(" for the payload of rank {}", message.header.sender) : "");
  }
  EventCount* events() override { return comm.events(); }

  Communicator& comm;
  ReceivedMessage& message;
  int channel;
  bool matched = false;
  Work payload;
};

Work Communicator::send_to(MessageHeader header, const Tensor& x, int to) {
  check_channel("send_to", header.channel);
  check(to >= 0 && to < size(), "send_to", "peer is rank {}, there are {} ranks", to, size());
  check(header.begin <= header.end, "send_to", "the slice is [{}, {})", header.begin, header.end);
  header.sender = rank();
  header.bytes = 0;
  if (x.defined()) {
    header.bytes = x.view().bytes();
    header.type = x.dtype();
  }
  const Tensor head = Tensor::empty({sizeof header}, DType::u8);
  std::memcpy(head.view().data, &header, sizeof header);
  const int tag = header_tag(header.channel);
  std::vector<Work> parts{start(part_of_message(CallKind::send, head, to, tag), {}, head, {})};
  if (header.bytes > 0) parts.push_back(start(part_of_message(CallKind::send, x, to, tag + 1), {}, x, {}));
  return when_all(std::move(parts));
}

Work Communicator::recv_any(ReceivedMessage& message, int channel) {
  check_channel("recv_any", channel);
  return Work(std::make_shared<AnyReceive>(*this, message, channel));
}

}  // namespace trireme
