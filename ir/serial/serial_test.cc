// Proves that everything sent over the wire comes back the same (programs, statuses, commands,
// reports, service messages), and that broken or oversized messages are refused with a reason.
#include <string>

#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/program_hash.h"
#include "ir/registry.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "ir/serial/worker.h"

namespace tessera::ir::serial {
namespace {

Mesh TwoByTwo() { return {{{"data", 2}, {"model", 2, AxisType::kExplicit}}}; }

PartitionSpec Spec(DimAxes dims, std::vector<bool> open = {}) {
  return {std::move(dims), {}, {}, std::move(open)};
}

// Returns f(x, y) = jit(g)(x + y) with g(a) = a * a, on a mesh.
Program Sample() {
  Builder g({TwoByTwo(), true}, "g");
  g.SetSite({InternFile("lib.cc"), 7});
  Value a = g.Param(MakeType(DType::kF32, {8, 4}));
  FunctionRef square = g.Build({g.Emit1(*FindOp("multiply"), {a, a})});
  Builder f({TwoByTwo(), true}, "main");
  Value x = f.Param(MakeType(DType::kF32, {8, 4}));
  Value y = f.Param(MakeType(DType::kF32, {8, 4}));
  f.SetSite({InternFile("model.cc"), 41});
  Value sum = f.Emit1(*FindOp("add"), {x, y});
  Attrs name({{"name", AttrValue(std::string("g"))}});
  Value once = f.Emit1(*FindOp("call"), {sum}, name, {square});
  Value twice = f.Emit1(*FindOp("call"), {once}, name, {square});
  Program p;
  p.entry = f.Build({twice, sum});
  p.in_shardings = {Spec({{"data"}}), std::nullopt};
  p.out_shardings = {std::nullopt, Spec({{}, {"data"}}, {true, false})};
  p.in_names = {"args[0]['x']", ""};
  p.out_names = {"result.y", "result.z"};
  return p;
}

TEST(ProgramSerialTest, ProgramsComeBackEqualWithTheirSites) {
  const Program p = Sample();
  const v1::Program wire = ToProto(p);
  EXPECT_EQ(wire.functions_size(), 2) << "a shared region is written once";
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program back, FromProto(wire));
  EXPECT_EQ(StructuralHash(back), StructuralHash(p));
  EXPECT_EQ(back.in_shardings, p.in_shardings);
  EXPECT_EQ(back.out_shardings, p.out_shardings);
  EXPECT_EQ(back.in_names, p.in_names);
  EXPECT_EQ(back.out_names, p.out_names);
  EXPECT_EQ(back.entry->types, p.entry->types);
  ASSERT_EQ(back.entry->sites.size(), 3u);
  EXPECT_EQ(back.entry->sites[0].ToString(), "model.cc:41");
  EXPECT_EQ(back.entry->ops[1].regions[0]->sites[0].ToString(), "lib.cc:7");
  EXPECT_EQ(ToProto(back).SerializeAsString(), wire.SerializeAsString());
}

// The mapped axes of vmaps are not part of the wire format. An op that names one was not batched.
TEST(ProgramSerialTest, MappedAxesAreLeftOutAndUnbound) {
  MappedAxis axis = 2;
  axis.name = "i";
  Builder f({Mesh{}, true, {axis}}, "main");
  const Value x = f.Param(MakeType(DType::kF32, {8}));
  Program p;
  p.entry = f.Build({f.Emit1(*FindOp("psum"), {x}, {{"axes", AxisList{"i"}}})});
  const absl::Status read = FromProto(ToProto(p)).status();
  EXPECT_THAT(read, ReasonIs("NAME_ERROR"));
  EXPECT_THAT(std::string(read.message()), ::testing::HasSubstr("Found an unbound axis name: i"));
}

TEST(ProgramSerialTest, NamesAndSitesChangeOnlyTheAnnotationHash) {
  const Program p = Sample();
  Program named = p;
  named.in_names[0] = "args[0]['y']";
  EXPECT_EQ(StructuralHash(named), StructuralHash(p));
  EXPECT_NE(AnnotationHash(named), AnnotationHash(p));
  v1::Program moved = ToProto(p);
  moved.mutable_functions(0)->mutable_ops(0)->set_line(8);
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program elsewhere, FromProto(moved));
  EXPECT_EQ(StructuralHash(elsewhere), StructuralHash(p));
  EXPECT_NE(AnnotationHash(elsewhere), AnnotationHash(p)) << "a line of a region";
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program same, FromProto(ToProto(p)));
  EXPECT_EQ(AnnotationHash(same), AnnotationHash(p));
}

TEST(ProgramSerialTest, LiteralsComeBackBitForBit) {
  for (const Array& a : {Array::Of(DType::kF32, {2, 3}, {1, -0.0, 3, 4, 5, 1e-40}),
                         Array::Of(DType::kBool, {3}, {1, 0, 1}), Array(DType::kF64, {0, 4}),
                         Array::ScalarInt(DType::kS64, INT64_MIN)})
    EXPECT_THAT(FromProto(ToProto(a), 1 << 20), IsOkAndHolds(a));
}

TEST(ProgramSerialTest, ALiteralHasOnlyElementsOfItsDtype) {
  v1::Literal truth = ToProto(Array::Of(DType::kBool, {2}, {1, 0}));
  (*truth.mutable_data())[1] = 2;
  EXPECT_THAT(FromProto(truth, 1 << 20), ReasonIs("MALFORMED_PROGRAM", "of type bool has a byte"));
  v1::Literal small = ToProto(Array::Of(DType::kS4, {2}, {-8, 7}));
  EXPECT_THAT(FromProto(small, 1 << 20), IsOk());
  (*small.mutable_data())[1] = 8;
  EXPECT_THAT(FromProto(small, 1 << 20), ReasonIs("MALFORMED_PROGRAM", "of type s4 has a byte"));
}

// Each row breaks the sample in one way.
struct Broken {
  const char* name;
  void (*change)(v1::Program&);
  const char* reason;
  const char* message;
};
class BrokenProgramTest : public ::testing::TestWithParam<Broken> {};
TEST_P(BrokenProgramTest, IsRefusedWithAReason) {
  v1::Program wire = ToProto(Sample());
  GetParam().change(wire);
  EXPECT_THAT(FromProto(wire), ReasonIs(GetParam().reason, GetParam().message));
}
const Broken kBroken[] = {
    {"NoFunction", [](v1::Program& p) { p.clear_functions(); }, "MALFORMED_PROGRAM", "no function"},
    {"FutureOpset", [](v1::Program& p) { p.set_opset(kOpset + 1); }, "UNKNOWN_OP", "op set"},
    {"UnknownOp",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(0)->set_name("add\n2"); },
     "UNKNOWN_OP", "'add\\n2'"},
    {"OpByItsNameInLax",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(0)->set_name("exp"); }, "UNKNOWN_OP",
     "; did you mean exponential? docs/programs.md"},
    {"OperandFromTheFuture",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(0)->set_operands(0, 2); },
     "MALFORMED_PROGRAM", "uses value 2, 2 come before it"},
    {"NegativeOperand",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(0)->set_operands(0, -1); },
     "MALFORMED_PROGRAM", "uses value -1"},
    {"RegionFromTheFuture",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(1)->set_regions(0, 1); },
     "MALFORMED_PROGRAM", "does not come before"},
    {"OtherResultCount",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(0)->set_num_results(2); },
     "MALFORMED_PROGRAM", "has 1 results, the program says 2"},
    {"ResultOutOfRange", [](v1::Program& p) { p.mutable_functions(1)->set_results(0, 99); },
     "MALFORMED_PROGRAM", "uses value 99"},
    {"UnknownAttribute",
     [](v1::Program& p) {
       auto* a = p.mutable_functions(1)->mutable_ops(0)->add_attributes();
       a->set_name("colour");
       a->set_int_value(1);
     },
     "MALFORMED_PROGRAM", "colour"},
    {"ValuelessAttribute",
     [](v1::Program& p) {
       p.mutable_functions(1)->mutable_ops(0)->add_attributes()->set_name("a");
     },
     "MALFORMED_PROGRAM", "has no value"},
    {"UnknownDType",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_params(0)->set_dtype("f33"); },
     "TYPE_ERROR", "'f33'"},
    {"NegativeDim",
     [](v1::Program& p) { p.mutable_functions(1)->mutable_params(0)->set_shape(0, -8); },
     "VALUE_ERROR", "-8"},
    {"HugeShape",
     [](v1::Program& p) {
       for (int d : {0, 1})
         p.mutable_functions(1)->mutable_params(0)->set_shape(d, int64_t{1} << 40);
     },
     "LIMIT_EXCEEDED", "2^62"},
    {"HugeMesh",
     [](v1::Program& p) {
       p.mutable_functions(1)->mutable_mesh()->mutable_axes(0)->set_size(1 << 20);
     },
     "LIMIT_EXCEEDED", "devices in one mesh"},
    {"ShardingCount", [](v1::Program& p) { p.add_in_shardings(); }, "MALFORMED_PROGRAM",
     "3 argument shardings for 2 values"},
    {"NameCount", [](v1::Program& p) { p.add_out_names(); }, "MALFORMED_PROGRAM",
     "3 result names for 2 values"},
    {"LongName", [](v1::Program& p) { p.set_in_names(1, std::string(257, 'x')); }, "LIMIT_EXCEEDED",
     "the name of argument 1 has 257 bytes"},
    {"NameOfControlCharacters", [](v1::Program& p) { p.set_in_names(1, "a\x1b[2J"); },
     "MALFORMED_PROGRAM", "not printable ASCII"},
    {"LongSharding",
     [](v1::Program& p) {
       for (int d = 0; d < 9; ++d) p.mutable_out_shardings(1)->mutable_spec()->add_dims();
     },
     "VALUE_ERROR", "is too long for"},
    {"FileOutOfRange", [](v1::Program& p) { p.mutable_functions(1)->mutable_ops(0)->set_file(9); },
     "MALFORMED_PROGRAM", "file 9"},
    {"DeepRegions",
     [](v1::Program& p) {
       for (int i = 0; i < 70; ++i) {
         v1::Function f = p.functions(0);
         v1::Op* op = f.mutable_ops(0);
         *op = p.functions(1).ops(1);
         op->set_operands(0, 0);
         op->set_regions(0, p.functions_size() - 1);
         if (i == 0) op->set_regions(0, 0);
         *p.add_functions() = f;
       }
     },
     "LIMIT_EXCEEDED", "nested functions"},
    {"ExponentialRegions",
     [](v1::Program& p) {
       for (int i = 0; i < 40; ++i) {
         v1::Function f = p.functions(0);
         f.clear_ops();
         for (int k = 0; k < 2; ++k) {
           v1::Op* op = f.add_ops();
           *op = p.functions(1).ops(1);
           op->set_operands(0, k);
           op->set_regions(0, i == 0 ? 0 : p.functions_size() - 1);
         }
         f.set_results(0, 2);
         *p.add_functions() = f;
       }
     },
     "LIMIT_EXCEEDED", "ops"},
};
INSTANTIATE_TEST_SUITE_P(All, BrokenProgramTest, ::testing::ValuesIn(kBroken),
                         [](const auto& info) { return info.param.name; });

TEST(ProgramSerialTest, EveryTruncationAndFlippedByteIsAnswered) {
  const std::string good = ToProto(Sample()).SerializeAsString();
  int accepted = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; bit += 3) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      v1::Program p;
      if (p.ParseFromString(bad) && FromProto(p).ok()) ++accepted;
    }
    v1::Program cut;
    const bool read = cut.ParseFromString(good.substr(0, i)) && FromProto(cut).ok();
    EXPECT_FALSE(read && i < good.size() / 2) << "the entry is in the second half";
  }
  EXPECT_LT(accepted, static_cast<int>(good.size() * 3)) << "some flips must be refused";
}

TEST(StatusSerialTest, TheReasonComesBack) {
  const absl::Status s = MakeError(ErrorKind::kWorkerLost, "worker w0 is gone");
  const absl::Status back = FromProto(ToProto(s));
  EXPECT_EQ(back, s);
  EXPECT_THAT(back, ReasonIs("WORKER_LOST", "worker w0 is gone"));
  EXPECT_EQ(ToProto(s).details_size(), 2) << "retryable kinds carry RetryInfo";
  TESSERA_EXPECT_OK(FromProto(ToProto(absl::OkStatus())));
  google::rpc::Status odd;
  odd.set_code(99);
  EXPECT_THAT(FromProto(odd), StatusIs(absl::StatusCode::kUnknown));
}

TEST(StatusSerialTest, DurationsComeBack) {
  for (absl::Duration d : {absl::ZeroDuration(), absl::Milliseconds(1500), absl::Nanoseconds(1),
                           -absl::Milliseconds(1500)})
    EXPECT_EQ(FromProto(ToProto(d)), d);
}

// Every kind of command survives writing and reading with the same bytes.
TEST(WorkerSerialTest, CommandsComeBackTheSameBytes) {
  api::Transfer transfer{.launch = 3,
                         .sequence = 4,
                         .result = 5,
                         .dtype = DType::kBF16,
                         .local_shape = {4, 2},
                         .shards = {},
                         .timeout = absl::Seconds(2)};
  transfer.shards.push_back({1, {{false, 9, 2, "h:1", "ticket", {0, 0}, {2, 0}, {2, 2}, "w1/0"}}});
  Program one = Sample();
  one.in_shardings.clear();
  api::LoadProgram load{.executable = 1,
                        .name = "n",
                        .program = one,
                        .coordinates = {{0, 0}, {0, 1}, {1, 0}, {1, 1}},
                        .self = 1,
                        .tenant = "team-a"};
  const std::vector<api::Command> commands = {
      api::ConfigureCommunicator{1, {{"w/0", 3, "h:2"}, {"x/0", 4, "h:3"}}, 1, "s\0t"},
      api::CloseCommunicator{2},
      load,
      api::UnloadPrograms{{1, 2}},
      api::Launch{1, 2, 3, 4, {5, 6}, {7}, {true, false}, absl::Milliseconds(1), {{0, 3}}},
      api::Launch{},
      transfer,
      api::WriteBuffer{1, 2, Array::Scalar(DType::kF32, 3)},
      api::ReadBuffer{1, 2, 3},
      api::DeleteBuffers{{1}},
      api::CancelLaunch{1, MakeError(ErrorKind::kPeerFailed, "why")},
      api::Drain{},
      api::SaveShards{1,
                      2,
                      "a/b.npy",
                      "t",
                      true,
                      1,
                      2,
                      {{"x", DType::kBF16, {4, 2}}},
                      {{0, 7, 1, {2, 0}, {2, 2}}},
                      absl::Seconds(1)},
      api::LoadShards{1, "b.npy", {{"x", DType::kF32, {4}}}, {{0, 7, 1, {2}, {2}}}},
      api::InspectFile{1, "b.npy"},
      api::KillExecutor{"it hangs"},
      api::AcknowledgeReports{12}};
  EXPECT_GE(commands.size(), std::variant_size_v<api::Command>);
  for (const api::Command& c : commands) {
    const v1::Envelope wire = ToEnvelope(6, 7, c);
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::Command back, ReadCommand(wire));
    EXPECT_EQ(back.index(), c.index());
    EXPECT_EQ(ToEnvelope(6, 7, back).SerializeAsString(), wire.SerializeAsString());
  }
  EXPECT_THAT(ReadCommand(v1::Envelope()), ReasonIs("VALUE_ERROR"));
  EXPECT_EQ(load.LocalDevices(), (std::vector<std::pair<int64_t, int32_t>>{{2, 0}, {3, 1}}));
}

// Every kind of report survives writing and reading with the same bytes.
TEST(WorkerSerialTest, ReportsComeBackTheSameBytes) {
  const absl::Status lost = MakeError(ErrorKind::kWorkerLost, "gone");
  const std::vector<api::ReportBody> bodies = {
      api::Heartbeat{},
      api::Heartbeat{{{0, absl::ZeroDuration()}, {1, absl::Milliseconds(61'500)}}},
      api::CommunicatorReady{1, lost},
      api::ProgramLoaded{1, {}, 64},
      api::LaunchDone{
          1, absl::Milliseconds(2), {{7, 3, Array::Scalar(DType::kF32, 3)}}, {{true, 1e9, 5e-5}}},
      api::LaunchFailed{1, lost},
      api::BufferWritten{1, 2, lost},
      api::BufferRead{1, Array::Scalar(DType::kS32, 4)},
      api::BufferRead{1, lost},
      api::ExecutorLost{"signal 9", 4, "psum (a.cc:1)"},
      api::ExecutorReady{{0, 2, "cpu", 4, "h:1", "h:2", "h:3", 1 << 20, true, "h:/files"}},
      api::FileInspected{1, std::vector<api::FileArrayInfo>{{"x", DType::kBF16, {4, 2}}}},
      api::FileInspected{1, lost},
      api::ExecutorInventory{
          {{{1, 2}, {3}, {}}, {{}, {}, {4}}}, {5, 6}, {7}, {8}, {9}, {10}, {11, 12}, {0, 13}}};
  EXPECT_GE(bodies.size(), std::variant_size_v<api::ReportBody>);
  for (const api::ReportBody& body : bodies) {
    const v1::Envelope wire = ToEnvelope(api::Report{3, 4, body, 5});
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::Report back, ReadReport(wire));
    EXPECT_EQ(back.body.index(), body.index());
    EXPECT_EQ(back.number, 5u);
    EXPECT_EQ(ToEnvelope(back).SerializeAsString(), wire.SerializeAsString());
  }
  EXPECT_THAT(ReadReport(v1::Envelope()), ReasonIs("VALUE_ERROR"));
}

// Returns a T after `change` has changed it.
template <class T, class Change>
T With(Change change) {
  T message;
  change(message);
  return message;
}

// Fields that are outside their bounds or contradict each other are refused.
TEST(WorkerSerialTest, CommandsOutOfBoundsAreRefused) {
  const auto refuse = [](const api::Command& command, const char* reason, const char* why) {
    EXPECT_THAT(ReadCommand(ToEnvelope(0, 1, command)), ReasonIs(reason, why));
  };
  refuse(With<api::ConfigureCommunicator>([](auto& c) { c.self = 1; }), "VALUE_ERROR",
         "self is not one");
  api::LoadProgram load;
  load.executable = 6;
  load.program = Sample();
  load.coordinates = {{0, 0}};
  refuse(load, "VALUE_ERROR", "1 coordinates");
  api::Launch launch;
  launch.results = {7};
  launch.inline_results = {{1, 0}};
  refuse(launch, "VALUE_ERROR", "not one of the results");
  api::Transfer transfer;
  transfer.local_shape = {4};
  transfer.shards.push_back({0, {{}}});
  api::Transfer::Piece& piece = transfer.shards[0].pieces[0];
  piece.source_starts = {0};
  refuse(transfer, "VALUE_ERROR", "another rank");
  piece.dest_starts = {3};
  piece.shape = {2};
  refuse(transfer, "VALUE_ERROR", "does not lie inside the shard");
  transfer.local_shape = {-1};
  refuse(transfer, "VALUE_ERROR", "a dim has size -1");
  refuse(With<api::SaveShards>([](auto& c) { c.part = 1; }), "VALUE_ERROR", "part 1 of 1");
  api::LoadShards file;
  file.launch = 5;
  file.arrays = {{"x", DType::kF32, {4}}};
  file.shards = {{0, 7, 0, {3}, {2}}};
  refuse(file, "VALUE_ERROR", "does not lie inside its array");
  file.arrays[0].shape = Dims(40, 1);
  refuse(file, "LIMIT_EXCEEDED", "dims");
  file.arrays[0].name = std::string(1000, 'x');
  refuse(file, "VALUE_ERROR", "name is too long");
  // A sender that waits for the reply to an unreadable command gets an answer.
  const auto answer = [](const api::Command& command) {
    return FailureReportFor(ToEnvelope(0, 1, command), MakeError(ErrorKind::kValueError, "why"));
  };
  EXPECT_EQ(std::get<api::LaunchFailed>(*answer(file)).launch, 5u);
  EXPECT_EQ(std::get<api::ProgramLoaded>(*answer(load)).executable, 6u);
  EXPECT_EQ(std::get<api::BufferWritten>(*answer(api::WriteBuffer{7, 1, {}})).array, 7u);
  EXPECT_FALSE(answer(api::Drain{}).has_value());
}

// A registration with a missing, repeated or impossible field is refused.
TEST(WorkerSerialTest, RegistrationsAreChecked) {
  const api::Registration good{
      "w0",
      "host",
      kOpset,
      {{0, 1, "cpu", 4, "h:1", "h:2", "h:3", 0, true, "h:/files", false, 1e11, -1}},
      1 << 30};
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::Registration back, ReadRegistration(ToEnvelope(good)));
  EXPECT_EQ(back.executors[0].num_devices, 4);
  EXPECT_EQ(back.executors[0].files_folder, "h:/files");
  EXPECT_EQ(back.executors[0].flops_per_second, 1e11);
  EXPECT_EQ(back.executors[0].memory_bytes_per_second, 0) << "what cannot be is unknown";
  EXPECT_EQ(back.host_memory_bytes, 1 << 30);
  auto refuse = [&](auto change, const char* why) {
    api::Registration bad = good;
    change(bad);
    EXPECT_THAT(ReadRegistration(ToEnvelope(bad)), ReasonIs("VALUE_ERROR", why));
  };
  refuse([](auto& r) { r.worker = ""; }, "name");
  refuse([](auto& r) { r.worker = "a/b"; }, "name");
  refuse([](auto& r) { r.executors.clear(); }, "0 executors");
  refuse([](auto& r) { r.executors.push_back(r.executors[0]); }, "twice");
  refuse([](auto& r) { r.executors[0].num_devices = 0; }, "0 devices");
  refuse([](auto& r) { r.executors[0].num_devices = 1 << 20; }, "devices");
  refuse([](auto& r) { r.executors[0].incarnation = 0; }, "incarnation");
  refuse([](auto& r) { r.executors[0].index = -1; }, "index");
}

TEST(ServiceSerialTest, RepliesComeBack) {
  const api::ArraySpec spec{DType::kF32, {8, 4}, {TwoByTwo(), Spec({{"data"}}), {3, 2, 1, 0}}};
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::ArraySpec back, FromProto(ToProto(spec)));
  EXPECT_EQ(back.placement, spec.placement);
  EXPECT_EQ(back.shape, spec.shape);
  api::Operation op{5, "train", api::OperationState::kFailed,
                    MakeError(ErrorKind::kPeerFailed, "x"), "waits"};
  const api::Operation op_back = FromProto(ToProto(op));
  EXPECT_EQ(op_back.state, op.state);
  EXPECT_EQ(op_back.error, op.error);
  EXPECT_EQ(op_back.pending_reason, "waits");
}

TEST(ServiceSerialTest, AnInfiniteTimeLimitDiffersFromNone) {
  api::ExecuteRequest request;
  EXPECT_FALSE(FromProto(ToProto(request)).time_limit.has_value());
  request.time_limit = absl::InfiniteDuration();
  EXPECT_GT(FromProto(ToProto(request)).time_limit, absl::Hours(24) * 365'000);
}

}  // namespace
}  // namespace tessera::ir::serial
