// Proves which axes the texts of GSPMD and Shardy mean, that other texts are refused with the place
// of the fault, and which groups of devices lie along axes.
#include "ir/stablehlo/sharding_text.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace tessera::ir::stablehlo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the axes of a dim, each as size@stride.
std::string AxesText(const std::vector<AxisRange>& axes) {
  std::string out = "[";
  for (const AxisRange& axis : axes) absl::StrAppend(&out, " ", axis.size, "@", axis.stride);
  return out + " ]";
}
std::string TiledText(std::string_view text) {
  std::string out;
  const absl::Status status = CatchStatus([&] {
    const TiledSharding tiled = ParseTiled(text, "x");
    for (const auto& dim : tiled.dims) out += AxesText(dim);
    if (!tiled.manual.empty()) out += " manual " + AxesText(tiled.manual);
  });
  return status.ok() ? out : std::string(status.message());
}

TEST(ShardingTextTest, TilesLieAlongAxes) {
  EXPECT_EQ(TiledText("{replicated}"), "");
  EXPECT_EQ(TiledText("{devices=[2,4]<=[8]}"), "[ 2@4 ][ 4@1 ]");
  EXPECT_EQ(TiledText("{devices=[2,2]0,1,2,3}"), "[ 2@2 ][ 2@1 ]");
  EXPECT_EQ(TiledText("{devices=[2,2]0,2,1,3}"), "[ 2@1 ][ 2@2 ]");
  // Axes go from major to minor: the axis of stride 1 varies slowest.
  EXPECT_EQ(TiledText("{devices=[4,1]<=[2,2]T(1,0)}"), "[ 2@1 2@2 ][ ]");
  EXPECT_EQ(TiledText("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"), "[ 2@4 ][ ]");
  EXPECT_EQ(TiledText("{devices=[1,2,4]<=[2,4]T(0,1) last_tile_dim_replicate}"), "[ ][ 2@4 ]");
  EXPECT_EQ(TiledText("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}"),
            "[ 2@4 ][ ] manual [ 2@2 ]");
  EXPECT_EQ(TiledText("{devices=[3,4]<=[4,3]T(1,0)}"), "[ 3@1 ][ 4@3 ]");
}

TEST(ShardingTextTest, InvalidTextsAreRefusedWithAReason) {
  const std::pair<const char*, const char*> kRows[] = {
      {"", "lacks '{'"},
      {"{devices=[2]0,1", "'{devices=[2]0,1' says more than Tessera's shardings can"},
      {"{devices=[2]0}", "has too few devices, or too many"},
      {"{devices=[0]<=[1]}", "has a size of 0"},
      {"{devices=[2]<=[2]T(1)}", "permutes dims that do not exist"},
      {"{devices=[2]1,0}", "begins at another device than the first"},
      {"{devices=[4]0,2,3,1}", "in an order that no mesh has"},
      {"{devices=[2,2]0,1,3,2}", "in an order that no mesh has"},
      {"{devices=[99999999,99999999]<=[1]}", "more than 4096 devices"},
      {"{devices=[1,2]<=[2] last_tile_dims={none}}", "has a subgroup that Tessera does not know"},
      {"{devices=[2]<=[2] last_tile_dims={manual,manual}}", "has too few dims"},
      {"{replicated}}", "goes on after its end"},
      {"{{replicated}}", "is for a tuple"},
      {"{unknown}", "has a kind that Tessera does not know"},
  };
  for (const auto& [text, message] : kRows)
    EXPECT_THAT(TiledText(text), HasSubstr(message)) << text;
}

// Every part of Shardy's texts is read, and malformed texts are refused.
TEST(ShardingTextTest, ShardysTextsAreRead) {
  const NamedSharding sharding =
      ParseSharding(R"(#sdy.sharding<@mesh_0, [{"x", "y":(2)4}, {?}p1, {}], replicated={"z"}, )"
                    R"(unreduced={"u"}>)",
                    "x");
  EXPECT_EQ(sharding.mesh, "mesh_0");
  ASSERT_EQ(sharding.dims.size(), 3);
  ASSERT_EQ(sharding.dims[0].size(), 2);
  EXPECT_EQ(sharding.dims[0][0].name, "x");
  EXPECT_EQ(sharding.dims[0][0].size, 0);
  EXPECT_EQ(sharding.dims[0][1].name, "y");
  EXPECT_EQ(sharding.dims[0][1].before, 2);
  EXPECT_EQ(sharding.dims[0][1].size, 4);
  EXPECT_TRUE(sharding.dims[1].empty() && sharding.dims[2].empty());
  EXPECT_THAT(sharding.open, ElementsAre(false, true, false));
  ASSERT_EQ(sharding.replicated.size(), 1);
  EXPECT_EQ(sharding.replicated[0].name, "z");
  ASSERT_EQ(sharding.unreduced.size(), 1);
  EXPECT_EQ(sharding.unreduced[0].name, "u");
  EXPECT_EQ(
      ParseShardingPerValue(R"(#sdy.sharding_per_value<[<@m, [{"x"}]>, <@m, []>]>)", "x").size(),
      2);
  EXPECT_THAT(ParseManualAxes(R"(#sdy<manual_axes{"x", \"y\"}>)", "x"), ElementsAre("x", "y"));
  const std::vector<NamedMesh> meshes =
      ParseMeshes(R"({a = #sdy.mesh<["x"=2, "y"=1], device_ids=[1, 0]>, b = #sdy.mesh<[]>})", "x");
  ASSERT_EQ(meshes.size(), 2);
  EXPECT_EQ(meshes[0].name, "a");
  EXPECT_EQ(meshes[0].axes[0].name, "x");
  EXPECT_EQ(meshes[0].axes[0].size, 2);
  EXPECT_THAT(meshes[0].device_ids, ElementsAre(1, 0));
  for (const char* text :
       {R"(#sdy.sharding<mesh<["x"=2]>, []>)", R"(#sdy.sharding<@m, [{"x":(0)2}]>)",
        R"(#sdy.sharding<@m, [{"x":(1)}]>)", R"(#sdy.sharding<@m, [], unreduced>)",
        R"(#sdy.sharding<@m, [{?, "x"}]>)", R"(#sdy.sharding<@m, [{""}]>)", "#sdy.sharding<@m, ["})
    EXPECT_FALSE(CatchStatus([&] { ParseSharding(text, "x"); }).ok()) << text;
}

TEST(ShardingTextTest, AGroupOfDevicesLiesAlongAxes) {
  std::vector<AxisRange> axes;
  EXPECT_TRUE(FindGroupRanges({6, 4, 0, 2}, &axes));
  EXPECT_EQ(AxesText(axes), "[ 4@2 ]");
  EXPECT_TRUE(FindGroupRanges({1, 2, 9, 10}, &axes));
  EXPECT_EQ(AxesText(axes), "[ 2@1 2@8 ]");
  EXPECT_TRUE(FindGroupRanges({1, 9, 2, 10}, &axes));
  EXPECT_EQ(AxesText(axes), "[ 2@8 2@1 ]");
  EXPECT_TRUE(FindGroupRanges({0, 2, 1, 3}, &axes));
  EXPECT_EQ(AxesText(axes), "[ 2@2 2@1 ]");
  EXPECT_FALSE(FindGroupRanges({0, 1, 3}, &axes));
  EXPECT_FALSE(FindGroupRanges({}, &axes));
  EXPECT_FALSE(FindGroupRanges({INT64_MIN, 0}, &axes));
  EXPECT_FALSE(FindGroupRanges({0, INT64_MAX}, &axes));
}

}  // namespace
}  // namespace tessera::ir::stablehlo
