// What every command gets: the global options, the terminal, and the cluster, to which it connects
// on first use.
//
// Owned by main; used on the main thread, but for Interrupted, which any thread may ask.
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

// The options that every command takes.
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
  const Looks& looks() const { return terminal_->looks(); }
  // A line for people on stderr; silent with --json.
  void Note(const std::string& text);
  // Whether progress is to be shown.
  bool shows_progress() const { return !globals_.json; }

  // When the command must be over.
  absl::Time deadline() const { return deadline_; }
  absl::Duration left() const;

  bool has_address() const { return !globals_.address.empty(); }
  // The seam of ir/api/service.h: over gRPC where there is an address; else, where
  // `embedded_devices` is above 0, a cluster of so many within this process, of which a note tells.
  // Arrays and runs stay until they are removed; or, in a session of its own, end with the command,
  // however that ends.
  enum class Stays : uint8_t { kUntilRemoved, kWithTheCommand };
  absl::StatusOr<std::shared_ptr<api::Service>> service(Stays stays = Stays::kUntilRemoved,
                                                        int embedded_devices = 0);
  // Ends that session, and the cluster inside this process.
  void Close();

  // One call of the coordinator, bounded by the command's deadline. Without an address an error
  // that says what to do.
  absl::StatusOr<Json> Call(const std::string& method, const Json& request = Json::object());
  // All pages of a list in one document of the response's form.
  absl::StatusOr<Json> CallPages(const std::string& method, Json request, const std::string& field);
  // Calls a method that waits for something, with the field "timeout", until `ended` is true of an
  // answer; kEnded also if it was so before the deadline or Ctrl-C.
  enum class WaitEnd : uint8_t { kEnded, kLate, kInterrupted };
  absl::StatusOr<WaitEnd> CallUntil(const std::string& method, Json request,
                                    const std::function<bool(const Json&)>& ended);
  // One call of the same coordinator that neither the deadline nor Ctrl-C cuts short.
  absl::StatusOr<Json> CallInAnyCase(const std::string& method, const Json& request);

  // Calls `f`, which cannot be interrupted, on another thread, and returns at the deadline or
  // Ctrl-C with an error. The thread then goes on until the process ends, so `f` must own what it
  // uses.
  absl::Status Within(const std::string& what, std::function<absl::Status()> f);
  template <class T>
  absl::StatusOr<T> Within(const std::string& what, std::function<absl::StatusOr<T>()> f);

  // Prints the document, where --json is given; else calls `draw`, which prints for people.
  void Show(const Json& document, const std::function<void()>& draw);
  bool shown() const { return shown_; }

  // Whether Ctrl-C, or SIGTERM, has come. After the second the process ends at once.
  static bool Interrupted();
  // From main, once: from now on signals are noted.
  static void WatchSignals();
  // The error of a command that Ctrl-C ended.
  static absl::Status InterruptedError(const std::string& message);
  // Waits `time`, at most until the deadline; false when interrupted.
  bool Pause(absl::Duration time) const;

 private:
  friend class TransferMeter;
  struct Transfers;
  // Calls `f` on a thread; false when it has not ended by the deadline, or was interrupted.
  bool Finishes(std::function<void()> f) const;

  const Globals globals_;
  Terminal* const terminal_;
  const absl::Time deadline_;
  Cluster cluster_;  // of the address
  std::shared_ptr<api::Service> service_;
  const std::shared_ptr<Transfers> transfers_;
  bool shown_ = false;
};

// The progress of the transfers that are made while it lives.
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
absl::StatusOr<T> Context::Within(const std::string& what, std::function<absl::StatusOr<T>()> f) {
  const auto result = std::make_shared<absl::StatusOr<T>>(absl::UnknownError("not run"));
  const absl::Status status = Within(what, [result, f = std::move(f)] {
    *result = f();
    return result->status();
  });
  if (!status.ok()) return status;
  return *std::move(result);
}

}  // namespace tessera::cli
