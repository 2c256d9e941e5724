// Proves what an inspection shows of exported programs of JAX, of programs of ours, and of
// artifacts that Tessera lacks ops or types for or that were damaged.
#include "ir/stablehlo/inspect.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "ir/text.h"

namespace tessera::ir::stablehlo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string ReadExport(const std::string& name) {
  std::ifstream in(SourcePath("tests/fuzz/stablehlo/" + name + ".mlirbc"), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
absl::StatusOr<Inspection> InspectBytes(const std::string& bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return Inspect(artifact);
}
std::vector<std::string> Texts(const std::vector<ValueInfo>& values) {
  std::vector<std::string> out;
  for (const ValueInfo& v : values)
    out.push_back(absl::StrCat(v.name, ": ", v.type, " ", v.sharding));
  return out;
}

TEST(InspectTest, AnArtifactShowsItsSignatureOpsAndProducer) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection found, InspectBytes(ReadExport("affine")));
  EXPECT_EQ(found.name, "jit_affine");
  EXPECT_EQ(found.producer, "StableHLO_v1.15.0");
  EXPECT_EQ(found.version, "1.15.0");
  EXPECT_THAT(Texts(found.main.params), ElementsAre("x: f32[4,3] ", "w: f32[3,2] ", "b: f32[2] "));
  EXPECT_THAT(Texts(found.main.results), ElementsAre("result: f32[4,2] "));
  EXPECT_THAT(found.ops, ElementsAre(Pair("add", 1), Pair("broadcast_in_dim", 2),
                                     Pair("dot_general", 1), Pair("tanh", 1)));
  EXPECT_THAT(found.lacking, IsEmpty());
  EXPECT_THAT(found.meshes, IsEmpty());
}

TEST(InspectTest, ParametersThatAreDonatedAreMarked) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection found, InspectBytes(ReadExport("donated")));
  ASSERT_EQ(found.main.params.size(), 2);
  EXPECT_TRUE(found.main.params[0].donated);
  EXPECT_FALSE(found.main.params[1].donated);
}

TEST(InspectTest, MeshesAndShardingsAreShownAsWritten) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection found, InspectBytes(ReadExport("placed")));
  EXPECT_THAT(Texts(found.main.params),
              ElementsAre("a: f32[8,4] @mesh, [{x, y}, {}]", "b: f32[4,8] @mesh, [{}, {y}]"));
  EXPECT_THAT(Texts(found.main.results), ElementsAre("result: f32[8,8] @mesh, [{x}, {}]"));
  ASSERT_EQ(found.meshes.size(), 1);
  EXPECT_EQ(found.meshes[0].first, "mesh");
  EXPECT_EQ(found.meshes[0].second.ToString(), "(x=2, y=2)");
}

TEST(InspectTest, OpsThatTesseraLacksAreListed) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection found, InspectBytes(ReadExport("custom_call")));
  EXPECT_THAT(Texts(found.main.params), ElementsAre("a: f32[2,2] "));
  EXPECT_THAT(found.ops, ElementsAre(Pair("cholesky", 1), Pair("custom_call", 2)));
  EXPECT_THAT(found.lacking, ::testing::Contains(Pair("custom_call @nobodys_factors", 2)));
}

TEST(InspectTest, PartsOfAxesAndPrioritiesAreShown) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection part, InspectBytes(ReadExport("sharded_sub_axis")));
  EXPECT_EQ(part.main.params[0].sharding, "@mesh, [{y:(1)2}, {}]");
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection hint, InspectBytes(ReadExport("sharded_priority")));
  EXPECT_EQ(hint.main.params[0].sharding, "@mesh, [{x}p1, {}]");
}

// A type that Tessera lacks is shown as far as it is known.
TEST(InspectTest, TypesThatTesseraLacksAreShown) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection found, InspectBytes(ReadExport("types")));
  EXPECT_EQ(found.name, "");
  EXPECT_THAT(Texts(found.main.params), ElementsAre(": bf16[?] ", ": c64[] ", ": token "));
}

TEST(InspectTest, ProgramsAreDescribedLikeArtifacts) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgram(R"(
mesh (x=2)
func twice(%a: f32[4] P('x')) -> (f32[4]) {
  %b = add(%a, %a)
  return %b
})"));
  const Inspection found = Inspect(program);
  EXPECT_EQ(found.name, "twice");
  EXPECT_THAT(Texts(found.main.params), ElementsAre("%a: f32[4] P('x')"));
  EXPECT_THAT(Texts(found.main.results), ElementsAre(": f32[4] "));
  EXPECT_THAT(found.ops, ElementsAre(Pair("add", 1)));
  ASSERT_EQ(found.meshes.size(), 1);
  EXPECT_EQ(found.meshes[0].second.ToString(), "(x=2)");
}

TEST(InspectTest, WithoutAMainThereIsNoSignature) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Inspection found, InspectBytes(ReadExport("no_main")));
  EXPECT_THAT(found.main.params, IsEmpty());
  EXPECT_THAT(found.ops, ElementsAre());
}

TEST(InspectTest, ArtifactsAreRecognizedByTheirFirstBytes) {
  EXPECT_TRUE(IsArtifact(ReadExport("affine")));
  EXPECT_FALSE(IsArtifact("func main() -> () { return }"));
  EXPECT_FALSE(IsArtifact("ML"));
}

// Whatever is changed in an artifact that can still be read, its texts are printable.
TEST(InspectTest, TextsOfChangedArtifactsArePrintable) {
  for (const char* name : {"affine", "sharded"}) {
    const std::string bytes = ReadExport(name);
    int inspected = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 4);
      const absl::StatusOr<Inspection> found = InspectBytes(changed);
      if (!found.ok()) continue;
      ++inspected;
      for (const auto* values : {&found->main.params, &found->main.results})
        for (const std::string& text : Texts(*values))
          for (const char c : text) ASSERT_TRUE(c >= ' ' && c <= '~') << name << ", byte " << i;
    }
    EXPECT_GT(inspected, 50) << name;
  }
}

}  // namespace
}  // namespace tessera::ir::stablehlo
