// doctor: everything between this machine and a computation, step by step, each with its fix.
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

constexpr absl::Duration kConnectLimit = absl::Seconds(3);
constexpr absl::Duration kHealthLimit = absl::Seconds(3);
constexpr absl::Duration kTransferLimit = absl::Seconds(10);
constexpr absl::Duration kSkewMax = absl::Seconds(5);  // tickets and tokens are valid far longer
constexpr absl::Duration kProbeLease = absl::Seconds(10);
constexpr int64_t kProbeElements = 1024;

enum class Verdict : uint8_t { kOk, kWarn, kFail, kSkip };

struct Check {
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string detail, fix;
};

const char* NameOf(Verdict v) {
  switch (v) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warning";
    case Verdict::kFail:
      return "FAILED";
    case Verdict::kSkip:
      return "skipped";
  }
  return "";
}

Style StyleOf(Verdict v) {
  switch (v) {
    case Verdict::kOk:
      return Style::kGreen;
    case Verdict::kWarn:
      return Style::kYellow;
    case Verdict::kFail:
      return Style::kRed;
    case Verdict::kSkip:
      return Style::kDim;
  }
  return Style::kPlain;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class Examination {
 public:
  explicit Examination(Context& context) : context_(context) {}

  // Stops at the first step on which all further ones depend.
  std::vector<Check> Run() {
    if (Address() && Link() && Token()) {
      Health();
      Versions();
      Devices();
      Clock();
      DataEndpoints();
    }
    return std::move(checks_);
  }

 private:
  bool Say(const std::string& name, Verdict verdict, const std::string& detail,
           const std::string& fix = "") {
    checks_.push_back({name, verdict, detail, fix});
    const Check& c = checks_.back();
    if (!context_.json()) {
      const Looks& looks = context_.looks();
      std::string text = absl::StrCat(looks.Paint(StyleOf(verdict), Fit(NameOf(verdict), 8)), " ",
                                      Fit(name, 10), " ", Safe(detail), "\n");
      if (!fix.empty()) absl::StrAppend(&text, "                    to do: ", fix, "\n");
      context_.terminal().Print(text);
    }
    return c.verdict != Verdict::kFail;
  }

  bool Address() {
    const std::string& address = context_.globals().address;
    if (address.empty()) {
      return Say("address", Verdict::kFail, "no address is given",
                 "set TESSERA_ADDRESS to the coordinator's HOST:PORT, or start one: tessera up");
    }
    const absl::StatusOr<HostPort> target = ParseHostPort(address);
    if (!target.ok()) {
      return Say("address", Verdict::kFail, Message(target.status()),
                 "give --address or TESSERA_ADDRESS as HOST:PORT");
    }
    const absl::Status connected =
        context_.Within("connect", [t = *target] { return TryConnect(t, kConnectLimit); });
    if (!connected.ok()) {
      return Say("address", Verdict::kFail, Message(connected),
                 absl::StrCat("check that the coordinator runs on ", target->host,
                              ", listens beyond loopback (--listen) and that no firewall holds "
                              "back port ",
                              target->port));
    }
    return Say("address", Verdict::kOk, absl::StrCat(address, " takes connections"));
  }

  // Whether both sides speak TLS, or plain text. The address takes connections.
  bool Link() {
    const bool tls = !context_.globals().connect.ca_file.empty();
    const std::string how =
        tls ? absl::StrCat("TLS, authority ", context_.globals().connect.ca_file)
            : std::string("plain text");
    capabilities_ = context_.Call("ClusterService/GetCapabilities");
    const absl::Status& status = capabilities_.status();
    if (status.ok() || status.code() == absl::StatusCode::kUnauthenticated ||
        status.code() == absl::StatusCode::kPermissionDenied) {
      return Say("link", Verdict::kOk, how);
    }
    if (status.code() == absl::StatusCode::kUnavailable) {
      return Say("link", Verdict::kFail, absl::StrCat(how, ": ", Message(status)),
                 tls ? "check that the CA file is this cluster's, that the certificate names the "
                       "host of --address, and that the coordinator was started with TLS"
                     : "the coordinator may want TLS: set TESSERA_CA_FILE to the cluster's CA file "
                       "(tessera up names it)");
    }
    return Say("link", Verdict::kFail, absl::StrCat(how, ": ", Message(status)),
               std::string(InfoOf(KindOf(status)).sentence));
  }

  bool Token() {
    const bool given = !context_.globals().connect.token.empty();
    const absl::Status& status = capabilities_.status();
    if (!status.ok()) {
      return Say("token", Verdict::kFail, Message(status),
                 std::string(InfoOf(KindOf(status)).sentence));
    }
    const Json& features = ChildOf(*capabilities_, "features");
    const bool wanted =
        std::find(features.begin(), features.end(), Json("tokens")) != features.end();
    if (!given) {
      return Say("token", Verdict::kOk,
                 wanted ? "none was given and none is wanted for this"
                        : "none is wanted: whoever reaches the coordinator may do everything");
    }
    return Say("token", Verdict::kOk,
               wanted ? "known" : "given, but this coordinator asks for none");
  }

  void Health() {
    const absl::StatusOr<Json> health =
        context_.Call("grpc.health.v1.Health/Check", {{"service", ""}});
    if (!health.ok()) {
      Say("health", Verdict::kWarn, Message(health.status()),
          "the coordinator answers, but not its health service; look at its log");
    } else if (TextOf(*health, "status") == "SERVING") {
      Say("health", Verdict::kOk, "serving");
    } else {
      Say("health", Verdict::kFail, TextOf(*health, "status"),
          "no program has run of late on some device: `tessera workers` and the workers' logs say "
          "which");
    }
  }

  void Versions() {
    const std::string server = TextOf(*capabilities_, "version");
    const int64_t opset = IntOf(*capabilities_, "opset");
    const std::string detail =
        absl::StrCat("coordinator ", server, " with op set ", opset, ", this program ",
                     TESSERA_VERSION, " with ", ir::kOpset);
    if (opset < ir::kOpset) {
      Say("versions", Verdict::kWarn, detail,
          "programs with newer ops will be refused (UNKNOWN_OP): upgrade the coordinator");
    } else {
      Say("versions", Verdict::kOk, detail);
    }
  }

  void Devices() {
    devices_ = context_.CallPages("ClusterService/ListDevices", {}, "devices");
    if (!devices_.ok()) {
      Say("devices", Verdict::kFail, Message(devices_.status()),
          std::string(InfoOf(KindOf(devices_.status())).sentence));
      return;
    }
    int64_t healthy = 0, all = 0;
    std::map<std::string, std::string> lost;
    for (const Json& d : ChildOf(*devices_, "devices")) {
      ++all;
      if (FlagOf(d, "healthy"))
        ++healthy;
      else
        lost[TextOf(d, FlagOf(d, "unresponsive") ? "executor" : "worker")] = TextOf(d, "reason");
    }
    const std::string detail =
        absl::StrCat(healthy, " of ", all, healthy == 1 ? " is" : " are", " healthy");
    if (healthy == 0) {
      Say("devices", Verdict::kFail, all == 0 ? "no worker has joined" : detail,
          "start a worker: `tessera join` on its machine; its log says why it does not join");
    } else if (!lost.empty()) {
      Say("devices", Verdict::kWarn,
          absl::StrCat(detail, "; not ready: ",
                       absl::StrJoin(lost, ", ",
                                     [](std::string* out, const auto& w) {
                                       absl::StrAppend(out, w.first, " (", w.second, ")");
                                     })),
          "look at the logs of those workers; executors that are lost come back by themselves, one "
          "that does not answer is killed once somebody waits for it in vain");
    } else {
      Say("devices", Verdict::kOk, detail);
    }
  }

  // The coordinator's clock shows in the end of a session's lease: its time plus the lease.
  void Clock() {
    const absl::Time before = absl::Now();
    const absl::StatusOr<Json> session =
        context_.Call("SessionService/CreateSession",
                      {{"displayName", "tessera doctor"}, {"lease", DurationField(kProbeLease)}});
    const absl::Time after = absl::Now();
    if (!session.ok()) {
      Say("clock", Verdict::kSkip,
          absl::StrCat("no session could be opened: ", Message(session.status())));
      return;
    }
    (void)context_.Call("SessionService/DeleteSession", {{"session", TextOf(*session, "id")}});
    const auto lease = DurationOf(*session, "lease");
    const auto expires = TimeOf(*session, "expireTime");
    if (!lease || !expires) {
      Say("clock", Verdict::kSkip, "the coordinator does not say when the session ends");
      return;
    }
    // Zero if the time lies within the call.
    const absl::Time there = *expires - *lease;
    const absl::Duration skew = there < before  ? there - before
                                : there > after ? there - after
                                                : absl::ZeroDuration();
    if (absl::AbsDuration(skew) > kSkewMax) {
      Say("clock", Verdict::kWarn,
          absl::StrCat("the coordinator's clock is ", DurationText(absl::AbsDuration(skew)),
                       skew > absl::ZeroDuration() ? " ahead of" : " behind", " this machine's"),
          "set both by NTP: times in tables, tokens' ends and certificates are read by them");
    } else {
      Say("clock", Verdict::kOk,
          absl::StrCat("within ", DurationText(absl::AbsDuration(skew) + (after - before)),
                       " of the coordinator's"));
    }
  }

  // A small array to one device of each executor, and back.
  void DataEndpoints() {
    if (!devices_.ok()) return;
    std::map<std::string, int64_t> first;  // device by executor
    for (const Json& d : ChildOf(*devices_, "devices")) {
      if (FlagOf(d, "healthy")) first.emplace(TextOf(d, "executor"), IntOf(d, "id"));
    }
    if (first.empty()) {
      Say("data", Verdict::kSkip, "no healthy device");
      return;
    }
    const absl::StatusOr<std::shared_ptr<api::Service>> service = context_.service();
    if (!service.ok()) {
      Say("data", Verdict::kFail, Message(service.status()),
          std::string(InfoOf(KindOf(service.status())).sentence));
      return;
    }
    for (const auto& [executor, device] : first) {
      const absl::Time start = absl::Now();
      const absl::StatusOr<bool> same =
          context_.Within<bool>(absl::StrCat("put and get on ", executor),
                                [s = *service, id = device] { return Echo(*s, id); });
      const std::string name = absl::StrCat("data");
      if (same.ok() && *same) {
        Say(name, Verdict::kOk,
            absl::StrCat(executor, ": put and get in ", DurationText(absl::Now() - start)));
      } else if (const std::string silent = WhyNotReady(device); !silent.empty()) {
        Say(name, Verdict::kFail, absl::StrCat(executor, ": ", silent),
            "the port is not to blame: look at the worker's log; what stands still is killed once "
            "somebody waits for it in vain");
      } else {
        Say(name, Verdict::kFail,
            absl::StrCat(executor, ": ",
                         same.ok() ? std::string("other bytes came back") : Message(same.status())),
            absl::StrCat("clients must reach the worker's data port: start the worker with "
                         "--advertise-client HOST:PORT as seen from here (`tessera workers` shows "
                         "what it says now), and open that port"));
      }
    }
  }

  // Why a device that was healthy is not any more; "" if it still is.
  std::string WhyNotReady(int64_t device) {
    const absl::StatusOr<Json> again =
        context_.CallPages("ClusterService/ListDevices", {}, "devices");
    if (!again.ok()) return "";
    for (const Json& d : ChildOf(*again, "devices")) {
      if (IntOf(d, "id") == device && !FlagOf(d, "healthy")) return TextOf(d, "reason");
    }
    return "";
  }

  static absl::StatusOr<bool> Echo(api::Service& service, int64_t device) {
    ir::Array value(ir::DType::kF32, {kProbeElements});
    for (int64_t i = 0; i < kProbeElements; ++i) value.Set(i, static_cast<double>(i));
    api::Placement place;
    place.mesh.axes = {{"x", 1, ir::AxisType::kAuto}};
    place.devices = {device};
    TESSERA_ASSIGN_OR_RETURN(const uint64_t array, service.Put(value, place));
    const absl::StatusOr<ir::Array> back = service.Get(array, kTransferLimit);
    service.Delete({array}).IgnoreError();
    TESSERA_RETURN_IF_ERROR(back);
    return *back == value;
  }

  Context& context_;
  std::vector<Check> checks_;
  absl::StatusOr<Json> capabilities_ = absl::UnknownError("not asked");
  absl::StatusOr<Json> devices_ = absl::UnknownError("not asked");
};

// For container health checks: one line, and the exit code.
absl::Status HealthOf(Context& context, const std::string& address) {
  const absl::Duration limit = std::min(context.left(), kHealthLimit);
  std::string said;
  absl::Status status;
  if (absl::StartsWith(address, "http://")) {
    const absl::StatusOr<HttpAnswer> answer =
        context.Within<HttpAnswer>(address, [address, limit] { return HttpGet(address, limit); });
    status = answer.status();
    if (status.ok()) {
      said = absl::StrCat("HTTP ", answer->code);
      if (answer->code != 200) status = absl::FailedPreconditionError(said);
    }
  } else {
    const absl::StatusOr<Json> health =
        Cluster(address, context.globals().connect)
            .Call("grpc.health.v1.Health/Check", Json::object(), limit);
    status = health.status();
    if (status.ok()) {
      said = TextOf(*health, "status");
      if (said != "SERVING") status = absl::FailedPreconditionError(said);
    }
  }
  if (!status.ok()) {
    return WithExit(absl::Status(status.code(), absl::StrCat(address, ": ", status.message())),
                    kExitFailed);
  }
  context.Show({{"address", address}, {"status", said}},
               [&] { context.terminal().Print(absl::StrCat(address, ": ", said, "\n")); });
  return absl::OkStatus();
}

absl::Status Doctor(Context& context, const Arguments& arguments) {
  if (arguments.Has("health")) return HealthOf(context, arguments.Text("health"));
  const std::vector<Check> checks = Examination(context).Run();
  Json document = {{"checks", Json::array()}};
  int64_t failed = 0;
  for (const Check& c : checks) {
    failed += c.verdict == Verdict::kFail ? 1 : 0;
    document["checks"].push_back(
        {{"name", c.name},
         {"verdict", c.verdict == Verdict::kFail ? "failed" : NameOf(c.verdict)},
         {"detail", c.detail},
         {"fix", c.fix}});
  }
  document["ok"] = failed == 0;
  context.Show(document, [] {});
  if (Context::Interrupted()) return Context::InterruptedError("interrupted");
  if (failed == 0) return absl::OkStatus();
  return WithExit(absl::FailedPreconditionError(absl::StrCat(
                      failed, failed == 1 ? " check" : " checks", " failed; each says what to do")),
                  kExitFailed);
}

}  // namespace

std::vector<Command> DoctorCommands() {
  return {{.name = "doctor",
           .group = "Cluster",
           .summary = "Checks the way to a cluster step by step, with a fix for what fails.",
           .options = {{.name = "health",
                        .value = "ADDRESS",
                        .help = "Only whether HOST:PORT (gRPC health) or http://HOST:PORT/PATH "
                                "says that it is well, within 3 s: exits with 0 or 1."}},
           .details =
               "The steps: the address takes connections; both sides speak TLS, or plain\n"
               "text; the token is known; the coordinator serves; versions; devices; clocks;\n"
               "and, from here to a device of every executor, a small array and back.",
           .run = Doctor}};
}

}  // namespace tessera::cli
