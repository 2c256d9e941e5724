// The commands ps, wait and cancel, and the wait of other commands for the operations that they
// start (arrays.cc).
#include "client/cli/operations.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/cli/mesh_args.h"

namespace tessera::cli {
namespace {

constexpr char kSystemTenant[] = "system";  // the tenant of the coordinator's canaries

Style StyleOf(const std::string& state) {
  if (state == "DONE") return Style::kGreen;
  if (state == "FAILED") return Style::kRed;
  if (state == "CANCELLED") return Style::kYellow;
  return state == "RUNNING" ? Style::kCyan : Style::kPlain;
}

// Returns how long the operation has run or, if it has not started, how long it has waited.
std::string ElapsedText(const Json& operation, absl::Time now) {
  const auto created = TimeOf(operation, "createTime");
  const auto started = TimeOf(operation, "startTime");
  const auto ended = TimeOf(operation, "endTime");
  if (started) return DurationText(ended.value_or(now) - *started);
  if (created) return DurationText(ended.value_or(now) - *created);
  return "";
}

std::string PendingReasonOrError(const Json& operation) {
  const Json& error = ChildOf(operation, "error");
  if (!error.is_null()) return TextOf(error, "message");
  return TextOf(operation, "pendingReason");
}

// Lists operations. Canaries, which the coordinator itself runs, are left out of both the table and
// the JSON document unless the caller asks for them, because on an idle cluster nothing else would
// be listed.
absl::Status Ps(Context& context, const Arguments& arguments) {
  Json request = {{"liveOnly", !arguments.Flag("all")}};
  if (arguments.Has("session"))
    request["session"] = arguments.Text("session");
  else
    request["allSessions"] = true;
  TESSERA_ASSIGN_OR_RETURN(
      Json answer, context.ListAll("OperationService/ListOperations", request, "operations"));
  if (!arguments.Flag("canaries") && answer["operations"].is_array()) {
    Json user_operations = Json::array();
    for (Json& o : answer["operations"])
      if (TextOf(o, "tenant") != kSystemTenant) user_operations.push_back(std::move(o));
    answer["operations"] = std::move(user_operations);
  }
  context.PrintResult(answer, [&] {
    const absl::Time now = absl::Now();
    Table table({">OPERATION", "KIND", "NAME", "STATE", ">TIME", ">SESSION", "TENANT",
                 "WAITS FOR, OR ERROR"});
    for (const Json& o : ChildOf(answer, "operations")) {
      const std::string state = StateOf(o);
      const std::string reason = PendingReasonOrError(o);
      table.AddRow({TextOf(o, "id"), TextOf(o, "kind"), TextOf(o, "name"),
                    context.display().Colorize(StyleOf(state), state), ElapsedText(o, now),
                    TextOf(o, "session"), TextOf(o, "tenant"),
                    reason.substr(0, reason.find('\n'))});
    }
    context.PrintTable(
        table, arguments.Flag("all")
                   ? "no operations"
                   : "no operation waits or runs; --all also shows operations that have ended");
  });
  return absl::OkStatus();
}

// Waits for an operation that another command has started, so neither the deadline nor Ctrl-C
// cancels it. Fails with the operation's error if it failed; with --json the document of the
// operation is printed even then.
absl::Status Wait(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t id, ParseId(arguments.Text("OPERATION"), "operations"));
  Progress progress(context.display(), absl::StrCat("operation ", id), 0, context.shows_progress());
  Json operation;
  std::string state = "not known to have started";
  TESSERA_ASSIGN_OR_RETURN(
      const Context::WaitEnd end,
      context.CallUntil("OperationService/WaitOperation", {{"operation", std::to_string(id)}},
                        [&](const Json& answer) {
                          operation = answer;
                          state = StateOf(operation);
                          progress.SetState(state == "PENDING"
                                                ? "waits: " + TextOf(operation, "pendingReason")
                                                : "runs");
                          return HasEnded(operation);
                        }));
  if (end == Context::WaitEnd::kInterrupted) {
    return Context::InterruptedError(
        absl::StrCat("interrupted: operation ", id, " goes on; `tessera cancel ", id, "` ends it"));
  }
  if (end == Context::WaitEnd::kTimedOut) {
    return MakeError(ErrorKind::kDeadlineExceeded,
                     absl::StrCat("operation ", id, " has not ended within ",
                                  absl::FormatDuration(context.globals().timeout), "; it is ",
                                  state, ". Wait again, or longer with --timeout"));
  }
  progress.Finish();
  const absl::Status failure = StatusOf(ChildOf(operation, "error"));
  if (!failure.ok() && !context.json()) return failure;
  context.PrintResult(operation, [&] {
    std::string text =
        absl::StrCat("operation ", id, " ", context.display().Colorize(Style::kGreen, "DONE"),
                     " in ", ElapsedText(operation, absl::Now()));
    const std::vector<int64_t> outputs = IntsOf(operation, "outputs");
    if (!outputs.empty()) absl::StrAppend(&text, ", made arrays ", IntsText(outputs));
    context.terminal().Print(text + "\n");
  });
  return failure;
}

absl::Status Cancel(Context& context, const Arguments& arguments) {
  Json document = {{"cancelled", Json::array()}};
  for (const std::string& text : arguments.Texts("OPERATION")) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, ParseId(text, "operations"));
    TESSERA_RETURN_IF_ERROR(
        context.Call("OperationService/CancelOperation", {{"operation", std::to_string(id)}}));
    document["cancelled"].push_back(std::to_string(id));
  }
  context.PrintResult(document, [&] {
    for (const Json& id : document["cancelled"]) {
      context.terminal().Print(
          absl::StrCat("operation ", id.get<std::string>(),
                       ": asked to stop; an operation that has ended does not change\n"));
    }
  });
  return absl::OkStatus();
}

}  // namespace

bool HasEnded(const Json& operation) {
  const std::string state = StateOf(operation);
  return state == "DONE" || state == "FAILED" || state == "CANCELLED";
}

// The operation belongs to this command, so it is cancelled if the command cannot wait any longer.
// The call that cancels it must not itself be ended by the deadline or the Ctrl-C.
absl::StatusOr<Json> AwaitOperation(Context& context, const std::string& what, Json operation) {
  const std::string id = TextOf(operation, "id");
  Progress progress(context.display(), what, 0, context.shows_progress());
  auto end = Context::WaitEnd::kEnded;
  if (!HasEnded(operation)) {
    TESSERA_ASSIGN_OR_RETURN(
        end, context.CallUntil(
                 "OperationService/WaitOperation", {{"operation", id}}, [&](const Json& answer) {
                   operation = answer;
                   progress.SetState(
                       absl::StrCat("operation ", id, " ", TextOf(answer, "pendingReason")));
                   return HasEnded(operation);
                 }));
  }
  if (end == Context::WaitEnd::kEnded) {
    TESSERA_RETURN_IF_ERROR(StatusOf(ChildOf(operation, "error")));
    return operation;
  }
  progress.Finish();
  TESSERA_RETURN_IF_ERROR(
      context.CallUninterruptible("OperationService/CancelOperation", {{"operation", id}}));
  if (end == Context::WaitEnd::kInterrupted) {
    return Context::InterruptedError(absl::StrCat("interrupted: operation ", id, " was cancelled"));
  }
  return MakeError(
      ErrorKind::kDeadlineExceeded,
      absl::StrCat(what, ": not done within ", absl::FormatDuration(context.globals().timeout),
                   ", operation ", id, " was cancelled. Give it more time with --timeout"));
}

// The rows of the subcommands about operations. parse.cc reads their command lines by these rows
// and prints their help, and docs/cli.md is generated from them.
std::vector<Command> OperationCommands() {
  const Option operation = Positional("OPERATION", "Id of an operation, as run and ps print it.");
  Option operations = operation;
  operations.type = OptionType::kTexts;
  return {
      {.name = "ps",
       .summary = "Lists the operations that run or wait, and what they wait for.",
       .options =
           {Flag("all", "List operations that have ended as well."),
            Flag("canaries",
                 "List canaries as well: runs by which the coordinator checks that devices work. "
                 "Only operators see them."),
            {.name = "session",
             .type = OptionType::kInt,
             .value_name = "ID",
             .help =
                 "List only operations of this session (default: every session of the tenant)."}},
       .run = Ps},
      {.name = "wait",
       .summary = "Waits for the end of an operation, and fails if the operation failed.",
       .options = {operation},
       .timeout = absl::Minutes(10),
       .run = Wait},
      {.name = "cancel", .summary = "Stops operations.", .options = {operations}, .run = Cancel},
  };
}

}  // namespace tessera::cli
