// Proves that every kind of record survives encoding and decoding, and that rows which cannot be
// read are named. Each test builds a record in which every stored member has a value.
#include "server/rows/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/testing/status_matchers.h"
#include "ir/text.h"

namespace tessera::server::rows {
namespace {

using core::RowKind;
using scheduler::RowChange;

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

ir::PartitionSpec AlongX() {
  ir::PartitionSpec spec;
  spec.dims = {{"x"}, {}};
  return spec;
}

scheduler::SpecRef Spec() {
  api::ArraySpec spec;
  spec.shape = {8, 2};
  spec.placement.mesh = ir::Mesh{{{"x", 2}}};
  spec.placement.spec = AlongX();
  spec.placement.devices = {4, 5};
  return std::make_shared<const api::ArraySpec>(spec);
}

RowChange ASession() {
  scheduler::Session session;
  session.tenant = "a";
  session.display_name = "notebook";
  session.lease = absl::Seconds(30);
  return {{RowKind::kSession, 7}, session};
}

RowChange AnArray() {
  scheduler::ArrayRecord array;
  array.spec = Spec();
  array.tenant = "a";
  array.session = 7;
  array.state = scheduler::ArrayState::kLost;
  array.error = MakeError(ErrorKind::kWorkerLost, "lost with its shards on w0");
  array.holders = {{4, 11}, {5, 12}};
  array.deleted = true;
  array.donated_to = 9;
  return {{RowKind::kArray, 8}, array};
}

RowChange AnOperation(scheduler::Work work) {
  scheduler::Operation op;
  op.id = 9;
  op.name = "f";
  op.tenant = "a";
  op.session = op.client_session_id = 7;
  op.kind = api::OperationKind::kReshard;
  op.wall_ahead = absl::Seconds(1000);
  op.created = At(10);
  op.started = At(20);
  op.ended_at = At(30);
  op.deadline = At(5000);
  op.time_allowed = absl::Seconds(5);
  op.state = api::OperationState::kCancelled;
  op.error = MakeError(ErrorKind::kCancelled, "enough");
  op.work = std::move(work);
  op.args = {8, 3};
  op.results = {10};
  op.sequence = 99;
  op.generation = 5;
  op.outstanding = {{"w0/0", 11}, {"w1/0", 13}};
  op.inputs_gone = true;
  op.peer_error = MakeError(ErrorKind::kPeerFailed, "w1/0 closed the connection");
  return {{RowKind::kOperation, 9}, op};
}

// Returns an executable whose plan has every member that is stored.
RowChange AnExecutable() {
  scheduler::Executable x;
  x.key = "a|hash@4,5";
  x.name = "f";
  x.tenant = "a";
  x.devices = {4, 5};
  x.state = scheduler::ExecutableState::kPlanned;
  auto plan = std::make_shared<core::Plan>();
  plan->mesh = ir::Mesh{{{"x", 2}}};
  // The program has ops with attributes and regions.
  const auto program = ir::ParseProgram(R"(
func main(%c: f32[8]) -> (f32[8]) {
  %last = scan(%c) {num_consts=0, num_carry=1, length=3, reverse=false} with
    func step(%carry: f32[8]) -> (f32[8]) {
      %next = sine(%carry)
      return %next
    }
  return %last
}
)");
  EXPECT_THAT(program.status(), IsOk());
  plan->device_program = program->entry;
  plan->in = plan->out = {{ir::DType::kF32, {8, 2}, AlongX()}};
  plan->collectives = {{"psum", {"x"}, 3, 4096}};
  plan->memory_bound_bytes = 1 << 20;
  plan->predicted_seconds = 0.5;
  plan->explain_text = "text";
  plan->explain_json = "{}";
  x.plan = plan;
  return {{RowKind::kExecutable, 12}, x};
}

RowChange AWorker() {
  scheduler::Worker worker;
  worker.host = "h";
  worker.host_memory_bytes = 1 << 30;
  worker.cordoned = worker.draining = true;
  worker.cordon_reason = "disk";
  return {{RowKind::kWorker, 0, "w0"}, worker};
}

RowChange AnExecutor() {
  scheduler::Executor executor;
  executor.name = "w0/1";
  executor.worker = "w0";
  executor.host = "h";
  executor.info.index = 1;
  executor.info.incarnation = 11;
  executor.info.device_kind = "cpu";
  executor.info.num_devices = 2;
  executor.info.data_endpoint = "h:1";
  executor.info.peer_endpoint = "h:2";
  executor.info.peer_data_endpoint = "h:3";
  executor.info.memory_bytes = 1 << 20;
  executor.info.files = true;
  executor.info.files_folder = "id";
  executor.first_device = 4;
  executor.lost_reason = "killed";
  return {{RowKind::kExecutor, 0, "w0/1"}, executor};
}

RowChange AMesh() {
  return {{RowKind::kMesh, 0, "a/pair"}, scheduler::NamedMesh{ir::Mesh{{{"x", 2}}}, {4, 5}}};
}

RowChange AnAnswer() {
  return {
      {RowKind::kAnswer, 3},
      scheduler::AnswerRecord{
          "a", scheduler::CallKind::kExecute, "id", std::string("\x00\xff", 2), 9, {10, 11}, {}}};
}

RowChange AProgram() {
  return {{RowKind::kProgram, 0, "a/" + std::string(64, '0')},
          scheduler::UploadedProgram{std::make_shared<const std::string>("\x00\xff", 2),
                                     scheduler::ProgramFormat::kStablehlo}};
}

// Checks that the change is the same after encoding, decoding and encoding again. Returns the
// decoded change.
RowChange RoundTrip(const RowChange& change) {
  const std::vector<core::Row> rows = Encode({change});
  auto decoded = Decode(rows);
  EXPECT_THAT(decoded.status(), IsOk());
  if (!decoded.ok()) return {};
  EXPECT_EQ(decoded->size(), 1u);
  EXPECT_EQ((*decoded)[0].key, change.key);
  EXPECT_EQ((*decoded)[0].record.index(), change.record.index());
  EXPECT_EQ(Encode(*decoded), rows);
  return (*decoded)[0];
}

TEST(Rows, ALostArrayOfAnEarlierBuildNamesItselfOnce) {
  RowChange change = AnArray();
  std::get<scheduler::ArrayRecord>(change.record).error =
      MakeError(ErrorKind::kWorkerLost, "array 8 is lost with its shards on w0");
  const auto read = Decode(Encode({change}));
  ASSERT_TRUE(read.ok()) << read.status();
  const auto& array = std::get<scheduler::ArrayRecord>((*read)[0].record);
  EXPECT_EQ(array.error.message(), "lost with its shards on w0");
  EXPECT_THAT(array.error, ReasonIs("WORKER_LOST"));
}

TEST(Rows, EveryRecordSurvivesARoundTrip) {
  const auto session = std::get<scheduler::Session>(RoundTrip(ASession()).record);
  EXPECT_EQ(session.display_name, "notebook");
  EXPECT_EQ(session.lease, absl::Seconds(30));
  const auto array = std::get<scheduler::ArrayRecord>(RoundTrip(AnArray()).record);
  EXPECT_EQ(array.spec->shape, Spec()->shape);
  EXPECT_EQ(array.spec->placement.devices, Spec()->placement.devices);
  EXPECT_EQ(array.state, scheduler::ArrayState::kLost);
  EXPECT_THAT(array.error, ReasonIs("WORKER_LOST"));
  EXPECT_TRUE((array.holders == scheduler::IdMap<uint64_t>{{4, 11}, {5, 12}}));
  EXPECT_TRUE(array.deleted);
  EXPECT_EQ(array.donated_to, 9u);
  const auto x = std::get<scheduler::Executable>(RoundTrip(AnExecutable()).record);
  EXPECT_EQ(x.key, "a|hash@4,5");
  EXPECT_EQ(x.plan->device_program->ops.size(), 1u);
  EXPECT_EQ(x.plan->in[0].spec, AlongX());
  EXPECT_EQ(x.plan->collectives[0].bytes_per_device, 4096);
  EXPECT_EQ(x.plan->explain_text, "text");
  EXPECT_TRUE(std::get<scheduler::Worker>(RoundTrip(AWorker()).record).draining);
  const auto executor = std::get<scheduler::Executor>(RoundTrip(AnExecutor()).record);
  EXPECT_EQ(executor.info.files_folder, "id");
  EXPECT_EQ(executor.lost_reason, "killed");
  EXPECT_EQ(std::get<scheduler::NamedMesh>(RoundTrip(AMesh()).record).devices.size(), 2u);
  const auto answer = std::get<scheduler::AnswerRecord>(RoundTrip(AnAnswer()).record);
  EXPECT_EQ(answer.tenant, "a");
  EXPECT_EQ(answer.call, scheduler::CallKind::kExecute);
  EXPECT_EQ(answer.request_id, "id");
  EXPECT_EQ(answer.payload, std::string("\x00\xff", 2));
  EXPECT_EQ(answer.made, 9u);
  EXPECT_THAT(answer.arrays, ::testing::ElementsAre(10, 11));
  EXPECT_EQ(std::get<scheduler::UploadedProgram>(RoundTrip(AProgram()).record).format,
            scheduler::ProgramFormat::kStablehlo);
  EXPECT_EQ(*std::get<scheduler::UploadedProgram>(RoundTrip(AProgram()).record).bytes,
            std::string("\x00\xff", 2));
}

TEST(Rows, TheTimesOfAnOperationBecomeThoseOfTheWallClock) {
  const auto op = std::get<scheduler::Operation>(
      RoundTrip(
          AnOperation(scheduler::Run{.executable = 12, .donate = {true, false}, .originals = {4}}))
          .record);
  EXPECT_EQ(op.created, At(1'000'010));
  EXPECT_EQ(op.deadline, At(1'005'000));
  EXPECT_EQ(op.wall_ahead, absl::ZeroDuration());
  EXPECT_EQ(op.state, api::OperationState::kCancelled);
  EXPECT_EQ(op.kind, api::OperationKind::kReshard);
  EXPECT_EQ(op.run()->executable, 12u);
  EXPECT_THAT(op.run()->donate, ::testing::ElementsAre(true, false));
  EXPECT_THAT(op.run()->originals, ::testing::ElementsAre(4));
  EXPECT_EQ(op.outstanding.at("w1/0"), 13u);
  EXPECT_TRUE(op.inputs_gone);
}

TEST(Rows, EveryKindOfWorkSurvivesARoundTrip) {
  const std::vector<api::FileArrayInfo> arrays = {{"x", ir::DType::kS32, {2}}};
  RoundTrip(AnOperation(scheduler::Transfer{}));
  const auto save = std::get<scheduler::Save>(
      std::get<scheduler::Operation>(
          RoundTrip(AnOperation(scheduler::Save{"a/f", true, arrays, {1, 0}})).record)
          .work);
  EXPECT_THAT(save.ordinals, ::testing::ElementsAre(1, 0));
  EXPECT_EQ(save.path, "a/f");
  EXPECT_TRUE(save.overwrite);
  EXPECT_EQ(save.arrays, arrays);
  const auto load = std::get<scheduler::Load>(
      std::get<scheduler::Operation>(RoundTrip(AnOperation(scheduler::Load{"a/f", arrays})).record)
          .work);
  EXPECT_EQ(load.arrays, arrays);
}

TEST(Rows, ADeletedRecordHasNoValue) {
  const std::vector<core::Row> rows = Encode({RowChange{{RowKind::kArray, 8}, {}}});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].key, core::IdKey(8));
  EXPECT_FALSE(rows[0].value.has_value());
}

TEST(Rows, AnErrorNamesTheRowThatCannotBeRead) {
  std::vector<core::Row> rows = Encode({AnArray()});
  rows[0].value = "\xff\xff";
  EXPECT_THAT(Decode(rows).status(), ReasonIs("STORE_FAILED", "a row of array"));
  rows = Encode({ASession()});
  rows[0].key = "short";
  EXPECT_THAT(Decode(rows).status(), ReasonIs("STORE_FAILED", "the key is not an id"));
}

TEST(Rows, AnExecutorOfAnOlderBuildIsKnownByItsDevices) {
  const auto decoded = Decode({RowOf(
      {.worker = "w0", .device_kind = "cpu", .index = 1, .num_devices = 2, .first_device = 4})});
  TESSERA_ASSERT_OK(decoded.status());
  const auto& executor = std::get<scheduler::Executor>((*decoded)[0].record);
  EXPECT_EQ(executor.name, "w0/1");
  EXPECT_EQ(executor.first_device, 4);
  EXPECT_EQ(executor.info.incarnation, 0u);
}

}  // namespace
}  // namespace tessera::server::rows
