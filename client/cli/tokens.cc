// The commands token create, token list and token revoke. The coordinator keeps only hashes of
// tokens, so the text of a token can be shown once, by `token create`.
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/roles.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/values.h"

namespace tessera::cli {
namespace {

absl::Status Create(Context& context, const Arguments& arguments) {
  Json request = {{"name", arguments.Text("NAME")},
                  {"role", arguments.Text("role")},
                  {"requestId", NewRequestId()}};
  if (arguments.Has("tenant")) request["tenant"] = arguments.Text("tenant");
  if (arguments.Has("ttl")) request["timeToLive"] = DurationField(arguments.Duration("ttl"));
  TESSERA_ASSIGN_OR_RETURN(const Json answer, context.Call("AdminService/CreateToken", request));
  context.PrintResult(answer, [&] {
    context.terminal().Print(TextOf(answer, "text") + "\n");
    context.Note(
        "the token is shown only this time. To use it, set TESSERA_TOKEN to it, or keep it in a "
        "file for --token-file");
  });
  return absl::OkStatus();
}

absl::Status List(Context& context, const Arguments&) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("AdminService/ListTokens", {}, "tokens"));
  context.PrintResult(answer, [&] {
    const absl::Time now = absl::Now();
    Table table({"TOKEN", "ROLE", "TENANT", "STATE", "LAST USED"});
    for (const Json& t : ChildOf(answer, "tokens")) {
      const auto expires = TimeOf(t, "expireTime"), last_used = TimeOf(t, "lastUseTime");
      const bool expired = expires && *expires < now;
      const std::string state = FlagOf(t, "revoked") ? "revoked"
                                : expired            ? "expired"
                                : expires ? absl::StrCat("for ", DurationText(*expires - now))
                                          : "for ever";
      table.AddRow({TextOf(t, "name"), TextOf(t, "role"), TextOf(t, "tenant"),
                    context.display().Colorize(
                        FlagOf(t, "revoked") || expired ? Style::kRed : Style::kGreen, state),
                    last_used ? DurationText(now - *last_used) + " ago" : "never"});
    }
    context.PrintTable(table, "no tokens");
  });
  return absl::OkStatus();
}

absl::Status Revoke(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer, context.Call("AdminService/RevokeToken",
                                                           {{"name", arguments.Text("NAME")}}));
  context.PrintResult(answer, [&] {
    context.Note(
        absl::StrCat(arguments.Text("NAME"), " is revoked: calls with it fail from now on"));
  });
  return absl::OkStatus();
}

}  // namespace

// The rows of the subcommands about tokens. `token list` has no option because the texts of tokens
// are never stored: the coordinator knows their hashes only.
std::vector<Command> SecurityCommands() {
  const Option name = Positional("NAME", "Name of the token: lower-case letters, digits, - and _.");
  return {
      {.name = "token create",
       .summary = "Makes a token and prints it, once.",
       .options = {name,
                   {.name = "role",
                    .value_name = "ROLE",
                    .help = "Role of the token, which says what its user may do.",
                    .default_value = "user",
                    .choices = {std::begin(kRoleNames), std::end(kRoleNames)}},
                   {.name = "tenant",
                    .value_name = "TENANT",
                    .help = "Tenant for which the token is valid."},
                   {.name = "ttl",
                    .type = OptionType::kDuration,
                    .value_name = "DURATION",
                    .help = "How long the token is valid: 720h (default: for ever)."}},
       .run = Create},
      {.name = "token list", .summary = "Lists the tokens, without their texts.", .run = List},
      {.name = "token revoke",
       .summary = "Makes a token invalid at once.",
       .options = {name},
       .run = Revoke},
  };
}

}  // namespace tessera::cli
