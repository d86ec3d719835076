// Messages to channels, received from any rank; waits for any of several operations; deadlines: the same checks on
// threads and, when started by mpiexec, on processes.
#include <atomic>
#include <ctime>
#include <deque>
#include <limits>
#include <map>

#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_channels {

using namespace trireme;
using trireme::test::contains;

namespace {

constexpr DType types[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8};

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("not so: " + what);
}
void expect_error(const std::function<void()>& f, const std::vector<std::string>& parts) {
  try {
    f();
  } catch (const Error& e) {
    for (auto& part : parts)
      expect(std::string(e.what()).find(part) != std::string::npos, e.what() + (": lacks " + part));
    return;
  }
  throw std::runtime_error("no error with " + parts[0]);
}

void on_ranks(const std::function<void(World&)>& body, std::vector<int> asked = {1, 2, 3, 4, 5},
              const std::function<void(int, const std::function<void(World&)>&)>& launch = test::launch) {
  for (int ranks : test::rank_counts(std::move(asked))) {
    CAPTURE(ranks);
    if (test::under_mpi())
      REQUIRE_NOTHROW(body(test::processes()));
    else
      REQUIRE_NOTHROW(launch(ranks, body));
  }
}

/// What everybody sends, drawn the same on every rank: message `clock` of a sender.
struct Sent {
  int sender, to, channel;
  Index count;
  DType type;
  std::int64_t clock;
};
std::vector<Sent> draw_messages(int ranks, std::uint64_t seed) {
  const auto below = [&](Index n) { return static_cast<Index>(test::mix(seed++) % static_cast<std::uint64_t>(n)); };
  std::vector<Sent> all;
  for (int i = 0; i < 30 * ranks; ++i) {
    const Index most = std::array<Index, 3>{1, 20, 30000}[static_cast<std::size_t>(below(3))];
    all.push_back({static_cast<int>(below(ranks)), static_cast<int>(below(ranks)), static_cast<int>(below(2) * 1023),
                   below(most + 1), types[below(std::size(types))], i});
  }
  return all;
}

/// Messages of all sizes and types from all to all: headers and payloads together, each sender's in order.
void check_all_to_all(World& world) {
  Communicator& comm = world.comm();
  const int me = comm.rank();
  const auto all = draw_messages(comm.size(), 3);
  const auto payload = [](const Sent& s) {
    return Tensor::full({s.count}, static_cast<double>(s.clock % 100), s.type);
  };
  std::vector<Work> sends;
  std::map<std::pair<int, int>, std::deque<Sent>> expected;  // by channel and sender
  std::map<int, int> open;                                   // messages to come, by channel
  for (const Sent& s : all) {
    if (s.sender == me)
      sends.push_back(comm.send_to(
          {.program = 2, .channel = s.channel, .codec = 5, .clock = s.clock, .begin = s.count, .end = s.count + 7},
          s.count ? payload(s) : Tensor(), s.to));
    if (s.to == me) {
      expected[{s.channel, s.sender}].push_back(s);
      ++open[s.channel];
    }
  }
  // On all channels at once, three times on one of them: there they may be done in another order.
  constexpr int shared = 1023;
  std::vector<int> channels;
  for (auto& [channel, count] : open)
    for (int i = 0; i < (channel == shared ? 3 : 1) && count > 0; ++i, --count) channels.push_back(channel);
  std::vector<std::unique_ptr<ReceivedMessage>> messages;
  std::vector<Work> works;
  for (const int channel : channels) {
    messages.push_back(std::make_unique<ReceivedMessage>());
    works.push_back(comm.recv_any(*messages.back(), channel));
  }
  while (!works.empty()) {
    const std::size_t i = wait_any(works);
    works[i].wait();
    const MessageHeader& h = messages[i]->header;
    auto& list = expected[{channels[i], h.sender}];
    const auto found = std::ranges::find(list, h.clock, &Sent::clock);
    expect(found != list.end() && (channels[i] == shared || found == list.begin()),
           "the order of one sender's messages");
    const Sent s = *found;
    list.erase(found);
    expect(h.channel == s.channel && h.program == 2 && h.codec == 5 && h.begin == s.count && h.end == s.count + 7,
           "the header");
    expect(h.bytes == s.count * size_of(s.type) && (s.count == 0 || h.type == s.type), "type and bytes");
    expect(messages[i]->payload.to_vector() == payload(s).to_vector(), "the payload");
    if (open[channels[i]] > 0) {
      --open[channels[i]];
      works[i] = comm.recv_any(*messages[i], channels[i]);
    } else {
      const auto at = static_cast<std::ptrdiff_t>(i);
      works.erase(works.begin() + at);
      channels.erase(channels.begin() + at);
      messages.erase(messages.begin() + at);
    }
  }
  for (Work& work : sends) work.wait();
  for (auto& [from, list] : expected) expect(list.empty(), "all messages came");
}

/// A flood of one sender does not hold the others' messages up: receives go round all that have sent.
void check_fairness(World& world) {
  Communicator& comm = world.comm();
  const int p = comm.size(), me = comm.rank();
  constexpr int few = 5, many = 300;
  for (int flooder = 0; flooder < p; ++flooder) {
    std::vector<Work> sends;
    for (int i = 0; i < (me == flooder ? many : few); ++i)
      sends.push_back(comm.send_to({.channel = 4, .clock = i}, Tensor::full({2}, me), 0));
    // What a rank sends last comes last: then all is there.
    const Tensor last = Tensor::zeros({1});
    sends.push_back(comm.send(last, 0));
    for (int from = 0; me == 0 && from < p; ++from) comm.recv(last, from).wait();
    std::vector<int> taken(static_cast<std::size_t>(p));
    for (int i = 0; me == 0 && i < many + (p - 1) * few; ++i) {
      ReceivedMessage message;
      comm.recv_any(message, 4).wait();
      int& count = taken[static_cast<std::size_t>(message.header.sender)];
      expect(message.header.clock == count++, "the order of one sender's messages");
      if (i < p * few)
        expect(count <= i / p + 1, fmt::format("message {} comes from rank {}, its turn", i, message.header.sender));
    }
    for (Work& work : sends) work.wait();
    comm.barrier();
  }
}

/// Works of all kinds, waited for by wait_any alone.
void check_wait_any(World& world) {
  Communicator& comm = world.comm();
  const int p = comm.size(), me = comm.rank(), right = (me + 1) % p, left = (me + p - 1) % p;
  for (int round = 0; round < 20; ++round) {
    const Index n = std::array<Index, 3>{1, 500, 70000}[static_cast<std::size_t>(round % 3)];
    const Tensor sum = Tensor::full({n}, me), mean = Tensor::full({n}, me), in = Tensor::zeros({n}),
                 out = Tensor::full({n}, me);
    ReceivedMessage message;
    std::vector<Work> works;
    works.push_back(comm.recv_any(message, round));
    works.push_back(comm.recv(in, left, round));
    works.push_back(comm.all_reduce(sum));
    works.push_back(comm.all_reduce(mean, ReduceOp::average));
    works.push_back(comm.send(out, right, round));
    works.push_back(comm.send_to({.channel = round, .clock = me}, out, left));
    std::vector<std::size_t> order;
    while (!works.empty()) {
      const std::size_t i = wait_any(works);
      expect(works[i].done() && works[i].wait_for(0), "what wait_any returns is done");
      works.erase(works.begin() + static_cast<std::ptrdiff_t>(i));
    }
    expect(sum.to_vector().back() == p * (p - 1) / 2 && mean.to_vector().back() == (p - 1) / 2.0, "sum and average");
    expect(
        in.to_vector().back() == left && message.header.clock == right && message.payload.to_vector().back() == right,
        "messages");
  }
}

/// CPU time of this thread, in seconds.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Waits with deadlines for what comes later: they throw, and the operation goes on.
void check_deadlines(World& world) {
  Communicator& comm = world.comm();
  const int p = comm.size(), me = comm.rank();
  const Tensor x = Tensor::full({5}, 1), token = Tensor::zeros({1}), late = Tensor::zeros({3});
  if (me > 0) {
    comm.recv(token, 0).wait();
  } else {
    Work sum = comm.all_reduce(x), message = comm.recv(late, p - 1, 9);
    ReceivedMessage any;
    std::vector<Work> works{comm.recv_any(any, 3), comm.recv(late, p - 1, 9)};
    expect(!sum.wait_for(0.01) && !message.wait_for(0) && !sum.done(), "wait_for says what is not done");
    expect_error([&] { sum.wait(0.05); }, {"all_reduce of 5 f32 (sum)", "rank 0 of", "waited 0.05 s"});
    if (comm.transport() != "mpi") expect_error([&] { sum.wait(0); }, {p > 2 ? " 1, 2" : " for rank 1"});
    expect_error([&] { message.wait(0.05); },
                 {fmt::format("recv of 3 f32 from rank {}", p - 1), "waited 0.05 s", "took another path"});
    expect_error([&] { works[0].wait(0.05); }, {"recv_any of channel 3: rank 0 of", "has waited 0.05 s"});
    const double before = cpu_seconds();
    expect_error([&] { wait_any(works, 0.5); },
                 {"wait_any: none of 2 operations is done; the first: recv_any of channel 3", "0.5 s"});
    expect(cpu_seconds() - before < 0.25, "wait_any sleeps");
    std::vector<Work> sends;
    for (int to = 1; to < p; ++to) sends.push_back(comm.send(token, to));
    for (Work& work : sends) work.wait();
    sum.wait(60);
    message.wait(60);
    works[1].wait();
    works.clear();  // nothing was sent to the channel
    expect(late.to_vector() == std::vector<double>{2, 2, 2}, "a message after its deadline");
  }
  if (me == p - 1)
    for (int i = 0; i < 2; ++i) comm.send(Tensor::full({3}, 2), 0, 9).wait();
  if (me > 0) comm.all_reduce(x).wait();
  expect(x.to_vector().back() == p, "a sum after its deadline");
  comm.barrier();
}

void check_dropped(World& world) {
  Communicator& comm = world.comm();
  const int me = comm.rank();
  ReceivedMessage message;
  { Work dropped = comm.recv_any(message, 8); }
  Work sent = comm.send_to({.channel = 8, .clock = 77}, {}, me), open = comm.recv_any(message, 8);
  open.wait();
  sent.wait();
  expect(message.header.clock == 77 && message.header.sender == me && message.payload.numel() == 0,
         "a message to oneself");
}

}  // namespace

TEST_CASE("messages to channels, from all ranks to all") { on_ranks(check_all_to_all); }

TEST_CASE("a flooding sender does not hold up the others' messages") { on_ranks(check_fairness); }

TEST_CASE("wait_any over works of all kinds") { on_ranks(check_wait_any); }

TEST_CASE("waits with a deadline name the call, and the operation goes on") {
  // Not in virtual time, where a rank's messages leave behind the sum that it has started.
  on_ranks(check_deadlines, {2, 3, 4}, World::threads);
}

TEST_CASE("a receive that was dropped takes nothing") { on_ranks(check_dropped); }

TEST_CASE("channels, slices, peers and deadlines that cannot be are refused") {
  World world;
  auto& comm = world.comm();
  ReceivedMessage message;
  const Tensor x = Tensor::zeros({2});
  for (int channel : {-1, message_channels, 1 << 30}) {
    CAPTURE(channel);
    REQUIRE_ERROR(comm.recv_any(message, channel), usage, "recv_any");
    REQUIRE_ERROR(comm.send_to({.channel = channel}, x, 0), usage, "send_to");
  }
  REQUIRE_ERROR(comm.send_to({}, x, 1), usage, 1, "send_to");
  REQUIRE_ERROR(comm.send_to({.begin = 3, .end = 2}, x, 0), usage, 3, 2, "send_to");
  REQUIRE_ERROR(comm.send(x, 0, message_tags), usage, "send", 32768);
  Work open = comm.recv_any(message, 0);
  for (double seconds : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    REQUIRE_ERROR(open.wait(seconds), usage, "wait");
    REQUIRE_ERROR(open.wait_for(seconds), usage, "wait_for");
    REQUIRE_ERROR(wait_any({&open, 1}, seconds), usage, "wait_any");
  }
  REQUIRE_ERROR(wait_any({}), usage, "wait_any");
  Work none;
  REQUIRE(wait_any({&none, 1}, 0) == 0);
}

TEST_CASE("an error on one rank ends waits for any") {
  if (test::threads_only()) return;
  std::atomic<int> ended = 0;
  const auto body = [&](World& world) {
    if (world.rank() == 1) throw std::runtime_error("no more sugar");
    ReceivedMessage message;
    std::vector<Work> works{world.comm().recv_any(message, 0), world.comm().recv(Tensor::zeros({1}), 1)};
    try {
      works[wait_any(works)].wait();
    } catch (const Error& e) {
      ended += std::string(e.what()).find("no more sugar") != std::string::npos;
      throw;
    }
  };
  for (const auto& run : test::launches()) REQUIRE_ERROR(run(3, body), internal, 1, "no more sugar");
  REQUIRE(ended == 4);
}

TEST_CASE("wait_any returns what has failed") {
  if (test::threads_only()) return;
  const auto body = [](World& world) {
    Communicator& comm = world.comm();
    if (world.rank() == 1) return comm.send(Tensor::zeros({4}), 0).wait();
    ReceivedMessage message;
    std::vector<Work> works{comm.recv_any(message, 0), comm.recv(Tensor::zeros({3}), 1)};
    works[wait_any(works)].wait();
  };
  for (const auto& run : test::launches()) REQUIRE_ERROR(run(2, body), communicator, 4, "f32");
}

}  // namespace test_channels
