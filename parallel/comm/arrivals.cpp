#include "parallel/comm/arrivals.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "parallel/comm/call.h"

namespace trireme {

Arrivals::Posted& Arrivals::post(Communicator& comm) {
  if (!posted_) {
    posted_ = std::make_unique<Posted>();
    posted_->work = comm.recv_any(posted_->message, 0);
  }
  return *posted_;
}

ReceivedMessage Arrivals::note(ReceivedMessage message, std::int64_t place) {
  ++count_;
  if (taken_) taken_->push_back({place, message.header.sender});
  return message;
}

ReceivedMessage Arrivals::take(Communicator& comm, std::int64_t place) {
  if (replayed_) return note(next_of_replay(comm), place);
  post(comm).work.wait();
  return note(std::move(std::exchange(posted_, nullptr)->message), place);
}

std::optional<ReceivedMessage> Arrivals::poll(Communicator& comm, std::int64_t place) {
  if (replayed_) {
    const std::size_t at = taken_->size();
    if (at >= replayed_->size() || (*replayed_)[at].place > place) return {};
    return note(next_of_replay(comm), place);
  }
  if (!post(comm).work.done()) return {};
  return take(comm, place);
}

ReceivedMessage Arrivals::next_of_replay(Communicator& comm) {
  const std::size_t at = taken_->size();
  check(at < replayed_->size(), "replay", "the recorded run has no more than {} messages to rank {}", at,
        [&] { return comm.rank(); });
  const int sender = (*replayed_)[at].sender;
  auto& turn = early_[sender];
  while (turn.empty()) {
    const bool came = post(comm).work.wait_for(collective_timeout().count());
    check(
        came, "replay",
        "rank {} waits for a message of rank {}, as the recorded run did here; let the repeated run evaluate and save "
        "where that one did",
        [&] { return comm.rank(); }, sender);
    ReceivedMessage next = std::move(std::exchange(posted_, nullptr)->message);
    early_[next.header.sender].push_back(std::move(next));
  }
  ReceivedMessage message = std::move(turn.front());
  turn.pop_front();
  return message;
}

namespace {

Tensor column(auto numbers) {
  const Tensor all = Tensor::empty({std::ranges::ssize(numbers)}, DType::i64);
  std::ranges::copy(numbers, all.data<std::int64_t>());
  return all;
}

}  // namespace

void Arrivals::save(std::map<std::string, Tensor>& local) const {
  check(std::ranges::all_of(early_, [](const auto& e) { return e.second.empty(); }), "replay",
        "messages have arrived before their turn");
  if (!taken_) return;
  local["inbox.arrivals"] = column(*taken_ | std::views::transform(&Entry::sender));
  if (std::ranges::any_of(*taken_, &Entry::place))
    local["inbox.arrival_places"] = column(*taken_ | std::views::transform(&Entry::place));
}

std::optional<std::vector<Arrivals::Entry>> Arrivals::entries_in(const std::map<std::string, Tensor>& local) {
  const auto senders = local.find("inbox.arrivals"), places = local.find("inbox.arrival_places");
  if (senders == local.end()) return {};
  std::vector<Entry> all(static_cast<std::size_t>(senders->second.numel()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].sender = static_cast<int>(senders->second.data<std::int64_t>()[i]);
    all[i].place = places == local.end() ? 0 : places->second.data<std::int64_t>()[i];
  }
  return all;
}

void Arrivals::load(const std::map<std::string, Tensor>& local) {
  early_.clear();
  posted_ = nullptr;
  if (recorded_) taken_ = entries_in(local);
  if (replayed_) check_replayed();
}

void Arrivals::check_replayed() const {
  const bool starts = taken_ && taken_->size() <= replayed_->size() &&
                      std::ranges::equal(*taken_, *replayed_ | std::views::take(taken_->size()));
  check(starts, "replay", "messages have arrived at this rank in another order than in the recorded run");
}

void Arrivals::replay(const std::map<std::string, Tensor>& local) {
  replayed_ = entries_in(local);
  check(replayed_.has_value(), ErrorKind::data, "replay", "the checkpoint holds no order of arrivals");
  check_replayed();
}

}  // namespace trireme
