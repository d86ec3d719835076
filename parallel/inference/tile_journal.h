// TileJournal: a durable record of the finished tiles of an inference, in a folder next to the result. Each process or
// thread appends to a separate file, so the folder may be shared between hosts. After a kill another run continues.
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
  /// The description of the inference in the folder; a discarded value: there is none. Throws Error if it cannot be
  /// read.
  static Json about(const std::string& folder);
  /// Creates the folder with a description of the inference, unless it exists. Returns the stored description: another
  /// process may have been first.
  static Json begin(const std::string& folder, const Json& about);
  /// Removes the folder with its contents.
  static void remove(const std::string& folder);

  /// Reads the records of all writers. writer: a name that no other process or thread uses at the same time. data: the
  /// files that hold the values of tiles. Records of another inference (about()) are ignored, and records made while a
  /// path had another file (by inode and time of birth) or none.
  TileJournal(std::string folder, const std::string& writer, const std::vector<std::string>& data = {});
  ~TileJournal();
  TileJournal(const TileJournal&) = delete;
  TileJournal& operator=(const TileJournal&) = delete;

  bool done(int pass, std::int64_t tile) const { return done_.contains({pass, tile}); }
  /// The recorded checksum. Throws std::out_of_range for a tile that is not finished.
  std::uint32_t checksum(int pass, std::int64_t tile) const { return done_.at({pass, tile}); }
  std::size_t size() const { return done_.size(); }  ///< number of tiles over all passes
  void read_again();                                 ///< reads new records of other writers
  /// Records a tile whose values were written; they need not be synced yet.
  void note(int pass, std::int64_t tile, std::uint32_t checksum);
  /// Makes records durable: first sync(), which syncs the values, then the records. Does nothing if the last commit is
  /// less than `seconds` ago.
  void commit(const std::function<void()>& sync, double seconds = 0);

 private:
  std::string folder_, path_, pending_;
  std::map<std::pair<int, std::int64_t>, std::uint32_t> done_;
  std::uint32_t of_ = 0;  // checksum of the inference and the files to which records must belong
  int fd_ = -1;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace trireme
