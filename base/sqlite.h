// SQLite's connections and statements, owned, with errors as statuses. The only part of Tessera
// that sees sqlite3.h, but for tests and benchmarks that stand in its way.
//
// A connection and its statements are used by one thread at a time. A statement must not outlive
// its connection.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tessera::sqlite {

class Database;

class Statement {
 public:
  // What is bound is not copied: it must not change until the next Reset. Indices are from 1.
  void BindInt(int index, int64_t value);
  void BindText(int index, std::string_view text);
  void BindBlob(int index, std::string_view bytes);
  // Whether there is a row, which Int and Bytes read. After the last row or an error: Reset first.
  absl::StatusOr<bool> Step();
  // Steps a statement that gives no rows, and resets it.
  absl::Status Run();
  void Reset();
  // Columns of the present row, from 0. The bytes are valid until the next Step or Reset.
  int64_t Int(int column) const;
  std::string_view Bytes(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(Database* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}
  Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

enum class OpenMode { kReadOnly, kReadWrite, kCreate };

class Database {
 public:
  // Opens the file; whether it is a database is known when it is read first. `vfs` is the name of
  // SQLite's way to the disk, "" the usual one. `patience_ms`: how long to wait for a lock that
  // another process holds.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, OpenMode mode,
                                                        int patience_ms,
                                                        const std::string& vfs = "");
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // Runs statements without rows, or whose rows nobody needs.
  absl::Status Execute(const std::string& sql);
  // The first column of the first row. FILE_CORRUPT: there is no row.
  absl::StatusOr<int64_t> ReadInt(std::string_view sql);
  absl::StatusOr<std::string> ReadText(std::string_view sql);

  // Ends a transaction that is open without its changes.
  void RollBack();
  // How many pages the write-ahead log holds since it began anew; 0 if none was written yet.
  int64_t log_pages() const { return log_pages_; }
  // Moves what it can of the write-ahead log into the database. `shrink`: waits for readers, as
  // long as for locks, and truncates the log.
  absl::Status Checkpoint(bool shrink);
  // Makes `to` a copy of this database as it is at one moment, while others go on to change it.
  absl::Status CopyTo(Database& to);

  // The status of the last call's error, about `what`: DISK_FULL; FILE_CORRUPT: the file is no
  // database or is damaged; STORE_FAILED: the disk does not read or write, or another process
  // holds a lock.
  absl::Status LastError(std::string_view what) const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  Database(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}
  const std::string path_;
  const std::unique_ptr<sqlite3, Close> database_;
  int64_t log_pages_ = 0;
};

}  // namespace tessera::sqlite
