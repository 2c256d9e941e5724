// The services that commands share: calls with a deadline that Ctrl-C ends, the connection to a
// cluster, and the output in either form. main.cc makes one Context, runs one command with it and
// closes it.
#include "client/cli/context.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/words.h"
#include "client/embedded.h"
#include "client/remote/process_end.h"
#include "client/session.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);  // time between Interrupted checks
constexpr absl::Duration kCancelGracePeriod = absl::Seconds(2);   // for an interrupted transfer
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kMaxCallTimeout = absl::Minutes(10);  // for commands without a deadline
constexpr absl::Duration kLongPollTimeout = absl::Seconds(1);
constexpr absl::Duration kMinLongPollTimeout = absl::Milliseconds(20);
constexpr absl::Duration kUninterruptibleTimeout = absl::Seconds(5);
constexpr int kPageSize = 1000;

std::atomic<int> num_signals{0};  // signals received so far

void OnSignal(int) {
  if (num_signals.fetch_add(1) > 0) _exit(kExitInterrupted);
}

absl::Status NoAddress() {
  return WithExitCode(
      MakeError(ErrorKind::kValueError,
                "no address: which cluster is meant? Give --address HOST:PORT or set "
                "TESSERA_ADDRESS; `tessera up` starts a cluster on this machine, and `tessera run` "
                "and `tessera explain` work without one"),
      kExitUsage);
}

}  // namespace

// The state that the context shares with the threads that transfer bytes. These threads may outlive
// the context.
struct Context::Transfers {
  absl::Mutex mu;
  std::function<void(int64_t)> on_bytes ABSL_GUARDED_BY(mu);
};

Context::Context(Globals globals, Terminal* terminal)
    : globals_(std::move(globals)),
      terminal_(terminal),
      deadline_(SteadyNow() + globals_.timeout),
      connection_(globals_.address, globals_.connect),
      transfers_(std::make_shared<Transfers>()) {}

void Context::Note(const std::string& text) {
  if (!json()) terminal_->Note(text);
}

absl::Duration Context::left() const {
  return std::max(deadline_ - SteadyNow(), absl::ZeroDuration());
}

Context::ScopedTimeLimit::ScopedTimeLimit(Context& context, absl::Duration limit)
    : context_(context), outer_deadline_(context.deadline_) {
  context.deadline_ = std::min(outer_deadline_, SteadyNow() + limit);
}

bool Context::Interrupted() { return num_signals.load() > 0; }

void Context::WatchSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

absl::Status Context::InterruptedError(const std::string& message) {
  return WithExitCode(MakeError(ErrorKind::kCancelled, message), kExitInterrupted);
}

bool Context::SleepUnlessInterrupted(absl::Duration time) const {
  const absl::Time end = std::min(SteadyNow() + time, deadline_);
  while (!Interrupted()) {
    const absl::Duration remaining = end - SteadyNow();
    if (remaining <= absl::ZeroDuration()) return true;
    absl::SleepFor(std::min(remaining, kPollInterval));
  }
  return false;
}

bool Context::RunUntilDeadline(std::function<void()> f) const {
  const auto done = std::make_shared<absl::Notification>();
  std::thread([done, f = std::move(f)] {
    f();
    done->Notify();
  }).detach();
  while (!done->WaitForNotificationWithTimeout(kPollInterval)) {
    // Leave an interrupted transfer time to stop at its next chunk and to delete its array.
    if (Interrupted()) return done->WaitForNotificationWithTimeout(kCancelGracePeriod);
    if (SteadyNow() > deadline_) return false;
  }
  return true;
}

absl::Status Context::RunInterruptible(const std::string& what, std::function<absl::Status()> f) {
  const auto status = std::make_shared<absl::Status>();
  const bool finished = RunUntilDeadline([status, f = std::move(f)] { *status = f(); });
  if (Interrupted() && !(finished && status->ok())) {
    return InterruptedError(what + ": interrupted");
  }
  if (finished) return *status;
  return absl::DeadlineExceededError(what + ": not done within " +
                                     absl::FormatDuration(globals_.timeout) +
                                     ". Give it more time with --timeout");
}

absl::StatusOr<Json> Context::Call(const std::string& method, const Json& request) {
  if (!has_address()) return NoAddress();
  absl::StatusOr<Json> response =
      connection_.Call(method, request, std::min(left(), kMaxCallTimeout), Interrupted);
  if (!response.ok() && Interrupted()) return InterruptedError(method + ": interrupted");
  return response;
}

absl::StatusOr<Json> Context::CallUninterruptible(const std::string& method, const Json& request) {
  return connection_.Call(method, request, kUninterruptibleTimeout);
}

absl::StatusOr<Context::WaitEnd> Context::CallUntil(const std::string& method, Json request,
                                                    const std::function<bool(const Json&)>& ended) {
  while (true) {
    request["timeout"] = DurationField(std::min(kLongPollTimeout, left() / 2));
    const absl::StatusOr<Json> response = Call(method, request);
    if (Interrupted()) return WaitEnd::kInterrupted;
    if (absl::IsDeadlineExceeded(response.status())) return WaitEnd::kTimedOut;
    TESSERA_RETURN_IF_ERROR(response);
    if (ended(*response)) return WaitEnd::kEnded;
    if (left() < kMinLongPollTimeout) return WaitEnd::kTimedOut;
  }
}

absl::StatusOr<Json> Context::ListAll(const std::string& method, Json request,
                                      const std::string& field) {
  Json all;
  request["pageSize"] = kPageSize;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(Json page, Call(method, request));
    if (all.is_null()) {
      all = page;
    } else {
      for (Json& item : page[field]) all[field].push_back(std::move(item));
    }
    const std::string next = TextOf(page, "nextPageToken");
    if (next.empty()) break;
    request["pageToken"] = next;
  }
  all["nextPageToken"] = "";
  return all;
}

TransferMeter::TransferMeter(Context& context, const std::string& what, int64_t bytes)
    : context_(context), progress_(context.display(), what, bytes, context.shows_progress()) {
  absl::MutexLock lock(&context_.transfers_->mu);
  context_.transfers_->on_bytes = [this](int64_t moved) { progress_.Add(moved); };
}

TransferMeter::~TransferMeter() {
  absl::MutexLock lock(&context_.transfers_->mu);
  context_.transfers_->on_bytes = nullptr;
}

// Connects once per command, and keeps the service. Without an address a cluster is started in this
// process, if the command allows it and the program is linked with one. A transfer can be stopped
// only by the result of its callback for transferred bytes, so this callback also passes on Ctrl-C.
absl::StatusOr<std::shared_ptr<api::Service>> Context::Connect(SessionScope scope,
                                                               int embedded_devices) {
  if (service_) return service_;
  absl::StatusOr<std::shared_ptr<api::Service>> service = absl::UnknownError("not connected");
  if (!has_address()) {
    if (embedded_devices == 0 || TesseraStartEmbedded == nullptr) return NoAddress();
    Note(absl::StrCat("no address: using a cluster inside this process, with ",
                      Pluralize(embedded_devices, "CPU device")));
    EmbeddedOptions options;
    options.devices = embedded_devices;
    TesseraStartEmbedded(options, &service);
  } else {
    // This call fails early if the address or the token is wrong.
    TESSERA_RETURN_IF_ERROR(Call("ClusterService/GetCapabilities"));
    ConnectOptions options = globals_.connect;
    options.timeout = std::min(left(), kConnectTimeout);
    if (scope == SessionScope::kPersistent) options.session = 0;
    options.on_bytes = [transfers = transfers_](int64_t bytes) {
      absl::MutexLock lock(&transfers->mu);
      if (transfers->on_bytes) transfers->on_bytes(bytes);
      return !Interrupted();
    };
    TesseraConnectRemote(globals_.address.c_str(), options, &service);
  }
  TESSERA_RETURN_IF_ERROR(service);
  service_ = *std::move(service);
  return service_;
}

void Context::Close() {
  service_.reset();
  // An interrupted transfer may still use the service and keep it alive, so its destructor may not
  // have run. The session is ended here in any case.
  remote::AtProcessEnd::RunAll();
}

void Context::PrintResult(const Json& document, const std::function<void()>& print_text) {
  has_printed_result_ = true;
  if (json()) {
    terminal_->Print(document.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) +
                     "\n");
  } else {
    print_text();
  }
}

void Context::PrintTable(const Table& table, const std::string& note_if_empty) {
  if (table.empty()) {
    Note(note_if_empty);
  } else {
    terminal_->Print(table.ToText(display()));
  }
}

}  // namespace tessera::cli
