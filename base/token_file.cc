// Reads and writes tokens and the coordinator's token file. The coordinator loads the file at its
// start and checks the token of each call against it; the command line and the administration calls
// write it. Parsing is strict, because an edited line could give somebody more rights than
// intended.
#include "base/token_file.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/roles.h"
#include "base/secret.h"
#include "base/sha256.h"
#include "base/status.h"

namespace tessera {
namespace {

constexpr char kHeader[] = "tessera-tokens 1";
constexpr char kNever[] = "never";
constexpr char kNobody[] = "-";
constexpr char kTimeFormat[] = "%E4Y-%m-%dT%H:%M:%SZ";
constexpr size_t kIdDigits = 16, kSecretDigits = 64, kSaltDigits = 32, kHashDigits = 64;
constexpr size_t kNameMax = 63;
constexpr size_t kTokenTextMax = 256;
// The keys of a line, in order.
constexpr std::array<std::string_view, 10> kKeys = {
    "name=", "id=",      "role=",    "tenant=", "salt=",
    "hash=", "created=", "expires=", "used=",   "revoked="};

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '_';
         });
}

std::string HashOf(std::string_view salt, std::string_view secret) {
  return Sha256Hex(absl::StrCat(ToAbsl(salt), ToAbsl(secret)));
}

std::string TimeText(absl::Time time) {
  const bool never = time == absl::InfiniteFuture() || time == absl::InfinitePast();
  return never ? kNever : absl::FormatTime(kTimeFormat, time, absl::UTCTimeZone());
}
// Parses a text that TimeText has written. The text "never" gives the argument `never`; if that
// argument is absl::Time(), the text is refused. Returns false for all other texts.
bool ParseTimeText(std::string_view text, absl::Time never, absl::Time* out) {
  *out = never;
  if (text == kNever) return never != absl::Time();
  std::string error;
  return absl::ParseTime(kTimeFormat, ToAbsl(text), absl::UTCTimeZone(), out, &error) &&
         TimeText(*out) == text;
}

// Parses a line. Returns the field that is wrong, or "" if the line is right.
std::string_view ParseLine(std::string_view line, TokenRecord* out) {
  const std::vector<absl::string_view> fields = absl::StrSplit(ToAbsl(line), ' ');
  if (fields.size() != kKeys.size()) return "expected ten fields";
  std::array<std::string_view, kKeys.size()> values;
  for (size_t i = 0; i < kKeys.size(); ++i) {
    absl::string_view value = fields[i];
    if (!absl::ConsumePrefix(&value, ToAbsl(kKeys[i]))) return kKeys[i];
    values[i] = ToStd(value);
  }
  const auto& [name, id, role, tenant, salt, hash, created, expires, used, revoked] = values;
  if (!IsName(name)) return "name=";
  if (!IsHex(id, kIdDigits)) return "id=";
  if (std::find(std::begin(kRoleNames), std::end(kRoleNames), role) == std::end(kRoleNames))
    return "role=";
  if (role == "worker" ? tenant != kNobody : !IsName(tenant)) return "tenant=";
  if (!IsHex(salt, kSaltDigits)) return "salt=";
  if (!IsHex(hash, kHashDigits)) return "hash=";
  if (!ParseTimeText(created, absl::Time(), &out->created)) return "created=";
  if (!ParseTimeText(expires, absl::InfiniteFuture(), &out->expires)) return "expires=";
  if (!ParseTimeText(used, absl::InfinitePast(), &out->last_used)) return "used=";
  if (revoked != "yes" && revoked != "no") return "revoked=";
  out->name = name;
  out->id = id;
  out->role = role;
  out->tenant = role == "worker" ? "" : tenant;
  out->salt = salt;
  out->hash = hash;
  out->revoked = revoked == "yes";
  return "";
}

}  // namespace

absl::Status CheckTokenName(std::string_view what, std::string_view name) {
  if (IsName(name)) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat(ToAbsl(what), ": expected 1 to ", kNameMax,
                                " lower-case letters, digits, '-' and '_'"));
}

std::string MakeToken(TokenRecord* record) {
  const TokenText token{RandomHex(kIdDigits / 2), RandomHex(kSecretDigits / 2), ""};
  record->id = token.id;
  record->salt = RandomHex(kSaltDigits / 2);
  record->hash = HashOf(record->salt, token.secret);
  return FormatBearerToken(token);
}

absl::StatusOr<TokenText> ParseToken(std::string_view text) {
  const auto wrong = [] {
    return MakeError(ErrorKind::kValueError, "token: it does not have the form tsr_... or tsj_...");
  };
  if (text.size() > kTokenTextMax) return wrong();
  const std::vector<absl::string_view> parts = absl::StrSplit(ToAbsl(text), '_');
  const bool join = parts[0] == "tsj";
  if ((!join && parts[0] != "tsr") || parts.size() != (join ? 4u : 3u)) return wrong();
  if (!IsHex(ToStd(parts[1]), kIdDigits) || !IsHex(ToStd(parts[2]), kSecretDigits)) return wrong();
  if (join && !IsHex(ToStd(parts[3]), kHashDigits)) return wrong();
  return TokenText{std::string(parts[1]), std::string(parts[2]),
                   join ? std::string(parts[3]) : std::string()};
}

std::string FormatJoinToken(const TokenText& token, std::string_view fingerprint) {
  return absl::StrCat("tsj_", token.id, "_", token.secret, "_", ToAbsl(fingerprint));
}
std::string FormatBearerToken(const TokenText& token) {
  return absl::StrCat("tsr_", token.id, "_", token.secret);
}

bool TokenMatches(const TokenRecord& record, std::string_view secret) {
  return EqualInConstantTime(HashOf(record.salt, secret), record.hash);
}

std::string FormatTokenFile(const std::vector<TokenRecord>& records) {
  std::string out = absl::StrCat(kHeader, "\n");
  for (const TokenRecord& r : records) {
    absl::StrAppend(&out, "name=", r.name, " id=", r.id, " role=", r.role,
                    " tenant=", r.tenant.empty() ? kNobody : r.tenant, " salt=", r.salt,
                    " hash=", r.hash);
    absl::StrAppend(&out, " created=", TimeText(r.created), " expires=", TimeText(r.expires),
                    " used=", TimeText(r.last_used), " revoked=", r.revoked ? "yes" : "no", "\n");
  }
  return out;
}

absl::StatusOr<std::vector<TokenRecord>> ParseTokenFile(std::string_view text) {
  const auto wrong = [](size_t line, absl::string_view what) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("tokens: line ", line, ": ", what,
                                  "; restore the file from a copy, or make the tokens anew"));
  };
  std::vector<absl::string_view> lines = absl::StrSplit(ToAbsl(text), '\n');
  if (lines[0] != kHeader) return wrong(1, absl::StrCat("expected '", kHeader, "'"));
  if (!lines.back().empty()) return wrong(lines.size(), "the last line is cut short");
  lines.pop_back();
  if (lines.size() - 1 > kTokensMax) return wrong(kTokensMax + 2, "too many tokens");
  std::vector<TokenRecord> records;
  std::set<std::string> names, ids;
  for (size_t i = 1; i < lines.size(); ++i) {
    TokenRecord record;
    if (const std::string_view fault = ParseLine(ToStd(lines[i]), &record); !fault.empty())
      return wrong(i + 1, absl::StrCat("wrong at '", ToAbsl(fault), "'"));
    if (!names.insert(record.name).second) return wrong(i + 1, "the name is taken");
    if (!ids.insert(record.id).second) return wrong(i + 1, "the id is taken");
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace tessera
