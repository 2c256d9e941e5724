// Proves which callers the gate admits, by tokens, certificates, roles and rates, and which open
// calls it cancels. The gate stands before real gRPC connections, with and without TLS; services of
// the test are behind it.
#include "server/rpc/gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/pki.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/ext/channelz_service_plugin.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ir/api/identity.h"
#include "ir/api/worker_certificate.h"
#include "ir/serial/status.h"
#include "server/auth/tokens.h"
#include "server/rpc/credentials.h"
#include "server/rpc/enrollment_service.h"
#include "server/rpc/page_token.h"
#include "server/rpc/token_methods.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::server::rpc {
namespace {

using core::Role;
using tessera::testing::Eventually;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details()) && details.code() != 0)
    return ir::serial::FromProto(details);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// The server's side of WorkerService.Connect. The streams stay open until the gate or the client
// cancels them.
class OpenStreamService final : public v1::WorkerService::CallbackService {
 public:
  explicit OpenStreamService(Gate* gate) : gate_(gate) {}
  grpc::ServerBidiReactor<v1::Envelope, v1::Envelope>* Connect(
      grpc::CallbackServerContext* context) override {
    using Reactor = grpc::ServerBidiReactor<v1::Envelope, v1::Envelope>;
    class Open final : public Reactor {
     public:
      Open() { StartSendInitialMetadata(); }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    const auto caller = gate_->Admit(context, Method::kWorkerService_Connect);
    if (!caller.ok()) return new RefusedStream<Reactor>(caller.status());
    return new Open;
  }

 private:
  Gate* const gate_;
};

class GateTest : public ::testing::Test {
 protected:
  GateTest() : folder_(::testing::TempDir() + "gate-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    ca_ = pki::MakeCa("test", absl::Now()).value();
    const pki::Credential server =
        pki::Issue(ca_, {.common_name = "coordinator", .ips = {"127.0.0.1"}}, absl::Now()).value();
    Write("ca.pem", ca_.cert_pem);
    Write("cert.pem", server.cert_pem);
    Write("key.pem", server.key_pem);
    Write("tokens", FormatTokenFile({}));
    tokens_ = auth::Tokens::Open(Path("tokens")).value();
  }
  ~GateTest() override {
    if (server_) server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_THAT(ReplaceFile(Path(name), bytes, true), IsOk());
  }
  TlsFiles ServerFiles() const { return {Path("cert.pem"), Path("key.pem"), Path("ca.pem")}; }

  void Serve(bool tls, bool with_tokens, GateOptions options = {}) {
    options.tokens = with_tokens ? tokens_.get() : nullptr;
    gate_ = std::make_unique<Gate>(&clock_, options);
    const ListenerCredentials listener =
        CredentialsFor("127.0.0.1", {tls ? ServerFiles() : TlsFiles{}, false, options.tokens})
            .value();
    enrollment_ = std::make_unique<EnrollmentService>(
        ca_, &clock_, gate_.get(), [this](const std::string& worker, const HostCallback& then) {
          then(connected_.count(worker) > 0 ? std::optional<std::string>("here") : std::nullopt);
        });
    open_streams_ = std::make_unique<OpenStreamService>(gate_.get());
    if (listener.channelz) grpc::channelz::experimental::InitChannelzService();
    channelz_ = listener.channelz;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", listener.credentials, &port_);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 500);
    builder.RegisterService(enrollment_.get());
    builder.RegisterService(open_streams_.get());
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
    watchers.push_back(gate_->CallInterceptor());
    builder.experimental().SetInterceptorCreators(std::move(watchers));
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  std::shared_ptr<grpc::Channel> PlainChannel() const {
    return grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }
  std::shared_ptr<grpc::Channel> TlsChannel(const pki::Credential& own = {}) const {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = ca_.cert_pem;
    ssl.pem_cert_chain = own.cert_pem;
    ssl.pem_private_key = own.key_pem;
    return grpc::CreateChannel(address(), grpc::SslCredentials(ssl));
  }
  pki::Credential WorkerCert(const std::string& name) const {
    return pki::Issue(ca_, api::WorkerCertificate(name).value(), absl::Now()).value();
  }
  std::string Token(const std::string& name, Role role,
                    absl::Duration life = absl::InfiniteDuration()) {
    core::NewToken token;
    token.name = name;
    token.role = role;
    token.time_to_live = life;
    return tokens_->Create(token, clock_.Wall()).value().text;
  }

  static void Prepare(grpc::ClientContext* context, const std::string& token) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  }
  // Calls Enroll, which requires the role worker.
  absl::Status Enroll(const std::shared_ptr<grpc::Channel>& channel, const std::string& token,
                      const std::string& worker = "w0", v1::EnrollResponse* response = nullptr) {
    grpc::ClientContext context;
    Prepare(&context, token);
    v1::EnrollRequest request;
    request.set_worker(worker);
    request.set_csr_pem(request_.csr_pem);
    v1::EnrollResponse unused;
    return FromGrpc(v1::EnrollmentService::NewStub(channel)->Enroll(
        &context, request, response == nullptr ? &unused : response));
  }
  grpc::Status GetAuthority(const std::shared_ptr<grpc::Channel>& channel, v1::Authority* out) {
    grpc::ClientContext context;
    Prepare(&context, "");
    return v1::EnrollmentService::NewStub(channel)->GetAuthority(&context, {}, out);
  }
  absl::Status CallChannelz(const std::shared_ptr<grpc::Channel>& channel,
                            const std::string& token) {
    grpc::ClientContext context;
    Prepare(&context, token);
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    const grpc::Slice empty;
    const grpc::ByteBuffer request(&empty, 1);
    const auto call =
        stub.PrepareUnaryCall(&context, "/grpc.channelz.v1.Channelz/GetServers", request, &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return FromGrpc(status);
  }

  const RealClock clock_;
  std::string folder_;
  pki::Credential ca_;
  const pki::SigningRequest request_ = pki::MakeSigningRequest("w0").value();
  std::unique_ptr<auth::Tokens> tokens_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<EnrollmentService> enrollment_;
  std::set<std::string> connected_;  // names of connected workers, set before any call
  std::unique_ptr<OpenStreamService> open_streams_;
  bool channelz_ = false;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The client's side of one stream of WorkerService.Connect.
class ClientLink {
 public:
  ClientLink(const std::shared_ptr<grpc::Channel>& channel, const std::string& token)
      : stub_(v1::WorkerService::NewStub(channel)) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    if (!token.empty()) context_.AddMetadata("authorization", "Bearer " + token);
    stream_ = stub_->Connect(&context_);
    stream_->WaitForInitialMetadata();
  }
  absl::Status Finish() { return FromGrpc(stream_->Finish()); }
  void Cancel() { context_.TryCancel(); }

 private:
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::Envelope, v1::Envelope>> stream_;
};

TEST_F(GateTest, WithoutTokensEveryoneMayDoEverything) {
  Serve(/*tls=*/false, /*with_tokens=*/false);
  EXPECT_THAT(Enroll(PlainChannel(), ""), IsOk());
  EXPECT_THAT(Enroll(PlainChannel(), "whatever"), IsOk());
}

TEST_F(GateTest, ACallNeedsAValidTokenOfTheRole) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  const std::string worker = Token("join", Role::kWorker),
                    brief = Token("brief", Role::kWorker, absl::Seconds(1));
  const auto channel = TlsChannel();
  EXPECT_THAT(Enroll(channel, worker), IsOk());
  EXPECT_THAT(Enroll(channel, ""), ReasonIs("TOKEN_MISSING", "authorization: Bearer"));
  EXPECT_THAT(Enroll(channel, "x"), ReasonIs("TOKEN_UNKNOWN", ""));
  for (const Role role : {Role::kViewer, Role::kUser, Role::kOperator, Role::kAdmin})
    EXPECT_THAT(Enroll(channel, Token(std::string(core::RoleName(role)), role)),
                ReasonIs("ROLE_MISSING", "needs the role worker"));
  ASSERT_THAT(tokens_->Revoke("join"), IsOk());
  EXPECT_THAT(Enroll(channel, worker), ReasonIs("TOKEN_REVOKED", ""));
  EXPECT_TRUE(
      Eventually([&] { return ReasonOf(Enroll(channel, brief)) == "TOKEN_EXPIRED"; }, kPatience));
}

TEST_F(GateTest, AnyoneMayGetTheCaCertificate) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  v1::Authority ca;
  ASSERT_TRUE(GetAuthority(TlsChannel(), &ca).ok());
  EXPECT_EQ(ca.ca_pem(), ca_.cert_pem);
}

TEST_F(GateTest, AJoinTokenCannotTakeTheNameOfAConnectedWorker) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  connected_.insert("w0");
  const std::string token = Token("join", Role::kWorker);
  v1::EnrollResponse response;
  EXPECT_THAT(Enroll(TlsChannel(), token, "w0", &response),
              ReasonIs("ALREADY_EXISTS", "a worker named w0 is connected, from host here"));
  EXPECT_TRUE(response.certificate_pem().empty());
  EXPECT_THAT(Enroll(TlsChannel(), token, "w1", &response), IsOk());
  // A connected worker can still renew its own certificate.
  connected_.insert("w1");
  EXPECT_THAT(Enroll(TlsChannel({response.certificate_pem(), request_.key_pem}), "", "w1"), IsOk());
}

TEST_F(GateTest, AnEnrolledWorkerCallsWithItsCertificateAlone) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  v1::EnrollResponse response;
  ASSERT_THAT(Enroll(TlsChannel(), Token("join", Role::kWorker), "w0", &response), IsOk());
  const pki::CertificateInfo info = pki::Describe(response.certificate_pem()).value();
  EXPECT_THAT(info.dns, ::testing::ElementsAre(api::kWorkerServerName));
  EXPECT_TRUE(info.ips.empty());
  const auto channel = TlsChannel({response.certificate_pem(), request_.key_pem});
  // The certificate renews its own name and no other.
  EXPECT_THAT(Enroll(channel, "", "w0"), IsOk());
  EXPECT_THAT(Enroll(channel, "", "w1"), ReasonIs("ROLE_MISSING", "certificate of 'w0'"));
}

TEST_F(GateTest, ACertificateOfAnotherAuthorityIsRefused) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  const pki::Credential other = pki::MakeCa("other", absl::Now()).value();
  const auto forged = pki::Issue(other, api::WorkerCertificate("w0").value(), absl::Now()).value();
  EXPECT_EQ(Enroll(TlsChannel(forged), "").code(), absl::StatusCode::kUnavailable);
  // A certificate that names no worker counts as no certificate.
  const auto client = pki::Issue(ca_, {.common_name = "me"}, absl::Now()).value();
  EXPECT_THAT(Enroll(TlsChannel(client), ""), ReasonIs("TOKEN_MISSING", ""));
}

TEST_F(GateTest, RevokingTheTokenWithAWorkersNameDisablesItsCertificate) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  const auto channel = TlsChannel(WorkerCert("w0"));
  ClientLink link(channel, "");
  ASSERT_TRUE(Eventually([&] { return gate_->calls_open(core::kSystemTenant) == 1; }, kPatience));
  Token("w0", Role::kWorker);
  EXPECT_THAT(Enroll(channel, ""), IsOk());
  v1::RevokeTokenRequest request;
  request.set_name("w0");
  v1::Token revoked;
  ASSERT_THAT(RevokeToken(*gate_, request, &revoked), IsOk());
  EXPECT_EQ(link.Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Enroll(channel, ""), ReasonIs("TOKEN_REVOKED", ""));
}

TEST_F(GateTest, RevokingATokenCancelsItsOpenCallsOnly) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  const std::string a = Token("a", Role::kWorker), b = Token("b", Role::kWorker);
  ClientLink one(TlsChannel(), a), two(TlsChannel(), b);
  ASSERT_TRUE(Eventually([&] { return gate_->calls_open(core::kSystemTenant) == 2; }, kPatience));
  v1::RevokeTokenRequest request;
  request.set_name("a");
  v1::Token revoked;
  ASSERT_THAT(RevokeToken(*gate_, request, &revoked), IsOk());
  EXPECT_TRUE(revoked.revoked());
  EXPECT_EQ(one.Finish().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(Eventually([&] { return gate_->calls_open(core::kSystemTenant) == 1; }, kPatience));
  two.Cancel();
  EXPECT_EQ(two.Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return gate_->calls_open(core::kSystemTenant) == 0; }, kPatience));
}

// After its token is revoked, a request on an open stream is refused at once; the gate cancels the
// stream itself a little later.
TEST_F(GateTest, EachRequestOfAStreamNeedsAValidToken) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  const std::string token = Token("a", Role::kUser);
  const core::Caller caller = tokens_->Authenticate(token, clock_.Wall()).value();
  EXPECT_THAT(gate_->AdmitAnother(caller), IsOk());
  ASSERT_THAT(tokens_->Revoke("a"), IsOk());
  EXPECT_THAT(gate_->AdmitAnother(caller), ReasonIs("TOKEN_REVOKED", ""));
}

TEST_F(GateTest, OpenCallsOfAnExpiredTokenAreCancelled) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  ClientLink link(TlsChannel(), Token("brief", Role::kWorker, absl::Seconds(1)));
  EXPECT_EQ(link.Finish().code(), absl::StatusCode::kCancelled);
}

TEST_F(GateTest, CallsBeyondTheRateAreRefused) {
  GateOptions options;
  options.calls_per_second = 5;
  Serve(/*tls=*/false, /*with_tokens=*/false, options);
  const auto stub = v1::EnrollmentService::NewStub(PlainChannel());
  grpc::Status refused;
  // Six calls within a second are one too many; a slow machine may need a few more.
  ASSERT_TRUE(Eventually(
      [&] {
        grpc::ClientContext context;
        Prepare(&context, "");
        v1::EnrollRequest request;
        request.set_worker("w0");
        request.set_csr_pem(request_.csr_pem);
        v1::EnrollResponse response;
        refused = stub->Enroll(&context, request, &response);
        return !refused.ok();
      },
      kPatience));
  EXPECT_THAT(FromGrpc(refused), ReasonIs("RATE_LIMITED", "rate_limit_per_second"));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(refused.error_details()));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(details.details_size(), 2);
  EXPECT_TRUE(details.details(1).UnpackTo(&retry));
}

TEST_F(GateTest, CallsBeyondTheLimitOfOpenCallsAreRefused) {
  GateOptions options;
  options.calls_max = 1;
  Serve(/*tls=*/false, /*with_tokens=*/false, options);
  ClientLink first(PlainChannel(), "");
  ASSERT_TRUE(Eventually([&] { return gate_->calls_open(core::kDefaultTenant) == 1; }, kPatience));
  EXPECT_THAT(Enroll(PlainChannel(), ""), ReasonIs("RATE_LIMITED", "tenant_calls_max"));
  first.Cancel();
  EXPECT_EQ(first.Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return Enroll(PlainChannel(), "").ok(); }, kPatience));
}

TEST_F(GateTest, TokensAreMadeListedAndRevokedByCalls) {
  Serve(/*tls=*/false, /*with_tokens=*/true);
  v1::CreateTokenRequest create;
  create.set_role("user");
  create.set_tenant("team-a");
  for (const char* name : {"c", "a", "b"}) {
    create.set_name(name);
    v1::CreateTokenResponse made;
    ASSERT_THAT(CreateToken(*gate_, create, &made), IsOk());
    EXPECT_EQ(tokens_->Authenticate(made.text(), absl::Now())->tenant, "team-a");
    EXPECT_EQ(made.token().name(), name);
    EXPECT_FALSE(made.token().has_expire_time());
  }
  create.set_role("root");
  v1::CreateTokenResponse made;
  EXPECT_THAT(CreateToken(*gate_, create, &made), ReasonIs("VALUE_ERROR", "'root' is not a role"));
  v1::ListTokensRequest list;
  list.set_page_size(2);
  v1::ListTokensResponse first, second;
  ASSERT_THAT(ListTokens(*gate_, list, &first), IsOk());
  ASSERT_EQ(first.tokens_size(), 2);
  EXPECT_EQ(first.tokens(0).name(), "a");
  list.set_page_token(first.next_page_token());
  ASSERT_THAT(ListTokens(*gate_, list, &second), IsOk());
  ASSERT_EQ(second.tokens_size(), 1);
  EXPECT_EQ(second.tokens(0).name(), "c");
  EXPECT_EQ(second.next_page_token(), "");
  for (const std::string& other :
       {PageToken("ListSessionsRequest|default", "1"), std::string("a")}) {
    list.set_page_token(other);
    EXPECT_THAT(ListTokens(*gate_, list, &second), ReasonIs("VALUE_ERROR", "page_token"));
  }
  list.set_page_size(-1);
  EXPECT_THAT(ListTokens(*gate_, list, &second), ReasonIs("VALUE_ERROR", "page_size"));
  v1::RevokeTokenRequest revoke;
  revoke.set_name("nobody");
  v1::Token token;
  EXPECT_THAT(RevokeToken(*gate_, revoke, &token), ReasonIs("TOKEN_NOT_FOUND", "nobody"));
  Gate open(&clock_, {});
  EXPECT_THAT(ListTokens(open, {}, &first), ReasonIs("TOKENS_DISABLED", "--tokens-file"));
}

TEST_F(GateTest, ChannelzIsForAdministrators) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  ASSERT_TRUE(channelz_);
  const auto channel = TlsChannel();
  EXPECT_THAT(CallChannelz(channel, Token("root", Role::kAdmin)), IsOk());
  // gRPC drops the details of such an error, so only code and message can be checked.
  EXPECT_THAT(CallChannelz(channel, Token("ops", Role::kOperator)),
              StatusIs(absl::StatusCode::kPermissionDenied, "needs the role admin"));
  EXPECT_THAT(CallChannelz(channel, ""),
              StatusIs(absl::StatusCode::kUnauthenticated, "administrator's token"));
  EXPECT_THAT(CallChannelz(channel, "x"),
              StatusIs(absl::StatusCode::kUnauthenticated, "does not know the token"));
}

TEST_F(GateTest, PlaintextToATlsPortFailsInTime) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  v1::Authority ca;
  const absl::Time start = absl::Now();
  const grpc::Status status = GetAuthority(PlainChannel(), &ca);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_LT(absl::Now() - start, kPatience);
}

TEST_F(GateTest, ASilentConnectionIsClosed) {
  Serve(/*tls=*/true, /*with_tokens=*/true);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port_));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  timeval bound{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  char byte = 0;
  ssize_t got = 1;
  while (got > 0) got = read(fd, &byte, 1);
  EXPECT_TRUE(got == 0 || errno == ECONNRESET) << errno;
  close(fd);
}

TEST_F(GateTest, ErrorsNameInvalidTlsFiles) {
  TlsFiles files = ServerFiles();
  files.key_file = Path("none");
  EXPECT_THAT(CredentialsFor("127.0.0.1", {files}), ReasonIs("VALUE_ERROR", "none"));
  files.key_file = "";
  EXPECT_THAT(CredentialsFor("127.0.0.1", {files}), ReasonIs("VALUE_ERROR", "tls_key_file"));
  Write("other.pem", pki::MakeCa("other", absl::Now())->key_pem);
  files.key_file = Path("other.pem");
  EXPECT_THAT(CredentialsFor("127.0.0.1", {files}), ReasonIs("VALUE_ERROR", "does not belong to"));
  EXPECT_THAT(CredentialsFor("0.0.0.0", {}), ReasonIs("VALUE_ERROR", "--insecure"));
  EXPECT_THAT(CredentialsFor("0.0.0.0", {{}, /*insecure=*/true}), IsOk());
  EXPECT_THAT(CredentialsFor("127.0.0.1", {{"", Path("key.pem"), ""}}),
              ReasonIs("VALUE_ERROR", "without tls_cert_file"));
  EXPECT_FALSE(CredentialsFor("0.0.0.0", {{}, true})->channelz);
  EXPECT_TRUE(CredentialsFor("127.0.0.1", {})->channelz);
  EXPECT_FALSE(CredentialsFor("127.0.0.1", {{}, false, tokens_.get()})->channelz);
  EXPECT_THAT(ReadCa("", Path("key.pem")), ReasonIs("VALUE_ERROR", "without tls_ca_file"));
  EXPECT_THAT(ReadCa(Path("ca.pem"), Path("key.pem")), ReasonIs("VALUE_ERROR", "ca.pem"));
}

TEST_F(GateTest, WorkerNamesAreChecked) {
  EXPECT_THAT(api::WorkerCertificate("Host-1.example_x"), IsOk());
  for (const std::string& bad : {std::string(), std::string("a/b"), std::string("a b"),
                                 std::string(64, 'a'), std::string("../x")})
    EXPECT_THAT(api::WorkerCertificate(bad), ReasonIs("VALUE_ERROR", "worker: expected a name"));
}

TEST_F(GateTest, AMethodNameHasItsServiceAndMethod) {
  EXPECT_EQ(MethodName(Method::kArrayService_GetArray), "tessera.v1.ArrayService/GetArray");
}

}  // namespace
}  // namespace tessera::server::rpc
