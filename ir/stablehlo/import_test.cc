// Proves that exported programs of JAX give their results, keep their names, shardings and
// precisions, and that artifacts which Tessera cannot run are refused with a reason. Artifacts come
// from tests/fuzz/stablehlo.
#include "ir/stablehlo/import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/stablehlo/export.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
// Returns an export of JAX 0.10.2 from tests/fuzz/stablehlo.
std::string ReadExport(const std::string& name) {
  return ReadFile(SourcePath("tests/fuzz/stablehlo/" + name + ".mlirbc"));
}
absl::StatusOr<Program> Import(const std::string& bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return ImportProgram(artifact);
}
std::vector<Array> RunExported(const std::string& name, std::vector<Array> args) {
  const absl::StatusOr<Program> program = Import(ReadExport(name));
  if (!program.ok()) {
    ADD_FAILURE() << program.status();
    return {};
  }
  EXPECT_THAT(Verify(*program), IsOk());
  absl::StatusOr<std::vector<Array>> out = Evaluator().Run(*program->entry, std::move(args));
  if (out.ok()) return *out;
  ADD_FAILURE() << out.status();
  return {};
}

// The program is tanh(x @ w + b).
TEST(ImportTest, ALayerIsEvaluatedAndKeepsItsCallSites) {
  const std::vector<Array> out =
      RunExported("affine", {Array::Of(DType::kF32, {4, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}),
                             Array::Of(DType::kF32, {3, 2}, {0, 1, 2, 3, 4, 5}),
                             Array::Of(DType::kF32, {2}, {0, -1})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].shape(), Dims({4, 2}));
  EXPECT_EQ(out[0].At(0), 0);
  EXPECT_FLOAT_EQ(out[0].At(3), std::tanh(2.0F));
  EXPECT_FLOAT_EQ(out[0].At(7), std::tanh(8.0F));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(ReadExport("affine")));
  bool known = false;
  for (size_t i = 0; i < program.entry->ops.size(); ++i)
    known |= program.entry->sites[i].valid() &&
             std::string_view(program.entry->sites[i].file) == "model.py";
  EXPECT_TRUE(known);
}

// The program has fori_loop, scan, cond, sort and top_k, with values that the loops use from
// outside.
TEST(ImportTest, LoopsAndBranchesUseValuesFromOutside) {
  const std::vector<Array> out = RunExported(
      "control", {Array::Of(DType::kF32, {4}, {4, 3, 8, 1}), Array::Scalar(DType::kS32, 2)});
  ASSERT_EQ(out.size(), 5);
  // y = x / 4 + 1 = 2, 1.75, 3, 1.25; z = y[0] + their sum.
  EXPECT_EQ(out[0].At(0), 2 * 10.0);
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 4, 5.75, 8.75));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(1, 3, 4, 8));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(8, 4));
  EXPECT_THAT(out[4].ToDoubles(), ElementsAre(2, 0));
}

// JAX writes the sort as a comparator of nine ops, and top_k as a composite of a sort and slices.
TEST(ImportTest, JaxsSortAndTopKAreOneOpEach) {
  const std::string bytes = ReadExport("control");
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(bytes));
  EXPECT_THAT(PrintProgram(program),
              AllOf(HasSubstr("= sort("), HasSubstr("= top_k("), Not(HasSubstr("sort_by"))));

  // Any other composite is replaced by its decomposition.
  const std::string name = "chlo.top_k";
  std::string other = bytes;
  ASSERT_NE(other.find(name + '\0'), std::string::npos);
  other[other.find(name + '\0')] = 'd';
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program others, Import(other));
  EXPECT_THAT(PrintProgram(others), AllOf(HasSubstr("sort_by"), Not(HasSubstr("top_k("))));
}

TEST(ImportTest, GathersAndScattersEqualThoseOfJax) {
  const std::vector<Array> out = RunExported(
      "indexing", {Array::Of(DType::kF32, {5}, {10, 11, 12, 13, 14}),
                   Array::Of(DType::kS32, {2}, {-1, 1}), Array::Of(DType::kF32, {2}, {1, 2})});
  ASSERT_EQ(out.size(), 4);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(14, 11));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(10, 13, 12, 13, 15));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(13, 14));
  EXPECT_EQ(out[3].IntAt(0), 4);
}

TEST(ImportTest, RandomBitsEqualThoseOfJax) {
  const std::vector<Array> out = RunExported("randoms", {Array::Of(DType::kU32, {2}, {1, 2})});
  ASSERT_EQ(out.size(), 2);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0x1.5d9d38p-1, 0x1.affe78p-2, 0x1.f71fcp-2));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(629071667, 2343584484, 629003988, 1317161160));
}

// The program is jax.random.bits(key, (8, 6)). JAX writes a function with a loop for it.
TEST(ImportTest, JaxsCipherIsOneOp) {
  const std::string bytes = ReadExport("cipher");
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(bytes));
  EXPECT_THAT(PrintProgram(program), AllOf(HasSubstr("= threefry2x32("), Not(HasSubstr("while("))));
  const Array key = Array::Of(DType::kU32, {2}, {1, 2});
  const std::vector<Array> out = RunExported("cipher", {key});
  ASSERT_EQ(out.size(), 1);
  const std::vector<double> words = out[0].ToDoubles();
  EXPECT_THAT(std::vector<double>(words.begin(), words.begin() + 4),
              ElementsAre(2932776407, 1811914268, 2110255537, 172616543));
  EXPECT_EQ(std::accumulate(words.begin(), words.end(), 0.0), 90998564481);

  // Another function of this name, which rotates by 14 where the cipher rotates by 13, is not
  // replaced.
  const std::string rotations("\x0d\0\0\0\x0f\0\0\0\x1a\0\0\0\x06\0\0\0", 16);
  std::string other = bytes;
  ASSERT_NE(other.find(rotations), std::string::npos);
  other[other.find(rotations)] = 14;
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program others, Import(other));
  EXPECT_THAT(PrintProgram(others), AllOf(HasSubstr("while("), Not(HasSubstr("= threefry2x32("))));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> words_of_other,
                               Evaluator().Run(*others.entry, {key}));
  EXPECT_NE(words_of_other[0].ToDoubles(), words);
}

// The program is jnp.sort under a mesh of Explicit axes. The constants of its comparison are
// outside of it and are constrained to lie on all devices.
TEST(ImportTest, ComputationsUseConstantsFromOutside) {
  const std::vector<Array> out =
      RunExported("explicit_sort", {Array::Of(DType::kF32, {3}, {3, 1, 2})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(1, 2, 3));
}

// The program is jax.scipy.special.erf, whose constants have one value for all elements.
TEST(ImportTest, ConstantsMayHaveNoElements) {
  const std::vector<Array> out = RunExported("of_nothing", {Array(DType::kF32, {0, 3})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].shape(), Dims({0, 3}));
}

// The program constrains five rows to an axis of four devices (jax.lax.with_sharding_constraint).
TEST(ImportTest, AConstraintLeavesADimThatDoesNotDivideOpen) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(ReadExport("uneven_constraint")));
  EXPECT_THAT(PrintProgram(program), Not(HasSubstr("sharding_constraint(")));
}

// ---- Shardings. tests/stablehlo/sharded_test.cc runs many such programs. -----------------------
TEST(ImportTest, TheMeshAndTheShardingsAreThoseOfTheArtifact) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(ReadExport("sharded_jit_two_meshes")));
  EXPECT_EQ(program.mesh().ToString(), "(x=2, y=2)");
  ASSERT_EQ(program.in_shardings.size(), 1);
  EXPECT_EQ(program.in_shardings[0], PartitionSpec({{{"x"}, {"y"}}, {}, {}, {}}));
  ASSERT_EQ(program.out_shardings.size(), 1);
  EXPECT_EQ(program.out_shardings[0], std::nullopt);
  // The only axis of the other mesh is the product of these two.
  EXPECT_THAT(PrintProgram(program), HasSubstr("sharding_constraint(%1) {sharding=P(('x','y'))}"));
}

TEST(ImportTest, WithoutAMeshTheAxesComeFromShardingTexts) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(ReadExport("sharded_gspmd_v1")));
  EXPECT_EQ(program.mesh().ToString(), "(axis0=2, axis1=2)");
  EXPECT_EQ(program.in_shardings[0], PartitionSpec({{{"axis0"}, {"axis1"}}, {}, {}, {}}));
  EXPECT_EQ(program.out_shardings[0], PartitionSpec({{{}, {"axis1"}}, {}, {}, {}}));
  EXPECT_THAT(PrintProgram(program),
              AllOf(HasSubstr("in_specs=specs[P('axis0')]"),
                    HasSubstr("ppermute(%0) {axes=[\"axis0\"], perm=[0,1,1,0]}")));
}

TEST(ImportTest, DevicesInAnotherOrderAreFoundByTheirIds) {
  const std::vector<Array> out =
      RunExported("sharded_order", {Array::Of(DType::kF32, {4}, {10, 11, 12, 13})});
  ASSERT_EQ(out.size(), 2);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0, 10, 11, 12));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(3, 2, 1, 0));
}

// Each row is an artifact whose shardings ours cannot express, with the words of its refusal.
TEST(ImportTest, ShardingsThatCannotBeExpressedAreRefused) {
  struct Row {
    const char* name;
    absl::StatusCode code;
    const char* message;
  };
  constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  for (const Row& row : {
           Row{"groups", kUnimplemented,
               "all_reduce has replica groups that do not follow axes of the mesh (x=2, y=4)"},
           Row{"meshes_apart", kUnimplemented,
               "sharding_constraint (-:2) is sharded along 'x' of the mesh (x=3, y=4), which is "
               "not an axis of the program's mesh, (x=2, y=6); use one mesh"},
           Row{"meshes_of_orders", kUnimplemented,
               "which does not have the devices of (x=4) in the"},
           Row{"outside", kInvalid, "the mesh has axis 'y', but it is not manual here"},
           Row{"replicas", kUnimplemented, "mhlo.num_replicas is 2"},
           Row{"text_broken", kInvalid, "lacks ']', at byte 18"},
           Row{"text_maximal", kUnimplemented, "argument 0 lies on one device of several"},
           Row{"text_order", kUnimplemented, "has devices in an order that no mesh has"},
           Row{"text_overlap", kUnimplemented, "do not lie along the axes of a single mesh"},
           Row{"text_tuple", kUnimplemented, "is for a tuple"},
       })
    EXPECT_THAT(Import(ReadExport(std::string("sharded_") + row.name)),
                StatusIs(row.code, HasSubstr(row.message)))
        << row.name;
}

TEST(ImportTest, ArgumentsMayLieOnDevicesInAnotherOrder) {
  const auto import = [](const char* name) -> absl::StatusOr<HostProgram> {
    const std::string bytes = ReadExport(name);
    TESSERA_ASSIGN_OR_RETURN(
        const Artifact artifact,
        ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
    return ImportForHost(artifact);
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(const HostProgram moved, import("sharded_elsewhere"));
  EXPECT_EQ(moved.program.mesh().ToString(), "(x=4)");
  EXPECT_EQ(moved.program.in_shardings[0], std::nullopt);
  ASSERT_EQ(moved.in_other_placements.size(), 1);
  ASSERT_TRUE(moved.in_other_placements[0]);
  EXPECT_EQ(moved.in_other_placements[0]->mesh.ToString(), "(a=2, b=2)");
  EXPECT_THAT(moved.in_other_placements[0]->devices, ElementsAre(3, 1, 0, 2));
  EXPECT_EQ(moved.in_other_placements[0]->spec, PartitionSpec({{{"b"}, {"a"}}, {}, {}, {}}));
  EXPECT_THAT(import("sharded_elsewhere_indivisible"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not divide its shape")));
  // ImportProgram has no way to express where such an argument lies.
  EXPECT_THAT(Import(ReadExport("sharded_elsewhere")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("in the same order")));
}

TEST(ImportTest, AnArtifactOfOneDeviceKeepsItsMesh) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program one, Import(ReadExport("sharded_position_of_one")));
  EXPECT_EQ(one.mesh().ToString(), "(s=1)");
}

TEST(ImportTest, PartsOfAxesAreAxesAndPrioritiesAreHints) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program parts, Import(ReadExport("sharded_sub_axis")));
  EXPECT_EQ(parts.mesh().ToString(), "(x=2, y_0=2, y_1=2)");
  EXPECT_EQ(parts.in_shardings[0], PartitionSpec({{{"y_0"}}, {}, {}, {}}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program hints, Import(ReadExport("sharded_priority")));
  EXPECT_EQ(hints.in_shardings[0], PartitionSpec({{{"x"}}, {}, {}, {}}));
  // A pending sum becomes the sum. The planner decides where it is added up.
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program sums, Import(ReadExport("sharded_unreduced")));
  EXPECT_EQ(sums.in_shardings[0], PartitionSpec({{{"x"}, {}}, {}, {}, {true, true}}));
  // ImportForHost keeps the pending sum instead.
  const std::string bytes = ReadExport("sharded_unreduced");
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const HostProgram kept, ImportForHost(artifact));
  EXPECT_EQ(kept.program.in_shardings[0], PartitionSpec({{{"x"}, {}}, {}, {}, {}}));
  EXPECT_THAT(kept.in_sums, ElementsAre(ElementsAre("y")));
}

// Each call of a function that calls the host for results is a host call of its own.
TEST(ImportTest, HostCallsBecomeParamsAndResults) {
  const auto import = [](const std::string& name) {
    const std::string bytes = ReadExport(name);
    const absl::StatusOr<Artifact> artifact =
        ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    TESSERA_EXPECT_OK(artifact);
    absl::StatusOr<HostProgram> program = ImportForHost(*artifact);
    TESSERA_EXPECT_OK(program);
    return *std::move(program);
  };
  const HostProgram asks = import("host_callback_asks");
  ASSERT_EQ(asks.calls.size(), 2);
  for (const HostCall& call : asks.calls) {
    EXPECT_EQ(call.name, "0--0");
    EXPECT_EQ(call.num_operands, 1);
    EXPECT_EQ(call.results.size(), 1);
  }
  EXPECT_EQ(asks.program.entry->num_params, 3);
  EXPECT_EQ(asks.program.entry->results.size(), 4);
  EXPECT_FALSE(asks.program.entry->has_effects);
  EXPECT_THAT(asks.callbacks, ElementsAre("0--0"));
  EXPECT_TRUE(asks.nested_calls.empty());
  const HostProgram nested = import("host_callback_late");
  EXPECT_TRUE(nested.calls.empty());
  EXPECT_EQ(nested.program.entry->num_params, 2);
  EXPECT_TRUE(nested.program.entry->has_effects);
  ASSERT_EQ(nested.nested_calls.size(), 1);
  EXPECT_EQ(nested.nested_calls[0].name, "0--1");
  EXPECT_EQ(nested.nested_calls[0].results.size(), 1);
}

TEST(ImportTest, ArtifactsThatInflateAreRefused) {
  EXPECT_THAT(Import(ReadExport("groups_of_nobody")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("groups of no devices")));
  EXPECT_THAT(Import(ReadExport("folds_much")),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000000 ops")));
  EXPECT_THAT(Import(ReadExport("inline_mesh_overflows")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("product below 2^31")));
}

TEST(ImportTest, UnsupportedOpsAreRefusedWithAReason) {
  struct Row {
    const char* name;
    const char* message;
    absl::StatusCode code = absl::StatusCode::kUnimplemented;
  };
  for (const Row& row :
       {Row{"infeed", "infeed exchanges data with a host while the program runs"},
        Row{"outfeed", "pass the data as an argument, and return it"},
        Row{"send", "send exchanges data with a host"}, Row{"recv", "recv exchanges data with a"},
        Row{"rng", "rng makes numbers that no two implementations agree on"},
        Row{"callback", "calls back into the process that traced it"},
        Row{"size", "makes a dim of a size that is known only when it runs"},
        Row{"einsum_diagonal", "has a letter twice in a term"},
        Row{"einsum_letters", "has 3 letters for 2 dims", absl::StatusCode::kInvalidArgument},
        Row{"algorithm", "dot_general has an algorithm that is not in"},
        Row{"token_for_a_matrix", "custom_call is of a tuple or a token"},
        Row{"tokens_for_arrays", "custom_call is of a tuple or a token"},
        Row{"padding_of_few", "dynamic_conv takes operand 2, which is not a constant"},
        Row{"algorithm_of_f8", "an algorithm of floats of 8 bits, and an operand f32[4]"}})
    EXPECT_THAT(Import(ReadExport(std::string("ops_refused_") + row.name)),
                StatusIs(row.code, HasSubstr(row.message)))
        << row.name;
}

TEST(ImportTest, ATupleBecomesItsArraysAndATokenBecomesNone) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program,
                               Import(ReadExport("ops_tuple_at_the_boundary")));
  EXPECT_EQ(program.entry->num_params, 3);
  EXPECT_EQ(program.entry->results.size(), 3);
  EXPECT_THAT(program.in_names, ::testing::IsEmpty());
}

TEST(ImportTest, ProductsOfQuantizedNumbersAreSummedAsIntegers) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program,
                               Import(ReadExport("ops_dot_general_quantized_per_axis")));
  const std::string text = PrintProgram(program);
  EXPECT_THAT(text, ::testing::ContainsRegex("s32.* = dot_general|dot_general.*s32"));
  EXPECT_EQ(program.entry->type(0).dtype, DType::kS8);
}

TEST(ImportTest, ASumOfBooleansIsTheirOr) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program reduce,
                               Import(ReadExport("ops_booleans_reduce_add_false")));
  EXPECT_THAT(PrintProgram(reduce), HasSubstr("= reduce_or(%0) {dimensions=[1]} : bool[6]"));
  // Products that are true are counted in floats.
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program dot, Import(ReadExport("ops_booleans_dot_general_5")));
  EXPECT_THAT(PrintProgram(dot), AllOf(HasSubstr("= convert(%0) {dtype=f32} : f32[4,5]"),
                                       HasSubstr("= dot_general(%2, %3)"),
                                       HasSubstr("= convert(%4) {dtype=bool} : bool[4,6]")));
}

// The products are jnp.matmul(x, x, precision=...) with None, "default", "high", "highest",
// ("default", "highest") and ("high", "default"); with BF16_BF16_F32, BF16_BF16_F32_X3,
// TF32_TF32_F32, TF32_TF32_F32_X3 and F32_F32_F32 of lax.DotAlgorithmPreset; and convolutions with
// None, "high" and "highest".
TEST(ImportTest, ProductsHaveThePrecisionThatJaxGaveThem) {
  using enum Precision;
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(ReadExport("precisions")));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string exported, ExportProgram(program));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program back, Import(exported));
  for (const Program* p : {&program, &back}) {
    std::vector<Precision> precisions;
    for (const Op& op : p->entry->ops)
      if (op.def == &ops::kDotGeneral || op.def == &ops::kConvolution)
        precisions.push_back(PrecisionOf(op.attrs));
    EXPECT_THAT(precisions,
                ElementsAre(kDefault, kDefault, kHigh, kHighest, kHighest, kHigh, kDefault,
                            kHighest, kDefault, kHighest, kHighest, kDefault, kHigh, kHighest))
        << PrintProgram(*p);
  }
}

TEST(ImportTest, BatchingDimsFollowTheIndexVectors) {
  std::vector<double> rows(10);
  std::iota(rows.begin(), rows.end(), 0);
  const Array x = Array::Of(DType::kF32, {2, 5}, rows);
  const std::vector<Array> read =
      RunExported("gather_batched", {x, Array::Of(DType::kS32, {1, 2, 3}, {0, 1, 2, 3, 4, 0})});
  ASSERT_EQ(read.size(), 1);
  EXPECT_THAT(read[0].ToDoubles(), ElementsAre(0, 1, 2, 8, 9, 5));
  const std::vector<Array> written =
      RunExported("scatter_batched", {x, Array::Of(DType::kS32, {1, 2, 2}, {0, 1, 3, 4}),
                                      Array::Of(DType::kF32, {2, 2}, {100, 200, 300, 400})});
  ASSERT_EQ(written.size(), 1);
  EXPECT_THAT(written[0].ToDoubles(), ElementsAre(100, 200, 2, 3, 4, 5, 6, 7, 300, 400));
}

TEST(ImportTest, AProductIsRoundedToItsResultOnce) {
  const std::vector<Array> out =
      RunExported("dot_narrow", {Array::Of(DType::kF32, {2}, {1.5, 2.5}),
                                 Array::Of(DType::kF32, {2}, {1.5, 2.5 + 1.0 / 1024})});
  ASSERT_EQ(out.size(), 2);
  EXPECT_EQ(out[0].At(0), 8.5);
  EXPECT_EQ(out[1].IntAt(0), 8);
}

TEST(ImportTest, ASortInTheTotalOrderTellsZerosApart) {
  const std::vector<Array> out =
      RunExported("sort_total", {Array::Of(DType::kF32, {6}, {0, -0.0, 1, NAN, -1, -0.0})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].At(0), -1);
  EXPECT_TRUE(std::signbit(out[0].At(1)) && std::signbit(out[0].At(2)));
  EXPECT_FALSE(std::signbit(out[0].At(3)));
  EXPECT_EQ(out[0].At(4), 1);
  EXPECT_TRUE(std::isnan(out[0].At(5)));
}

TEST(ImportTest, RecursionAndDoublingAreRefused) {
  EXPECT_THAT(Import(ReadExport("no_main")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no function 'main'")));
  EXPECT_THAT(Import(ReadExport("calls_itself")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'f0' calls itself")));
  EXPECT_THAT(
      Import(ReadExport("calls_deep")),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 66 within each other")));
  for (const char* name : {"calls_doubling", "map_doubling"})
    EXPECT_THAT(Import(ReadExport(name)),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000000 ops")));
}

TEST(ImportTest, AWindowIsReducedInOrderByAnyComputation) {
  // The computation returns twice the next element, whatever the sum so far is.
  const std::vector<Array> out =
      RunExported("window_twice", {Array::Of(DType::kF32, {4}, {1, 2, 3, 4})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 4, 6, 8));
}

// Uses real artifacts beside the checkout. An artifact with shardings is a program. Any other
// artifact is a program, or it is refused with the name of what is lacking.
TEST(ImportTest, OldArtifactsOfJaxAreImportedOrRefusedByName) {
  const char* const shared = std::getenv("TESSERA_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "TESSERA_SHARED does not name the artifacts";
  const std::filesystem::path folder =
      std::filesystem::path(shared) / "stablehlo" / "artifacts" / "jax";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "there are no artifacts";
  int sharded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const absl::StatusOr<Program> program = Import(ReadFile(entry.path()));
    if (program.ok()) {
      EXPECT_THAT(Verify(*program), IsOk()) << name;
    }
    if (name.find("Sharding") != std::string::npos || name.find("placement") != std::string::npos) {
      EXPECT_THAT(program.status(), IsOk()) << name;
      sharded += program.ok() && !program->mesh().empty() ? 1 : 0;
    } else if (!program.ok()) {
      EXPECT_EQ(program.status().code(), absl::StatusCode::kUnimplemented)
          << name << ": " << program.status();
    }
  }
  // Two have @Sharding, and two have a mesh of one device.
  EXPECT_EQ(sharded, 4);
}

// The program is eig, schur, hessenberg, tridiagonal, qr, solve, svdvals and eigvalsh, of a and a +
// i a^T.
TEST(ImportTest, LinearAlgebraEqualsThatOfJax) {
  const std::vector<Array> out =
      RunExported("linear_algebra", {Array::Of(DType::kF32, {2, 2}, {0, -2, 1, 0})});
  ASSERT_EQ(out.size(), 8);
  const auto* const w = reinterpret_cast<const std::complex<float>*>(out[0].data());
  EXPECT_NEAR(std::abs(w[0] - std::complex<float>(0, std::sqrt(2.0F))), 0, 1e-6);
  EXPECT_NEAR(std::abs(w[1] + std::complex<float>(0, std::sqrt(2.0F))), 0, 1e-6);
  const std::complex<float> z[] = {{0, 0}, {-2, 1}, {1, -2}, {0, 0}};
  const auto* const product = reinterpret_cast<const std::complex<float>*>(out[1].data());
  const auto* const x = reinterpret_cast<const std::complex<float>*>(out[5].data());
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(std::abs(product[i] - z[i]), 0, 1e-5);
    EXPECT_NEAR(std::abs(x[i] - (i % 3 == 0 ? 1.0F : 0.0F)), 0, 1e-5);
  }
  EXPECT_NEAR(out[3].At(0), 10, 1e-5);
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(out[6].At(i), std::sqrt(5.0), 1e-5);
}

// Exports a program of one op on a matrix, replaces one text in the artifact by another, and
// imports it.
absl::Status ImportWithChangedText(DType dtype,
                                   const std::function<std::vector<Value>(Value)>& emit,
                                   std::string_view from, std::string_view to) {
  Builder b(Scope{}, "main");
  const Value x = b.Param(MakeType(dtype, {3, 3}));
  Program program;
  program.entry = b.Build(emit(x));
  absl::StatusOr<std::string> bytes = ExportProgram(program);
  if (!bytes.ok()) return bytes.status();
  const size_t at = bytes->find(from);
  if (at == std::string::npos) return absl::InternalError("the text is not there");
  bytes->replace(at, from.size(), to);
  return Import(*bytes).status();
}

// The name of a call is changed so that its operands or results no longer fit the routine.
TEST(ImportTest, LapackCallsNeedMatricesOfTheirType) {
  const auto eig = [](Value x) { return Eig(x); };
  EXPECT_THAT(ImportWithChangedText(DType::kF64, eig, "lapack_dgeev_ffi", "lapack_dgeev_ffi"),
              IsOk());
  EXPECT_THAT(ImportWithChangedText(DType::kF64, eig, "lapack_dgeev_ffi", "lapack_sgeev_ffi"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has an operand of f64; expected f32")));
  EXPECT_THAT(ImportWithChangedText(DType::kC64, eig, "lapack_cgeev_ffi", "lapack_cgees_ffi"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 1 operands and 4 results; expected 1 and 5")));
  // Routines for orthogonal matrices exist for real numbers only, and for unitary ones for complex
  // numbers only.
  const auto qr = [](Value x) {
    const auto [q, r] = Qr(x);
    return std::vector<Value>{q, r};
  };
  EXPECT_THAT(ImportWithChangedText(DType::kC64, qr, "lapack_cungqr_ffi", "lapack_corgqr_ffi"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("which Tessera does not know")));
  const auto hessenberg = [](Value x) {
    const auto [h, taus] = Hessenberg(x);
    return std::vector<Value>{h, taus};
  };
  EXPECT_THAT(ImportWithChangedText(DType::kF32, hessenberg, "high", "higj"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no high")));
  EXPECT_THAT(
      ImportWithChangedText(DType::kF32, hessenberg, "lapack_sgehrd_ffi", "lapack_sgeqrf_ffi"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("has 1 operands and 3 results; expected 1 and 2")));
}

// Every changed byte ends in a status or in a program that verifies.
TEST(ImportTest, AChangedByteEndsInAStatusOrInAValidProgram) {
  for (const char* name :
       {"affine", "control", "indexing", "ops_batch_norm_grad_float16_2x3x4_0",
        "ops_convolution_quantized_per_axis", "ops_dot_general_algorithm_tf32_f32_1",
        "ops_einsum_bij_bjk__bki", "ops_torch_index_select_batch", "ops_tuple_at_the_boundary",
        "ops_tuple_within_a_branch", "ops_token_through_a_loop", "ops_uniform_quantize_per_axis",
        "sharded_frontend_attributes", "sharded_jit_two_meshes", "sharded_map_partially_manual",
        "sharded_order"}) {
    const std::string bytes = ReadExport(name);
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 4);
      const absl::StatusOr<Program> program = Import(changed);
      if (!program.ok()) continue;
      EXPECT_THAT(Verify(*program), IsOk()) << name << ", byte " << i;
    }
  }
}

}  // namespace
}  // namespace tessera::ir::stablehlo
