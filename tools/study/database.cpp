#include "tools/study/database.h"

#include <sqlite3.h>

#include <cmath>

#include "kernels/core/error.h"

namespace trireme {
namespace {

constexpr int wait_ms = 120'000;  // milliseconds to wait for another process's transaction

}  // namespace

Database::Database(const std::string& path, bool create) : path_(path) {
  const int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
  if (::sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr) != SQLITE_OK) {
    const std::string why = handle_ ? ::sqlite3_errmsg(handle_) : "no memory";
    ::sqlite3_close(handle_);
    fail(ErrorKind::file, "study", "{} cannot be opened: {}", path, why);
  }
  ::sqlite3_busy_timeout(handle_, wait_ms);
  try {
    execute("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
  } catch (...) {
    ::sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() { ::sqlite3_close(handle_); }

void Database::execute(const std::string& sql) {
  if (::sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) broken(sql);
}

std::int64_t Database::changes() const { return ::sqlite3_changes(handle_); }

void Database::broken(const std::string& what) const {
  const int code = ::sqlite3_errcode(handle_) & 0xff;  // without the details of extended codes
  const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
  fail(damaged ? ErrorKind::data : ErrorKind::file, "study", "{}: {} ({:.60})", path_, ::sqlite3_errmsg(handle_), what);
}

Query::Query(Database& database, const std::string& sql) : database_(database) {
  if (::sqlite3_prepare_v2(database.handle_, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK) database.broken(sql);
}

Query::~Query() { ::sqlite3_finalize(statement_); }

Query& Query::bind(std::int64_t value) {
  if (::sqlite3_bind_int64(statement_, ++bound_, value) != SQLITE_OK) database_.broken("bind");
  return *this;
}

Query& Query::bind(double value) {  // NaN becomes NULL
  if (::sqlite3_bind_double(statement_, ++bound_, value) != SQLITE_OK) database_.broken("bind");
  return *this;
}

Query& Query::bind(const std::string& text) {
  const int size = static_cast<int>(text.size());
  if (::sqlite3_bind_text(statement_, ++bound_, text.data(), size, SQLITE_TRANSIENT) != SQLITE_OK)
    database_.broken("bind");
  return *this;
}

bool Query::next() {
  const int got = ::sqlite3_step(statement_);
  if (got != SQLITE_ROW && got != SQLITE_DONE) database_.broken(::sqlite3_sql(statement_));
  return got == SQLITE_ROW;
}

std::int64_t Query::whole(int column) const { return ::sqlite3_column_int64(statement_, column); }

double Query::number(int column) const {
  return ::sqlite3_column_type(statement_, column) == SQLITE_NULL ? std::nan("")
                                                                  : ::sqlite3_column_double(statement_, column);
}

std::string Query::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(::sqlite3_column_text(statement_, column));
  return bytes ? std::string(bytes, static_cast<std::size_t>(::sqlite3_column_bytes(statement_, column)))
               : std::string();
}

Transaction::Transaction(Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (const Error&) {  // SQLite has rolled back already, or will when the file is opened
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace trireme
