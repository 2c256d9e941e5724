// The command doctor: checks each step between this machine and a running program, and says how to
// mend a step that fails. The debug bundle runs the same checks.
#include "client/cli/doctor.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/net.h"
#include "client/cli/placing.h"
#include "ir/program.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(3);
constexpr absl::Duration kHealthTimeout = absl::Seconds(3);
constexpr absl::Duration kTransferTimeout = absl::Seconds(10);
constexpr absl::Duration kMaxSkew = absl::Seconds(5);  // far less than tickets and tokens live
constexpr absl::Duration kProbeLease = absl::Seconds(10);
constexpr int64_t kProbeElements = 1024;

enum class Verdict : uint8_t { kOk, kWarn, kFail, kSkip };

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string detail, fix;
};

// The names and styles of verdicts, in the order of Verdict.
constexpr const char* kVerdictNames[] = {"ok", "warning", "FAILED", "skipped"};
constexpr Style kVerdictStyles[] = {Style::kGreen, Style::kYellow, Style::kRed, Style::kDim};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class DoctorChecks {
 public:
  // If `prints` is true, each check is printed as soon as it is made.
  DoctorChecks(Context& context, bool prints) : context_(context), prints_(prints) {}

  // Makes the checks. If one of the first three fails, the others are skipped, because all of them
  // need these three.
  std::vector<Check> Run() {
    if (CheckAddress() && CheckTls() && CheckToken()) {
      CheckHealth();
      CheckVersions();
      CheckDevices();
      CheckState();
      CheckClocks();
      CheckDataEndpoints();
    }
    return std::move(checks_);
  }

 private:
  // Prints and keeps the result of a check. Returns false if the check failed.
  bool Report(const std::string& name, Verdict verdict, const std::string& detail,
              const std::string& fix = "") {
    checks_.push_back({name, verdict, detail, fix});
    const Check& c = checks_.back();
    if (prints_) {
      const Display& display = context_.display();
      const auto index = static_cast<size_t>(verdict);
      std::string text = absl::StrCat(
          display.Colorize(kVerdictStyles[index], PadOrTruncate(kVerdictNames[index], 8)), " ",
          PadOrTruncate(name, 10), " ", ReplaceControlChars(detail), "\n");
      if (!fix.empty()) absl::StrAppend(&text, "                    to do: ", fix, "\n");
      context_.terminal().Print(text);
    }
    return c.verdict != Verdict::kFail;
  }

  bool ReportError(const std::string& name, const absl::Status& status,
                   const std::string& prefix = "") {
    return Report(name, Verdict::kFail, prefix + Message(status),
                  std::string(InfoOf(KindOf(status)).description));
  }

  bool CheckAddress() {
    const std::string& address = context_.globals().address;
    if (address.empty()) {
      return Report("address", Verdict::kFail, "no address is given",
                    "set TESSERA_ADDRESS to the coordinator's HOST:PORT, or start one: tessera up");
    }
    const absl::StatusOr<HostPort> target = ParseHostPort(address);
    if (!target.ok()) {
      return Report("address", Verdict::kFail, Message(target.status()),
                    "give --address or TESSERA_ADDRESS as HOST:PORT");
    }
    const absl::Status connected = context_.RunInterruptible(
        "connect", [t = *target] { return TryConnect(t, kConnectTimeout); });
    if (!connected.ok()) {
      return Report("address", Verdict::kFail, Message(connected),
                    absl::StrCat("check that the coordinator runs on ", target->host,
                                 ", listens on more than loopback (--listen) and that no firewall "
                                 "blocks port ",
                                 target->port));
    }
    return Report("address", Verdict::kOk, absl::StrCat(address, " accepts connections"));
  }

  // Checks that this client and the coordinator both speak TLS, or both plain text.
  bool CheckTls() {
    const bool tls = !context_.globals().connect.ca_file.empty();
    const std::string how = tls ? absl::StrCat("TLS, CA file ", context_.globals().connect.ca_file)
                                : std::string("plain text");
    capabilities_ = context_.Call("ClusterService/GetCapabilities");
    const absl::Status& status = capabilities_.status();
    if (status.ok() || status.code() == absl::StatusCode::kUnauthenticated ||
        status.code() == absl::StatusCode::kPermissionDenied) {
      return Report("tls", Verdict::kOk, how);
    }
    if (status.code() == absl::StatusCode::kUnavailable) {
      return Report(
          "tls", Verdict::kFail, absl::StrCat(how, ": ", Message(status)),
          tls ? "check that the CA file is this cluster's, that the certificate names the "
                "host of --address, and that the coordinator was started with TLS"
              : "the coordinator may want TLS: set TESSERA_CA_FILE to the cluster's CA file "
                "(tessera up names it)");
    }
    return ReportError("tls", status, how + ": ");
  }

  bool CheckToken() {
    const bool provided = !context_.globals().connect.token.empty();
    const absl::Status& status = capabilities_.status();
    if (!status.ok()) return ReportError("token", status);
    const Json& features = ChildOf(*capabilities_, "features");
    const bool required =
        std::find(features.begin(), features.end(), Json("tokens")) != features.end();
    if (!provided) {
      return Report(
          "token", Verdict::kOk,
          required ? "no token was given, and this call needs none"
                   : "no token is required: anyone who reaches the coordinator may do everything");
    }
    return Report("token", Verdict::kOk,
                  required ? "accepted" : "a token was given, but this coordinator asks for none");
  }

  void CheckHealth() {
    const absl::StatusOr<Json> health =
        context_.Call("grpc.health.v1.Health/Check", {{"service", ""}});
    if (!health.ok()) {
      Report("health", Verdict::kWarn, Message(health.status()),
             "the coordinator answers, but not its health service; look at its log");
    } else if (TextOf(*health, "status") == "SERVING") {
      Report("health", Verdict::kOk, "serving");
    } else {
      Report("health", Verdict::kFail, TextOf(*health, "status"),
             "some device makes no progress: `tessera devices` and the workers' logs say which");
    }
  }

  void CheckVersions() {
    const std::string server = TextOf(*capabilities_, "version");
    const int64_t opset = IntOf(*capabilities_, "opset");
    const std::string detail =
        absl::StrCat("coordinator ", server, " with op set ", opset, ", this program ",
                     TESSERA_VERSION, " with ", ir::kOpset);
    if (opset < ir::kOpset) {
      Report("versions", Verdict::kWarn, detail,
             "programs with newer ops will be refused (UNKNOWN_OP): upgrade the coordinator");
    } else {
      Report("versions", Verdict::kOk, detail);
    }
  }

  // Counts the healthy devices, and lists the reasons why the others are not healthy. An executor
  // that is unresponsive is named itself; otherwise its worker is named, once for all devices of
  // the worker. One healthy device is enough to run something, so the rest is only a warning.
  void CheckDevices() {
    devices_ = context_.ListAll("ClusterService/ListDevices", {}, "devices");
    if (!devices_.ok()) return (void)ReportError("devices", devices_.status());
    int64_t healthy = 0, all = 0;
    // The reasons. The key is the executor if the executor is unresponsive, and the worker
    // otherwise.
    std::map<std::string, std::string> not_ready;
    for (const Json& d : ChildOf(*devices_, "devices")) {
      ++all;
      if (FlagOf(d, "healthy"))
        ++healthy;
      else
        not_ready[TextOf(d, FlagOf(d, "unresponsive") ? "executor" : "worker")] =
            TextOf(d, "reason");
    }
    const std::string detail =
        absl::StrCat(healthy, " of ", all, healthy == 1 ? " is" : " are", " healthy");
    if (healthy == 0) {
      Report("devices", Verdict::kFail, all == 0 ? "no worker has joined" : detail,
             "start a worker with `tessera join` on its machine; if it does not join, its log says "
             "why");
    } else if (!not_ready.empty()) {
      Report("devices", Verdict::kWarn,
             absl::StrCat(detail, "; not ready: ",
                          absl::StrJoin(not_ready, ", ",
                                        [](std::string* out, const auto& w) {
                                          absl::StrAppend(out, w.first, " (", w.second, ")");
                                        })),
             "look at the logs of those workers; lost executors are restarted, an unresponsive one "
             "is killed when a request that waits for it times out");
    } else {
      Report("devices", Verdict::kOk, detail);
    }
  }

  // Checks whether workers came with arrays that the coordinator does not know. That happens if it
  // was started with another state than before.
  void CheckState() {
    const absl::StatusOr<Json> workers =
        context_.ListAll("ClusterService/ListWorkers", {}, "workers");
    if (!workers.ok()) return (void)ReportError("state", workers.status());
    std::vector<std::string> replaced;
    for (const Json& w : ChildOf(*workers, "workers"))
      if (const double executors = NumberOf(w, "executorsNotAdopted"); executors > 0)
        replaced.push_back(absl::StrCat(TextOf(w, "name"), " (", executors, ")"));
    if (replaced.empty()) {
      Report("state", Verdict::kOk, "the coordinator knows what its workers hold");
      return;
    }
    Report(
        "state", Verdict::kWarn,
        absl::StrCat("executors of these workers held arrays that the coordinator does not know, "
                     "and were replaced: ",
                     absl::StrJoin(replaced, ", ")),
        "if the coordinator should have known them, it runs with another --state-dir than before "
        "or without one");
  }

  // Compares this machine's clock with the coordinator's. The coordinator's time is the time at
  // which a new session expires, less the session's lease.
  void CheckClocks() {
    const absl::Time before = absl::Now();
    const absl::StatusOr<Json> session =
        context_.Call("SessionService/CreateSession",
                      {{"displayName", "tessera doctor"}, {"lease", DurationField(kProbeLease)}});
    const absl::Time after = absl::Now();
    if (!session.ok()) {
      Report("clock", Verdict::kSkip,
             absl::StrCat("no session could be opened: ", Message(session.status())));
      return;
    }
    (void)context_.Call("SessionService/DeleteSession", {{"session", TextOf(*session, "id")}});
    const auto lease = DurationOf(*session, "lease");
    const auto expires = TimeOf(*session, "expireTime");
    if (!lease || !expires) {
      Report("clock", Verdict::kSkip, "the coordinator does not say when the session ends");
      return;
    }
    // There is no skew if the server's time lies between the start and the end of the call.
    const absl::Time server_time = *expires - *lease;
    const absl::Duration skew = server_time < before  ? server_time - before
                                : server_time > after ? server_time - after
                                                      : absl::ZeroDuration();
    if (absl::AbsDuration(skew) > kMaxSkew) {
      Report("clock", Verdict::kWarn,
             absl::StrCat("the coordinator's clock is ", DurationText(absl::AbsDuration(skew)),
                          skew > absl::ZeroDuration() ? " ahead of" : " behind", " this machine's"),
             "synchronise both clocks by NTP: times in tables, tokens and certificates depend on "
             "them");
    } else {
      Report("clock", Verdict::kOk,
             absl::StrCat("within ", DurationText(absl::AbsDuration(skew) + (after - before)),
                          " of the coordinator's"));
    }
  }

  // Writes a small array to one device of each executor and reads it back.
  void CheckDataEndpoints() {
    if (!devices_.ok()) return;
    std::map<std::string, int64_t> first_device;  // first healthy device of each executor
    for (const Json& d : ChildOf(*devices_, "devices")) {
      if (FlagOf(d, "healthy")) first_device.emplace(TextOf(d, "executor"), IntOf(d, "id"));
    }
    if (first_device.empty()) {
      Report("data", Verdict::kSkip, "no healthy device");
      return;
    }
    const absl::StatusOr<std::shared_ptr<api::Service>> service = context_.Connect();
    if (!service.ok()) return (void)ReportError("data", service.status());
    for (const auto& [executor, device] : first_device) {
      const absl::Time start = absl::Now();
      const absl::StatusOr<bool> same = context_.RunInterruptible<bool>(
          absl::StrCat("put and get on ", executor),
          [s = *service, id = device] { return PutAndGet(*s, id); });
      if (same.ok() && *same) {
        Report("data", Verdict::kOk,
               absl::StrCat(executor, ": put and get in ", DurationText(absl::Now() - start)));
      } else if (const std::string reason = ReasonNotHealthy(device); !reason.empty()) {
        Report("data", Verdict::kFail, absl::StrCat(executor, ": ", reason),
               "the port is not to blame: look at the worker's log; an unresponsive executor is "
               "killed when a request that waits for it times out");
      } else {
        Report(
            "data", Verdict::kFail,
            absl::StrCat(
                executor, ": ",
                same.ok() ? std::string(
                                "the bytes that were read differ from the bytes that were written")
                          : Message(same.status())),
            absl::StrCat("clients must reach the worker's data port: start the worker with "
                         "--advertise-client HOST:PORT as seen from here (`tessera workers` shows "
                         "the address that it advertises), and open that port"));
      }
    }
  }

  // Returns the reason why a device has become unhealthy since devices_ was listed, or "" if it is
  // healthy.
  std::string ReasonNotHealthy(int64_t device) {
    const absl::StatusOr<Json> again =
        context_.ListAll("ClusterService/ListDevices", {}, "devices");
    if (!again.ok()) return "";
    for (const Json& d : ChildOf(*again, "devices")) {
      if (IntOf(d, "id") == device && !FlagOf(d, "healthy")) return TextOf(d, "reason");
    }
    return "";
  }

  // Puts an array on the device and reads it back. Returns whether the bytes are unchanged.
  static absl::StatusOr<bool> PutAndGet(api::Service& service, int64_t device) {
    ir::Array value(ir::DType::kF32, {kProbeElements});
    for (int64_t i = 0; i < kProbeElements; ++i) value.Set(i, static_cast<double>(i));
    api::Placement placement;
    placement.mesh.axes = {{"x", 1, ir::AxisType::kAuto}};
    placement.devices = {device};
    TESSERA_ASSIGN_OR_RETURN(const uint64_t array, service.Put(value, placement));
    const absl::StatusOr<ir::Array> back = service.Get(array, kTransferTimeout);
    service.Delete({array}).IgnoreError();
    TESSERA_RETURN_IF_ERROR(back);
    return *back == value;
  }

  Context& context_;
  const bool prints_;
  std::vector<Check> checks_;
  absl::StatusOr<Json> capabilities_ = absl::UnknownError("not asked");
  absl::StatusOr<Json> devices_ = absl::UnknownError("not asked");
};

// The health check for containers. Prints one line; the exit code says whether the address is
// healthy.
absl::Status RunHealthCheck(Context& context, const std::string& address) {
  const absl::Duration timeout = std::min(context.left(), kHealthTimeout);
  std::string serving_status;
  absl::Status status;
  if (absl::StartsWith(address, "http://")) {
    const absl::StatusOr<HttpResponse> response = context.RunInterruptible<HttpResponse>(
        address, [address, timeout] { return HttpGet(address, timeout); });
    status = response.status();
    if (status.ok()) {
      serving_status = absl::StrCat("HTTP ", response->code);
      if (response->code != 200) status = absl::FailedPreconditionError(serving_status);
    }
  } else {
    const absl::StatusOr<Json> health =
        Connection(address, context.globals().connect)
            .Call("grpc.health.v1.Health/Check", Json::object(), timeout);
    status = health.status();
    if (status.ok()) {
      serving_status = TextOf(*health, "status");
      if (serving_status != "SERVING") status = absl::FailedPreconditionError(serving_status);
    }
  }
  if (!status.ok()) {
    return WithExitCode(absl::Status(status.code(), absl::StrCat(address, ": ", status.message())),
                        kExitFailed);
  }
  context.PrintResult({{"address", address}, {"status", serving_status}}, [&] {
    context.terminal().Print(absl::StrCat(address, ": ", serving_status, "\n"));
  });
  return absl::OkStatus();
}

Json DocumentOf(const std::vector<Check>& checks) {
  Json document = {{"checks", Json::array()}};
  bool ok = true;
  for (const Check& c : checks) {
    const bool failed = c.verdict == Verdict::kFail;
    ok &= !failed;
    document["checks"].push_back(
        {{"name", c.name},
         {"verdict", failed ? "failed" : kVerdictNames[static_cast<size_t>(c.verdict)]},
         {"detail", c.detail},
         {"fix", c.fix}});
  }
  document["ok"] = ok;
  return document;
}

absl::Status Doctor(Context& context, const Arguments& arguments) {
  if (arguments.Has("health")) return RunHealthCheck(context, arguments.Text("health"));
  const std::vector<Check> checks = DoctorChecks(context, /*prints=*/!context.json()).Run();
  const Json document = DocumentOf(checks);
  const auto failed = std::count_if(checks.begin(), checks.end(),
                                    [](const Check& c) { return c.verdict == Verdict::kFail; });
  context.PrintResult(document, /*print_text=*/[] {});  // the text is printed check by check
  if (Context::Interrupted()) return Context::InterruptedError("interrupted");
  if (failed == 0) return absl::OkStatus();
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(failed, failed == 1 ? " check" : " checks",
                                                 " failed; each says what to do")),
      kExitFailed);
}

}  // namespace

Json RunDoctor(Context& context) {
  return DocumentOf(DoctorChecks(context, /*prints=*/false).Run());
}

std::vector<Command> DoctorCommands() {
  return {
      {.name = "doctor",
       .summary = "Checks the connection to a cluster and says how to fix each failure.",
       .options = {{.name = "health",
                    .value_name = "ADDRESS",
                    .help = "Only check whether HOST:PORT (gRPC health) or http://HOST:PORT/PATH "
                            "reports healthy within 3 s, and exit with 0 or 1."}},
       .details =
           "The steps: the address accepts connections; both sides speak TLS, or both plain\n"
           "text; the token is accepted; the coordinator serves; the versions, the devices and\n"
           "the clocks are right; a small array can be sent to a device of every executor and\n"
           "read back.",
       .run = Doctor}};
}

}  // namespace tessera::cli
