// Channels: sends and receives what a rank's program pushes, pulls and takes, and says which phase the messages that
// have come start next.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "framework/optim/parameter_store.h"
#include "parallel/comm/arrivals.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/channels.h"

namespace trireme {

/// A message to a program that messages start has a head (MessageHeader: program is the channel's number, clock the
/// sender's step) and goes to channel 0 of the communicator; one to another program is sent with the channel's number
/// as its tag.
class Channels {
 public:
  /// All must outlive it. A collective call.
  Channels(const Plan&, const Program&, ParameterStore&, Mesh&);

  /// Sends what the action names; number: where it names one. What a program that messages start sends is copied, and
  /// nobody waits for it.
  Work push(const Action&, std::int64_t step, const Tensor& number);
  Work pull(const Action&);
  /// Waits for the next phase that messages start, and holds these for take(). Returns its index.
  int next();
  /// What the action names becomes the sum of the payloads that next() holds; of losses the mean, which is returned.
  Tensor take(const Action&);
  /// In a plan with tickets, where all that was sent has come: so many global batches are to be trained from now on.
  /// step: the number of steps before.
  void open(std::int64_t batches, std::int64_t step);
  /// The numbers of this rank's tickets, that of its step first.
  const std::deque<std::int64_t>& tickets() const { return tickets_; }
  /// Behind the step of the first of them: it has that which has come with the answers, if there was one.
  void end_ticket();
  /// The step with which this rank goes on, by the clocks that it has pulled; 0: it has pulled none.
  std::int64_t resumes_at() const;
  /// The loss that was pushed last.
  const Tensor& last_loss() const { return last_loss_; }
  /// For checkpoints: the messages that no phase has taken, and the clocks of those taken; of a worker the clocks that
  /// it has pulled and its last loss; by names that start with "inbox.".
  void save(std::map<std::string, Tensor>& local) const;
  void load(const std::map<std::string, Tensor>& local);
  /// What comes to this rank, in which order.
  Arrivals& arrivals() { return arrivals_; }
  /// From now on messages are handled in the order of a recorded run, of which local is what save() gave, where what
  /// the rank computes depends on it. Throws Error as Arrivals::replay().
  void replay(const std::map<std::string, Tensor>& local);

 private:
  Tensor operand(const Action&) const;
  int number(const std::string& channel) const;
  void add(ReceivedMessage);
  Tensor senders() const;  // of those that next() holds, f64
  Work send(const Action&, std::int64_t step, const Tensor& payload, int to);

  const Plan& plan_;
  const Program& program_;
  ParameterStore& store_;
  std::vector<std::string> names_;
  Communicator* comm_ = nullptr;  // along the axis of all messages; null: the plan has none
  std::vector<bool> serving_;     // by coordinate
  std::optional<Inbox> inbox_;    // of a program that messages start
  std::size_t come_ = 0;
  std::map<std::size_t, ReceivedMessage> waiting_;  // by their number in the inbox
  std::vector<ReceivedMessage> taken_;
  /// Whether what the rank computes, a server or one that gossips, depends on the order in which messages come.
  const bool ordered_ = (program_.serves() || names_.empty()) && depends_on_arrivals(plan_);
  Arrivals arrivals_{ordered_};
  std::vector<Work> sending_;
  std::map<int, Tensor> pulled_clocks_;  // f64 scalars, by the rank that sent them
  std::int64_t clock_ = 0;               // of the next messages, in a plan with tickets
  std::deque<std::int64_t> tickets_;
  Tensor pulled_ticket_;  // f64 scalar
  Tensor last_loss_;
};

}  // namespace trireme
