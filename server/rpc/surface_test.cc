// Proves what clients see of sessions, arrays, operations, workers, meshes and limits. For every
// method the tests check the answer, and every error that the method's comment lists and that can
// occur here. Calls go over a loopback port to a coordinator with a reference worker
// (testing/edge.h).
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "grpcpp/generic/generic_stub.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "server/rpc/testing/edge.h"
#include "tessera/v1/admin.grpc.pb.h"
#include "tessera/v1/array.grpc.pb.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/operation.grpc.pb.h"
#include "tessera/v1/program_service.grpc.pb.h"
#include "tessera/v1/session.grpc.pb.h"

namespace tessera::server::rpc {

namespace {

using Admin = v1::AdminService;
using Arrays = v1::ArrayService;
using Cluster = v1::ClusterService;
using Operations = v1::OperationService;
using Programs = v1::ProgramService;
using Sessions = v1::SessionService;
using ir::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ArraySpec Spec(ir::Dims shape = {4, 2}, DType dtype = DType::kF32) {
  api::ArraySpec spec{dtype, std::move(shape), {{{{"x", 4}}}, {}, {0, 1, 2, 3}}};
  spec.placement.spec.dims = {{"x"}};
  return ir::serial::ToProto(spec);
}

// ---- Sessions. ----------------------------------------------------------------------------------
class SessionsTest : public SurfaceTest {
 protected:
  absl::StatusOr<v1::Session> Create(std::function<void(v1::CreateSessionRequest&)> fill = {}) {
    v1::CreateSessionRequest q;
    if (fill) fill(q);
    return Do<Sessions>(&Sessions::Stub::CreateSession, q);
  }
};

TEST_F(SessionsTest, SessionsAreOpenedRenewedAndDeleted) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session session, Create([](auto& q) {
                                 q.set_display_name("train.py");
                                 q.mutable_lease()->set_seconds(30);
                               }));
  EXPECT_EQ(session.name(), absl::StrCat("tenants/default/sessions/", session.id()));
  EXPECT_EQ(session.display_name(), "train.py");
  EXPECT_EQ(session.lease().seconds(), 30);
  v1::GetSessionRequest get;
  get.set_session(session.id());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session got,
                               Do<Sessions>(&Sessions::Stub::GetSession, get));
  // The lease is measured on a steady clock. The date of its end is computed anew for each answer,
  // and may differ a little.
  v1::Session dated = got;
  *dated.mutable_expire_time() = session.expire_time();
  EXPECT_EQ(dated.SerializeAsString(), session.SerializeAsString());
  EXPECT_LT(absl::AbsDuration(ir::serial::FromProto(got.expire_time()) -
                              ir::serial::FromProto(session.expire_time())),
            absl::Seconds(1));
  v1::RenewSessionRequest renew;
  renew.set_session(session.id());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session renewed,
                               Do<Sessions>(&Sessions::Stub::RenewSession, renew));
  EXPECT_GE(ir::serial::FromProto(renewed.expire_time()),
            ir::serial::FromProto(session.expire_time()));
  v1::DeleteSessionRequest end;
  end.set_session(session.id());
  TESSERA_EXPECT_OK(Do<Sessions>(&Sessions::Stub::DeleteSession, end));
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::DeleteSession, end), ReasonIs("SESSION_NOT_FOUND"));
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::GetSession, get), ReasonIs("SESSION_NOT_FOUND"));
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::RenewSession, renew), ReasonIs("SESSION_NOT_FOUND"));
  end.set_session(0);
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::DeleteSession, end), ReasonIs("VALUE_ERROR", "stays"));
  EXPECT_THAT(Create([](auto& q) { q.mutable_lease()->set_seconds(-1); }), ReasonIs("VALUE_ERROR"));
}

TEST_F(SessionsTest, RequestIdsMakeRetriesSafe) {
  const auto create = [&](const std::string& name, const std::string& id) {
    return Create([&](auto& q) {
      q.set_display_name(name);
      q.set_request_id(id);
    });
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session first, create("a", "one"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session again, create("a", "one"));
  EXPECT_EQ(first.id(), again.id());
  EXPECT_THAT(create("b", "one"), ReasonIs("REQUEST_ID_REUSED", "'one'"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session other, create("b", "two"));
  EXPECT_NE(other.id(), first.id());
  EXPECT_THAT(create("a", std::string(65, 'x')), ReasonIs("VALUE_ERROR", "request_id"));
}

TEST_F(SessionsTest, ListsGoByPages) {
  std::vector<uint64_t> ids;
  for (int i = 0; i < 5; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session session, Create());
    ids.push_back(session.id());
  }
  std::vector<uint64_t> listed;
  v1::ListSessionsRequest list;
  list.set_page_size(2);
  int pages = 0;
  do {
    TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ListSessionsResponse page,
                                 Do<Sessions>(&Sessions::Stub::ListSessions, list));
    for (const v1::Session& s : page.sessions()) listed.push_back(s.id());
    list.set_page_token(page.next_page_token());
    ++pages;
  } while (!list.page_token().empty());
  EXPECT_EQ(listed, ids);
  EXPECT_EQ(pages, 3);
  list.set_page_size(-1);
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::ListSessions, list), ReasonIs("VALUE_ERROR"));
}

// Every List method refuses a page token of another list and a negative page size.
TEST_F(SessionsTest, ListsRefusePageTokensOfOtherLists) {
  for (int i = 0; i < 2; ++i) TESSERA_ASSERT_OK(Create());
  v1::ListSessionsRequest sessions;
  sessions.set_page_size(1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ListSessionsResponse page,
                               Do<Sessions>(&Sessions::Stub::ListSessions, sessions));
  const auto expect_refused = [&](auto* service, auto method, auto request) {
    using Service = std::remove_pointer_t<decltype(service)>;
    for (const std::string& token : {page.next_page_token(), std::string("garbage")}) {
      request.set_page_token(token);
      EXPECT_THAT(Do<Service>(method, request), ReasonIs("VALUE_ERROR", "page_token"))
          << request.GetDescriptor()->name();
    }
    request.clear_page_token();
    request.set_page_size(-1);
    EXPECT_THAT(Do<Service>(method, request), ReasonIs("VALUE_ERROR", "-1 is negative"));
    request.set_page_size(1'000'000);
    TESSERA_EXPECT_OK(Do<Service>(method, request));
  };
  expect_refused(static_cast<Cluster*>(nullptr), &Cluster::Stub::ListDevices,
                 v1::ListDevicesRequest());
  expect_refused(static_cast<Cluster*>(nullptr), &Cluster::Stub::ListWorkers,
                 v1::ListWorkersRequest());
  expect_refused(static_cast<Cluster*>(nullptr), &Cluster::Stub::ListMeshes,
                 v1::ListMeshesRequest());
  expect_refused(static_cast<Arrays*>(nullptr), &Arrays::Stub::ListArrays, v1::ListArraysRequest());
  expect_refused(static_cast<Programs*>(nullptr), &Programs::Stub::ListPrograms,
                 v1::ListProgramsRequest());
  expect_refused(static_cast<Operations*>(nullptr), &Operations::Stub::ListOperations,
                 v1::ListOperationsRequest());
}

// An open stream of HoldSession.
class SessionHold {
 public:
  SessionHold(const std::shared_ptr<grpc::Channel>& channel, uint64_t session)
      : stub_(Sessions::NewStub(channel)) {
    v1::HoldSessionRequest q;
    q.set_session(session);
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    reader_ = stub_->HoldSession(&context_, q);
    held_ = reader_->Read(&session_);
  }
  bool held() const { return held_; }
  const v1::Session& session() const { return session_; }
  // If `leave` is true, cancels the stream and returns OK. If it is false, waits until the server
  // ends the stream, and returns the stream's status.
  absl::Status End(bool leave) {
    if (leave) context_.TryCancel();
    while (reader_->Read(&session_)) continue;
    const grpc::Status status = reader_->Finish();
    return leave ? absl::OkStatus() : ReadStatus(status);
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Sessions::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::Session>> reader_;
  v1::Session session_;
  bool held_ = false;
};

TEST_F(SessionsTest, AHoldStreamEndsWithItsSession) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session session, Create());
  EXPECT_EQ(ir::serial::FromProto(session.grace()), coordinator_.config().session_grace);
  SessionHold first(channel_, session.id());
  ASSERT_TRUE(first.held());
  EXPECT_EQ(first.session().id(), session.id());
  SessionHold second(channel_, session.id());
  TESSERA_EXPECT_OK(second.End(/*leave=*/true));
  v1::DeleteSessionRequest end;
  end.set_session(session.id());
  TESSERA_EXPECT_OK(Do<Sessions>(&Sessions::Stub::DeleteSession, end));
  EXPECT_THAT(first.End(/*leave=*/false), ReasonIs("SESSION_NOT_FOUND", "it was deleted"));
  EXPECT_THAT(SessionHold(channel_, session.id()).End(false), ReasonIs("SESSION_NOT_FOUND"));
  EXPECT_THAT(SessionHold(channel_, 0).End(false), ReasonIs("VALUE_ERROR", "cannot be held"));
}

class SmallLimitsTest : public SurfaceTest {
 protected:
  SmallLimitsTest() : SurfaceTest(false, SmallLimits()) {}
  static Options SmallLimits() {
    Options options = OptionsWithoutHeartbeats();
    options.sessions_max = 1;
    options.meshes_max = 1;
    options.arrays_max = 1;
    options.relay_bytes_max = 64;
    options.session_lease_ms = 2'000;
    return options;
  }
};

TEST_F(SmallLimitsTest, ErrorsNameTheLimitThatIsReached) {
  v1::CreateSessionRequest long_lived;
  long_lived.mutable_lease()->set_seconds(600);
  TESSERA_ASSERT_OK(Do<Sessions>(&Sessions::Stub::CreateSession, long_lived));
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::CreateSession, v1::CreateSessionRequest()),
              ReasonIs("LIMIT_EXCEEDED", "at most 1"));
  v1::CreateMeshRequest mesh;
  mesh.mutable_mesh()->set_name("m");
  *mesh.mutable_mesh()->mutable_mesh() = ir::serial::ToProto(ir::Mesh{{{"x", 2}}});
  TESSERA_ASSERT_OK(Do<Cluster>(&Cluster::Stub::CreateMesh, mesh));
  mesh.mutable_mesh()->set_name("n");
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::CreateMesh, mesh),
              ReasonIs("LIMIT_EXCEEDED", "at most 1"));
  v1::CreateArrayRequest create;
  *create.mutable_spec() = Spec();
  TESSERA_ASSERT_OK(Do<Arrays>(&Arrays::Stub::CreateArray, create));
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::CreateArray, create),
              ReasonIs("LIMIT_EXCEEDED", "at most 1"));
  v1::WriteArrayRequest write;
  *write.mutable_spec() = Spec({8, 4});
  write.set_data(std::string(128, '\0'));
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::WriteArray, write),
              ReasonIs("LIMIT_EXCEEDED", "relay_bytes_max"));
}

// The results of a run count against the bound on arrays, and so do the temporary arrays into which
// its arguments are copied.
TEST_F(SmallLimitsTest, ARunThatNeedsMoreThanArraysMaxIsRefused) {
  v1::CreateArrayRequest create;
  *create.mutable_spec() = Spec();
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CreateArrayResponse created,
                               Do<Arrays>(&Arrays::Stub::CreateArray, create));
  v1::CompileProgramRequest compile;
  *compile.mutable_program() = ir::serial::ToProto(Product());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse compiled,
                               Do<Programs>(&Programs::Stub::CompileProgram, compile));
  v1::ExecuteProgramRequest execute;
  execute.set_executable(compiled.executable());
  for (int i = 0; i < 2; ++i) execute.add_args(created.array());
  EXPECT_THAT(Do<Programs>(&Programs::Stub::ExecuteProgram, execute),
              ReasonIs("LIMIT_EXCEEDED", "1 of at most 1 exist"));
  v1::ReshardArrayRequest reshard;
  reshard.set_array(created.array());
  *reshard.mutable_placement() = Spec().placement();
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ReshardArray, reshard),
              ReasonIs("LIMIT_EXCEEDED", "at most 1"));
}

TEST_F(SmallLimitsTest, ArraysOfASessionAreDeletedWhenItsLeaseEnds) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const v1::Session session,
      Do<Sessions>(&Sessions::Stub::CreateSession, v1::CreateSessionRequest()));
  v1::WriteArrayRequest write;
  *write.mutable_spec() = Spec();
  write.set_data(std::string(32, '\0'));
  write.set_session(session.id());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::WriteArrayResponse written,
                               Do<Arrays>(&Arrays::Stub::WriteArray, write));
  EXPECT_EQ(worker_->num_buffers(), 4);
  v1::GetArrayRequest get;
  get.set_array(written.array());
  const absl::Time until = absl::Now() + absl::Seconds(20);
  absl::StatusOr<v1::Array> array;
  do {
    array = Do<Arrays>(&Arrays::Stub::GetArray, get);
  } while (array.ok() && absl::Now() < until);
  EXPECT_THAT(array, ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(worker_->num_buffers(), 0);
}

// ---- Arrays. ------------------------------------------------------------------------------------
class ArraysTest : public SurfaceTest {
 protected:
  absl::StatusOr<uint64_t> Write(std::function<void(v1::WriteArrayRequest&)> fill = {}) {
    v1::WriteArrayRequest q;
    *q.mutable_spec() = Spec();
    q.set_data(Bytes());
    if (fill) fill(q);
    TESSERA_ASSIGN_OR_RETURN(const v1::WriteArrayResponse r,
                             Do<Arrays>(&Arrays::Stub::WriteArray, q));
    return r.array();
  }
  static std::string Bytes() {
    const float values[] = {0, 1, 2, 3, 4, 5, 6, 7};
    return {reinterpret_cast<const char*>(values), sizeof(values)};
  }
};

TEST_F(ArraysTest, SmallArraysAreWrittenAndReadInOneCall) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Write());
  v1::ReadArrayRequest read;
  read.set_array(array);
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::ReadArrayResponse r, Do<Arrays>(&Arrays::Stub::ReadArray, read));
  EXPECT_EQ(r.type(), "f32[4,2]");
  EXPECT_EQ(r.literal().data(), Bytes());
  read.set_json(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(r, Do<Arrays>(&Arrays::Stub::ReadArray, read));
  EXPECT_EQ(r.json().list_value().values(3).list_value().values(1).number_value(), 7);
  // The JSON that ReadArray returns can be passed to WriteArray.
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t copy,
                               Write([&](auto& q) { *q.mutable_json() = r.json(); }));
  read.set_array(copy);
  read.set_json(false);
  TESSERA_ASSERT_OK_AND_ASSIGN(r, Do<Arrays>(&Arrays::Stub::ReadArray, read));
  EXPECT_EQ(r.literal().data(), Bytes());
}

TEST_F(ArraysTest, WriteArrayRefusesInvalidRequests) {
  EXPECT_THAT(Write([](auto& q) { q.set_data("short"); }),
              ReasonIs("VALUE_ERROR", "5 bytes were sent"));
  EXPECT_THAT(Write([](auto& q) { q.clear_data(); }), ReasonIs("VALUE_ERROR", "no value"));
  EXPECT_THAT(Write([](auto& q) { q.mutable_json()->set_number_value(1); }),
              ReasonIs("VALUE_ERROR", "a list of 4"));
  EXPECT_THAT(Write([](auto& q) { q.set_session(9); }), ReasonIs("SESSION_NOT_FOUND"));
  EXPECT_THAT(Write([](auto& q) { q.mutable_spec()->mutable_placement()->set_devices(0, 9); }),
              ReasonIs("NOT_ENOUGH_DEVICES"));
  EXPECT_THAT(Write([](auto& q) {
                q.mutable_spec()->mutable_shape()->Set(0, 3);
                q.set_data(std::string(24, '\0'));
              }),
              ReasonIs("INDIVISIBLE"));
  EXPECT_THAT(Write([](auto& q) {
                auto* axis = q.mutable_spec()->mutable_placement()->mutable_mesh()->mutable_axes(0);
                axis->set_name("y");
              }),
              ReasonIs("UNKNOWN_AXIS"));
}

TEST_F(ArraysTest, UnknownAndDeletedArraysAreNotRead) {
  v1::ReadArrayRequest read;
  read.set_array(99);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ReadArray, read), ReasonIs("ARRAY_NOT_FOUND"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t half, Write([](auto& q) {
                                 *q.mutable_spec() = Spec({4}, DType::kC64);
                                 q.set_data(std::string(32, '\0'));
                               }));
  read.set_array(half);
  TESSERA_EXPECT_OK(Do<Arrays>(&Arrays::Stub::ReadArray, read));
  read.set_json(true);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ReadArray, read), ReasonIs("NOT_IMPLEMENTED"));
  v1::DeleteArraysRequest del;
  for (uint64_t id : {uint64_t{99}, half, half}) del.add_arrays(id);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto deleted, Do<Arrays>(&Arrays::Stub::DeleteArrays, del));
  EXPECT_THAT(deleted.missing(), ElementsAre(99));
  TESSERA_ASSERT_OK_AND_ASSIGN(deleted, Do<Arrays>(&Arrays::Stub::DeleteArrays, del));
  EXPECT_THAT(deleted.missing(), ElementsAre(99, half, half));
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ReadArray, read), ReasonIs("ARRAY_DELETED"));
  for (int i = 0; i < 100'000; ++i) del.add_arrays(1);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::DeleteArrays, del), ReasonIs("LIMIT_EXCEEDED"));
}

TEST_F(ArraysTest, WriteTicketsAreIssuedAgainDuringAnUpload) {
  v1::CreateArrayRequest create;
  *create.mutable_spec() = Spec();
  create.set_validate_only(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::CreateArrayResponse created,
                               Do<Arrays>(&Arrays::Stub::CreateArray, create));
  EXPECT_EQ(created.array(), 0u);
  EXPECT_EQ(created.tickets_size(), 0);
  create.set_validate_only(false);
  TESSERA_ASSERT_OK_AND_ASSIGN(created, Do<Arrays>(&Arrays::Stub::CreateArray, create));
  v1::CreateWriteTicketsRequest tickets;
  tickets.set_array(created.array());
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::CreateWriteTicketsResponse given,
                               Do<Arrays>(&Arrays::Stub::CreateWriteTickets, tickets));
  EXPECT_EQ(given.tickets_size(), 4);
  tickets.add_ordinals(2);
  TESSERA_ASSERT_OK_AND_ASSIGN(given, Do<Arrays>(&Arrays::Stub::CreateWriteTickets, tickets));
  ASSERT_EQ(given.tickets_size(), 1);
  EXPECT_EQ(given.tickets(0).ordinal(), 2);
  tickets.set_ordinals(0, 4);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::CreateWriteTickets, tickets),
              ReasonIs("VALUE_ERROR", "shard 4 does not exist"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t whole, Write());
  tickets.set_array(whole);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::CreateWriteTickets, tickets),
              ReasonIs("VALUE_ERROR", "written already"));
  tickets.set_array(99);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::CreateWriteTickets, tickets), ReasonIs("ARRAY_NOT_FOUND"));
  // An array that is never written is not ready in time.
  v1::CreateReadTicketsRequest read;
  read.set_array(created.array());
  *read.mutable_timeout() = ir::serial::ToProto(absl::Milliseconds(10));
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::CreateReadTickets, read), ReasonIs("DEADLINE_EXCEEDED"));
}

TEST_F(ArraysTest, ArraysAreListedBySession) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const v1::Session session,
      Do<Sessions>(&Sessions::Stub::CreateSession, v1::CreateSessionRequest()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t own, Write());
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t first,
                               Write([&](auto& q) { q.set_session(session.id()); }));
  TESSERA_ASSERT_OK(Write([&](auto& q) { q.set_session(session.id()); }));
  v1::ListArraysRequest list;
  list.set_session(session.id());
  list.set_page_size(1);
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::ListArraysResponse page,
                               Do<Arrays>(&Arrays::Stub::ListArrays, list));
  ASSERT_EQ(page.arrays_size(), 1);
  EXPECT_EQ(page.arrays(0).id(), first);
  EXPECT_EQ(page.arrays(0).session(), session.id());
  EXPECT_EQ(page.arrays(0).bytes(), 32);
  EXPECT_EQ(page.arrays(0).state(), "READY");
  EXPECT_EQ(page.arrays(0).name(),
            absl::StrCat("tenants/default/sessions/", session.id(), "/arrays/", first));
  EXPECT_FALSE(page.next_page_token().empty());
  list.set_session(0);
  TESSERA_ASSERT_OK_AND_ASSIGN(page, Do<Arrays>(&Arrays::Stub::ListArrays, list));
  ASSERT_EQ(page.arrays_size(), 1);
  EXPECT_EQ(page.arrays(0).id(), own);
  list.set_session(9);
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ListArrays, list), ReasonIs("SESSION_NOT_FOUND"));
}

TEST_F(ArraysTest, ArraysAreReshardedByOneCall) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session session,
                               Do<Sessions>(&Sessions::Stub::CreateSession, {}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Write());
  v1::ReshardArrayRequest q;
  q.set_array(array);
  q.set_session(session.id());
  q.set_request_id("once");
  api::Placement columns{{{{"y", 2}}}, {}, {3, 1}};
  columns.spec.dims = {{}, {"y"}};
  *q.mutable_placement() = ir::serial::ToProto(columns);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ReshardArrayResponse made,
                               Do<Arrays>(&Arrays::Stub::ReshardArray, q));
  EXPECT_EQ(made.operation().kind(), "reshard");
  EXPECT_EQ(made.array().session(), session.id());
  EXPECT_THAT(made.array().spec().placement().devices(), ElementsAre(3, 1));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ReshardArrayResponse again,
                               Do<Arrays>(&Arrays::Stub::ReshardArray, q));
  EXPECT_EQ(again.array().id(), made.array().id());
  v1::ReadArrayRequest read;
  read.set_array(made.array().id());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ReadArrayResponse value,
                               Do<Arrays>(&Arrays::Stub::ReadArray, read));
  EXPECT_EQ(value.literal().data(), Bytes());
  v1::DeleteArraysRequest del;
  del.add_arrays(array);
  TESSERA_EXPECT_OK(Do<Arrays>(&Arrays::Stub::DeleteArrays, del));
  q.set_request_id("");
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ReshardArray, q), ReasonIs("ARRAY_DELETED"));
}

TEST_F(ArraysTest, FilesNeedAFolder) {
  v1::GetFileRequest q;
  q.set_path("x.npy");
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::GetFile, q), ReasonIs("FILES_DISABLED", "--files-dir"));
  q.set_path("../x.npy");
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::GetFile, q), ReasonIs("VALUE_ERROR", "dot"));
}

TEST_F(ArraysTest, ARepeatedWriteCreatesOneArray) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t a, Write([](auto& q) { q.set_request_id("w"); }));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t b, Write([](auto& q) { q.set_request_id("w"); }));
  EXPECT_EQ(a, b);
  EXPECT_THAT(Write([](auto& q) {
                q.set_request_id("w");
                q.mutable_data()->back() ^= 1;
              }),
              ReasonIs("REQUEST_ID_REUSED"));
  EXPECT_EQ(worker_->num_buffers(), 4);
}

// If a WriteArray comes several times at once, one copy of the call may find that another copy has
// written some or all of the shards.
TEST_F(ArraysTest, ConcurrentCopiesOfAWriteCreateOneArray) {
  for (int round = 0; round < 20; ++round) {
    std::vector<absl::StatusOr<uint64_t>> made(4);
    std::vector<std::thread> callers;
    for (absl::StatusOr<uint64_t>& array : made)
      callers.emplace_back([&] {
        array = Write([&](auto& q) { q.set_request_id(absl::StrCat("copies", round)); });
      });
    for (std::thread& caller : callers) caller.join();
    for (const absl::StatusOr<uint64_t>& array : made) {
      TESSERA_ASSERT_OK(array.status());
      EXPECT_EQ(*array, *made[0]);
    }
  }
}

// ---- Operations. --------------------------------------------------------------------------------
class OperationsTest : public ArraysTest {
 protected:
  absl::StatusOr<v1::ExecuteProgramResponse> Execute(
      const std::function<void(v1::ExecuteProgramRequest&)>& fill) {
    v1::CompileProgramRequest compile;
    *compile.mutable_program() = ir::serial::ToProto(Product());
    TESSERA_ASSIGN_OR_RETURN(const v1::CompileProgramResponse compiled,
                             Do<Programs>(&Programs::Stub::CompileProgram, compile));
    v1::ExecuteProgramRequest execute;
    execute.set_executable(compiled.executable());
    fill(execute);
    return Do<Programs>(&Programs::Stub::ExecuteProgram, execute);
  }
  absl::StatusOr<v1::ExecuteProgramResponse> Square(uint64_t array, uint64_t session = 0) {
    return Execute([&](v1::ExecuteProgramRequest& q) {
      q.add_args(array);
      q.add_args(array);
      q.set_session(session);
    });
  }
};

TEST_F(OperationsTest, OperationsHaveAKindResultsAndTimes) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Write());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExecuteProgramResponse run, Square(array));
  v1::WaitOperationRequest wait;
  wait.set_operation(run.operation());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Operation done,
                               Do<Operations>(&Operations::Stub::WaitOperation, wait));
  EXPECT_EQ(done.state(), v1::OPERATION_STATE_DONE);
  EXPECT_EQ(done.kind(), "execute");
  EXPECT_EQ(done.tenant(), "default");
  EXPECT_THAT(done.outputs(), ElementsAre(run.outputs(0)));
  EXPECT_LE(ir::serial::FromProto(done.create_time()), ir::serial::FromProto(done.start_time()));
  EXPECT_LE(ir::serial::FromProto(done.start_time()), ir::serial::FromProto(done.end_time()));
  v1::ListOperationsRequest list;
  list.set_all_sessions(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::ListOperationsResponse page,
                               Do<Operations>(&Operations::Stub::ListOperations, list));
  ASSERT_GE(page.operations_size(), 1);
  EXPECT_EQ(page.operations(page.operations_size() - 1).SerializeAsString(),
            done.SerializeAsString());
  list.set_live_only(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(page, Do<Operations>(&Operations::Stub::ListOperations, list));
  EXPECT_EQ(page.operations_size(), 0);
  list.set_all_sessions(false);
  list.set_session(9);
  EXPECT_THAT(Do<Operations>(&Operations::Stub::ListOperations, list),
              ReasonIs("SESSION_NOT_FOUND"));
}

TEST_F(OperationsTest, ARepeatedExecuteAndWatchStartsNoSecondRun) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Write());
  v1::CompileProgramRequest compile;
  *compile.mutable_program() = ir::serial::ToProto(Product());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse compiled,
                               Do<Programs>(&Programs::Stub::CompileProgram, compile));
  v1::ExecuteProgramRequest execute;
  execute.set_executable(compiled.executable());
  for (int i = 0; i < 2; ++i) execute.add_args(array);
  execute.set_request_id("watched");
  const auto stub = Programs::NewStub(channel_);
  const auto watch = [&](std::vector<v1::ExecuteProgramEvent>* events) {
    grpc::ClientContext context;
    Prepare(&context, "");
    const auto reader = stub->ExecuteAndWatch(&context, execute);
    for (v1::ExecuteProgramEvent event; reader->Read(&event);) events->push_back(event);
    return ReadStatus(reader->Finish());
  };
  std::vector<v1::ExecuteProgramEvent> first, again;
  TESSERA_ASSERT_OK(watch(&first));
  TESSERA_ASSERT_OK(watch(&again));
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].accepted().SerializeAsString(), first[0].accepted().SerializeAsString());
  EXPECT_EQ(again[1].ended().operation().id(), first[0].accepted().operation());
  EXPECT_EQ(again[1].ended().operation().state(), v1::OPERATION_STATE_DONE);
  execute.set_validate_only(true);
  again.clear();
  EXPECT_THAT(watch(&again), ReasonIs("REQUEST_ID_REUSED", "'watched'"));
  // A refused run may be requested again with the same id.
  execute.set_request_id("refused");
  execute.set_executable(99);
  for (int i = 0; i < 2; ++i) EXPECT_THAT(watch(&again), ReasonIs("PROGRAM_NOT_FOUND"));
}

TEST_F(OperationsTest, WatchOperationSendsEveryChangeOfState) {
  v1::CreateArrayRequest create;
  *create.mutable_spec() = Spec();
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CreateArrayResponse created,
                               Do<Arrays>(&Arrays::Stub::CreateArray, create));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExecuteProgramResponse run, Square(created.array()));
  v1::ExplainPendingRequest explain;
  explain.set_operation(run.operation());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExplainPendingResponse why,
                               Do<Operations>(&Operations::Stub::ExplainPending, explain));
  EXPECT_EQ(why.state(), v1::OPERATION_STATE_PENDING);
  ASSERT_GE(why.reasons_size(), 1);
  EXPECT_EQ(why.reasons(0).code(), "WAITING_FOR_UPLOAD");
  EXPECT_THAT(why.reasons(0).resources(), ElementsAre(absl::StrCat("arrays/", created.array())));
  const auto stub = Operations::NewStub(channel_);
  grpc::ClientContext context;
  Prepare(&context, "");
  v1::WatchOperationRequest watch;
  watch.set_operation(run.operation());
  const auto reader = stub->WatchOperation(&context, watch);
  v1::Operation now;
  ASSERT_TRUE(reader->Read(&now));
  EXPECT_EQ(now.state(), v1::OPERATION_STATE_PENDING);
  v1::CancelOperationRequest cancel;
  cancel.set_operation(run.operation());
  TESSERA_ASSERT_OK(Do<Operations>(&Operations::Stub::CancelOperation, cancel));
  ASSERT_TRUE(reader->Read(&now));
  EXPECT_EQ(now.state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_FALSE(reader->Read(&now));
  TESSERA_EXPECT_OK(ReadStatus(reader->Finish()));
}

TEST_F(OperationsTest, UnknownOperationsAreNotFound) {
  v1::GetOperationRequest get;
  get.set_operation(99);
  EXPECT_THAT(Do<Operations>(&Operations::Stub::GetOperation, get),
              ReasonIs("OPERATION_NOT_FOUND"));
  v1::WaitOperationRequest wait;
  wait.set_operation(99);
  EXPECT_THAT(Do<Operations>(&Operations::Stub::WaitOperation, wait),
              ReasonIs("OPERATION_NOT_FOUND"));
  v1::CancelOperationRequest cancel;
  cancel.set_operation(99);
  EXPECT_THAT(Do<Operations>(&Operations::Stub::CancelOperation, cancel),
              ReasonIs("OPERATION_NOT_FOUND"));
  v1::ExplainPendingRequest explain;
  explain.set_operation(99);
  EXPECT_THAT(Do<Operations>(&Operations::Stub::ExplainPending, explain),
              ReasonIs("OPERATION_NOT_FOUND"));
  const auto stub = Operations::NewStub(channel_);
  grpc::ClientContext context;
  Prepare(&context, "");
  v1::WatchOperationRequest watch;
  watch.set_operation(99);
  const auto reader = stub->WatchOperation(&context, watch);
  v1::Operation now;
  EXPECT_FALSE(reader->Read(&now));
  EXPECT_THAT(ReadStatus(reader->Finish()), ReasonIs("OPERATION_NOT_FOUND"));
}

TEST_F(OperationsTest, RunsAreRefusedWithReasons) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Write());
  const auto refused = [&](const std::function<void(v1::ExecuteProgramRequest&)>& fill) {
    return Execute([&](v1::ExecuteProgramRequest& q) {
             q.add_args(array);
             q.add_args(array);
             fill(q);
           })
        .status();
  };
  EXPECT_THAT(refused([](auto& q) { q.set_executable(99); }), ReasonIs("PROGRAM_NOT_FOUND"));
  EXPECT_THAT(refused([](auto& q) { q.set_session(9); }), ReasonIs("SESSION_NOT_FOUND"));
  EXPECT_THAT(refused([](auto& q) { q.set_args(0, 99); }), ReasonIs("ARRAY_NOT_FOUND"));
  EXPECT_THAT(refused([](auto& q) { q.add_args(1); }), ReasonIs("TYPE_ERROR"));
  EXPECT_THAT(refused([](auto& q) { q.add_donate(true); }), ReasonIs("VALUE_ERROR"));
  // A request with validate_only runs nothing and releases nothing.
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto checked, Execute([&](v1::ExecuteProgramRequest& q) {
                                 q.add_args(array);
                                 q.add_args(array);
                                 q.add_release(array);
                                 q.set_validate_only(true);
                               }));
  EXPECT_EQ(checked.operation(), 0u);
  // A repeated call starts no second run.
  const auto same = [&] {
    return Execute([&](v1::ExecuteProgramRequest& q) {
      q.add_args(array);
      q.add_args(array);
      q.set_request_id("run");
    });
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, same());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto again, same());
  EXPECT_EQ(first.operation(), again.operation());
}

// ---- Workers, meshes, limits. -------------------------------------------------------------------
class ClusterTest : public OperationsTest {};

TEST_F(ClusterTest, WorkersAndTopology) {
  TESSERA_ASSERT_OK(Write());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto workers, Do<Cluster>(&Cluster::Stub::ListWorkers, {}));
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).name(), "w0");
  EXPECT_EQ(workers.workers(0).state(), v1::WORKER_STATE_READY);
  EXPECT_EQ(workers.workers(0).arrays(), 1);
  EXPECT_THAT(workers.workers(0).devices(), ElementsAre(0, 1, 2, 3));
  v1::GetWorkerRequest get;
  get.set_worker("w0");
  TESSERA_EXPECT_OK(Do<Cluster>(&Cluster::Stub::GetWorker, get));
  get.set_worker("w9");
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::GetWorker, get), ReasonIs("WORKER_NOT_FOUND", "'w9'"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Topology topology,
                               Do<Cluster>(&Cluster::Stub::GetTopology, {}));
  ASSERT_EQ(topology.hosts_size(), 1);
  ASSERT_EQ(topology.hosts(0).executors_size(), 1);
  EXPECT_EQ(topology.hosts(0).executors(0).name(), "w0/0");
  EXPECT_TRUE(topology.hosts(0).executors(0).healthy());
  v1::ListDevicesRequest devices;
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::ListDevicesResponse page,
                               Do<Cluster>(&Cluster::Stub::ListDevices, devices));
  EXPECT_EQ(page.devices_size(), 4);
  devices.set_page_size(3);
  TESSERA_ASSERT_OK_AND_ASSIGN(page, Do<Cluster>(&Cluster::Stub::ListDevices, devices));
  EXPECT_EQ(page.devices_size(), 3);
  devices.set_page_token(page.next_page_token());
  TESSERA_ASSERT_OK_AND_ASSIGN(page, Do<Cluster>(&Cluster::Stub::ListDevices, devices));
  ASSERT_EQ(page.devices_size(), 1);
  EXPECT_EQ(page.devices(0).id(), 3);
  TESSERA_EXPECT_OK(Do<Cluster>(&Cluster::Stub::ListTopPrograms, {}));
}

TEST_F(ClusterTest, CordonDrainUncordon) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Write());
  TESSERA_ASSERT_OK(Square(array));
  v1::CordonWorkerRequest cordon;
  cordon.set_worker("w0");
  cordon.set_reason("new disk");
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::Worker worker, Do<Admin>(&Admin::Stub::CordonWorker, cordon));
  EXPECT_EQ(worker.state(), v1::WORKER_STATE_CORDONED);
  EXPECT_THAT(worker.reason(), HasSubstr("new disk"));
  ir::Program other = Product();
  other.in_shardings = {std::nullopt, std::nullopt};
  v1::CompileProgramRequest compile;
  *compile.mutable_program() = ir::serial::ToProto(other);
  EXPECT_THAT(Do<Programs>(&Programs::Stub::CompileProgram, compile),
              ReasonIs("NOT_ENOUGH_DEVICES", "4 cordoned"));
  v1::DrainWorkerRequest drain;
  drain.set_worker("w0");
  TESSERA_ASSERT_OK_AND_ASSIGN(worker, Do<Admin>(&Admin::Stub::DrainWorker, drain));
  EXPECT_EQ(worker.state(), v1::WORKER_STATE_DRAINING);
  EXPECT_EQ(worker.operations(), 0);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExecuteProgramResponse execution, Square(array));
  v1::ExplainPendingRequest explain;
  explain.set_operation(execution.operation());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExplainPendingResponse why,
                               Do<Operations>(&Operations::Stub::ExplainPending, explain));
  ASSERT_EQ(why.reasons_size(), 1);
  EXPECT_EQ(why.reasons(0).code(), "WORKER_CORDONED");
  v1::UncordonWorkerRequest uncordon;
  uncordon.set_worker("w0");
  TESSERA_ASSERT_OK_AND_ASSIGN(worker, Do<Admin>(&Admin::Stub::UncordonWorker, uncordon));
  EXPECT_EQ(worker.state(), v1::WORKER_STATE_READY);
  v1::WaitOperationRequest wait;
  wait.set_operation(execution.operation());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Operation done,
                               Do<Operations>(&Operations::Stub::WaitOperation, wait));
  EXPECT_EQ(done.state(), v1::OPERATION_STATE_DONE);
  for (const char* nobody : {"w9", ""}) {
    cordon.set_worker(nobody);
    uncordon.set_worker(nobody);
    drain.set_worker(nobody);
    EXPECT_THAT(Do<Admin>(&Admin::Stub::CordonWorker, cordon), ReasonIs("WORKER_NOT_FOUND"));
    EXPECT_THAT(Do<Admin>(&Admin::Stub::UncordonWorker, uncordon), ReasonIs("WORKER_NOT_FOUND"));
    EXPECT_THAT(Do<Admin>(&Admin::Stub::DrainWorker, drain), ReasonIs("WORKER_NOT_FOUND"));
  }
}

TEST_F(ClusterTest, LogLevelsAreSet) {
  v1::SetLogLevelRequest set;
  set.set_level("error");
  set.mutable_time()->set_seconds(60);
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::Diagnostics found, Do<Admin>(&Admin::Stub::SetLogLevel, set));
  ASSERT_EQ(found.processes_size(), 1) << "the worker of this test has no stream";
  EXPECT_EQ(found.processes(0).process(), "coordinator");
  EXPECT_EQ(found.processes(0).log_level(), "error");
  EXPECT_GT(found.processes(0).log_level_reverts_in().seconds(), 50);
  set.set_level("off");
  set.clear_time();
  set.set_all(true);
  TESSERA_EXPECT_OK(Do<Admin>(&Admin::Stub::SetLogLevel, set));
  TESSERA_ASSERT_OK_AND_ASSIGN(found, Do<Admin>(&Admin::Stub::GetDiagnostics, {}));
  EXPECT_EQ(found.processes(0).log_level(), "off");
  EXPECT_FALSE(found.processes(0).has_log_level_reverts_in());
  set.set_level("loud");
  EXPECT_THAT(Do<Admin>(&Admin::Stub::SetLogLevel, set), ReasonIs("VALUE_ERROR", "loud"));
  set.set_level("info");
  set.mutable_time()->set_seconds(0);
  EXPECT_THAT(Do<Admin>(&Admin::Stub::SetLogLevel, set), ReasonIs("VALUE_ERROR", "time"));
  set.clear_time();
  set.set_all(false);
  set.set_worker("w9");
  EXPECT_THAT(Do<Admin>(&Admin::Stub::SetLogLevel, set), ReasonIs("WORKER_NOT_FOUND"));
  v1::GetDiagnosticsRequest get;
  get.set_worker("w9");
  EXPECT_THAT(Do<Admin>(&Admin::Stub::GetDiagnostics, get), ReasonIs("WORKER_NOT_FOUND"));
}

TEST_F(ClusterTest, MeshesHaveNames) {
  v1::CreateMeshRequest create;
  create.mutable_mesh()->set_name("pairs");
  *create.mutable_mesh()->mutable_mesh() = ir::serial::ToProto(ir::Mesh{{{"x", 4}}});
  for (int64_t d : {3, 2, 1, 0}) create.mutable_mesh()->add_devices(d);
  create.set_validate_only(true);
  TESSERA_EXPECT_OK(Do<Cluster>(&Cluster::Stub::CreateMesh, create));
  v1::GetMeshRequest get;
  get.set_name("pairs");
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::GetMesh, get), ReasonIs("MESH_NOT_FOUND"));
  create.set_validate_only(false);
  TESSERA_EXPECT_OK(Do<Cluster>(&Cluster::Stub::CreateMesh, create));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::NamedMesh mesh, Do<Cluster>(&Cluster::Stub::GetMesh, get));
  EXPECT_THAT(mesh.devices(), ElementsAre(3, 2, 1, 0));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto list, Do<Cluster>(&Cluster::Stub::ListMeshes, {}));
  ASSERT_EQ(list.meshes_size(), 1);
  v1::CompileProgramRequest compile;
  *compile.mutable_program() = ir::serial::ToProto(Product());
  compile.set_mesh("pairs");
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse compiled,
                               Do<Programs>(&Programs::Stub::CompileProgram, compile));
  EXPECT_THAT(compiled.in(0).placement().devices(), ElementsAre(3, 2, 1, 0));
  compile.set_mesh("nobody");
  EXPECT_THAT(Do<Programs>(&Programs::Stub::CompileProgram, compile), ReasonIs("MESH_NOT_FOUND"));
  create.mutable_mesh()->set_devices(0, 1);
  create.mutable_mesh()->set_devices(2, 3);
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::CreateMesh, create), ReasonIs("ALREADY_EXISTS"));
  create.mutable_mesh()->set_name("other");
  create.mutable_mesh()->set_devices(0, 2);
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::CreateMesh, create), ReasonIs("VALUE_ERROR", "twice"));
  create.mutable_mesh()->set_devices(0, 9);
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::CreateMesh, create), ReasonIs("NOT_ENOUGH_DEVICES"));
  create.mutable_mesh()->set_name("No name");
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::CreateMesh, create),
              ReasonIs("VALUE_ERROR", "not a valid name"));
  v1::DeleteMeshRequest del;
  del.set_name("pairs");
  TESSERA_EXPECT_OK(Do<Cluster>(&Cluster::Stub::DeleteMesh, del));
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::DeleteMesh, del), ReasonIs("MESH_NOT_FOUND"));
}

// Every number that GetCapabilities publishes is the bound that the server enforces. A number
// without a row here fails the test.
TEST_F(ClusterTest, CapabilitiesAreTheEnforcedLimits) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::GetCapabilitiesResponse r,
                               Do<Cluster>(&Cluster::Stub::GetCapabilities, {}));
  const Options o = OptionsWithoutHeartbeats();
  const scheduler::Config c = coordinator_.config();
  const auto ms = [](absl::Duration d) { return absl::ToInt64Milliseconds(d); };
  const std::map<std::string, int64_t> expected = {
      {"opset", ir::kOpset},
      {"max_program_bytes", o.max_program_bytes},
      {"max_message_bytes", o.max_message_bytes},
      {"max_ops", coordinator_.limits().ops},
      {"max_mesh_devices", coordinator_.limits().mesh_devices},
      {"queue_bound", o.queue_bound},
      {"result_wait_ms_max", o.result_wait_ms_max},
      {"lease_ms", o.lease_ms},
      {"session_lease_ms", o.session_lease_ms},
      {"session_lease_ms_max", o.session_lease_ms_max},
      {"arrays_max", o.arrays_max},
      {"sessions_max", o.sessions_max},
      {"meshes_max", o.meshes_max},
      {"relay_bytes_max", o.relay_bytes_max},
      {"inline_results_bytes_max", api::kInlineBytesMax},
      {"request_id_ms", o.request_id_ms},
      {"request_ids_max", o.request_ids_max},
      {"page_size_max", c.page_size_max},
      {"operations_kept", o.operations_kept},
      {"ticket_ms", ms(c.ticket_lifetime)},
      {"compile_timeout_ms", ms(c.compile_timeout)},
      {"collective_timeout_ms", o.collective_timeout_ms},
      {"programs_max", o.programs_max},
      {"programs_bytes_max", o.programs_bytes_max},
      {"session_grace_ms", o.session_grace_ms},
  };
  EXPECT_EQ(c.queue_bound, o.queue_bound);
  EXPECT_EQ(c.arrays_max, o.arrays_max);
  EXPECT_EQ(c.sessions_max, o.sessions_max);
  EXPECT_EQ(c.meshes_max, o.meshes_max);
  EXPECT_EQ(c.operations_kept, o.operations_kept);
  EXPECT_EQ(ms(c.lease), o.lease_ms);
  EXPECT_EQ(ms(c.session_lease), o.session_lease_ms);
  EXPECT_EQ(ms(c.session_lease_max), o.session_lease_ms_max);
  EXPECT_EQ(ms(c.result_wait_max), o.result_wait_ms_max);
  const google::protobuf::Descriptor& d = *r.GetDescriptor();
  for (int i = 0; i < d.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *d.field(i);
    const auto type = field.cpp_type();
    if (type == google::protobuf::FieldDescriptor::CPPTYPE_STRING ||
        type == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE)
      continue;
    const auto row = expected.find(field.name());
    ASSERT_NE(row, expected.end()) << field.name() << " has no row";
    const google::protobuf::Reflection& reflection = *r.GetReflection();
    const int64_t value = field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32
                              ? reflection.GetInt32(r, &field)
                              : reflection.GetInt64(r, &field);
    EXPECT_EQ(value, row->second) << field.name();
    EXPECT_GT(value, 0) << field.name();
  }
}

// ---- Tenants. -----------------------------------------------------------------------------------
class TenantsTest : public SurfaceTest {
 protected:
  TenantsTest() : SurfaceTest(/*tokens=*/true) {}
};

// Another tenant's array and an array that does not exist get the same answer, word for word.
TEST_F(TenantsTest, AnArrayOfAnotherTenantDoesNotExist) {
  v1::WriteArrayRequest write;
  *write.mutable_spec() = Spec();
  write.set_data(std::string(32, '\0'));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::WriteArrayResponse array,
                               Do<Arrays>(&Arrays::Stub::WriteArray, write, "a/user"));
  const auto message = [&](uint64_t id, const std::string& token) {
    v1::GetArrayRequest get;
    get.set_array(id);
    const absl::Status s = Do<Arrays>(&Arrays::Stub::GetArray, get, token).status();
    std::string text = std::string(s.message());
    const std::string number = absl::StrCat(id);
    if (const size_t at = text.find(number); at != std::string::npos)
      text.replace(at, number.size(), "N");
    return absl::StrCat(absl::StatusCodeToString(s.code()), " ", ToAbsl(ReasonOf(s)), " ", text);
  };
  EXPECT_EQ(message(array.array(), "a/viewer"), "OK  ");
  EXPECT_EQ(message(array.array(), "b/user"), message(999, "b/user"));
  EXPECT_EQ(message(array.array(), "ops/operator"), "OK  ");
  v1::DeleteArraysRequest del;
  del.add_arrays(array.array());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto none,
                               Do<Arrays>(&Arrays::Stub::DeleteArrays, del, "b/user"));
  EXPECT_THAT(none.missing(), ElementsAre(array.array())) << "like an array that does not exist";
  EXPECT_EQ(message(array.array(), "a/viewer"), "OK  ") << "a stranger deletes nothing";
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::DeleteArrays, del, "a/viewer"), ReasonIs("ROLE_MISSING"));
  TESSERA_EXPECT_OK(Do<Arrays>(&Arrays::Stub::DeleteArrays, del, "a/user"));
  EXPECT_EQ(message(array.array(), "b/user"), message(999, "b/user")) << "deleted or not";
}

TEST_F(TenantsTest, EachTenantHasItsOwnRequestIds) {
  v1::CreateSessionRequest create;
  create.set_request_id("same");
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session a,
                               Do<Sessions>(&Sessions::Stub::CreateSession, create, "a/user"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::Session b,
                               Do<Sessions>(&Sessions::Stub::CreateSession, create, "b/user"));
  EXPECT_NE(a.id(), b.id());
  EXPECT_EQ(b.tenant(), "b");
}

// ---- Every method. ------------------------------------------------------------------------------
// Every unary method answers bytes that are no message with INVALID_ARGUMENT and a reason.
TEST_F(SurfaceTest, BytesThatDoNotDecodeAreInvalidArguments) {
  int methods = 0;
  for (const google::protobuf::FileDescriptor* file :
       {v1::Session::descriptor()->file(), v1::Device::descriptor()->file(),
        v1::Array::descriptor()->file(), v1::RunProgramRequest::descriptor()->file(),
        v1::Operation::descriptor()->file(), v1::Token::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i) {
      const google::protobuf::MethodDescriptor& method = *service.method(i);
      if (method.server_streaming()) continue;
      const std::string name = absl::StrCat("/", service.full_name(), "/", method.name());
      const grpc::Slice slice("\xff\xff\xff\xff");
      const grpc::ByteBuffer garbage(&slice, 1);
      grpc::ByteBuffer response;
      grpc::ClientContext context;
      Prepare(&context, "");
      grpc::Status status;
      absl::Notification done;
      grpc::GenericStub(channel_).UnaryCall(&context, name, grpc::StubOptions(), &garbage,
                                            &response, [&](grpc::Status s) {
                                              status = std::move(s);
                                              done.Notify();
                                            });
      done.WaitForNotification();  // The call has a deadline.
      const absl::Status read = ReadStatus(status);
      EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument,
                                 "bytes sent are not a message of type tessera.v1."))
          << name;
      EXPECT_FALSE(ReasonOf(read).empty()) << name;
      ++methods;
    }
  }
  EXPECT_GE(methods, 44);
}

TEST_F(SurfaceTest, AStoppedCoordinatorAnswersServerStopping) {
  coordinator_.Stop();
  EXPECT_THAT(Do<Sessions>(&Sessions::Stub::CreateSession, v1::CreateSessionRequest()),
              ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(Do<Arrays>(&Arrays::Stub::ListArrays, {}), ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(Do<Operations>(&Operations::Stub::ListOperations, {}), ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(Do<Cluster>(&Cluster::Stub::ListWorkers, {}), ReasonIs("SERVER_STOPPING"));
}

}  // namespace
}  // namespace tessera::server::rpc
