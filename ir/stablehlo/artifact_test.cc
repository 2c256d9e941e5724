// Proves that artifacts of JAX and of every release of StableHLO are read with nothing left opaque,
// that the writer's output is read the same, and that hostile bytes end in a status within the
// limits.
#include "ir/stablehlo/artifact.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/writer.h"

namespace tessera::ir::stablehlo {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Bytes AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::map<std::string, std::string> FilesIn(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().filename()] = ReadFile(entry.path());
  return files;
}
// Returns small programs exported by JAX 0.10.2, and some written by hand and encoded by MLIR.
std::map<std::string, std::string> ExportedArtifacts() {
  return FilesIn(SourcePath("tests/fuzz/stablehlo"));
}
// Returns the folder with artifacts beside the checkout, if there is one.
std::optional<std::filesystem::path> SharedFolder(const std::string& folder) {
  const char* const shared = std::getenv("TESSERA_SHARED");
  if (shared == nullptr) return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(shared) / "stablehlo" / folder;
  return std::filesystem::is_directory(path) ? std::optional(path) : std::nullopt;
}

// Returns an artifact with this IR section, one op name, builtin.module, and one attribute with
// these bytes, which by default are an unknown location.
std::string ArtifactOf(const std::string& ir, const std::string& attribute = "\x1f") {
  Emitter out;
  out.Append("ML\xefR");
  out.VarInt(6);
  out.Append("test");
  out.Byte(0);
  Emitter strings;
  strings.VarInt(2);
  strings.VarInt(7);
  strings.VarInt(8);
  strings.Append(std::string("builtin\0module\0", 15));
  out.Section(0, strings.bytes());
  Emitter dialects;
  dialects.VarInt(1);
  dialects.VarInt(0, false);
  dialects.VarInt(1);
  dialects.VarInt(0);
  dialects.VarInt(1);
  dialects.VarInt(1, /*registered=*/false);
  out.Section(1, dialects.bytes());
  out.Section(2, attribute);
  Emitter offsets;
  offsets.VarInt(1);  // number of attributes
  offsets.VarInt(0);  // number of types
  offsets.VarInt(0);  // the dialect
  offsets.VarInt(1);  // number of its entries
  offsets.VarInt(attribute.size(), /*custom=*/true);
  out.Section(3, offsets.bytes());
  out.Section(4, ir);
  return out.bytes();
}

TEST(CursorTest, VarIntsOfEveryLengthAreReadAsTheyAreWritten) {
  std::vector<uint64_t> values = {0, 1, 127, 128, UINT64_MAX};
  for (int bits = 1; bits < 64; ++bits)
    for (const int64_t near : {-1, 0, 1}) values.push_back((uint64_t{1} << bits) + near);
  Emitter out;
  for (const uint64_t value : values) {
    out.VarInt(value);
    out.SignedVarInt(static_cast<int64_t>(value));
  }
  Cursor in(AsBytes(out.bytes()));
  for (const uint64_t value : values) {
    EXPECT_EQ(in.VarInt(), value);
    EXPECT_EQ(in.SignedVarInt(), static_cast<int64_t>(value));
  }
  EXPECT_THAT(in.Finish(), IsOk());
}

TEST(CursorTest, TheFirstErrorIsKeptAndLaterReadsReturnZero) {
  const std::string bytes = "\x03";
  Cursor in(AsBytes(bytes), "strings", 40);
  EXPECT_EQ(in.Count("words", 2), 0);
  EXPECT_EQ(in.Byte(), 0);
  EXPECT_EQ(in.left(), 0);
  EXPECT_TRUE(in.done());
  EXPECT_THAT(in.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("strings, byte 41: 1 words are announced, but 0 bytes are left")));
}

// Checks the decoded ops, attributes and types of a small program.
TEST(ArtifactTest, AnArtifactOfJaxIsReadWithItsOpsAndAttributes) {
  const std::map<std::string, std::string> files = ExportedArtifacts();
  ASSERT_EQ(files.count("affine.mlirbc"), 1);
  const std::string& bytes = files.at("affine.mlirbc");
  TESSERA_ASSERT_OK_AND_ASSIGN(const Artifact artifact, ReadArtifact(AsBytes(bytes)));
  EXPECT_THAT(CountOps(artifact), ElementsAre(Pair("add", 1), Pair("broadcast_in_dim", 2),
                                              Pair("builtin.module", 1), Pair("dot_general", 1),
                                              Pair("func", 1), Pair("return", 1), Pair("tanh", 1)));
  for (uint32_t i = 0; i < artifact.code.ops.size(); ++i) {
    const RawOp& op = artifact.code.ops[i];
    if (artifact.form(op).name == "func") {
      const uint32_t name = artifact.Find(i, "sym_name");
      ASSERT_NE(name, kNone);
      EXPECT_EQ(artifact.attrs[name].text(), "main");
    }
    if (artifact.form(op).name != "dot_general") continue;
    const DecodedType& result = artifact.types[artifact.code.value_types[op.results.begin]];
    EXPECT_EQ(result.kind, TypeKind::kTensor);
    // The rank, then the dims.
    EXPECT_THAT(Slice(artifact.ints, result.ints), ElementsAre(2, 4, 2));
    EXPECT_EQ(artifact.types[artifact.refs[result.refs.begin]].dtype, DType::kF32);
    const uint32_t contracted = artifact.Find(i, "lhs_contracting_dimensions");
    ASSERT_NE(contracted, kNone);
    EXPECT_EQ(artifact.attrs[contracted].kind, AttrKind::kDense);
    EXPECT_EQ(artifact.attrs[contracted].bytes, Bytes({1, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(artifact.Find(i, "no_such"), kNone);
  }
}

TEST(ArtifactTest, ArtifactsOfJaxHaveNoOpaqueAttributesOrTypes) {
  for (const auto& [name, bytes] : ExportedArtifacts()) {
    SCOPED_TRACE(name);
    TESSERA_ASSERT_OK_AND_ASSIGN(const Artifact artifact, ReadArtifact(AsBytes(bytes)));
    for (const Attr& attr : artifact.attrs) EXPECT_NE(attr.kind, AttrKind::kOpaque);
    for (const DecodedType& type : artifact.types) EXPECT_NE(type.kind, TypeKind::kOpaque);
  }
}

TEST(ArtifactTest, AWrittenArtifactIsReadBackUnchanged) {
  std::map<std::string, std::string> files = ExportedArtifacts();
  for (const char* folder : {"artifacts/jax", "artifacts/compat"})
    if (const auto path = SharedFolder(folder)) files.merge(FilesIn(*path));
  int written = 0;
  for (const auto& [name, bytes] : files) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Artifact> artifact = ReadArtifact(AsBytes(bytes));
    if (!artifact.ok() || artifact->code.version < 5) continue;
    ++written;
    const std::string again = WriteBytecode(artifact->code);
    TESSERA_ASSERT_OK_AND_ASSIGN(const Artifact reread, ReadArtifact(AsBytes(again)));
    EXPECT_EQ(CountOps(reread), CountOps(*artifact));
    EXPECT_EQ(reread.code.operands, artifact->code.operands);
    EXPECT_EQ(reread.code.value_types, artifact->code.value_types);
    EXPECT_EQ(reread.code.properties, artifact->code.properties);
    EXPECT_EQ(reread.refs, artifact->refs);
    EXPECT_EQ(reread.ints, artifact->ints);
    EXPECT_EQ(WriteBytecode(reread.code), again);
  }
  EXPECT_GE(written, 5);
}

// The artifacts are of every release of StableHLO since 0.9, and of JAX from 2023 to 2026.
TEST(ArtifactTest, ArtifactsOfEveryReleaseAreRead) {
  const auto compat = SharedFolder("artifacts/compat"), jax = SharedFolder("artifacts/jax");
  if (!compat || !jax) GTEST_SKIP() << "TESSERA_SHARED does not name the artifacts";
  int read = 0;
  std::set<std::string> opaque;
  for (const auto& folder : {*compat, *jax}) {
    for (const auto& [name, bytes] : FilesIn(folder)) {
      SCOPED_TRACE(name);
      const absl::StatusOr<Artifact> artifact = ReadArtifact(AsBytes(bytes));
      if (name == "invalid_vhlo_future.mlir.bc") {
        EXPECT_THAT(artifact,
                    StatusIs(absl::StatusCode::kUnimplemented,
                             AllOf(HasSubstr("constant_v99"), HasSubstr("StableHLO_v2.0.0"))));
        continue;
      }
      if (!absl::StartsWith(ToAbsl(artifact.ok() ? artifact->code.producer : "StableHLO_v"),
                            "StableHLO_v"))
        continue;
      ASSERT_THAT(artifact, IsOk());
      ++read;
      for (const Entry& entry : artifact->code.attrs)
        if (artifact->attrs[&entry - artifact->code.attrs.data()].kind == AttrKind::kOpaque)
          opaque.insert(std::string(artifact->code.dialects[entry.dialect]));
    }
  }
  EXPECT_GE(read, 130);
  EXPECT_TRUE(opaque.empty()) << "dialects with attributes that are not known: "
                              << ::testing::PrintToString(opaque);
}

TEST(ArtifactTest, HostileArtifactsEndInAnErrorOrAProgramWithinTheLimits) {
  const auto folder = SharedFolder("hostile");
  if (!folder) GTEST_SKIP() << "TESSERA_SHARED does not name the artifacts";
  int refused = 0;
  for (const auto& [name, bytes] : FilesIn(*folder)) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Artifact> artifact = ReadArtifact(AsBytes(bytes));
    if (artifact.ok()) {
      ImportProgram(*artifact).IgnoreError();
      continue;
    }
    ++refused;
    EXPECT_TRUE(artifact.status().code() == absl::StatusCode::kInvalidArgument ||
                artifact.status().code() == absl::StatusCode::kUnimplemented)
        << artifact.status();
    EXPECT_NE(ReasonOf(artifact.status()), "");
  }
  EXPECT_GE(refused, 30);
}

TEST(ArtifactTest, TruncatedAndChangedArtifactsEndInAStatus) {
  for (const auto& [name, bytes] : ExportedArtifacts()) {
    SCOPED_TRACE(name);
    for (size_t i = 0; i < bytes.size(); ++i) {
      // The copies have exactly their size, so that a read past the end is noticed.
      const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + i);
      EXPECT_FALSE(ReadArtifact(cut).ok()) << i << " bytes";
      std::vector<uint8_t> changed(bytes.begin(), bytes.end());
      for (const int by : {1, 0x80, 0xff}) {
        changed[i] = static_cast<uint8_t>(bytes[i] ^ by);
        ReadArtifact(changed).IgnoreError();
      }
    }
  }
}

TEST(ArtifactTest, OtherBytesAndLaterVersionsAreRefusedByName) {
  EXPECT_THAT(ReadArtifact(AsBytes("module {}")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("send a portable artifact")));
  std::string later = ExportedArtifacts().at("affine.mlirbc");
  later[4] = 15;  // the varint 7
  EXPECT_THAT(ReadArtifact(AsBytes(later)),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("bytecode of version 7; this reader knows 0 to 6")));
}

// The artifact is a region within a region, 100,000 levels deep. Each region has one op.
TEST(ArtifactTest, DeepNestingIsRefusedBeforeItUsesTheStack) {
  Emitter ir;
  ir.VarInt(1, false);
  for (int depth = 0; depth < 100'000; ++depth) {
    ir.VarInt(0);         // the name
    ir.Byte(16);          // has regions
    ir.VarInt(0);         // the location
    ir.VarInt(1, false);  // one region
    ir.VarInt(1);         // with one block
    ir.VarInt(0);         // without values
    ir.VarInt(1, false);  // with one op
  }
  EXPECT_THAT(ReadArtifact(AsBytes(ArtifactOf(ir.bytes()))),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than 68 regions within each other")));
}

// Announced regions and values take no memory before their bytes are there.
TEST(ArtifactTest, AnnouncedRegionsAndValuesAreBoundedTogether) {
  for (const bool values : {false, true}) {
    Emitter ir;
    ir.VarInt(1, false);
    for (int depth = 0; depth < 60; ++depth) {
      ir.VarInt(0);  // the name
      ir.Byte(16);   // has regions
      ir.VarInt(0);  // the location
      ir.VarInt(values ? 1 : 100'000, false);
      ir.VarInt(1);                     // with one block
      ir.VarInt(values ? 100'000 : 0);  // number of values
      ir.VarInt(1, false);              // with one op
    }
    ir.Append(std::string(200'000, '\x01'));
    EXPECT_THAT(
        ReadArtifact(AsBytes(ArtifactOf(ir.bytes()))),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 HasSubstr(values ? "more than 4000000 values" : "more than 1000000 regions")));
  }
}

TEST(ArtifactTest, TooManyOpsAreRefusedBeforeTheyTakeMemory) {
  Emitter ir;
  ir.VarInt(1, false);
  ir.VarInt(0);
  ir.Byte(16);
  ir.VarInt(0);
  ir.VarInt(1, false);
  ir.VarInt(1);
  ir.VarInt(0);
  ir.VarInt(5'000'000, false);
  for (int i = 0; i < 5'000'000; ++i) ir.Append(std::string("\x01\x00\x01", 3));
  EXPECT_THAT(ReadArtifact(AsBytes(ArtifactOf(ir.bytes()))),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000000 ops")));
}

TEST(ArtifactTest, AnArrayAttributeThatContainsItselfIsRead) {
  // The attribute is an array whose one element is the array itself.
  Emitter array;
  array.VarInt(0);
  array.VarInt(1);
  array.VarInt(0);
  Emitter ir;
  ir.VarInt(1, false);
  ir.VarInt(0);
  ir.Byte(0);
  ir.VarInt(0);
  const std::string bytes = ArtifactOf(ir.bytes(), array.bytes());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Artifact artifact, ReadArtifact(AsBytes(bytes)));
  ASSERT_EQ(artifact.attrs.size(), 1);
  EXPECT_EQ(artifact.attrs[0].kind, AttrKind::kArray);
  EXPECT_THAT(artifact.refs, ElementsAre(0));
}

}  // namespace
}  // namespace tessera::ir::stablehlo
