// Tests of kernels without machine code: their text, the rules of Verify, levels, the normal form,
// and the interpreter. The evaluator of ir is the reference of the interpreter, which in turn is
// the reference of all compiled code.
#include "worker/codegen/kernel.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/codegen/scalar_prim.h"
#include "worker/codegen/testing/kernel_cases.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Kernel Parsed(absl::string_view text) {
  const absl::StatusOr<Kernel> kernel = ParseKernel(text);
  EXPECT_THAT(kernel, IsOk()) << text;
  return kernel.ok() ? *kernel : Kernel();
}

// Runs the whole kernel on vectors, which are its params in order.
template <class... T>
void RunOn(const Kernel& kernel, std::vector<T>*... buffers) {
  const std::vector<void*> pointers = {buffers->data()...};
  Interpret(kernel, pointers, 0, kernel.num_iterations());
}

// ---- Text. -------------------------------------------------------------------------------------

constexpr absl::string_view kSoftmaxTail = R"(kernel [2,3] reduced 1
in f32 6
in s32 1
out f32 4
out s64 2
%0 = load p0 [0: 3,1] : f32
%1 = Constant -0.10000000149011612 : f32
%2 = Mul %0, %1 : f32
%3 = reduce sum %2 : f32
%4 = reduce argmax %0 : s64
%5 = index [7: -1,0] : s32
store %3 p2 [0: 1,0] shift p1 max 2 stride 1
store %4 p3 [1: -1,0]
)";

TEST(KernelText, ReadsBackAsItself) {
  const Kernel kernel = Parsed(kSoftmaxTail);
  EXPECT_EQ(kernel.ToString(), kSoftmaxTail);
  EXPECT_EQ(Parsed(kernel.ToString()), kernel);
  EXPECT_EQ(kernel.num_elements(), 6);
  EXPECT_EQ(kernel.num_iterations(), 2);
}

TEST(KernelText, RandomKernelsReadBackAsThemselves) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const Kernel kernel = RandomKernel(seed, {.reduce = seed % 2 == 0, .functions = true});
    EXPECT_EQ(Parsed(kernel.ToString()), kernel) << seed;
  }
}

TEST(KernelText, ConstantsKeepTheirBits) {
  for (double value : {0.0, -0.0, 0.1, 1e-310, std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity(), std::nan("7"), -std::nan("")}) {
    Kernel kernel;
    kernel.params = {{DType::kF64, 1, true}};
    Node node;
    node.dtype = DType::kF64;
    node.value = value;
    kernel.nodes = {node};
    kernel.stores = {{0, 0, {}}};
    const Kernel again = Parsed(kernel.ToString());
    EXPECT_EQ(std::memcmp(&again.nodes[0].value, &value, sizeof value), 0) << kernel.ToString();
  }
}

TEST(KernelText, BadTextIsRefusedWithItsLine) {
  const auto error = [](absl::string_view text) { return ParseKernel(text).status(); };
  EXPECT_THAT(error(""), ReasonIs("VALUE_ERROR", HasSubstr("it is empty")));
  EXPECT_THAT(error("kernel 3"), ReasonIs("VALUE_ERROR", HasSubstr("line 1: expected \"[\"")));
  EXPECT_THAT(error("kernel [3] reduced 0\nin f33 1"),
              ReasonIs("VALUE_ERROR", HasSubstr("line 2: expected a dtype")));
  EXPECT_THAT(error("kernel [3] reduced 0\n%1 = index [0: 1] : s32"),
              ReasonIs("VALUE_ERROR", HasSubstr("line 2: expected node %0, the next one")));
  EXPECT_THAT(error("kernel [3] reduced 0\n%0 = Fly : s32"),
              ReasonIs("VALUE_ERROR", HasSubstr("or a scalar primitive")));
  EXPECT_THAT(error("kernel [3] reduced 0\n%0 = reduce most %0 : s32"),
              ReasonIs("VALUE_ERROR", HasSubstr("expected a reduction")));
  EXPECT_THAT(error("kernel [3] reduced 0\n%0 = Constant 1.5 : s32"),
              ReasonIs("VALUE_ERROR", HasSubstr("line 2")));
  EXPECT_THAT(error("kernel [3] reduced 0\n%0 = Constant nan:0 : f32"),
              ReasonIs("VALUE_ERROR", HasSubstr("the bits of a NaN")));
  EXPECT_THAT(error("kernel [3] reduced 0\n%0 = index [0: 99999999999999999999] : s32"),
              ReasonIs("VALUE_ERROR", HasSubstr("a 64-bit integer")));
  EXPECT_THAT(
      error("kernel [3] reduced 0\nwhat"),
      ReasonIs("VALUE_ERROR", HasSubstr("\"in\", \"in place\", \"out\", \"store\" or a node")));
  EXPECT_THAT(error("kernel [3] reduced 0 extra"),
              ReasonIs("VALUE_ERROR", HasSubstr("the end of the line")));
  EXPECT_THAT(error(std::string(5 << 20, ' ')), ReasonIs("VALUE_ERROR", HasSubstr("at most")));
}

// ---- Verify. -----------------------------------------------------------------------------------

// A row replaces a text in a good kernel by a bad one. `error` is a part of the message that Verify
// or ParseKernel must give.
struct BadRow {
  const char* from;
  const char* to;
  const char* error;
};

TEST(KernelVerify, EveryBrokenRuleIsNamed) {
  constexpr absl::string_view kGood = R"(kernel [4,8] reduced 1
in f32 32
in s32 1
out f32 8
out s32 4
in bf16 32
in bool 4
%0 = load p0 [0: 8,1] : f32
%1 = Constant 2 : f32
%2 = Mul %0, %1 : f32
%3 = reduce sum %2 : f32
%4 = reduce argmax %0 : s32
%5 = load p5 [0: 1,0] : bool
%6 = Select %5, %3, %1 : f32
%7 = load p4 [0: 8,1] : bf16
%8 = Convert %7 : f32
%9 = reduce max %8 : f32
store %6 p2 [0: 1,0] shift p1 max 4 stride 1
store %4 p3 [0: 1,0]
)";
  ASSERT_THAT(ParseKernel(kGood), IsOk());
  const BadRow rows[] = {
      {"[4,8] reduced 1", "[4,8] reduced 3", "3 reduced dims of 2"},
      {"[4,8]", "[4,-8]", "a dim of size -8"},
      {"[4,8]", "[4294967296,4294967296]", "the box has more than"},
      {"in f32 32", "in f32 -1", "p0 has -1 elements"},
      {"in f32 32", "in c128 32", "p0 is of dtype c128"},
      {"in f32 32", "in f32 31",
       "node %0 (load p0): kernel: it reaches elements 0 to 31 of p0, which has 31"},
      {"load p0 [0: 8,1]", "load p0 [-1: 8,1]", "reaches elements -1 to 30"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,-1]", "reaches elements -7 to 24"},
      {"load p0 [0: 8,1]", "load p0 [0: 8]", "1 strides; expected one for each of the 2 dims"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,4611686018427387904]", "of dim 1 overflows"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,1] shift p1 max 1 stride 1", "reaches elements 0 to 32"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,1] shift p9 max 0 stride 1", "shift by p9, which is no"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,1] shift p0 max 0 stride 1", "shift by p0, an input of"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,1] shift p3 max 0 stride 1", "shift by p3, an output"},
      {"load p0 [0: 8,1]", "load p0 [0: 8,1] shift p1 max -1 stride 1", "shift of at most -1"},
      {"load p0 [0: 8,1]",
       "load p0 [0: 8,1] shift p1 max 4611686018427387904 stride 4611686018427387904",
       "shift by p1 overflows"},
      {"load p0 [0: 8,1]", "load p0 [0: 0,1] shift p1 [0: 1,0] max 3 stride 8",
       "shift by elements 0 to 3 of p1, which has 1"},
      {"load p0 [0: 8,1]", "load p0 [0: 0,1] shift p1 [-1: 0,0] max 3 stride 8",
       "shift by elements -1 to -1 of p1"},
      {"load p0 [0: 8,1]", "load p0 [0: 0,1] shift p1 [0: 1] max 3 stride 8",
       "shift by p1 with 1 strides; expected none, or one for each of the 2 dims"},
      {"load p0 [0: 8,1]", "load p0 [0: 0,1] shift p1 [0: 4611686018427387904,0] max 3 stride 8",
       "shift by p1: stride 4611686018427387904 of dim 0 overflows"},
      {"load p0 [0: 8,1] : f32", "load p0 [0: 8,1] : s32", "dtype s32 of a param of dtype f32"},
      {"load p0 [0: 8,1]", "load p12 [0: 8,1]", "p12 is not a param"},
      {"%1 = Constant 2 : f32", "%1 = Constant 0.1 : f32", "the value is not of dtype f32"},
      {"%1 = Constant 2 : f32", "%1 = Constant 2 : bool", "the value is not of dtype bool"},
      {"%1 = Constant 2 : f32", "%1 = Constant 2147483648 : s32", "not of dtype s32"},
      {"%1 = Constant 2 : f32", "%1 = Constant -1 : u32", "not of dtype u32"},
      {"%1 = Constant 2 : f32", "%1 = Constant 1 : bf16", "not of dtype bf16"},
      {"%1 = Constant 2 : f32", "%1 = index [0: 1,1] : f32",
       "dtype f32; expected s32, u32, s64 or u64"},
      {"%1 = Constant 2 : f32", "%1 = index [0: 1,1] shift p1 max 1 stride 1 : s32", "no shifts"},
      {"%1 = Constant 2 : f32", "%1 = index [0: 1] : s32", "1 strides"},
      {"Mul %0, %1 : f32", "Mul %0, %2 : f32", "argument %2 is not an earlier node"},
      {"Mul %0, %1 : f32", "Mul %0 : f32", "1 arguments; the primitive takes 2"},
      {"Mul %0, %1 : f32", "Input %0 : f32", "1 arguments; the primitive takes 0"},
      {"Mul %0, %1 : f32", "And %0, %1 : f32",
       "(And): kernel: the primitive has no form from f32 to f32"},
      {"Mul %0, %1 : f32", "Mul %0, %1 : f64", "the primitive has no form from f32 to f64"},
      {"Mul %0, %1 : f32", "Lt %0, %1 : f32", "the primitive has no form from f32 to f32"},
      {"Select %5, %3, %1", "Select %3, %3, %1", "argument 0 is of dtype f32; expected bool"},
      {"Select %5, %3, %1", "Select %5, %4, %1", "argument 1 is of dtype s32; expected f32"},
      {"Select %5, %3, %1", "Select %5, %3, %0", "a reduction and an element of the full box"},
      {"%8 = Convert %7 : f32", "%8 = Neg %7 : bf16",
       "the primitive has no form from bf16 to bf16"},
      {"reduce max %8 : f32", "reduce max %7 : bf16", "an operand of dtype bf16"},
      {"reduce max %8 : f32", "reduce max %6 : f32", "the node reduces the result of a reduction"},
      {"reduce max %8 : f32", "reduce max %8 : f64", "a result of dtype f64 from f32"},
      {"reduce max %8 : f32", "reduce max %8, %8 : f32", "2 arguments; a reduction takes 1"},
      {"reduce max %8 : f32", "reduce and %8 : f32", "does not take dtype f32"},
      {"reduce max %8 : f32", "reduce sum %5 : bool", "does not take dtype bool"},
      {"reduce argmax %0 : s32", "reduce argmax %0 : f32", "expected s32 or s64"},
      {"store %6 p2", "store %6 p0", "store 0 to p0: kernel: p0 is an input"},
      {"store %6 p2", "store %6 p12", "p12 is not a param"},
      {"store %6 p2", "store %12 p2", "%12 is not a node"},
      {"store %6 p2", "store %4 p2", "%4 is of dtype s32, the param of f32"},
      {"store %6 p2", "store %2 p2", "%2 varies over the reduced dims"},
      {"p3 [0: 1,0]", "p3 [0: 0,1]", "reaches elements 0 to 7"},
      {"[0: 1,0] shift p1 max 4 stride 1", "[0: 1,1]", "reaches elements 0 to 10"},
      {"p2 [0: 1,0] shift", "p2 [0: 0,0] shift", "two indices may write the same element"},
      {"[0: 1,0] shift p1 max 4 stride 1", "[0: 0,1]", "over a reduced dim is not 0"},
      {"store %4 p3 [0: 1,0]", "store %6 p2 [4: 1,0]", "stores 0 and 1 may write the same"},
  };
  for (const BadRow& row : rows) {
    const std::string bad = absl::StrReplaceAll(kGood, {{row.from, row.to}});
    ASSERT_NE(bad, kGood) << row.from;
    EXPECT_THAT(ParseKernel(bad).status(), ReasonIs("VALUE_ERROR", HasSubstr(row.error))) << bad;
  }
}

TEST(KernelVerify, SizesHaveLimits) {
  const auto repeated = [](absl::string_view head, absl::string_view item, int n) {
    std::string text(head);
    for (int i = 0; i < n; ++i)
      absl::StrAppend(&text, absl::StrReplaceAll(item, {{"#", absl::StrCat(i)}}));
    return ParseKernel(text).status();
  };
  constexpr absl::string_view kHead = "kernel [] reduced 0\n";
  EXPECT_THAT(repeated(kHead, "in f32 1\n", 256), IsOk());
  EXPECT_THAT(repeated(kHead, "in f32 1\n", 257), ReasonIs("VALUE_ERROR", HasSubstr("params")));
  EXPECT_THAT(repeated(kHead, "%# = Constant 1 : f32\n", 4096), IsOk());
  EXPECT_THAT(repeated(kHead, "%# = Constant 1 : f32\n", 4097),
              ReasonIs("VALUE_ERROR", HasSubstr("4097 nodes")));
  EXPECT_THAT(repeated("kernel [] reduced 0\nout f32 999\n%0 = Constant 1 : f32\n",
                       "store %0 p0 [#:]\n", 256),
              IsOk());
  EXPECT_THAT(repeated("kernel [] reduced 0\nout f32 999\n%0 = Constant 1 : f32\n",
                       "store %0 p0 [#:]\n", 257),
              ReasonIs("VALUE_ERROR", HasSubstr("257 stores")));
  std::string dims = "kernel [1";
  for (int i = 0; i < 32; ++i) dims += ",1";
  EXPECT_THAT(ParseKernel(dims + "] reduced 0"), ReasonIs("VALUE_ERROR", HasSubstr("rank 33")));
  Kernel shifted = Parsed("kernel [] reduced 0\nin s32 1\nin f32 1\n%0 = load p1 [0:] : f32\n");
  shifted.nodes[0].access.shifts.assign(32, DynamicOffset{0, 0, 1});
  EXPECT_THAT(Verify(shifted), IsOk());
  shifted.nodes[0].access.shifts.push_back({0, 0, 1});
  EXPECT_THAT(Verify(shifted), ReasonIs("VALUE_ERROR", HasSubstr("33 shifts")));
}

TEST(KernelVerify, ArgMaxNeedsOneReducedDimThatFitsTheIndexDType) {
  const auto status = [](absl::string_view dims, absl::string_view strides, int64_t size) {
    return ParseKernel(absl::StrCat("kernel [", dims, "\nin f32 ", size, "\n%0 = load p0 [0: ",
                                    strides, "] : f32\n%1 = reduce argmin %0 : s32\n"))
        .status();
  };
  EXPECT_THAT(status("4,8] reduced 1", "8,1", 32), IsOk());
  EXPECT_THAT(status("4,8] reduced 2", "8,1", 32), ReasonIs("VALUE_ERROR", HasSubstr("along one")));
  EXPECT_THAT(status("4,0] reduced 1", "8,1", 32), ReasonIs("VALUE_ERROR", HasSubstr("is empty")));
  EXPECT_THAT(status("4,2147483649] reduced 1", "0,0", 1),
              ReasonIs("VALUE_ERROR", HasSubstr("does not fit s32")));
  EXPECT_THAT(ParseKernel("kernel [8] reduced 0\nin f32 8\n%0 = load p0 [0: 1] : f32\n"
                          "%1 = reduce sum %0 : f32\n"),
              ReasonIs("VALUE_ERROR", HasSubstr("no reduced dims")));
}

TEST(KernelVerify, UnusedFieldsOfANodeKeepTheirDefaults) {
  const Kernel good = Parsed(kSoftmaxTail);
  const auto refuses = [&](int node, auto change) {
    Kernel bad = good;
    change(&bad.nodes[node]);
    EXPECT_THAT(Verify(bad), ReasonIs("VALUE_ERROR", HasSubstr("does not read"))) << node;
  };
  refuses(0, [](Node* n) { n->value = 1; });
  refuses(0, [](Node* n) { n->prim = ScalarPrim::kAdd; });
  refuses(0, [](Node* n) { n->reduce = ReduceKind::kSum; });
  refuses(1, [](Node* n) { n->int_value = 1; });
  refuses(1, [](Node* n) { n->param = 1; });
  refuses(2, [](Node* n) { n->access.offset = 1; });
  refuses(3, [](Node* n) { n->value = -0.0; });
  refuses(5, [](Node* n) { n->args = {0}; });
}

TEST(KernelVerify, ShiftElementsLieInTheirParam) {
  const auto status = [](absl::string_view dims, absl::string_view shift, int64_t numbers) {
    return ParseKernel(absl::StrCat("kernel [", dims, "] reduced 0\nin f32 32\nin u64 ", numbers,
                                    "\nout f32 12\n%0 = load p0 [0: 0,1] shift p1 ", shift,
                                    " max 7 stride 4 : f32\nstore %0 p2 [0: 4,1]\n"))
        .status();
  };
  EXPECT_THAT(status("3,4", "[0: 1,0]", 3), IsOk());
  EXPECT_THAT(status("3,4", "[0: 1,0]", 2), ReasonIs("VALUE_ERROR", HasSubstr("0 to 2 of p1")));
  EXPECT_THAT(status("3,4", "[5: -2,0]", 6), IsOk());
  EXPECT_THAT(status("3,4", "[3: -2,0]", 6), ReasonIs("VALUE_ERROR", HasSubstr("-1 to 3 of p1")));
  EXPECT_THAT(status("3,4", "[2:]", 3), IsOk());
  EXPECT_THAT(status("3,4", "[3:]", 3), ReasonIs("VALUE_ERROR", HasSubstr("3 to 3 of p1")));
  // The numbers of a shift are read even if the load has no iterations.
  EXPECT_THAT(status("0,4", "[3: 1,0]", 3), ReasonIs("VALUE_ERROR", HasSubstr("of p1")));
}

TEST(KernelVerify, ParallelPointsOfAScanStoreDistinctElements) {
  // The kernel stores rows of 4 elements. Param 1 holds the number of the row, from 0 to 7, at
  // which each row is stored. With kRows the rows lie one after the other.
  const auto status = [](absl::string_view strides, absl::string_view shifts, int64_t size) {
    return ParseKernel(absl::StrCat("kernel [4,5] scanned 1\nin f32 20\nin s32 20\nout f32 ", size,
                                    "\n%0 = load p0 [0: 1,4] : f32\nstore %0 p2 [0: ", strides,
                                    "] ", shifts, "\n"))
        .status();
  };
  constexpr absl::string_view kRows = "shift p1 [0: 0,1] max 7 stride 4";
  EXPECT_THAT(status("1,0", kRows, 32), IsOk());
  EXPECT_THAT(status("1,0", kRows, 31), ReasonIs("VALUE_ERROR", HasSubstr("reaches elements")));
  // Other stores that are allowed: by columns, with a number for each point, with gaps between the
  // rows, and with a stride along the scanned dim.
  EXPECT_THAT(status("8,0", "shift p1 [0: 0,1] max 7 stride 1", 32), IsOk());
  EXPECT_THAT(status("1,0", "shift p1 [0: 5,1] max 7 stride 4", 32), IsOk());
  EXPECT_THAT(status("1,0", "shift p1 [0: 0,1] max 7 stride 5", 39), IsOk());
  EXPECT_THAT(status("1,4", "shift p1 [0: 0,1] max 3 stride 4", 32), IsOk());
  const auto meets = ReasonIs("VALUE_ERROR", HasSubstr("two indices may write the same element"));
  EXPECT_THAT(status("1,0", "shift p1 [0: 0,1] max 7 stride 3", 32), meets);
  EXPECT_THAT(status("1,0", "shift p1 [0: 0,1] max 7 stride 1", 32), meets);
  EXPECT_THAT(status("7,0", "shift p1 [0: 0,1] max 7 stride 1", 32), meets);
  EXPECT_THAT(status("1,2", "shift p1 [0: 0,1] max 3 stride 4", 32), meets);
  EXPECT_THAT(status("0,1", kRows, 40), meets);
}

TEST(KernelVerify, AScanHasRulesOfItsOwn) {
  constexpr absl::string_view kText =
      "kernel [4,5] scanned 1\nin f32 20\nin s32 5\nout f32 32\n%0 = load p0 [0: 1,4] : f32\n"
      "%1 = load p2 [0: 1,0] shift p1 [0: 0,1] max 7 stride 4 : f32\n%2 = Add %1, %0 : f32\n"
      "store %2 p2 [0: 1,0] shift p1 [0: 0,1] max 7 stride 4\n";
  EXPECT_THAT(ParseKernel(kText), IsOk());
  const auto with = [&](absl::string_view from, absl::string_view to) {
    return ParseKernel(absl::StrReplaceAll(kText, {{from, to}})).status();
  };
  EXPECT_THAT(with("scanned 1", "scanned 0"), ReasonIs("VALUE_ERROR", HasSubstr("scans no dim")));
  EXPECT_THAT(with("scanned 1", "folded 1"),
              ReasonIs("VALUE_ERROR", HasSubstr("\"reduced\" or \"scanned\"")));
  EXPECT_THAT(with("scanned", "reduced"), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(
      with("%1 = load p2 [0: 1,0] shift p1 [0: 0,1]", "%1 = load p2 [0: 1,0] shift p1 [1:]"),
      ReasonIs("VALUE_ERROR", HasSubstr("must be stored in place")));
  EXPECT_THAT(ParseKernel(absl::StrCat(kText, "store %0 p2 [0: 1,4]\n")),
              ReasonIs("VALUE_ERROR", HasSubstr("a scan has 2 stores to p2")));
  EXPECT_THAT(with("%2 = Add %1, %0 : f32", "%2 = reduce argmax %0 : s32"),
              ReasonIs("VALUE_ERROR", HasSubstr("no index of the best")));
}

TEST(KernelInterpret, AScanLoadsTheElementsThatItHasStored) {
  const Kernel kernel = Parsed(
      "kernel [2,4] scanned 1\nin s32 8\nin s32 4\nout s32 6\n%0 = load p0 [0: 1,2] : s32\n"
      "%1 = load p2 [0: 1,0] shift p1 [0: 0,1] max 2 stride 2 : s32\n%2 = Add %1, %0 : s32\n"
      "store %2 p2 [0: 1,0] shift p1 [0: 0,1] max 2 stride 2\n");
  int32_t updates[] = {1, 2, 3, 4, 5, 6, 7, 8}, rows[] = {2, -7, 2, 99};
  int32_t out[] = {10, 20, 30, 40, 50, 60};
  Interpret(kernel, {updates, rows, out}, 0, 2);
  EXPECT_THAT(out, ElementsAre(13, 24, 30, 40, 50 + 1 + 5 + 7, 60 + 2 + 6 + 8));
}

TEST(KernelInterpret, AScanReducesUpToEachPoint) {
  const Kernel kernel = Parsed(
      "kernel [2,3] scanned 1\nin s32 6\nout s32 6\n%0 = load p0 [0: 3,1] : s32\n"
      "%1 = reduce sum %0 : s32\nstore %1 p1 [2: 3,-1]\n");
  int32_t in[] = {1, 2, 3, 4, 5, 6}, out[6] = {};
  Interpret(kernel, {in, out}, 0, 2);
  EXPECT_THAT(out, ElementsAre(6, 3, 1, 15, 9, 4));
}

TEST(KernelVerify, AScanMayOverwriteAnInputIfNoElementIsStoredTwice) {
  const auto kernel = [](absl::string_view access) {
    return absl::StrCat(
        "kernel [2,3] scanned 1\nin place f32 6\nin s32 3\nout f32 6\n"
        "%0 = load p0 ",
        access, " : f32\n%1 = reduce max %0 : f32\nstore %1 p2 ", access, "\n");
  };
  EXPECT_THAT(ParseKernel(kernel("[0: 3,1]")), IsOk());
  EXPECT_THAT(ParseKernel(kernel("[0: 3,0]")), ReasonIs("VALUE_ERROR", HasSubstr("overwritten")));
  EXPECT_THAT(ParseKernel(kernel("[0: 3,0] shift p1 [0: 0,1] max 2 stride 1")),
              ReasonIs("VALUE_ERROR", HasSubstr("overwritten")));
}

TEST(KernelVerify, OnlyAScanMayShiftAStoreByPoint) {
  constexpr absl::string_view kText =
      "kernel [3,4] reduced 0\nin f32 12\nin s32 3\nout f32 32\n%0 = load p0 [0: 4,1] : f32\n"
      "store %0 p2 [0: 4,1] shift p1 [2: 0,0] max 5 stride 4\n";
  EXPECT_THAT(ParseKernel(kText), IsOk());
  EXPECT_THAT(ParseKernel(absl::StrReplaceAll(kText, {{"[2: 0,0]", "[0: 1,0]"}})),
              ReasonIs("VALUE_ERROR", HasSubstr("a shift varies over dim 0")));
}

TEST(KernelVerify, InPlaceAndInterleavedStoresAreAllowed) {
  EXPECT_THAT(ParseKernel("kernel [4] reduced 0\nout f32 4\n%0 = load p0 [3: -1] : f32\n"
                          "store %0 p0 [3: -1]\n"),
              IsOk());
  EXPECT_THAT(ParseKernel("kernel [4] reduced 0\nout f32 4\n%0 = load p0 [3: -1] : f32\n"
                          "store %0 p0 [0: 1]\n"),
              ReasonIs("VALUE_ERROR", HasSubstr("must be stored in place")));
  const auto two_stores = [](absl::string_view a, absl::string_view b) {
    return ParseKernel(
        absl::StrCat("kernel [4] reduced 0\nin f32 4\nin s32 1\nout f32 20\n"
                     "%0 = load p0 [0: 1] : f32\nstore %0 p2 ",
                     a, "\nstore %0 p2 ", b, "\n"));
  };
  EXPECT_THAT(two_stores("[0: 1]", "[4: 1]"), IsOk());
  EXPECT_THAT(two_stores("[0: 2]", "[1: 2]"), IsOk());
  EXPECT_THAT(two_stores("[0: 2]", "[2: 2]"), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(two_stores("[0: 1]", "[3: 1]"), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(two_stores("[0: 1] shift p1 max 9 stride 1", "[4: 1] shift p1 max 9 stride 1"),
              IsOk());
  EXPECT_THAT(two_stores("[0: 1] shift p1 max 9 stride 1", "[4: 1]"), ReasonIs("VALUE_ERROR"));
}

TEST(KernelVerify, AnInputIsOverwrittenElementForElement) {
  const auto kernel = [](absl::string_view load, absl::string_view second) {
    return absl::StrCat("kernel [6] reduced 0\nin place f32 6\nout f32 6\n%0 = load p0 ", load,
                        " : f32\n%1 = Neg %0 : f32\nstore %1 p1 [0: 1]\n", second);
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(const Kernel good, ParseKernel(kernel("[0: 1]", "")));
  EXPECT_TRUE(good.params[0].in_place);
  EXPECT_EQ(ParseKernel(good.ToString()).value(), good);
  EXPECT_TRUE(MayGoInPlace(good, 0, 1));
  EXPECT_THAT(ParseKernel(kernel("[5: -1]", "")),
              ReasonIs("VALUE_ERROR", HasSubstr("no output is stored where it is loaded")));
  EXPECT_THAT(ParseKernel(kernel("[0: 0]", "")), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(ParseKernel("kernel [3] reduced 0\nin place f32 3\nout f32 6\n"
                          "%0 = load p0 [0: 1] : f32\nstore %0 p1 [0: 2]\n"),
              ReasonIs("VALUE_ERROR"));
  Kernel output = good;
  output.params[1].in_place = true;
  EXPECT_THAT(Verify(output), ReasonIs("VALUE_ERROR", HasSubstr("p1 is an output")));
}

TEST(KernelVerify, AccessesThatNeverRunMayPointAnywhere) {
  EXPECT_THAT(ParseKernel("kernel [0,4] reduced 0\nin f32 0\nout f32 0\n%0 = load p0 [0: 4,1] : f32"
                          "\nstore %0 p1 [0: 4,1]\n"),
              IsOk());
  // Points of the kept dims run even if there is nothing to reduce.
  EXPECT_THAT(ParseKernel("kernel [4,0] reduced 1\nin f32 0\nin f32 0\nout f32 4\n"
                          "%0 = load p0 [0: 0,1] : f32\n%1 = reduce sum %0 : f32\n"
                          "store %1 p2 [0: 1,0]\n"),
              IsOk());
  EXPECT_THAT(ParseKernel("kernel [4,0] reduced 1\nin f32 0\n%0 = load p0 [0: 1,0] : f32\n"),
              ReasonIs("VALUE_ERROR", HasSubstr("reaches")));
}

// ---- Levels and normal forms. ------------------------------------------------------------------

TEST(Kernel, LevelsFollowStridesAndReductions) {
  const Kernel kernel = Parsed(R"(kernel [4,8] reduced 1
in f32 32
%0 = load p0 [0: 8,1] : f32
%1 = load p0 [0: 1,0] : f32
%2 = Mul %0, %1 : f32
%3 = Neg %1 : f32
%4 = reduce sum %2 : f32
%5 = Add %4, %3 : f32
%6 = index [0: 1,0] : s32
%7 = reduce max %3 : f32
)");
  using enum Level;
  EXPECT_THAT(LevelsOf(kernel),
              ElementsAre(kInner, kBefore, kInner, kBefore, kAfter, kAfter, kBefore, kAfter));
}

struct CanonicalRow {
  const char* what;
  const char* from;
  const char* to;
};

TEST(KernelCanonical, EquivalentKernelsHaveTheSameText) {
  const CanonicalRow rows[] = {
      {"dims of size 1 go, neighbours merge",
       R"(kernel [2,1,3,4] reduced 0
in f32 24
out f32 24
%0 = load p0 [0: 12,7,4,1] : f32
store %0 p1 [0: 12,0,4,1]
)",
       R"(kernel [24] reduced 0
in f32 24
out f32 24
%0 = load p0 [0: 1] : f32
store %0 p1 [0: 1]
)"},
      {"a transpose keeps its dims",
       R"(kernel [2,3,4] reduced 0
in f32 24
out f32 24
%0 = load p0 [0: 4,8,1] : f32
store %0 p1 [0: 12,4,1]
)",
       R"(kernel [2,3,4] reduced 0
in f32 24
out f32 24
%0 = load p0 [0: 4,8,1] : f32
store %0 p1 [0: 12,4,1]
)"},
      {"a broadcast keeps what it does not repeat alike",
       R"(kernel [2,3,4] reduced 0
in f32 4
out f32 24
%0 = load p0 [0: 0,0,1] : f32
store %0 p1 [0: 12,4,1]
)",
       R"(kernel [6,4] reduced 0
in f32 4
out f32 24
%0 = load p0 [0: 0,1] : f32
store %0 p1 [0: 4,1]
)"},
      {"kept and reduced dims stay apart, a reduction keeps a reduced dim",
       R"(kernel [3,1,1] reduced 2
in f32 3
out f32 3
%0 = load p0 [0: 1,1,1] : f32
%1 = reduce sum %0 : f32
store %1 p1 [0: 1,0,0]
)",
       R"(kernel [3,1] reduced 1
in f32 3
out f32 3
%0 = load p0 [0: 1,0] : f32
%1 = reduce sum %0 : f32
store %1 p1 [0: 1,0]
)"},
      {"a gather's rows stay apart from their windows, shifts that are the same have no strides",
       R"(kernel [2,1,3,2,4] reduced 0
in f32 40
in s32 6
out f32 48
%0 = load p0 [0: 0,0,0,4,1] shift p1 [0: 3,7,1,0,0] max 4 stride 8 : f32
%1 = load p0 [0: 0,0,0,4,1] shift p1 [2: 0,7,0,0,0] max 4 stride 8 : f32
%2 = Add %0, %1 : f32
store %2 p2 [0: 24,0,8,4,1]
)",
       R"(kernel [6,8] reduced 0
in f32 40
in s32 6
out f32 48
%0 = load p0 [0: 0,1] shift p1 [0: 1,0] max 4 stride 8 : f32
%1 = load p0 [0: 0,1] shift p1 [2: ] max 4 stride 8 : f32
%2 = Add %0, %1 : f32
store %2 p2 [0: 8,1]
)"},
      {"what nothing stores goes, and reduced dims with it",
       R"(kernel [3,5] reduced 1
in f32 15
out f32 3
%0 = load p0 [0: 5,1] : f32
%1 = reduce sum %0 : f32
%2 = load p0 [0: 5,0] : f32
store %2 p1 [0: 1,0]
)",
       R"(kernel [3] reduced 0
in f32 15
out f32 3
%0 = load p0 [0: 5] : f32
store %0 p1 [0: 1]
)"},
      {"equal nodes merge, in the order of the stores",
       R"(kernel [8] reduced 0
in f32 8
in f32 8
out f32 8
out f32 8
%0 = load p1 [0: 1] : f32
%1 = load p0 [0: 1] : f32
%2 = load p0 [0: 1] : f32
%3 = Constant 0 : f32
%4 = Constant -0 : f32
%5 = Add %2, %3 : f32
%6 = Add %1, %3 : f32
%7 = Add %5, %6 : f32
%8 = Add %4, %0 : f32
store %7 p2 [0: 1]
store %8 p3 [0: 1]
)",
       R"(kernel [8] reduced 0
in f32 8
in f32 8
out f32 8
out f32 8
%0 = load p0 [0: 1] : f32
%1 = Constant 0 : f32
%2 = Add %0, %1 : f32
%3 = Add %2, %2 : f32
%4 = Constant -0 : f32
%5 = load p1 [0: 1] : f32
%6 = Add %4, %5 : f32
store %3 p2 [0: 1]
store %6 p3 [0: 1]
)"},
  };
  for (const CanonicalRow& row : rows) {
    const Kernel canonical = Canonical(Parsed(row.from));
    EXPECT_EQ(canonical.ToString(), row.to) << row.what;
    EXPECT_EQ(Canonical(canonical), canonical) << row.what;
  }
}

TEST(KernelCanonical, ComputesTheSameBytes) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Kernel kernel = RandomKernel(seed, {.reduce = seed % 2 == 0, .functions = true});
    const Kernel canonical = Canonical(kernel);
    ASSERT_THAT(Verify(canonical), IsOk()) << canonical.ToString();
    TestBuffers a(kernel, seed), b(kernel, seed);
    Interpret(kernel, a.pointers(), 0, kernel.num_iterations());
    Interpret(canonical, b.pointers(), 0, canonical.num_iterations());
    EXPECT_THAT(Difference(kernel, b, a, {}), IsEmpty()) << kernel.ToString();
    EXPECT_EQ(Canonical(canonical), canonical) << kernel.ToString();
  }
}

TEST(KernelCanonical, LongChainsNeedNoDeepStack) {
  Kernel kernel = Parsed("kernel [] reduced 0\nin f32 1\nout f32 1\n%0 = load p0 [0:] : f32\n");
  Node neg;
  neg.prim = ScalarPrim::kNeg;
  for (int i = 0; i < 4095; ++i) {
    neg.args = {i};
    kernel.nodes.push_back(neg);
  }
  kernel.stores = {{4095, 1, {}}};
  ASSERT_THAT(Verify(kernel), IsOk());
  EXPECT_EQ(Canonical(kernel), kernel);
}

// ---- Interpret. --------------------------------------------------------------------------------

TEST(KernelInterpret, ReadsStridesOffsetsAndBroadcasts) {
  const Kernel kernel = Parsed(R"(kernel [2,3] reduced 0
in s32 6
in s32 3
out s32 6
%0 = load p0 [0: 1,2] : s32
%1 = load p1 [2: 0,-1] : s32
%2 = index [100: 10,1] : s32
%3 = Add %0, %1 : s32
%4 = Add %3, %2 : s32
store %4 p2 [0: 3,1]
)");
  std::vector<int32_t> x = {1, 2, 3, 4, 5, 6}, y = {1000, 2000, 3000}, out(6);
  RunOn(kernel, &x, &y, &out);
  EXPECT_THAT(out, ElementsAre(3101, 2104, 1107, 3112, 2115, 1118));
}

TEST(KernelInterpret, ClampsShifts) {
  const Kernel kernel = Parsed(R"(kernel [2] reduced 0
in s32 5
in s64 1
in s32 1
out s32 5
%0 = load p0 [0: 1] shift p1 max 3 stride 1 : s32
store %0 p3 [0: 1] shift p2 max 3 stride 1
)");
  std::vector<int32_t> x = {10, 11, 12, 13, 14};
  const auto run = [&](int64_t from, int32_t to) {
    std::vector<int64_t> start = {from};
    std::vector<int32_t> at = {to}, out(5);
    const std::vector<void*> pointers = {x.data(), start.data(), at.data(), out.data()};
    Interpret(kernel, pointers, 0, 2);
    return out;
  };
  EXPECT_THAT(run(1, 2), ElementsAre(0, 0, 11, 12, 0));
  EXPECT_THAT(run(-7, 99), ElementsAre(0, 0, 0, 10, 11));
  EXPECT_THAT(run(int64_t{1} << 40, -1), ElementsAre(13, 14, 0, 0, 0));
}

TEST(KernelInterpret, RunsOnlyTheGivenRange) {
  const Kernel kernel = Parsed(R"(kernel [2,3] reduced 0
out s64 6
%0 = index [0: 3,1] : s64
store %0 p0 [0: 3,1]
)");
  std::vector<int64_t> out(6, -1);
  const std::vector<void*> pointers = {out.data()};
  Interpret(kernel, pointers, 2, 5);
  EXPECT_THAT(out, ElementsAre(-1, -1, 2, 3, 4, -1));
}

template <class T, class R = T>
std::vector<R> Reduced(absl::string_view kind, absl::string_view dtype, absl::string_view result,
                       std::vector<T> x) {
  const Kernel kernel =
      Parsed(absl::StrCat("kernel [", x.size(), "] reduced 1\nin ", dtype, " ", x.size(), "\nout ",
                          result, " 1\n%0 = load p0 [0: 1] : ", dtype, "\n%1 = reduce ", kind,
                          " %0 : ", result, "\nstore %1 p1 [0: 0]\n"));
  std::vector<R> out(1);
  RunOn(kernel, &x, &out);
  return out;
}

TEST(KernelInterpret, Reduces) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const auto f32 = [](absl::string_view kind, std::vector<float> x) {
    return Reduced<float>(kind, "f32", "f32", std::move(x))[0];
  };
  // Sums are accumulated in a wide type, so that the small terms are not lost.
  EXPECT_EQ(f32("sum", {1e8f, 1, 1, 1, 1, -1e8f}), 4);
  EXPECT_EQ(f32("prod", {2, 3, 0.5f}), 3);
  EXPECT_EQ(f32("max", {1, 7, -3}), 7);
  EXPECT_EQ(f32("min", {1, 7, -3}), -3);
  EXPECT_TRUE(std::isnan(f32("max", {1, nan, 3})));
  EXPECT_TRUE(std::isnan(f32("min", {nan, 1})));
  EXPECT_EQ(f32("sum", {}), 0);
  EXPECT_EQ(f32("prod", {}), 1);
  EXPECT_EQ(f32("max", {}), -inf);
  EXPECT_EQ(f32("min", {}), inf);

  const auto s32 = [](absl::string_view kind, std::vector<int32_t> x) {
    return Reduced<int32_t>(kind, "s32", "s32", std::move(x))[0];
  };
  EXPECT_EQ(s32("sum", {std::numeric_limits<int32_t>::max(), 1}),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(s32("prod", {-3, 5}), -15);
  EXPECT_EQ(s32("max", {-3, -5}), -3);
  EXPECT_EQ(s32("min", {-3, -5}), -5);
  EXPECT_EQ(s32("and", {7, 13}), 5);
  EXPECT_EQ(s32("or", {1, 4}), 5);
  EXPECT_EQ(s32("max", {}), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(s32("and", {}), -1);
  EXPECT_EQ(Reduced<uint32_t>("min", "u32", "u32", {})[0], 0xffffffffu);
  EXPECT_EQ(Reduced<uint32_t>("max", "u32", "u32", {1, 0x80000000u})[0], 0x80000000u);
  EXPECT_EQ(Reduced<uint8_t>("and", "bool", "bool", {1, 0, 1})[0], 0);
  EXPECT_EQ(Reduced<uint8_t>("and", "bool", "bool", {})[0], 1);
  EXPECT_EQ(Reduced<uint8_t>("max", "bool", "bool", {0, 2})[0], 1);  // any byte but 0 is true

  const auto arg = [](absl::string_view kind, std::vector<float> x) {
    return Reduced<float, int32_t>(kind, "f32", "s32", std::move(x))[0];
  };
  EXPECT_EQ(arg("argmax", {1, 5, 5, 2}), 1);
  EXPECT_EQ(arg("argmin", {1, 5, 1, 2}), 0);
  EXPECT_EQ(arg("argmax", {1, nan, 9, nan}), 1);
  EXPECT_EQ(arg("argmin", {nan, -9}), 0);
  EXPECT_EQ(arg("argmax", {-inf, -inf}), 0);
  EXPECT_THAT((Reduced<int64_t, int64_t>("argmin", "s64", "s64", {3, -4, -4})), ElementsAre(1));
}

TEST(KernelInterpret, AnInvariantOperandIsReducedOncePerPoint) {
  const Kernel kernel = Parsed(R"(kernel [2,5] reduced 1
in f32 2
out f32 2
%0 = load p0 [0: 1,0] : f32
%1 = reduce sum %0 : f32
%2 = Add %1, %0 : f32
store %2 p1 [0: 1,0]
)");
  std::vector<float> x = {1, 10}, out(2);
  RunOn(kernel, &x, &out);
  EXPECT_THAT(out, ElementsAre(6, 60));
}

TEST(KernelInterpret, MovesDtypesThatItCannotCompute) {
  const Kernel kernel = Parsed(R"(kernel [3] reduced 0
in s8 3
in c64 3
out s8 3
out c64 3
%0 = load p0 [2: -1] : s8
%1 = load p1 [2: -1] : c64
store %0 p2 [0: 1]
store %1 p3 [0: 1]
)");
  std::vector<int8_t> x = {1, 2, -3}, x_out(3);
  std::vector<uint64_t> y = {1, uint64_t{1} << 63, 3}, y_out(3);
  const std::vector<void*> pointers = {x.data(), y.data(), x_out.data(), y_out.data()};
  Interpret(kernel, pointers, 0, 3);
  EXPECT_THAT(x_out, ElementsAre(-3, 2, 1));
  EXPECT_THAT(y_out, ElementsAre(3, uint64_t{1} << 63, 1));
}

// ---- The evaluator of ir is the reference. -----------------------------------------------------

TEST(KernelInterpret, EveryScalarOpAgreesWithTheEvaluatorOnEveryDtype) {
  std::set<ScalarPrim> seen;
  int cases = 0;
  for (const OpCase& c : ScalarOpCases()) {
    ASSERT_THAT(Verify(c.kernel), IsOk()) << c.name << "\n" << c.kernel.ToString();
    TestBuffers got(c.kernel, c.inputs), want(c.kernel, c.inputs);
    Interpret(c.kernel, got.pointers(), 0, c.kernel.num_iterations());
    for (size_t i = 0; i < c.outputs.size(); ++i)
      std::memcpy(want.pointers()[c.inputs.size() + i], c.outputs[i].data(),
                  c.outputs[i].num_bytes());
    EXPECT_THAT(Difference(c.kernel, got, want, {}), IsEmpty()) << c.name << "\n"
                                                                << c.kernel.ToString();
    for (const Node& node : c.kernel.nodes)
      if (node.kind == Node::Kind::kScalar) seen.insert(node.prim);
    ++cases;
  }
  EXPECT_GT(cases, 250);
  for (int i = 1; i <= static_cast<int>(ScalarPrim::kBitcast); ++i)
    EXPECT_EQ(seen.count(static_cast<ScalarPrim>(i)), 1u)
        << ScalarPrimName(static_cast<ScalarPrim>(i)) << " is used by no op";
}

TEST(KernelInterpret, EveryReductionAgreesWithTheEvaluatorOnEveryDtype) {
  int cases = 0;
  for (const ir::OpDef* op : ir::AllOps()) {
    if (op->lowering != ir::Lowering::kReduce) continue;
    const bool arg = op->reduce == ReduceKind::kArgMax || op->reduce == ReduceKind::kArgMin;
    for (DType dtype :
         {DType::kBool, DType::kS32, DType::kU32, DType::kS64, DType::kF32, DType::kF64}) {
      const DType result = arg ? DType::kS64 : dtype;
      Kernel kernel =
          Parsed(absl::StrCat("kernel [5,7] reduced 1\nin ", ToAbsl(DTypeName(dtype)), " 35\nout ",
                              ToAbsl(DTypeName(result)),
                              " 5\n%0 = load p0 [0: 7,1] : ", ToAbsl(DTypeName(dtype)), "\n"));
      TestBuffers got(kernel, 3), want(kernel, 3);
      const ir::Array input(dtype, {5, 7}, got.bytes(0));
      ir::Attrs attrs{{"dimensions", std::vector<int64_t>{1}}};
      if (arg) attrs = {{"dimension", int64_t{1}}, {"index_dtype", result}};
      const absl::StatusOr<std::vector<ir::Array>> answer =
          ir::EvaluateOp(*op, ir::Scope(), {input}, attrs);
      if (!answer.ok()) continue;
      Node node;
      node.kind = Node::Kind::kReduce;
      node.reduce = op->reduce;
      node.dtype = result;
      node.args = {0};
      kernel.nodes.push_back(node);
      kernel.stores = {{1, 1, {0, {1, 0}, {}}}};
      ASSERT_THAT(Verify(kernel), IsOk()) << kernel.ToString();
      Interpret(kernel, got.pointers(), 0, 5);
      std::memcpy(want.pointers()[1], (*answer)[0].data(), (*answer)[0].num_bytes());
      EXPECT_THAT(Difference(kernel, got, want, {}), IsEmpty()) << kernel.ToString();
      ++cases;
    }
  }
  EXPECT_EQ(cases, 2 * 5 + 2 * 6 + 2 * 4 + 2 * 6);
}

TEST(ScalarFn, EveryPrimitiveHasADtypeAndAnArity) {
  for (int i = 2; i <= static_cast<int>(ScalarPrim::kBitcast); ++i) {
    const auto prim = static_cast<ScalarPrim>(i);
    int found = 0;
    for (int a = 0; a < ir::kNumDTypes; ++a)
      for (int r = 0; r < ir::kNumDTypes; ++r) {
        const auto operand = static_cast<DType>(a), result = static_cast<DType>(r);
        if (FindScalarFn(prim, operand, result) == nullptr) continue;
        ++found;
        EXPECT_THAT(Verify(KernelOfPrim(prim, operand, result, 4)), IsOk());
      }
    EXPECT_GT(found, 0) << ScalarPrimName(prim);
    EXPECT_GE(InfoOf(prim).arity(), 1) << ScalarPrimName(prim);
  }
  EXPECT_EQ(FindScalarFn(ScalarPrim::kNot, DType::kF32, DType::kF32), nullptr);
  EXPECT_EQ(FindScalarFn(ScalarPrim::kBitcast, DType::kBF16, DType::kF32), nullptr);
  EXPECT_EQ(FindScalarFn(ScalarPrim::kExp, DType::kF16, DType::kF16), nullptr);
}

}  // namespace
}  // namespace tessera::worker::codegen
