// What every command gets: the global options, the terminal, and the ways to a cluster, opened on
// first use.
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
#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/terminal.h"
#include "client/remote/json_client.h"
#include "ir/api/service.h"

namespace tessera::cli {

// The options that every command takes.
struct Globals {
  std::string address;                         // --address, TESSERA_ADDRESS; empty: none
  std::string ca_file;                         // --ca-file, TESSERA_CA_FILE
  std::string token;                           // of --token-file, or TESSERA_TOKEN
  bool insecure = false;                       // plain text beyond loopback
  bool json = false;                           // one document on stdout
  absl::Duration timeout = absl::Seconds(60);  // of the command, or --timeout
};

class Context {
 public:
  Context(Globals globals, Terminal* terminal);

  const Globals& globals() const { return globals_; }
  bool json() const { return globals_.json; }
  // Where people look: stdout for results, stderr for progress and notes.
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
  // Another coordinator than --address names, for `doctor --health`.
  absl::StatusOr<std::unique_ptr<remote::JsonClient>> ClientOf(const std::string& address) const;
  // The seam of ir/api/service.h: over gRPC where there is an address; else, where
  // `embedded_devices` is above 0, a cluster of so many within this process, of which a note tells.
  // What it makes stays until it is removed; or, in a session of its own, ends with the command,
  // however that ends.
  enum class Stays : uint8_t { kUntilRemoved, kWithTheCommand };
  absl::StatusOr<std::shared_ptr<api::Service>> service(Stays stays = Stays::kUntilRemoved,
                                                        int embedded_devices = 0);
  // Ends that session, and the cluster within this process.
  void Close();

  // One call of the coordinator, bounded by the command's deadline. Without an address an error
  // that says what to do.
  absl::StatusOr<Json> Call(const std::string& method, const Json& request = Json::object());
  // All pages of a list in one document of the response's form.
  absl::StatusOr<Json> CallPages(const std::string& method, Json request, const std::string& field);

  // Does on another thread what cannot be interrupted, until the deadline or Ctrl-C. What it is at
  // is left alone then, until the process ends, which it does soon: `f` borrows nothing.
  template <class T>
  absl::StatusOr<T> Within(const std::string& what, std::function<absl::StatusOr<T>()> f);

  // Prints the document, where --json is given; else calls `draw`, which prints for people.
  void Show(const Json& document, const std::function<void()>& draw);
  bool shown() const { return shown_; }

  // Whether Ctrl-C, or SIGTERM, has come. After the second the process ends at once.
  static bool Interrupted();
  // From main, once: from now on signals are noted.
  static void WatchSignals();
  // An error of what Ctrl-C ended.
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
  std::unique_ptr<remote::JsonClient> client_;
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
  const bool finished = Finishes([result, f = std::move(f)] { *result = f(); });
  if (Interrupted() && !(finished && result->ok())) {
    return InterruptedError(what + ": interrupted");
  }
  if (finished) return *std::move(result);
  return absl::DeadlineExceededError(what + ": not done within " +
                                     absl::FormatDuration(globals_.timeout) +
                                     ". Give it more with --timeout");
}

}  // namespace tessera::cli
