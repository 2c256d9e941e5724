// The environment of a command: the global options, the terminal, and the connection to the
// cluster, which is made on first use.
//
// Owned by main; used on the main thread, except Interrupted, which is thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/cluster.h"
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/terminal.h"
#include "client/session.h"
#include "ir/api/service.h"

namespace tessera::cli {

// The options that every command has.
struct Globals {
  std::string address;                         // --address, TESSERA_ADDRESS; empty: none
  ConnectOptions connect;                      // ca_file, token and insecure are set
  bool json = false;                           // one document on stdout
  absl::Duration timeout = absl::Seconds(60);  // of the command, or --timeout
};

class Context {
 public:
  Context(Globals globals, Terminal* terminal);

  const Globals& globals() const { return globals_; }
  bool json() const { return globals_.json; }
  // stdout for results, stderr for progress and notes.
  Terminal& terminal() { return *terminal_; }
  const Display& display() const { return terminal_->display(); }
  // Prints a line to stderr, unless --json is given.
  void Note(const std::string& text);
  bool shows_progress() const { return !globals_.json; }

  // The deadline of the command.
  absl::Time deadline() const { return deadline_; }
  absl::Duration left() const;
  // Brings the deadline forward as long as it lives, for one part of a command.
  class Limit {
   public:
    Limit(Context& context, absl::Duration limit);
    ~Limit() { context_.deadline_ = before_; }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

   private:
    Context& context_;
    const absl::Time before_;
  };

  bool has_address() const { return !globals_.address.empty(); }
  // The client API, over gRPC if there is an address; else, if `embedded_devices` > 0, of a cluster
  // with that many devices inside this process, which a note announces. Arrays and operations
  // persist until they are deleted, or belong to a session that ends with the command, however it
  // exits.
  enum class SessionScope : uint8_t { kPersistent, kCommand };
  absl::StatusOr<std::shared_ptr<api::Service>> service(
      SessionScope scope = SessionScope::kPersistent, int embedded_devices = 0);
  // Ends the session of the command, and the cluster inside this process.
  void Close();

  // Calls the coordinator, with the command's deadline. Fails if there is no address.
  absl::StatusOr<Json> Call(const std::string& method, const Json& request = Json::object());
  // Calls a list method for all pages and merges them into one response.
  absl::StatusOr<Json> ListAll(const std::string& method, Json request, const std::string& field);
  // Long-polls a method that has the field "timeout" until `ended` is true of a response, the
  // deadline passes, or Ctrl-C.
  enum class WaitEnd : uint8_t { kEnded, kTimedOut, kInterrupted };
  absl::StatusOr<WaitEnd> CallUntil(const std::string& method, Json request,
                                    const std::function<bool(const Json&)>& ended);
  // Calls the coordinator with a short timeout of its own: neither the deadline nor Ctrl-C ends it.
  absl::StatusOr<Json> CallUninterruptible(const std::string& method, const Json& request);

  // Calls the blocking function `f` on another thread, and returns an error at the deadline or at
  // Ctrl-C. The thread then continues until the process exits, so `f` must own what it uses.
  absl::Status RunInterruptible(const std::string& what, std::function<absl::Status()> f);
  template <class T>
  absl::StatusOr<T> RunInterruptible(const std::string& what, std::function<absl::StatusOr<T>()> f);

  // RunInterruptible, showing the progress of the transfer of so many bytes.
  template <class T>
  absl::StatusOr<T> RunTransfer(const std::string& what, int64_t bytes,
                                std::function<absl::StatusOr<T>()> f);

  // Prints the document if --json is given; else calls `print_text`.
  void PrintResult(const Json& document, const std::function<void()>& print_text);
  bool has_result() const { return has_result_; }
  // Prints the table; if it is empty, the note instead.
  void PrintTable(const Table& table, const std::string& note_if_empty);

  // Whether SIGINT or SIGTERM was received. The second one ends the process at once.
  static bool Interrupted();
  // Installs the handlers of these signals. Called by main, once.
  static void WatchSignals();
  // The error of a command that was interrupted.
  static absl::Status InterruptedError(const std::string& message);
  // Sleeps for `time`, at most until the deadline; returns false if interrupted.
  bool SleepUnlessInterrupted(absl::Duration time) const;

 private:
  friend class TransferMeter;
  struct Transfers;
  // Calls `f` on a thread; returns false if it did not return by the deadline or was interrupted.
  bool RunUntilDeadline(std::function<void()> f) const;

  const Globals globals_;
  Terminal* const terminal_;
  absl::Time deadline_;
  Cluster cluster_;  // of the address
  std::shared_ptr<api::Service> service_;
  const std::shared_ptr<Transfers> transfers_;
  bool has_result_ = false;
};

// Shows the progress of all transfers during its lifetime.
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
