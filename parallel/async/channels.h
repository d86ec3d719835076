// Channels: sends and receives a rank's messages on channels, and chooses the phase that arrived messages start next
// (parameter servers and asynchronous workers).
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "framework/optim/parameter_store.h"
#include "parallel/async/inbox.h"
#include "parallel/async/own_pace.h"
#include "parallel/comm/arrivals.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/action_kind.h"

namespace trireme {

/// The message channels of one rank. A message to a program whose phases messages start (a server) has a MessageHeader
/// (program: the channel's number, clock: the sender's step) and goes to channel 0 of the communicator. A message to
/// another program is sent with the channel's number as its tag.
class Channels : public OwnPace {
 public:
  /// All references must outlive it. A collective call.
  Channels(const Plan&, const Program&, ParameterStore&, Mesh&);

  /// A server's messages are copied and not waited for.
  Work send(ActionContext&) override;
  /// Starts to receive the action's operand from a rank; or sets it to the sum of the payloads that next() kept.
  Work receive(ActionContext&) override;
  /// Waits until messages start a phase, keeps these messages for receive() and returns the phase's index.
  int next() override;
  /// In a plan with tickets, when no message is in flight: starts the training of `batches` more global batches. step:
  /// number of steps before.
  void open(std::int64_t batches, std::int64_t step);
  /// The numbers of this rank's tickets; the first belongs to its current step.
  const std::deque<std::int64_t>& tickets() const { return tickets_; }
  /// Call after the step of the first ticket: removes it and adds the ticket that came with the servers' answers, if
  /// any.
  void end_ticket();
  /// Returns the loss of a step that ends without this rank's update, which is that of its last report; 0 in a step
  /// without a ticket; else none.
  Tensor begin_step(std::int64_t step) override;
  /// Whether an action runs in this step: with a ticket or without (runs_with_ticket()); in a step that ends without
  /// this rank's update it only sends the loss.
  bool runs(const Action& a) const override {
    return plan_.tickets > 0 ? runs_with_ticket(a, tickets_.empty()) : !skips_ || reports_loss(a);
  }
  /// The step at which this rank resumes, according to the clocks that it has received; 0: it has received none.
  std::int64_t resumes_at() const;
  /// For checkpoints: the messages that no phase has taken and the clocks of those taken; for a worker, its received
  /// clocks and its last loss. The names start with "inbox.".
  void save(std::map<std::string, Tensor>& local) const;
  /// Restores what save() stored.
  void load(const std::map<std::string, Tensor>& local);
  /// The messages to this rank and their order.
  Arrivals& arrivals() override { return arrivals_; }
  /// From now on handles messages in the order of a recorded run, if this rank's results depend on that order. local:
  /// the result of save() in that run. Throws Error as Arrivals::replay().
  void replay(const std::map<std::string, Tensor>& local);

 private:
  Tensor operand(const Action&) const;
  int number(const std::string& channel) const;
  void add(ReceivedMessage);
  Work send(const Action&, std::int64_t step, const Tensor& payload, int to);
  Work wait_for(const Action&);
  void sum(const Action&);
  Tensor mean_loss() const;

  const Plan& plan_;
  const Program& program_;
  ParameterStore& store_;
  std::vector<std::string> names_;
  Communicator* comm_ = nullptr;  // along the axis of all messages; null: the plan has no messages
  std::vector<bool> serving_;     // by coordinate
  std::optional<Inbox> inbox_;    // only for a server
  std::size_t come_ = 0;
  std::map<std::size_t, ReceivedMessage> waiting_;  // by number in the inbox
  std::vector<ReceivedMessage> taken_;
  /// Whether the results of this rank (a server, or a rank that gossips) depend on the order of messages.
  const bool ordered_ = (program_.serves() || names_.empty()) && depends_on_arrivals(plan_);
  Arrivals arrivals_{ordered_};
  std::vector<Work> sending_;
  std::map<int, Tensor> received_clocks_;  // f64 scalars, by the rank that sent them
  std::int64_t clock_ = 0;                 // of the next messages, in a plan with tickets
  std::deque<std::int64_t> tickets_;
  Tensor received_ticket_;  // f64 scalar
  Tensor last_loss_;        // of the latest report
  bool skips_ = false;      // this step ends without this rank's update
};

}  // namespace trireme
