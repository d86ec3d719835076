// TileJournal: which tiles of an inference are finished, durably, in a folder beside the result. Each process or thread
// that works on it appends to a file of its own, so that it may lie on a shared folder; whoever was killed goes on.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/io/json.h"

namespace trireme {

class TileJournal {
 public:
  /// What the folder says of the inference that is under way there; a discarded value: there is none. Throws Error for
  /// one that cannot be read.
  static Json about(const std::string& folder);
  /// Makes the folder with what is to be known of the inference, unless it is there. Returns what stands there then:
  /// another process may have been first.
  static Json begin(const std::string& folder, const Json& about);
  /// Removes it, with all in it.
  static void remove(const std::string& folder);

  /// Reads what all have noted. writer: a name that no other process or thread uses at this time. data: the files that
  /// hold the values of tiles. What was noted of another inference (about()), or while one of these paths was another
  /// file (by its number and time of birth) or none, does not count.
  TileJournal(std::string folder, const std::string& writer, const std::vector<std::string>& data = {});
  ~TileJournal();
  TileJournal(const TileJournal&) = delete;
  TileJournal& operator=(const TileJournal&) = delete;

  bool done(int pass, std::int64_t tile) const { return done_.contains({pass, tile}); }
  /// The checksum that was noted; throws std::out_of_range for a tile that is not done.
  std::uint32_t checksum(int pass, std::int64_t tile) const { return done_.at({pass, tile}); }
  std::size_t size() const { return done_.size(); }  ///< tiles of all passes
  void read_again();                                 ///< what others have noted by now
  /// Notes a tile whose values were written; they need not be on the disk yet.
  void note(int pass, std::int64_t tile, std::uint32_t checksum);
  /// Makes what was noted durable: first sync(), which puts the values on the disk, then the records. Does nothing
  /// while the last time is less than `seconds` ago.
  void commit(const std::function<void()>& sync, double seconds = 0);

 private:
  std::string folder_, path_, pending_;
  std::map<std::pair<int, std::int64_t>, std::uint32_t> done_;
  std::uint32_t of_ = 0;  // checksum of what records must be of: the inference and the files
  int fd_ = -1;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace trireme
