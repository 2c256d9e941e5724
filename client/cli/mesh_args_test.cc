// Proves which texts the options for meshes, specs, devices and ids take, what they mean, and that
// every other text is a usage error.
#include "client/cli/mesh_args.h"

#include "base/testing/status_matchers.h"
#include "client/cli/commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MeshText(const std::string& text, const ir::Mesh& like = {}) {
  const auto mesh = ParseMesh(text, like);
  if (!mesh.ok()) return std::string(mesh.status().message());
  return *mesh ? (*mesh)->ToString() : "a name";
}

TEST(ParseMesh, TakesSizesNamedAxesOrTheNameOfAMesh) {
  const ir::Mesh like{{{"data", 2, ir::AxisType::kAuto}, {"model", 4, ir::AxisType::kExplicit}}};
  EXPECT_EQ(MeshText("2x3"), "(x=2, y=3)");
  EXPECT_EQ(MeshText("4"), "(x=4)");
  EXPECT_EQ(MeshText("a=2,b=1"), "(a=2, b=1)");
  EXPECT_EQ(MeshText("8x1", like), "(data=8, model=1:explicit)");
  EXPECT_EQ(MeshText("model=2", like), "(model=2:explicit)");
  EXPECT_EQ(MeshText("big-one"), "a name");
}

TEST(ParseMesh, RefusesOtherTexts) {
  const ir::Mesh like{{{"data", 2, ir::AxisType::kAuto}}};
  for (const char* text : {"", "2x", "x2=", "a=b", "a=2,", "2,2", "0x2", "a=-1", "a=2,a=2",
                           "99999999999999999999", "2x2x2x2x2", "65536x65536"}) {
    const auto mesh = ParseMesh(text);
    EXPECT_EQ(ExitCodeOf(mesh.status()), kExitUsage) << text;
  }
  EXPECT_THAT(MeshText("2x2", like), HasSubstr("2 axes; the program's mesh (data=2) has 1"));
}

TEST(ParseSpec, TakesBothForms) {
  for (const char* text : {"P('x', None, ('y','z'))", "x,-,y+z", "P('x',None,('y','z'))"}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const ir::PartitionSpec spec, ParseSpec(text));
    EXPECT_THAT(spec.dims, ElementsAre(ElementsAre("x"), ElementsAre(), ElementsAre("y", "z")));
    // A spec that is printed can be parsed again.
    TESSERA_ASSERT_OK_AND_ASSIGN(const ir::PartitionSpec again, ParseSpec(spec.ToString()));
    EXPECT_EQ(again, spec);
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::PartitionSpec none, ParseSpec("P()"));
  EXPECT_TRUE(none.dims.empty());
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::PartitionSpec sum,
                               ParseSpec("P('x', unreduced={'y','z'}, reduced={'w'})"));
  EXPECT_THAT(sum.unreduced, ElementsAre("y", "z"));
  EXPECT_THAT(sum.reduced, ElementsAre("w"));
  for (const char* text : {"P(", "P('x'", "P(x)", "P('x') y", "P('x' 'y')", "x,,y", "x+", "2",
                           "P('x)", "P(('x')", "P(unreduced={'x')", "x y"}) {
    EXPECT_FALSE(ParseSpec(text).ok()) << text;
  }
}

TEST(ParseInts, TakesListsAndRanges) {
  EXPECT_THAT(*ParseInts("0,2,4-6"), ElementsAre(0, 2, 4, 5, 6));
  for (const char* text : {"", "a", "1-", "3-1", "-1", "1,,2", "0-99999999", "1-2-3"}) {
    EXPECT_FALSE(ParseInts(text).ok()) << text;
  }
}

TEST(ParseId, TakesNumbersAndResourceNames) {
  EXPECT_EQ(*ParseId("12", "arrays"), 12u);
  EXPECT_EQ(*ParseId("arrays/12", "arrays"), 12u);
  EXPECT_EQ(*ParseId("tenants/t/sessions/3/arrays/12", "arrays"), 12u);
  for (const char* text : {"", "0", "x", "operations/12", "arrays/", "-1", "arrays/1/2"}) {
    EXPECT_FALSE(ParseId(text, "arrays").ok()) << text;
  }
}

TEST(WithMesh, ChangesTheSizesAndKeepsTheRest) {
  const std::string program = "# Why.\n\nmesh (data=2, model=2:explicit)\nfunc main() {}\n";
  EXPECT_EQ(*WithMesh(program, "4x1"),
            "# Why.\n\nmesh (data=4, model=1:explicit)\nfunc main() {}\n");
  EXPECT_EQ(*WithMesh(program, "data=1,model=8"),
            "# Why.\n\nmesh (data=1, model=8:explicit)\nfunc main() {}\n");
  EXPECT_EQ(*WithMesh("func main() {}\n", "x=2"), "mesh (x=2) func main() {}\n");
  EXPECT_THAT(WithMesh(program, "4"), StatusIs(absl::StatusCode::kInvalidArgument, "1 axes"));
  EXPECT_FALSE(WithMesh("mesh (data=2,\nmodel=2)\n", "2x2").ok());
  EXPECT_THAT(WithMesh("mesh (data)\n", "2"),
              StatusIs(absl::StatusCode::kInvalidArgument, "cannot parse the program's mesh line"));
}

TEST(ShardRanges, DividesAlongTheAxes) {
  const ir::Mesh mesh{{{"x", 2, ir::AxisType::kAuto}, {"y", 3, ir::AxisType::kAuto}}};
  ir::PartitionSpec spec;
  spec.dims = {{"y"}, {}, {"x"}};
  EXPECT_EQ(ShardText(ShardRanges(mesh, spec, {6, 5, 4}, 5)), "[4:6, :, 2:4]");
  EXPECT_EQ(ShardText(ShardRanges(mesh, spec, {6, 5, 4}, 0)), "[0:2, :, 0:2]");
  EXPECT_EQ(ShardText(ShardRanges(mesh, {}, {6}, 3)), "whole");
  EXPECT_EQ(ShardText(ShardRanges(mesh, {}, {}, 3)), "whole");
}

}  // namespace
}  // namespace tessera::cli
