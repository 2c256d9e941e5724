// Proves that arrays survive a round trip through .npy files and JSON. Malformed files and values
// that do not fit a type must be errors, and the errors must say where the fault is.
#include "client/cli/values.h"

#include <cstring>
#include <limits>

#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

using ir::DType;
using ::testing::ElementsAre;

// Returns an array whose bytes are 0, 1, 0, 1, ...
ir::Array AlternatingBytes(DType dtype, ir::Dims shape) {
  ir::Array out(dtype, std::move(shape));
  for (int64_t i = 0; i < out.num_bytes(); ++i) {
    out.MutableData()[i] = static_cast<std::byte>(i % 2);
  }
  return out;
}

TEST(Npy, EveryDTypeAndShapeSurvivesARoundTrip) {
  for (const DType dtype : {DType::kBool, DType::kS8, DType::kS16, DType::kS32, DType::kS64,
                            DType::kU8, DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                            DType::kBF16, DType::kF32, DType::kF64, DType::kC64}) {
    for (const ir::Dims& shape : {ir::Dims{}, ir::Dims{3}, ir::Dims{2, 3}, ir::Dims{2, 0, 4}}) {
      const ir::Array value = AlternatingBytes(dtype, shape);
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::string bytes, NpyOf(value));
      TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back, ParseNpy(bytes, "x.npy"));
      EXPECT_EQ(back, value);
    }
  }
}

// The bytes are those that numpy.save writes for np.array([[1, 2, 3], [4, 5, 6]], '<i4',
// order='F').
TEST(Npy, ColumnMajorFilesBecomeRowMajorArrays) {
  std::string header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += {static_cast<char>(header.size()), '\0'};
  bytes += header;
  for (int32_t v : {1, 4, 2, 5, 3, 6}) bytes.append(reinterpret_cast<const char*>(&v), 4);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array value, ParseNpy(bytes, "x.npy"));
  EXPECT_THAT(value.As<int32_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Npy, MalformedFilesAreRefused) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string good,
                               NpyOf(ir::Array::Of(DType::kF32, {2}, {1.0, 2.0})));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseNpy(good.substr(0, size), "x").ok()) << size;
  }
  EXPECT_FALSE(ParseNpy(good + "x", "x").ok());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    return ParseNpy(bad, "x");
  };
  EXPECT_THAT(with("<f4", ">f4"), StatusIs(absl::StatusCode::kInvalidArgument, "dtype '>f4'"));
  EXPECT_THAT(with("(2,)", "(-2)"), StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
  EXPECT_THAT(with("(2,)", "(3,)"), StatusIs(absl::StatusCode::kInvalidArgument, "8 bytes"));
  EXPECT_FALSE(with(std::string("\x01\x00", 2), std::string("\x07\x00", 2)).ok());
  // Change one byte after the other. Whatever the result is, there must be no crash.
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x5b);
    ParseNpy(bad, "x").IgnoreError();
  }
}

TEST(Npy, HugeShapesAreRefusedBeforeAllocation) {
  std::string header =
      "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}";
  header.resize(117, ' ');
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += {static_cast<char>(header.size()), '\0'};
  EXPECT_THAT(ParseNpy(bytes + header, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, "too large"));
}

TEST(ArrayOfJson, KeepsEveryInteger) {
  const Json json =
      Json::parse(R"([9223372036854775807, -9223372036854775808, "9007199254740993", 0])");
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array value, ArrayOfJson(json, DType::kS64, {4}));
  EXPECT_THAT(value.As<int64_t>(),
              ElementsAre(std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                          9007199254740993, 0));
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ir::Array u, ArrayOfJson(Json::parse("[18446744073709551615]"), DType::kU64, {1}));
  EXPECT_EQ(u.As<uint64_t>()[0], std::numeric_limits<uint64_t>::max());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Json back, JsonOfArray(u));
  EXPECT_EQ(back.dump(), R"(["18446744073709551615"])");
}

// Readers that hold numbers as doubles keep integers only up to 2^53, so larger ones are strings.
TEST(JsonOfArray, IntegersThatDoublesRoundAreStrings) {
  const int64_t edge = int64_t{1} << 53;
  ir::Array value(DType::kS64, {6});
  const int64_t values[] = {edge,      edge + 1, -edge,
                            -edge - 1, 7,        std::numeric_limits<int64_t>::min()};
  std::memcpy(value.MutableData(), values, sizeof(values));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Json json, JsonOfArray(value));
  EXPECT_EQ(json.dump(),
            R"([9007199254740992,"9007199254740993",-9007199254740992,"-9007199254740993",7,)"
            R"("-9223372036854775808"])");
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back, ArrayOfJson(json, DType::kS64, {6}));
  EXPECT_EQ(back, value);
  ir::Array u(DType::kU64, {2});
  u.MutableAs<uint64_t>()[0] = uint64_t{1} << 53;
  u.MutableAs<uint64_t>()[1] = (uint64_t{1} << 53) + 1;
  EXPECT_EQ(JsonOfArray(u)->dump(), R"([9007199254740992,"9007199254740993"])");
}

TEST(ArrayOfJson, SaysWhereAValueDoesNotFit) {
  const auto fails = [](const char* json, DType dtype, const ir::Dims& shape, const char* said) {
    EXPECT_THAT(ArrayOfJson(Json::parse(json), dtype, shape),
                StatusIs(absl::StatusCode::kInvalidArgument, said));
  };
  fails("[[1, 2], [3]]", DType::kF32, {2, 2}, "value[1]: a list of 2 is expected, not of 1");
  fails("[1, \"x\"]", DType::kF32, {2}, "value[1]: a number");
  fails("[1.5]", DType::kS32, {1}, "value[0]: 1.5 is not a s32");
  fails("[128]", DType::kS8, {1}, "128 is not a s8");
  fails("[-1]", DType::kU8, {1}, "-1 is not a u8");
  fails("[-1]", DType::kU64, {1}, "-1 is not a u64");
  fails("[9223372036854775808]", DType::kS64, {1}, "is not a s64");
  fails("[1]", DType::kBool, {1}, "true or false");
  fails("[true]", DType::kF32, {1}, "a number");
  fails("1", DType::kF32, {1}, "a list of 1");
}

TEST(JsonOfArray, FloatsReadBackAsTheyWere) {
  const ir::Array value = ir::Array::Of(
      DType::kF32, {5},
      {0.1, 1e30, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
       -std::numeric_limits<double>::infinity()});
  TESSERA_ASSERT_OK_AND_ASSIGN(const Json json, JsonOfArray(value));
  EXPECT_EQ(json.dump(), R"([0.1,1e+30,"NaN","Infinity","-Infinity"])");
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back, ArrayOfJson(json, DType::kF32, {5}));
  EXPECT_EQ(back, value);
}

TEST(JsonOfArray, FloatsKeepEveryDigitThatTellsThemApart) {
  const ir::Array value =
      ir::Array::Of(DType::kF32, {5}, {16777213, 0.1234567891, 1234567.9, 1, 0});
  EXPECT_EQ(JsonOfArray(value)->dump(), "[16777213.0,0.12345679,1234567.9,1.0,0.0]");
  EXPECT_EQ(JsonOfArray(ir::Array::Of(DType::kF32, {1}, {-0.0}))->dump(), "[-0.0]");
  // Floats with pseudo-random bits are written as text and read again. Some are subnormal, some are
  // very large.
  constexpr int64_t kCount = 20'000;
  ir::Array bits(DType::kF32, {kCount});
  uint32_t next = 1;
  for (int64_t i = 0; i < kCount; ++i) {
    next = next * 1664525u + 1013904223u;
    const uint32_t finite = (next & 0x7f800000u) == 0x7f800000u ? next ^ 0x40000000u : next;
    std::memcpy(bits.MutableData() + 4 * i, &finite, 4);
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const Json json, JsonOfArray(bits));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               ArrayOfJson(Json::parse(json.dump()), DType::kF32, {kCount}));
  EXPECT_EQ(std::memcmp(back.data(), bits.data(), 4 * kCount), 0);
}

TEST(InputOf, TakesWordsJsonAndFiles) {
  const ir::Type type = ir::MakeType(DType::kF32, {2, 2});
  EXPECT_THAT(InputOf("count", type)->ToDoubles(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(InputOf("ones", type)->ToDoubles(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(InputOf("zeros", type)->ToDoubles(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(InputOf("[[1,2],[3,4]]", type)->ToDoubles(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(InputOf("twos", type), StatusIs(absl::StatusCode::kInvalidArgument, "zeros, ones"));
  EXPECT_THAT(InputOf("/nowhere/x.npy", type), ReasonIs("FILE_NOT_FOUND", "/nowhere/x.npy"));

  const std::string path = ::testing::TempDir() + "/tessera_values_test.npy";
  TESSERA_ASSERT_OK(WriteNpy(path, ir::Array::Of(DType::kF32, {2, 2}, {5, 6, 7, 8})));
  EXPECT_THAT(InputOf(path, type)->ToDoubles(), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(InputOf(path, ir::MakeType(DType::kF32, {4})),
              ReasonIs("TYPE_ERROR", "holds f32[2,2]; f32[4] is expected"));
  std::remove(path.c_str());
}

TEST(Files, ErrorsNameTheGivenFile) {
  const std::string folder = ::testing::TempDir();
  EXPECT_THAT(ReadFile(folder), ReasonIs("VALUE_ERROR", "this is a folder"));
  const absl::Status unwritten = WriteFile("/nowhere/x.npy", "bytes");
  EXPECT_THAT(unwritten, ReasonIs("VALUE_ERROR", "/nowhere/x.npy: it cannot be written: No such"));
  EXPECT_EQ(unwritten.message().find(".part"), absl::string_view::npos) << unwritten;
}

}  // namespace
}  // namespace tessera::cli
