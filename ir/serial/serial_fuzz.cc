// Fuzzes the readers of messages from clients, coordinators and workers. An input whose first line
// names a message, such as "# tessera.v1.Program", is that message in protobuf's text format. In
// any other input the first byte chooses the message, and the rest is its wire bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "ir/program_hash.h"
#include "ir/serial/chunk.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "ir/serial/worker.h"

namespace tessera::ir::serial {
namespace {

// Ignores errors, because most inputs do not parse.
class IgnoreErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

bool ParseText(absl::string_view text, google::protobuf::Message* out) {
  IgnoreErrors ignore_errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&ignore_errors);
  parser.SetRecursionLimit(100);  // the same bound as for the wire format
  google::protobuf::io::ArrayInputStream in(text.data(), static_cast<int>(text.size()));
  return parser.Parse(&in, out);
}

// Writes a program that was read, reads what was written, and checks that both programs are equal.
void CheckProgram(const Program& program) {
  const absl::Status verified = Verify(program);
  TESSERA_CHECK(verified.ok()) << verified;
  const v1::Program written = ToProto(program);
  const absl::StatusOr<Program> again = FromProto(written);
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK_EQ(StructuralHash(*again), StructuralHash(program));
  TESSERA_CHECK_EQ(ToProto(*again).SerializeAsString(), written.SerializeAsString());
}

// Reads, writes, sends, reads and writes again. The two written forms must agree.
template <class Proto, class Read, class Write>
void CheckRoundTrip(const Proto& proto, Read read, Write write) {
  const auto first = read(proto);
  if (!first.ok()) return;
  const std::string sent = write(*first).SerializeAsString();
  Proto received;
  TESSERA_CHECK(received.ParseFromString(sent)) << proto.ShortDebugString();
  const auto second = read(received);
  TESSERA_CHECK(second.ok()) << second.status();
  TESSERA_CHECK_EQ(write(*second).SerializeAsString(), sent);
}
template <class Proto>
void CheckRoundTrip(const Proto& proto) {
  CheckRoundTrip(
      proto, [](const Proto& p) { return FromProto(p); },
      [](const auto& value) { return ToProto(value); });
}

template <class Proto>
void Check(const Proto& proto) {
  CheckRoundTrip(proto);
}
void Check(const v1::Program& proto) {
  const absl::StatusOr<Program> program = FromProto(proto);
  if (program.ok()) CheckProgram(*program);
}
void Check(const v1::CompileProgramRequest& proto) {
  const absl::StatusOr<api::CompileRequest> request = FromProto(proto);
  if (request.ok()) CheckProgram(request->program);
  CheckRoundTrip(proto);
}
void Check(const v1::ExecuteProgramRequest& proto) {
  CheckRoundTrip(
      proto, [](const auto& p) -> absl::StatusOr<api::ExecuteRequest> { return FromProto(p); },
      [](const auto& value) { return ToProto(value); });
}
void Check(const v1::Envelope& proto) {
  CheckRoundTrip(
      proto, [](const auto& p) { return ReadCommand(p); },
      [&](const auto& value) { return ToEnvelope(proto.executor(), proto.incarnation(), value); });
  CheckRoundTrip(
      proto, [](const auto& p) { return ReadReport(p); },
      [](const auto& value) { return ToEnvelope(value); });
  CheckRoundTrip(
      proto, [](const auto& p) { return ReadRegistration(p); },
      [](const auto& value) { return ToEnvelope(value); });
  static_cast<void>(FailureReportFor(proto, absl::UnknownError("")));
}
// Checks a body in an envelope of its kind.
template <v1::MessageKind kind, class Proto>
void CheckBody(const Proto& proto) {
  v1::Envelope envelope;
  envelope.set_kind(kind);
  envelope.set_body(proto.SerializeAsString());
  Check(envelope);
}
#define TESSERA_BODY(Name, KIND) \
  void Check(const v1::Name& proto) { CheckBody<v1::MESSAGE_KIND_##KIND>(proto); }
TESSERA_BODY(CancelLaunch, CANCEL_LAUNCH)
TESSERA_BODY(ConfigureCommunicator, CONFIGURE_COMMUNICATOR)
TESSERA_BODY(ExecutorLost, EXECUTOR_LOST)
TESSERA_BODY(ExecutorReady, EXECUTOR_READY)
TESSERA_BODY(Launch, LAUNCH)
TESSERA_BODY(LaunchDone, LAUNCH_DONE)
TESSERA_BODY(LoadProgram, LOAD_PROGRAM)
TESSERA_BODY(Registration, REGISTRATION)
TESSERA_BODY(Transfer, TRANSFER)
#undef TESSERA_BODY

using Handler = void (*)(absl::string_view bytes, bool text);
template <class Proto>
void Handle(absl::string_view bytes, bool text) {
  Proto proto;
  if (text) {
    Proto parsed;
    if (!ParseText(bytes, &parsed)) return;
    // Parse it as it would arrive, since the wire format refuses some messages that the text
    // format accepts, such as a string that is not UTF-8.
    if (!proto.ParseFromString(parsed.SerializeAsString())) return;
  } else if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  Check(proto);
}

// Checks that a message taken apart in pieces equals the message parsed as a whole.
template <class Proto>
void HandleChunk(absl::string_view bytes, bool text) {
  std::string sent(bytes);
  if (text) {
    Proto parsed;
    if (!ParseText(bytes, &parsed)) return;
    sent = parsed.SerializeAsString();
  }
  const size_t step = 1 + sent.size() % 7;
  std::vector<absl::string_view> pieces, data;
  for (absl::string_view left = sent; !left.empty(); left.remove_prefix(pieces.back().size()))
    pieces.push_back(left.substr(0, step));
  Proto whole, rest;
  const bool split = SplitChunk(pieces, &rest, &data);
  if (!whole.ParseFromString(sent)) return;
  // SplitChunk may refuse constructs that our messages never contain, such as groups.
  TESSERA_CHECK(split || !text);
  if (!split) return;
  for (const absl::string_view part : data) rest.mutable_data()->append(part.data(), part.size());
  TESSERA_CHECK_EQ(rest.SerializeAsString(), whole.SerializeAsString());
}

struct Row {
  absl::string_view name;
  Handler handler;
};
constexpr Row kRows[] = {
    {"Program", Handle<v1::Program>},
    {"CompileProgramRequest", Handle<v1::CompileProgramRequest>},
    {"CompileProgramResponse", Handle<v1::CompileProgramResponse>},
    {"ArraySpec", Handle<v1::ArraySpec>},
    {"ExecuteProgramRequest", Handle<v1::ExecuteProgramRequest>},
    {"ExecutionEnd", Handle<v1::ExecutionEnd>},
    {"Envelope", Handle<v1::Envelope>},
    {"CancelLaunch", Handle<v1::CancelLaunch>},
    {"Registration", Handle<v1::Registration>},
    {"WriteRequest", HandleChunk<v1::WriteRequest>},
    {"ReadResponse", HandleChunk<v1::ReadResponse>},
    {"ConfigureCommunicator", Handle<v1::ConfigureCommunicator>},
    {"ExecutorLost", Handle<v1::ExecutorLost>},
    {"ExecutorReady", Handle<v1::ExecutorReady>},
    {"Launch", Handle<v1::Launch>},
    {"LaunchDone", Handle<v1::LaunchDone>},
    {"LoadProgram", Handle<v1::LoadProgram>},
    {"Transfer", Handle<v1::Transfer>},
};

void CheckInput(absl::string_view input) {
  absl::string_view rest = input;
  if (absl::ConsumePrefix(&rest, "# tessera.v1.")) {
    const absl::string_view name = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(name.size());
    for (const Row& row : kRows) {
      if (row.name == name) row.handler(rest, /*text=*/true);
    }
  } else if (!input.empty()) {
    const size_t index = static_cast<unsigned char>(input[0]) % std::size(kRows);
    kRows[index].handler(input.substr(1), /*text=*/false);
  }
}

}  // namespace
}  // namespace tessera::ir::serial

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Without this, protobuf would log each input that is not a message.
  static const bool quiet = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  static_cast<void>(quiet);
  tessera::ir::serial::CheckInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
