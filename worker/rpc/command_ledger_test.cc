// Proves what the ledger says of operations, executables and communicators from their command to
// their end, and that answers reach only the stream of their request. The tests pass commands and
// reports directly to it.
#include "worker/rpc/command_ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CommandLedgerTest : public ::testing::Test {
 protected:
  template <class Command>
  static Command MakeCommand(uint64_t launch) {
    Command command;
    command.launch = launch;
    return command;
  }
  void RecordCommand(api::Command command) { ledger_.RecordCommand(command); }
  bool RecordReport(api::ReportBody report) { return ledger_.RecordReport(report); }
  api::ExecutorInventory MakeInventory() const {
    api::ExecutorInventory inventory;
    ledger_.Describe(&inventory);
    return inventory;
  }
  // Records a read with the coordinator's number `request`. Returns the number that the ledger has
  // given to the request.
  uint64_t RecordRead(uint64_t request) {
    api::Command command = api::ReadBuffer{request, 1, 0};
    ledger_.RecordCommand(command);
    return std::get<api::ReadBuffer>(command).request;
  }

  CommandLedger ledger_;
};

TEST_F(CommandLedgerTest, AnOperationRunsFromItsCommandToItsEnd) {
  RecordCommand(MakeCommand<api::Launch>(9));
  RecordCommand(MakeCommand<api::Transfer>(7));
  RecordCommand(MakeCommand<api::SaveShards>(8));
  RecordCommand(MakeCommand<api::LoadShards>(6));
  EXPECT_THAT(MakeInventory().running, ElementsAre(6, 7, 8, 9));
  EXPECT_TRUE(RecordReport(api::LaunchDone{9, absl::ZeroDuration()}));
  EXPECT_TRUE(RecordReport(api::LaunchFailed{6, absl::InternalError("no")}));
  EXPECT_THAT(MakeInventory().running, ElementsAre(7, 8));
}

TEST_F(CommandLedgerTest, ARunningOperationIsListedWithItsSequenceAndGeneration) {
  api::Launch launch;
  launch.launch = 9;
  launch.sequence = 4;
  launch.generation = 2;
  api::Transfer transfer;
  transfer.launch = 7;
  transfer.sequence = 5;
  RecordCommand(launch);
  RecordCommand(transfer);
  EXPECT_THAT(MakeInventory().running, ElementsAre(7, 9));
  EXPECT_THAT(MakeInventory().sequences, ElementsAre(5, 4));
  EXPECT_THAT(MakeInventory().running_generations, ElementsAre(0, 2));
}

TEST_F(CommandLedgerTest, AnExecutableIsCompiledThenLoadedUntilItIsUnloaded) {
  for (const uint64_t id : {3, 4, 5}) {
    api::LoadProgram load;
    load.executable = id;
    RecordCommand(std::move(load));
  }
  EXPECT_THAT(MakeInventory().compiling, ElementsAre(3, 4, 5));
  EXPECT_TRUE(RecordReport(api::ProgramLoaded{4, absl::OkStatus(), 0}));
  EXPECT_TRUE(RecordReport(api::ProgramLoaded{5, absl::InternalError("no"), 0}));
  EXPECT_THAT(MakeInventory().compiling, ElementsAre(3));
  EXPECT_THAT(MakeInventory().executables, ElementsAre(4));
  RecordCommand(api::UnloadPrograms{{3, 4}});
  EXPECT_TRUE(RecordReport(api::ProgramLoaded{3, absl::OkStatus(), 0}));
  EXPECT_THAT(MakeInventory().compiling, IsEmpty());
  EXPECT_THAT(MakeInventory().executables, IsEmpty());
}

TEST_F(CommandLedgerTest, ACommunicatorIsListedUntilItIsClosed) {
  for (const uint64_t generation : {8, 7}) {
    api::ConfigureCommunicator configure;
    configure.generation = generation;
    RecordCommand(std::move(configure));
  }
  EXPECT_THAT(MakeInventory().generations, ElementsAre(7, 8));
  RecordCommand(api::CloseCommunicator{7});
  EXPECT_THAT(MakeInventory().generations, ElementsAre(8));
}

TEST_F(CommandLedgerTest, AnAnswerGoesToTheStreamOfItsRequestOnly) {
  const uint64_t first = RecordRead(1), other = RecordRead(2);
  api::ReportBody answer = api::BufferRead{other, absl::NotFoundError("none")};
  EXPECT_TRUE(ledger_.RecordReport(answer));
  EXPECT_EQ(std::get<api::BufferRead>(answer).request, 2u);
  EXPECT_FALSE(ledger_.RecordReport(answer)) << "the request has been answered";
  ledger_.ForgetRequests();
  // Another coordinator sends a request with the same number.
  const uint64_t second = RecordRead(1);
  EXPECT_FALSE(RecordReport(api::BufferRead{first, absl::NotFoundError("none")}));
  answer = api::BufferRead{second, absl::NotFoundError("none")};
  EXPECT_TRUE(ledger_.RecordReport(answer));
  EXPECT_EQ(std::get<api::BufferRead>(answer).request, 1u);
}

}  // namespace
}  // namespace tessera::worker::rpc
