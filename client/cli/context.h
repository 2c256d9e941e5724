// The environment of a command: the global options, the terminal, and the connection to the
// cluster, which is made on first use.
//
// Owned by main. Used on the main thread; only Interrupted is thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/json.h"
#include "client/cli/terminal.h"
#include "client/session.h"
#include "ir/api/service.h"

namespace tessera::cli {

// The options that every command has.
struct Globals {
  std::string address;  // --address or TESSERA_ADDRESS; may be empty
  // The options of the connection. Only ca_file, token and insecure differ from the defaults.
  ConnectOptions connect;
  bool json = false;  // print one JSON document on stdout
  // The value of --timeout. Without that option, the time limit in the row of the command.
  absl::Duration timeout = absl::Seconds(60);
};

class Context {
 public:
  Context(Globals globals, Terminal* terminal);

  const Globals& globals() const { return globals_; }
  bool json() const { return globals_.json; }
  // The terminal: results go to stdout, progress and notes go to stderr.
  Terminal& terminal() { return *terminal_; }
  const Display& display() const { return terminal_->display(); }
  // Prints a line to stderr, unless --json is given.
  void Note(const std::string& text);
  bool shows_progress() const { return !globals_.json; }

  // The time at which the command must end.
  absl::Time deadline() const { return deadline_; }
  // Returns the time until the deadline, or zero if the deadline has passed.
  absl::Duration left() const;
  // Brings the deadline forward for one part of a command, for as long as this object lives.
  class ScopedTimeLimit {
   public:
    ScopedTimeLimit(Context& context, absl::Duration limit);
    ~ScopedTimeLimit() { context_.deadline_ = outer_deadline_; }
    ScopedTimeLimit(const ScopedTimeLimit&) = delete;
    ScopedTimeLimit& operator=(const ScopedTimeLimit&) = delete;

   private:
    Context& context_;
    const absl::Time outer_deadline_;
  };

  bool has_address() const { return !globals_.address.empty(); }
  // Whether arrays and operations persist until they are deleted, or belong to a session that ends
  // with the command, however the command exits.
  enum class SessionScope : uint8_t { kPersistent, kCommand };
  // Connects to the cluster at the address. Without an address, and with `embedded_devices` > 0,
  // starts a cluster with that many devices inside this process and prints a note about it. Later
  // calls return the service of the first call.
  absl::StatusOr<std::shared_ptr<api::Service>> Connect(
      SessionScope scope = SessionScope::kPersistent, int embedded_devices = 0);
  // Ends the session of the command and, if there is one, the cluster inside this process.
  void Close();

  // Calls a method of the coordinator, with the command's deadline. Fails if there is no address.
  absl::StatusOr<Json> Call(const std::string& method, const Json& request = Json::object());
  // Calls a list method for all pages and merges the pages into one response.
  absl::StatusOr<Json> ListAll(const std::string& method, Json request, const std::string& field);
  // The reason why CallUntil has returned.
  enum class WaitEnd : uint8_t { kEnded, kTimedOut, kInterrupted };
  // Long-polls a method whose request has the field "timeout". Ends when `ended` returns true for a
  // response, when the deadline passes, or at Ctrl-C.
  absl::StatusOr<WaitEnd> CallUntil(const std::string& method, Json request,
                                    const std::function<bool(const Json&)>& ended);
  // Calls the coordinator with a short timeout of its own. Neither the command's deadline nor
  // Ctrl-C ends the call.
  absl::StatusOr<Json> CallUninterruptible(const std::string& method, const Json& request);

  // Calls the blocking function `f` on another thread, and returns an error at the deadline or at
  // Ctrl-C. The thread then continues until the process exits, so `f` must own what it uses.
  absl::Status RunInterruptible(const std::string& what, std::function<absl::Status()> f);
  template <class T>
  absl::StatusOr<T> RunInterruptible(const std::string& what, std::function<absl::StatusOr<T>()> f);

  // Like RunInterruptible, but shows the progress of the transfer of `bytes` bytes.
  template <class T>
  absl::StatusOr<T> RunTransfer(const std::string& what, int64_t bytes,
                                std::function<absl::StatusOr<T>()> f);

  // Prints the document if --json is given, and calls `print_text` otherwise.
  void PrintResult(const Json& document, const std::function<void()>& print_text);
  // Returns whether PrintResult has been called.
  bool has_printed_result() const { return has_printed_result_; }
  // Prints the table or, if it is empty, the note.
  void PrintTable(const Table& table, const std::string& note_if_empty);

  // Returns whether SIGINT or SIGTERM was received. A second signal ends the process at once.
  static bool Interrupted();
  // Installs the handlers of these signals. Called once, by main.
  static void WatchSignals();
  // Returns the error of a command that was interrupted.
  static absl::Status InterruptedError(const std::string& message);
  // Sleeps for `time`, at most until the deadline. Returns false if it was interrupted.
  bool SleepUnlessInterrupted(absl::Duration time) const;

 private:
  friend class TransferMeter;
  struct Transfers;
  // Calls `f` on another thread and waits until `f` returns, at most until the deadline. After an
  // interrupt, waits at most for a short grace period. Returns whether `f` has returned.
  bool RunUntilDeadline(std::function<void()> f) const;

  const Globals globals_;
  Terminal* const terminal_;
  absl::Time deadline_;
  Connection connection_;  // the connection to the address
  std::shared_ptr<api::Service> service_;
  const std::shared_ptr<Transfers> transfers_;
  bool has_printed_result_ = false;
};

// A progress bar for the bytes that the service of `context` transfers. It counts from the
// constructor to the destructor. A context has at most one at a time.
class TransferMeter {
 public:
  TransferMeter(Context& context, const std::string& what, int64_t bytes);
  ~TransferMeter();
  TransferMeter(const TransferMeter&) = delete;
  TransferMeter& operator=(const TransferMeter&) = delete;

 private:
  Context& context_;
  Progress progress_;
};

template <class T>
absl::StatusOr<T> Context::RunInterruptible(const std::string& what,
                                            std::function<absl::StatusOr<T>()> f) {
  const auto result = std::make_shared<absl::StatusOr<T>>(absl::UnknownError("not run"));
  const absl::Status status = RunInterruptible(what, [result, f = std::move(f)] {
    *result = f();
    return result->status();
  });
  if (!status.ok()) return status;
  return *std::move(result);
}

template <class T>
absl::StatusOr<T> Context::RunTransfer(const std::string& what, int64_t bytes,
                                       std::function<absl::StatusOr<T>()> f) {
  const TransferMeter meter(*this, what, bytes);
  return RunInterruptible<T>(what, std::move(f));
}

}  // namespace tessera::cli
