// Database: an SQLite file (sqlite.org) with a rollback journal. Hosts that share a folder may share it: it uses locks
// of fcntl(2), which NFS has, and no shared memory, which a write-ahead log would need.
#pragma once
#include <cstdint>
#include <string>

struct sqlite3;
struct sqlite3_stmt;

namespace trireme {

class Database {
 public:
  /// Opens a file; creates it if `create`. Throws Error with path and reason.
  Database(const std::string& path, bool create);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Executes one or several statements without results.
  void execute(const std::string& sql);
  /// Number of rows that the last statement changed.
  std::int64_t changes() const;
  const std::string& path() const { return path_; }

 private:
  friend class Query;
  [[noreturn]] void broken(const std::string& what) const;
  std::string path_;
  sqlite3* handle_ = nullptr;
};

/// One statement. Bind parameters from left to right, then read rows likewise.
///   for (Query q(db, "SELECT id, name FROM t WHERE id > ?"); q.bind(3).next();) q.whole(0), q.text(1);
class Query {
 public:
  Query(Database&, const std::string& sql);
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  Query& bind(std::int64_t);
  Query& bind(int value) { return bind(std::int64_t{value}); }
  Query& bind(double);  ///< NaN: NULL
  Query& bind(const std::string&);
  /// Moves to the next row. Returns whether there is one; a statement that changes rows has none.
  bool next();
  void run() { (void)next(); }
  std::int64_t whole(int column) const;
  double number(int column) const;
  std::string text(int column) const;

 private:
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

/// A transaction that holds the write lock from its start (BEGIN IMMEDIATE). Rolled back unless commit() was called.
class Transaction {
 public:
  explicit Transaction(Database&);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace trireme
