// Tests the drawings of `tessera explain` and visualize against tests/golden/cli/*.txt. Each case
// is a program text, which goes through the planner of an embedded cluster to the picture.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "client/plan/plan_view.h"
#include "client/show/display.h"
#include "client/show/explicit_text.h"
#include "client/show/picture.h"
#include "embed/embed.h"
#include "gtest/gtest.h"
#include "ir/text.h"

namespace tessera::internal {
namespace {

// Plans the program of a case and draws the plan with the display options of the case. Times are
// set to fixed values, because measured times differ between machines. Draw also checks the width
// of every line, so that readers of the golden file need not.
absl::StatusOr<std::string> Draw(const DataCase& c) {
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, ir::ParseProgram(c.input));
  api::CompileRequest request;
  if (c.Has("absent")) {
    request.plan_only = true;
    request.device_memory_bytes = std::stoll(c.Arg("absent"));
  }
  EmbeddedOptions options;
  options.devices = request.plan_only ? 1 : static_cast<int>(program.mesh().num_devices());
  TESSERA_ASSIGN_OR_RETURN(const auto service, embed::Start(options));
  request.program = program;
  request.explain = true;
  TESSERA_ASSIGN_OR_RETURN(const api::CompileReply reply, service->Compile(request));
  TESSERA_ASSIGN_OR_RETURN(PlanView plan, MakePlanView(program, reply.explain_json));
  // The times that this machine needs are not drawn; the case sets its own.
  plan.compute_time = absl::Microseconds(c.Has("time") ? 3000 : 0);
  plan.collective_time = absl::Microseconds(c.Has("time") ? 1500 : 0);
  plan.last_run = absl::Microseconds(c.Has("ran") ? 4750 : 0);
  plan.measured_devices = c.Has("ran");
  Display display;
  display.columns = std::stoi(c.Arg("columns", "100"));
  display.unicode = !c.Has("ascii");
  display.color_out = c.Has("colors");
  if (c.Has("first")) {
    // Place the shards on other devices than 0, 1, ..., which belong to two workers.
    const int64_t first = std::stoi(c.Arg("first"));
    for (int64_t d = 0; d < plan.mesh.num_devices(); ++d) {
      plan.devices.push_back(first + d);
      plan.worker_of[first + d] = absl::StrCat("w", 2 * d / plan.mesh.num_devices());
    }
  }
  if (c.command == "explicit") return ExplicitText(plan);
  const std::string picture = PlanPicture(plan, display);
  for (absl::string_view line : absl::StrSplit(picture, '\n')) {
    EXPECT_LE(WidthOf(std::string(line)), display.columns)
        << c.file << ":" << c.line << ": " << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << c.file << ":" << c.line << ": " << line;
  }
  return picture;
}

// Draws the first argument of a program as visualize does.
absl::StatusOr<std::string> DrawFirstArgument(const DataCase& c) {
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, ir::ParseProgram(c.input));
  PlanView plan;
  plan.mesh = program.mesh();
  for (int64_t d = 0; c.Has("reversed") && d < plan.mesh.num_devices(); ++d)
    plan.devices.push_back(plan.mesh.num_devices() - 1 - d);
  PlanArray array;
  array.name = c.Arg("name");
  array.type = program.entry->param_types()[0];
  if (!program.in_shardings.empty() && program.in_shardings[0])
    array.spec = *program.in_shardings[0];
  if (c.command == "svg") return SvgOf(plan, {array});
  Display display;
  display.columns = std::stoi(c.Arg("columns", "100"));
  display.unicode = !c.Has("ascii");
  display.color_out = c.Has("colors");
  return PlacementPicture(plan, array, display);
}

TEST(Pictures, OfArraysAreAsTheyWere) {
  RunDataFile("tests/golden/cli/arrays.txt", [](const DataCase& c) {
    const absl::StatusOr<std::string> picture = DrawFirstArgument(c);
    return picture.ok() ? absl::StrReplaceAll(*picture, {{"\x1b", "ESC"}})
                        : absl::StrCat("error: ", picture.status().message(), "\n");
  });
}

TEST(Pictures, ShardingsToWriteDownAreAsTheyWere) {
  RunDataFile("tests/golden/cli/explicit.txt", [](const DataCase& c) {
    const absl::StatusOr<std::string> text = Draw(c);
    return text.ok() ? *text : absl::StrCat("error: ", text.status().message(), "\n");
  });
}

TEST(Pictures, AreAsTheyWere) {
  RunDataFile("tests/golden/cli/pictures.txt", [](const DataCase& c) {
    const absl::StatusOr<std::string> picture = Draw(c);
    return picture.ok() ? *picture : absl::StrCat("error: ", picture.status().message(), "\n");
  });
}

}  // namespace
}  // namespace tessera::internal
