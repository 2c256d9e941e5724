// Proves that the pages errors.md, metrics.md and env.md of docs/ equal the pages that are
// generated from the tables in base/*.def. With --rewrite it writes the pages instead.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/metrics.h"
#include "base/options.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

std::string ErrorsMarkdown() {
  std::string text =
      "# Errors\n\n"
      "Generated from `base/error_kinds.def`; to change it: `base_docs_test --rewrite`. The code\n"
      "tells a program what to do, the message tells a person where and what, and the reason (in\n"
      "`google.rpc.ErrorInfo.reason`) tells a tool which kind it is.\n"
      "\n"
      "| reason | code | retry | meaning |\n"
      "|---|---|---|---|\n";
  for (const ErrorKindInfo* info = ErrorKindsBegin(); info != ErrorKindsEnd(); ++info) {
    absl::StrAppend(&text, "| `", ToAbsl(info->reason), "` | ", CodeName(info->code), " | ",
                    info->retry ? "yes" : "no", " | ", ToAbsl(info->description), " |\n");
  }
  return text;
}

TEST(Docs, ErrorsPageIsTheTable) { ExpectFileHolds("docs/errors.md", ErrorsMarkdown()); }
TEST(Docs, MetricsPageIsTheTable) { ExpectFileHolds("docs/metrics.md", MetricsMarkdown()); }
TEST(Docs, EnvPageIsTheTable) { ExpectFileHolds("docs/env.md", OptionsMarkdown()); }

}  // namespace
}  // namespace tessera
