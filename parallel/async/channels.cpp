#include "parallel/async/channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "framework/ops/ops.h"
#include "framework/tensor/memory_tracker.h"
#include "parallel/plan/action_context.h"
#include "parallel/plan/shards.h"

namespace trireme {

Channels::Channels(const Plan& plan, const Program& program, ParameterStore& store, Mesh& mesh)
    : plan_(plan), program_(program), store_(store), names_(channels_of(plan)) {
  if (names_.empty()) return;
  const std::string axis = axis_of(plan, names_.front());
  comm_ = &mesh.comm(axis);
  for (int i = 0; i < comm_->size(); ++i) serving_.push_back(serves_at(plan, axis, i));
  if (!program.serves()) return;
  inbox_.emplace(plan, program, comm_->rank());
}

int Channels::number(const std::string& channel) const {
  return static_cast<int>(std::ranges::lower_bound(names_, channel) - names_.begin());
}

Tensor Channels::operand(const Action& a) const {
  if (a.payload == OperandKind::weights) return store_.values().rows(a.slice.begin, a.slice.end);
  if (a.payload == OperandKind::gradients) return store_.grads().rows(a.slice.begin, a.slice.end);
  return store_.state(payload_of(a)).rows(a.slice.begin, a.slice.end);
}

Work Channels::send(const Action& a, std::int64_t step, const Tensor& payload, int to) {
  if (!serving_[static_cast<std::size_t>(to)]) return comm_->send(payload, to, number(a.peer.channel));
  const std::int64_t clock = plan_.tickets > 0 ? clock_ : step;
  return comm_->send_to({.program = number(a.peer.channel), .clock = clock, .begin = a.slice.begin, .end = a.slice.end},
                        payload, to);
}

Work Channels::send(ActionContext& now) {
  const Action& a = now.action;
  if (a.payload == OperandKind::gradients) store_.zero_missing_grads(a.slice);
  if (a.payload == OperandKind::loss)  // zero on a rank that computed no loss itself
    last_loss_ = *now.loss ? *now.loss : Tensor::zeros({}, DType::f64);
  std::vector<int> started;
  for (const ReceivedMessage& m : taken_) started.push_back(m.header.sender);
  const auto scalar = [](std::int64_t n) { return Tensor::scalar(static_cast<double>(n), DType::f64); };
  Tensor payload = a.payload == OperandKind::ticket    ? scalar(tickets_.empty() ? -1 : tickets_.front())
                   : a.payload == OperandKind::clock   ? scalar(now.optimizer.steps())
                   : a.payload == OperandKind::loss    ? last_loss_.to(DType::f64)
                   : a.payload == OperandKind::senders ? Tensor::of(std::vector<double>(started.begin(), started.end()),
                                                                    {std::ssize(started)}, DType::f64)
                                                       : operand(a);
  if (!inbox_) return send(a, now.step, payload, root_of(a.peer, comm_->rank()));
  std::erase_if(sending_, [](Work& work) { return work.done(); });
  const MemoryScope packed(MemoryKind::packed);
  payload = payload.clone();
  for (const int to : receivers_of(plan_, a.peer, comm_->rank(), started)) {
    if (a.payload == OperandKind::ticket) payload = scalar(inbox_->take_ticket(to));
    sending_.push_back(send(a, now.step, payload, to));
  }
  return {};
}

Work Channels::receive(ActionContext& now) {
  const Action& a = now.action;
  if (waits_on_channel(a)) return wait_for(a);
  if (a.payload == OperandKind::loss)
    *now.loss = mean_loss();
  else
    sum(a);
  return {};
}

Work Channels::wait_for(const Action& a) {
  if (a.payload == OperandKind::weights) restore_pages(store_.values(), a.slice);
  const Tensor into = is_number(a) ? Tensor::zeros({}, DType::f64) : operand(a);
  const int root = root_of(a.peer, comm_->rank());
  if (a.payload == OperandKind::clock) received_clocks_[root] = into;
  if (a.payload == OperandKind::ticket) received_ticket_ = into;
  return comm_->recv(into, root, number(a.peer.channel));
}

Tensor Channels::begin_step(std::int64_t step) {
  if (plan_.tickets > 0) return tickets_.empty() && !inbox_ ? Tensor::zeros({}, DType::f64) : Tensor();
  skips_ = step < resumes_at();
  return skips_ ? last_loss_ : Tensor();
}

void Channels::open(std::int64_t batches, std::int64_t step) {
  clock_ = step;
  if (inbox_) return inbox_->open(batches, step);
  const CoordinateRange workers = plan_.range(program_, axis_of(plan_, names_.front()));
  tickets_ = TicketQueue::first(batches * plan_.tickets, comm_->rank() - workers.begin, workers.end - workers.begin,
                                plan_.tickets_ahead);
}

void Channels::end_ticket() {
  clock_ = received_clocks_.empty() ? clock_ + 1 : resumes_at();
  tickets_.pop_front();
  const auto next = static_cast<std::int64_t>(std::exchange(received_ticket_, {}).item());
  if (next >= 0) tickets_.push_back(next);
}

std::int64_t Channels::resumes_at() const {
  std::int64_t first = received_clocks_.empty() ? 0 : Trigger::forever;
  for (const auto& [server, clock] : received_clocks_) first = std::min(first, static_cast<std::int64_t>(clock.item()));
  return first;
}

void Channels::add(ReceivedMessage message) {
  const auto channel = static_cast<std::size_t>(message.header.program);
  check(channel < names_.size(), ErrorKind::communicator, "channels", "a message of rank {} is for channel {} of {}",
        message.header.sender, channel, names_.size());
  if (std::ranges::any_of(program_.phases,
                          [&](const ProgramPhase& p) { return p.trigger.chosen == names_[channel]; })) {
    std::vector<int> senders;
    for (const double rank : message.payload.to_vector()) senders.push_back(static_cast<int>(rank));
    return inbox_->choose(std::move(senders));
  }
  inbox_->add(come_, names_[channel], message.header.sender, message.header.clock);
  waiting_.emplace(come_++, std::move(message));
}

int Channels::next() {
  const MemoryScope packed(MemoryKind::packed);
  for (;;) {
    if (const auto start = inbox_->next()) {
      taken_.clear();
      for (std::size_t m : start->messages) taken_.push_back(std::move(waiting_.extract(m).mapped()));
      return start->phase;
    }
    add(arrivals_.take(*comm_));
  }
}

void Channels::replay(const std::map<std::string, Tensor>& local) {
  if (ordered_) arrivals_.replay(local);
}

Tensor Channels::mean_loss() const {
  double sum = 0;
  for (const ReceivedMessage& m : taken_) sum += m.payload.item();
  return Tensor::full({}, sum / static_cast<double>(taken_.size()), store_.dtype());
}

void Channels::sum(const Action& a) {
  const NoGrad off;
  const Tensor into = operand(a);
  for (const ReceivedMessage& m : taken_) {
    const auto& [begin, end] = std::pair(m.header.begin, m.header.end);
    check(begin == a.slice.begin && end == a.slice.end, ErrorKind::communicator, "channels",
          "rank {} has sent [{}, {}), but program {} takes [{}, {})", m.header.sender, begin, end, program_.name,
          a.slice.begin, a.slice.end);
    if (&m == &taken_.front())
      into.copy_from(m.payload);
    else
      add_into(into, m.payload.to(into.device()));
  }
  for (const auto& [name, value] : a.arguments)
    if (name == "scale") into.copy_from(into * value);
  if (a.payload == OperandKind::gradients) store_.mark_written(a.slice);
}

void Channels::save(std::map<std::string, Tensor>& local) const {
  for (const auto& [server, clock] : received_clocks_)  // "pulled": the name in checkpoints of earlier versions
    local[fmt::format("inbox.pulled.{}", server)] = clock.reshape({1});
  if (!received_clocks_.empty()) local["inbox.loss"] = last_loss_.reshape({1});
  arrivals_.save(local);
  if (!inbox_) return;
  const auto clocks = inbox_->clocks();
  local["inbox.clocks"] =
      Tensor::of(std::vector<double>(clocks.begin(), clocks.end()), {std::ssize(clocks)}, DType::i64);
  std::size_t k = 0;
  for (const auto& [number, m] : waiting_) {
    const MessageHeader& h = m.header;
    const Tensor head = Tensor::empty({5}, DType::i64);
    std::ranges::copy(std::array<std::int64_t, 5>{h.program, h.sender, h.clock, h.begin, h.end},
                      head.data<std::int64_t>());
    local[fmt::format("inbox.{}.head", k)] = head;
    local[fmt::format("inbox.{}.payload", k++)] = m.payload;
  }
}

void Channels::load(const std::map<std::string, Tensor>& local) {
  received_clocks_.clear();
  for (const Action& a : program_.actions) {
    if (!comm_ || a.kind != ActionKind::recv || a.payload != OperandKind::clock) continue;
    const int root = root_of(a.peer, comm_->rank());
    if (const auto at = local.find(fmt::format("inbox.pulled.{}", root)); at != local.end())
      received_clocks_[root] = at->second.reshape({});
  }
  if (const auto at = local.find("inbox.loss"); at != local.end()) last_loss_ = at->second.reshape({});
  arrivals_.load(local);
  if (!inbox_) return;
  inbox_.emplace(plan_, program_, comm_->rank());
  waiting_.clear();
  std::vector<std::int64_t> clocks;
  for (const double clock : local.at("inbox.clocks").to_vector()) clocks.push_back(static_cast<std::int64_t>(clock));
  inbox_->set_clocks(clocks);
  for (std::size_t k = 0; local.contains(fmt::format("inbox.{}.head", k)); ++k) {
    const auto* h = local.at(fmt::format("inbox.{}.head", k)).data<std::int64_t>();
    add({{.program = static_cast<std::int32_t>(h[0]),
          .sender = static_cast<std::int32_t>(h[1]),
          .clock = h[2],
          .begin = h[3],
          .end = h[4]},
         local.at(fmt::format("inbox.{}.payload", k))});
  }
}

}  // namespace trireme
