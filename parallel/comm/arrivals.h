// Arrivals: the messages that other ranks send to a rank that accepts any sender (Communicator::recv_any). The order of
// arrival can be recorded, and a later run can replay that order.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace trireme {

/// Receives messages from any sender and optionally records their order. For one thread.
class Arrivals {
 public:
  /// recorded: keeps the order (16 bytes per message) for save() and for comparison with a recorded run.
  explicit Arrivals(bool recorded) : recorded_(recorded) {}

  /// Waits for the next message to channel 0. place: this rank's position in its program, a number that never
  /// decreases; the record includes it.
  ReceivedMessage take(Communicator&, std::int64_t place = 0);
  /// The next message if one has arrived. During a replay: waits if the recorded run took a message at this place or
  /// before.
  std::optional<ReceivedMessage> poll(Communicator&, std::int64_t place);
  /// Messages that take() and poll() have returned.
  std::int64_t count() const { return count_; }

  /// For checkpoints: the senders since the run began, and the places if any is not 0. Each is a tensor [messages]
  /// whose name starts with "inbox."; none if nothing is recorded. Throws Error while messages wait for their turn.
  void save(std::map<std::string, Tensor>& local) const;
  /// Restores what save() stored. A checkpoint from before recording existed has no record; recording then stops.
  /// Throws Error if the record is not the beginning of the run that is replayed.
  void load(const std::map<std::string, Tensor>& local);
  /// From now on delivers messages in the order of a recorded run, whose save() gave local. A message that arrives
  /// early waits for its turn. Throws Error if local holds no order, or if this rank has taken messages in another
  /// order. After the run's last message take() throws Error and poll() returns none. A message that does not arrive
  /// within TRIREME_TIMEOUT seconds is an Error in both.
  void replay(const std::map<std::string, Tensor>& local);

 private:
  struct Entry {
    std::int64_t place;
    int sender;
    bool operator==(const Entry&) const = default;
  };
  struct Posted {
    ReceivedMessage message;
    Work work;
  };
  static std::optional<std::vector<Entry>> entries_in(const std::map<std::string, Tensor>& local);
  Posted& post(Communicator&);
  ReceivedMessage next_of_replay(Communicator&);
  ReceivedMessage note(ReceivedMessage, std::int64_t place);
  void check_replayed() const;

  bool recorded_;
  std::int64_t count_ = 0;
  std::unique_ptr<Posted> posted_;
  /// The record since the run began; none: not recorded, or unknown.
  std::optional<std::vector<Entry>> taken_ = recorded_ ? std::optional(std::vector<Entry>()) : std::nullopt;
  std::optional<std::vector<Entry>> replayed_;        // in the order of the replayed run
  std::map<int, std::deque<ReceivedMessage>> early_;  // by sender: arrived before their turn
};

}  // namespace trireme
