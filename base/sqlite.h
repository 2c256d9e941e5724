// Owns SQLite's connections and statements, and returns SQLite's errors as statuses. No other part
// of Tessera includes sqlite3.h, except tests and benchmarks that replace SQLite's access to the
// disk.
//
// Only one thread at a time may use a connection and its statements. A statement must not outlive
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
  // Set a parameter of the statement. Indices begin with 1. Texts and blobs are not copied: they
  // must not change until the next Reset.
  void BindInt(int index, int64_t value);
  void BindText(int index, std::string_view text);
  void BindBlob(int index, std::string_view bytes);
  // Goes on to the next row of the statement's result and returns whether there is one. Int and
  // Bytes read that row. After the last row or an error, call Reset before the next Step.
  absl::StatusOr<bool> Step();
  // Runs a statement that gives no rows, and resets it.
  absl::Status Run();
  void Reset();
  // Return a column of the present row. Columns begin with 0. The bytes are valid until the next
  // Step or Reset.
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
  // Opens the file. Whether the file is a database turns out only when it is first read.
  // `patience_ms` is the time to wait for a lock that another process holds. `vfs` is the name of
  // the SQLite VFS, its access to the disk; "" means the usual one.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, OpenMode mode,
                                                        int patience_ms,
                                                        const std::string& vfs = "");
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // Runs statements that give no rows, or whose rows are not needed.
  absl::Status Execute(const std::string& sql);
  // Return the first column of the first row. Return FILE_CORRUPT if there is no row.
  absl::StatusOr<int64_t> ReadInt(std::string_view sql);
  absl::StatusOr<std::string> ReadText(std::string_view sql);

  // Ends an open transaction without its changes.
  void RollBack();
  // Returns how many pages have been written to the write-ahead log since it was last restarted; 0
  // if none has been written yet.
  int64_t log_pages() const { return log_pages_; }
  // Moves as much of the write-ahead log into the database as it can without waiting. With `shrink`
  // it first waits until no other connection reads the database, at most `patience_ms` (see Open),
  // and truncates the log.
  absl::Status Checkpoint(bool shrink);
  // Makes `to` a copy of this database as it is at one moment, even if other connections change
  // this database meanwhile.
  absl::Status CopyTo(Database& to);

  // Returns a status for the error of the last call; `what` says in the message what was being
  // done. DISK_FULL: the disk is full. FILE_CORRUPT: the file is damaged or not a database.
  // STORE_FAILED: the disk cannot be read or written, or another process holds a lock.
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
