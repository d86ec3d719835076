// Arrivals: the messages that other ranks send to one that asks for any (Communicator::recv_any), in the order in which
// they come, which can be recorded; or in the order of a recorded run.
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

class Arrivals {
 public:
  /// recorded: the order is kept, 16 bytes a message, to save and to compare with a recorded run.
  explicit Arrivals(bool recorded) : recorded_(recorded) {}

  /// Waits for the next message to channel 0. place: where this rank is in its program, a number that does not go back;
  /// it is part of the record.
  ReceivedMessage take(Communicator&, std::int64_t place = 0);
  /// The same if there is one. In the order of a recorded run: if that took one at this place or before, it waits.
  std::optional<ReceivedMessage> poll(Communicator&, std::int64_t place);
  /// How many these two have returned.
  std::int64_t count() const { return count_; }

  /// For checkpoints: senders since the run began, and places where there are others than 0, [messages] each, by names
  /// that start with "inbox."; nothing where there is no record. Throws Error while messages wait for their turn.
  void save(std::map<std::string, Tensor>& local) const;
  /// What save() gave; that of a checkpoint of before there was a record has none, and nothing is recorded then. Throws
  /// Error where it is not how the run begins that is repeated.
  void load(const std::map<std::string, Tensor>& local);
  /// From now on in the order of a recorded run, of which local is what save() gave: those that come before it is their
  /// turn wait. Throws Error where it holds no order, or where this rank has taken others. Behind the run's last
  /// message take() throws Error, and poll() finds none; one that does not come within TRIREME_TIMEOUT seconds is an
  /// Error of both.
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
  /// Since the run began; none: not recorded, or not known.
  std::optional<std::vector<Entry>> taken_ = recorded_ ? std::optional(std::vector<Entry>()) : std::nullopt;
  std::optional<std::vector<Entry>> replayed_;        // in the order of this run
  std::map<int, std::deque<ReceivedMessage>> early_;  // by sender: not their turn yet
};

}  // namespace trireme
