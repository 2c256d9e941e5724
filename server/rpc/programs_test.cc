// Proves what clients can do with programs over the wire: upload them in chunks, inspect, explain,
// compile and run them, in every form in which a program may be given. The fixture is
// testing/edge.h, with tokens of two tenants.
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/testing/datadriven.h"
#include "ir/api/crc32c.h"
#include "ir/serial/program.h"
#include "ir/text.h"
#include "server/rpc/testing/edge.h"
#include "tessera/v1/program_service.grpc.pb.h"

namespace tessera::server::rpc {

namespace {

using Programs = v1::ProgramService;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

google::protobuf::Value Zeros(absl::Span<const int64_t> shape) {
  google::protobuf::Value out;
  if (shape.empty()) out.set_number_value(0);
  for (int64_t i = 0; !shape.empty() && i < shape[0]; ++i)
    *out.mutable_list_value()->add_values() = Zeros(shape.subspan(1));
  return out;
}

class ProgramsTest : public SurfaceTest {
 protected:
  ProgramsTest() : SurfaceTest(/*tokens=*/true) {}

  absl::StatusOr<v1::UploadProgramResponse> UploadChunk(
      const std::string& all, size_t offset, size_t size, const std::string& token = "a/user",
      v1::ProgramFormat format = v1::PROGRAM_FORMAT_TESSERA) {
    v1::UploadProgramRequest q;
    q.set_format(format);
    q.set_sha256(Sha256Hex(all));
    q.set_size_bytes(static_cast<int64_t>(all.size()));
    q.set_offset(static_cast<int64_t>(offset));
    q.set_data(all.substr(offset, size));
    q.set_crc32c(api::Crc32c(0, q.data().data(), q.data().size()));
    return Do<Programs>(&Programs::Stub::UploadProgram, q, token);
  }
  static std::string Bytes() { return ir::serial::ToProto(Product()).SerializeAsString(); }
  absl::StatusOr<v1::CompileProgramResponse> Compile(
      const std::function<void(v1::CompileProgramRequest&)>& fill,
      const std::string& token = "a/user") {
    v1::CompileProgramRequest q;
    fill(q);
    return Do<Programs>(&Programs::Stub::CompileProgram, q, token);
  }
};

TEST_F(ProgramsTest, ProgramsAreUploadedInChunksAndCompiledByHash) {
  const std::string all = Bytes();
  const std::string hash = Sha256Hex(all);
  const auto by_hash = [&](v1::CompileProgramRequest& q) { q.set_program_sha256(hash); };
  EXPECT_THAT(Compile(by_hash), ReasonIs("PROGRAM_NOT_FOUND", hash));
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::UploadProgramResponse r, UploadChunk(all, 0, 10));
  EXPECT_FALSE(r.complete());
  EXPECT_THAT(Compile(by_hash), ReasonIs("PROGRAM_NOT_FOUND")) << "not yet";
  EXPECT_THAT(UploadChunk(all, 11, 10), ReasonIs("VALUE_ERROR", "go on from 10"));
  v1::UploadProgramRequest progress_query;
  progress_query.set_sha256(hash);
  TESSERA_ASSERT_OK_AND_ASSIGN(
      r, Do<Programs>(&Programs::Stub::UploadProgram, progress_query, "a/user"));
  EXPECT_EQ(r.committed_bytes(), 10);
  TESSERA_ASSERT_OK_AND_ASSIGN(r, UploadChunk(all, 10, all.size()));
  EXPECT_TRUE(r.complete());
  EXPECT_EQ(r.name(), absl::StrCat("tenants/a/programs/", hash));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse compiled, Compile(by_hash));
  // A program that is given by hash and by message is one executable. Given as text it is another
  // one, because the text has source lines of its own.
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse by_message, Compile([](auto& q) {
                                 *q.mutable_program() = ir::serial::ToProto(Product());
                               }));
  EXPECT_EQ(by_message.executable(), compiled.executable());
  const auto as_text = [](auto& q) { q.set_text(ir::PrintProgram(Product())); };
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse by_text, Compile(as_text));
  EXPECT_NE(by_text.executable(), compiled.executable());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse again, Compile(as_text));
  EXPECT_EQ(again.executable(), by_text.executable());
  // Another tenant has neither the upload nor the executable.
  EXPECT_THAT(Compile(by_hash, "b/user"), ReasonIs("PROGRAM_NOT_FOUND"));
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const v1::CompileProgramResponse theirs,
      Compile([](auto& q) { q.set_text(ir::PrintProgram(Product())); }, "b/user"));
  EXPECT_NE(theirs.executable(), compiled.executable());
  v1::ExecuteProgramRequest execute;
  execute.set_executable(compiled.executable());
  EXPECT_THAT(Do<Programs>(&Programs::Stub::ExecuteProgram, execute, "b/user"),
              ReasonIs("PROGRAM_NOT_FOUND"));
}

// ---- StableHLO artifacts. -----------------------------------------------------------------------
// Returns an artifact that JAX has exported, from tests/fuzz/stablehlo.
std::string Exported(const std::string& name) {
  std::ifstream in(SourcePath("tests/fuzz/stablehlo/" + name + ".mlirbc"), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(ProgramsTest, ArtifactsMayBeGivenByHashOrByValue) {
  const std::string all = Exported("affine");  // tanh(x @ w + b)
  const std::string hash = Sha256Hex(all);
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::UploadProgramResponse r,
                               UploadChunk(all, 0, 100, "a/user", v1::PROGRAM_FORMAT_STABLEHLO));
  EXPECT_FALSE(r.complete());
  TESSERA_ASSERT_OK_AND_ASSIGN(
      r, UploadChunk(all, 100, all.size(), "a/user", v1::PROGRAM_FORMAT_STABLEHLO));
  EXPECT_TRUE(r.complete());
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse by_hash,
                               Compile([&](auto& q) { q.set_program_sha256(hash); }));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse by_value,
                               Compile([&](auto& q) { q.set_stablehlo(all); }));
  EXPECT_EQ(by_hash.executable(), by_value.executable());
  ASSERT_EQ(by_hash.in_size(), 3);
  EXPECT_THAT(by_hash.in(0).shape(), ElementsAre(4, 3));
  v1::ExplainProgramRequest explain;
  explain.set_stablehlo(all);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExplainProgramResponse explained,
                               Do<Programs>(&Programs::Stub::ExplainProgram, explain, "a/user"));
  EXPECT_THAT(explained.text(), HasSubstr("plan of jit_affine"));
  EXPECT_THAT(explained.text(), HasSubstr("  x: f32[4,3]")) << "by the artifact's names";
  v1::GetProgramRequest get;
  get.set_sha256(hash);
  get.set_with_text(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::UploadedProgram program,
                               Do<Programs>(&Programs::Stub::GetProgram, get, "a/viewer"));
  EXPECT_EQ(program.format(), v1::PROGRAM_FORMAT_STABLEHLO);
  EXPECT_EQ(program.size_bytes(), static_cast<int64_t>(all.size()));
  EXPECT_THAT(program.params(), ElementsAre("f32[4,3]", "f32[3,2]", "f32[2]"));
  EXPECT_EQ(program.ops().at("tanh"), 1);
  EXPECT_THAT(program.text(), HasSubstr("tanh("));
  // The printed text is a valid program too.
  TESSERA_EXPECT_OK(Compile([&](auto& q) { q.set_text(program.text()); }));
  v1::RunProgramRequest run;
  run.set_validate_only(true);
  for (const v1::ArraySpec& spec : by_hash.in()) *run.add_inputs() = Zeros(spec.shape());
  run.set_stablehlo(all);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::RunProgramResponse ran,
                               Do<Programs>(&Programs::Stub::RunProgram, run, "a/user"));
  EXPECT_THAT(ran.types(), ElementsAre("f32[4,2]"));
  run.set_program_sha256(hash);
  TESSERA_EXPECT_OK(Do<Programs>(&Programs::Stub::RunProgram, run, "a/user"));
  EXPECT_THAT(Do<Programs>(&Programs::Stub::RunProgram, run, "b/user"),
              ReasonIs("PROGRAM_NOT_FOUND"));
}

TEST_F(ProgramsTest, InvalidArtifactsAndUnknownOpsAreRefused) {
  const std::string all = Exported("affine"), other = Exported("custom_call");
  EXPECT_THAT(UploadChunk(all, 0, all.size()),
              ReasonIs("MALFORMED_PROGRAM", "are not a tessera.v1.Program"));
  EXPECT_THAT(UploadChunk(Bytes(), 0, Bytes().size(), "a/user", v1::PROGRAM_FORMAT_STABLEHLO),
              ReasonIs("MALFORMED_PROGRAM", "StableHLO"));
  EXPECT_THAT(UploadChunk(other, 0, other.size(), "a/user", v1::PROGRAM_FORMAT_STABLEHLO),
              ReasonIs("NOT_IMPLEMENTED", "model.py:"));
  EXPECT_THAT(UploadChunk(all, 0, 10, "a/user", static_cast<v1::ProgramFormat>(7)),
              ReasonIs("VALUE_ERROR", "number 7"));
  TESSERA_EXPECT_OK(UploadChunk(all, 0, 10, "a/user", v1::PROGRAM_FORMAT_STABLEHLO));
  EXPECT_THAT(UploadChunk(all, 10, all.size()),
              ReasonIs("VALUE_ERROR", "were declared as a StableHLO artifact"));
  EXPECT_THAT(Compile([&](auto& q) { q.set_stablehlo(all.substr(0, 100)); }),
              ReasonIs("MALFORMED_PROGRAM", "StableHLO"));
  EXPECT_THAT(Compile([&](auto& q) { q.set_stablehlo(other); }),
              ReasonIs("NOT_IMPLEMENTED", "model.py:"));
  EXPECT_THAT(Compile([&](auto& q) {
                q.set_stablehlo(all);
                q.set_text("func main() {}");
              }),
              ReasonIs("MALFORMED_PROGRAM", "in one"));
}

TEST_F(ProgramsTest, InspectDescribesArtifactsThatCannotRun) {
  const auto inspect = [&](const std::string& bytes) {
    v1::InspectProgramRequest q;
    q.set_stablehlo(bytes);
    return Do<Programs>(&Programs::Stub::InspectProgram, q, "a/viewer");
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::InspectProgramResponse r, inspect(Exported("affine")));
  EXPECT_EQ(r.format(), v1::PROGRAM_FORMAT_STABLEHLO);
  EXPECT_EQ(r.name(), "jit_affine");
  EXPECT_EQ(r.producer(), "StableHLO_v" + r.stablehlo_version());
  ASSERT_EQ(r.params_size(), 3);
  EXPECT_EQ(r.params(0).type(), "f32[4,3]");
  EXPECT_EQ(r.params(0).name(), "x");
  EXPECT_EQ(r.ops().at("tanh"), 1);
  EXPECT_EQ(r.lacking_size(), 0);
  EXPECT_EQ(r.problem(), "");
  // Ops that the server lacks are reported, but are no error.
  TESSERA_ASSERT_OK_AND_ASSIGN(r, inspect(Exported("custom_call")));
  EXPECT_GT(r.lacking().at("custom_call @nobodys_factors"), 0);
  EXPECT_THAT(r.problem(), HasSubstr("model.py:"));
  TESSERA_ASSERT_OK_AND_ASSIGN(r, inspect(Exported("placed")));
  ASSERT_EQ(r.meshes_size(), 1);
  EXPECT_EQ(r.meshes(0).mesh().axes(0).name(), "x");
  EXPECT_THAT(r.params(0).sharding(), HasSubstr("@mesh, [{"));
  TESSERA_ASSERT_OK_AND_ASSIGN(r, inspect(Exported("no_main")));
  EXPECT_THAT(r.problem(), HasSubstr("main"));
  EXPECT_THAT(inspect("rubbish"), ReasonIs("MALFORMED_PROGRAM"));
  EXPECT_THAT(inspect(""), ReasonIs("MALFORMED_PROGRAM", "no program"));
}

TEST_F(ProgramsTest, InspectDescribesTesseraPrograms) {
  v1::InspectProgramRequest q;
  q.set_text(ir::PrintProgram(Product()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::InspectProgramResponse by_text,
                               Do<Programs>(&Programs::Stub::InspectProgram, q, "a/viewer"));
  EXPECT_EQ(by_text.format(), v1::PROGRAM_FORMAT_TESSERA);
  ASSERT_EQ(by_text.params_size(), 2);
  EXPECT_EQ(by_text.params(1).type(), "f32[4,2]");
  EXPECT_EQ(by_text.params(0).sharding(), "P('x')");
  EXPECT_EQ(by_text.results_size(), 1);
  EXPECT_EQ(by_text.ops().at("multiply"), 1);
  EXPECT_EQ(by_text.meshes(0).mesh().axes(0).name(), "x");
  TESSERA_ASSERT_OK(UploadChunk(Bytes(), 0, Bytes().size()));
  q.set_program_sha256(Sha256Hex(Bytes()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::InspectProgramResponse by_hash,
                               Do<Programs>(&Programs::Stub::InspectProgram, q, "a/viewer"));
  EXPECT_EQ(by_hash.SerializeAsString(), by_text.SerializeAsString());
  EXPECT_THAT(Do<Programs>(&Programs::Stub::InspectProgram, q, "b/viewer"),
              ReasonIs("PROGRAM_NOT_FOUND"));
  q.set_text("func ???");
  EXPECT_THAT(Do<Programs>(&Programs::Stub::InspectProgram, q, "a/viewer"),
              ReasonIs("MALFORMED_PROGRAM"));
}

// ---- Uploads, explanations, errors. -------------------------------------------------------------
TEST_F(ProgramsTest, InvalidUploadsAreRefused) {
  EXPECT_THAT(UploadChunk("\xff\xff\xff\xff", 0, 4), ReasonIs("MALFORMED_PROGRAM"));
  v1::UploadProgramRequest q;
  q.set_sha256("abc");
  EXPECT_THAT(Do<Programs>(&Programs::Stub::UploadProgram, q, "a/user"), ReasonIs("VALUE_ERROR"));
  q.set_sha256(Sha256Hex("x"));
  q.set_size_bytes(1);
  q.set_data("x");
  EXPECT_THAT(Do<Programs>(&Programs::Stub::UploadProgram, q, "a/user"),
              ReasonIs("CHECKSUM_MISMATCH"));
  q.set_crc32c(api::Crc32c(0, "x", 1));
  q.set_size_bytes(int64_t{1} << 40);
  EXPECT_THAT(Do<Programs>(&Programs::Stub::UploadProgram, q, "a/user"),
              ReasonIs("LIMIT_EXCEEDED", "max_program_bytes"));
}

TEST_F(ProgramsTest, GetAndListDescribeUploadedPrograms) {
  const std::string all = Bytes();
  const std::string hash = Sha256Hex(all);
  TESSERA_ASSERT_OK(UploadChunk(all, 0, all.size()));
  v1::GetProgramRequest get;
  get.set_sha256(hash);
  get.set_with_text(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::UploadedProgram program,
                               Do<Programs>(&Programs::Stub::GetProgram, get, "a/viewer"));
  EXPECT_EQ(program.size_bytes(), static_cast<int64_t>(all.size()));
  EXPECT_EQ(program.opset(), ir::kOpset);
  EXPECT_THAT(program.params(), ElementsAre("f32[4,2]", "f32[4,2]"));
  EXPECT_THAT(program.results(), ElementsAre("f32[4,2]"));
  EXPECT_EQ(program.ops().at("multiply"), 1);
  EXPECT_EQ(program.ops_size(), 1);
  EXPECT_EQ(program.text(), ir::PrintProgram(Product()));
  EXPECT_EQ(program.mesh().axes(0).name(), "x");
  v1::ListProgramsRequest list;
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::ListProgramsResponse page,
                               Do<Programs>(&Programs::Stub::ListPrograms, list, "a/viewer"));
  ASSERT_EQ(page.programs_size(), 1);
  EXPECT_EQ(page.programs(0).sha256(), hash);
  EXPECT_TRUE(page.programs(0).text().empty());
  TESSERA_ASSERT_OK_AND_ASSIGN(page, Do<Programs>(&Programs::Stub::ListPrograms, list, "b/viewer"));
  EXPECT_EQ(page.programs_size(), 0);
  EXPECT_THAT(Do<Programs>(&Programs::Stub::GetProgram, get, "b/viewer"),
              ReasonIs("PROGRAM_NOT_FOUND"));
  v1::DeleteProgramRequest del;
  del.set_sha256(hash);
  EXPECT_THAT(Do<Programs>(&Programs::Stub::DeleteProgram, del, "b/user"),
              ReasonIs("PROGRAM_NOT_FOUND"));
  TESSERA_EXPECT_OK(Do<Programs>(&Programs::Stub::DeleteProgram, del, "a/user"));
  EXPECT_THAT(Do<Programs>(&Programs::Stub::DeleteProgram, del, "a/user"),
              ReasonIs("PROGRAM_NOT_FOUND"));
}

TEST_F(ProgramsTest, ExplainCompilesNothing) {
  v1::ExplainProgramRequest q;
  q.set_text(ir::PrintProgram(Product()));
  TESSERA_ASSERT_OK_AND_ASSIGN(v1::ExplainProgramResponse r,
                               Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"));
  EXPECT_THAT(r.text(), HasSubstr("multiply"));
  EXPECT_THAT(r.json(), HasSubstr("multiply"));
  EXPECT_GT(r.memory_bound_bytes(), 0);
  EXPECT_THAT(r.devices(), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(r.pending_reasons_size(), 1);
  EXPECT_EQ(r.pending_reasons(0).code(), "COMPILING");
  TESSERA_ASSERT_OK(Compile([](auto& c) { c.set_text(ir::PrintProgram(Product())); }));
  TESSERA_ASSERT_OK_AND_ASSIGN(r, Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"));
  EXPECT_EQ(r.pending_reasons_size(), 0) << "it would start at once";
  worker_->LoseExecutor("gone");
  TESSERA_ASSERT_OK_AND_ASSIGN(r, Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"));
  ASSERT_EQ(r.pending_reasons_size(), 1);
  EXPECT_EQ(r.pending_reasons(0).code(), "WORKER_LOST");
  q.set_program_sha256(std::string(64, 'a'));
  EXPECT_THAT(Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"),
              ReasonIs("PROGRAM_NOT_FOUND"));
}

TEST_F(ProgramsTest, ExplainPlansForAbsentDevices) {
  v1::ExplainProgramRequest q;
  q.set_text(R"(
mesh (data=64, model=8)
func main(%x: f32[128,16] P('data','model')) -> (f32[128]) {
  %s = reduce_sum(%x) {dimensions=[1]}
  return %s
})");
  EXPECT_THAT(Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"),
              ReasonIs("NOT_ENOUGH_DEVICES", "device_memory_bytes"));
  q.set_device_memory_bytes(1000);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::ExplainProgramResponse r,
                               Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"));
  EXPECT_THAT(r.text(), HasSubstr("(data=64, model=8), for absent devices"));
  EXPECT_THAT(r.text(), HasSubstr("psum[model]"));
  EXPECT_THAT(r.json(), HasSubstr("absent_device_bytes"));
  EXPECT_GT(r.memory_bound_bytes(), 2 * 2 * 4) << "a block of x alone has more bytes";
  EXPECT_EQ(r.devices_size(), 0);
  EXPECT_EQ(r.pending_reasons_size(), 0);
  q.set_device_memory_bytes(r.memory_bound_bytes());
  TESSERA_EXPECT_OK(Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user").status());
  q.set_device_memory_bytes(r.memory_bound_bytes() - 1);
  EXPECT_THAT(Do<Programs>(&Programs::Stub::ExplainProgram, q, "a/user"),
              ReasonIs("OUT_OF_MEMORY", "shard it further"));
  const auto compile = [&](v1::CompileProgramRequest& c) {
    c.set_text(q.text());
    c.set_device_memory_bytes(1000);
  };
  EXPECT_THAT(Compile(compile), ReasonIs("VALUE_ERROR", "validate_only"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse planned, Compile([&](auto& c) {
                                 compile(c);
                                 c.set_validate_only(true);
                               }));
  EXPECT_EQ(planned.executable(), 0u);
  ASSERT_EQ(planned.in_size(), 1);
  EXPECT_EQ(planned.in(0).placement().mesh().axes_size(), 2);
  EXPECT_EQ(planned.in(0).placement().devices_size(), 0);
  EXPECT_THAT(Compile([&](auto& c) {
                compile(c);
                c.set_validate_only(true);
                c.add_devices(0);
              }),
              ReasonIs("VALUE_ERROR", "absent"));
}

TEST_F(ProgramsTest, CompileErrorsHaveReasons) {
  EXPECT_THAT(Compile([](auto&) {}), ReasonIs("MALFORMED_PROGRAM", "no program"));
  EXPECT_THAT(Compile([](auto& q) {
                q.set_text("func ???");
                q.mutable_program();
              }),
              ReasonIs("MALFORMED_PROGRAM", "in one"));
  EXPECT_THAT(Compile([](auto& q) { q.set_text("func ???"); }), ReasonIs("MALFORMED_PROGRAM"));
  const auto product = [](v1::CompileProgramRequest& q) {
    *q.mutable_program() = ir::serial::ToProto(Product());
  };
  EXPECT_THAT(Compile([&](auto& q) {
                product(q);
                q.set_mesh("nobody");
              }),
              ReasonIs("MESH_NOT_FOUND"));
  EXPECT_THAT(Compile([&](auto& q) {
                product(q);
                for (int64_t d : {0, 1, 2, 9}) q.add_devices(d);
              }),
              ReasonIs("NOT_ENOUGH_DEVICES"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::CompileProgramResponse checked, Compile([&](auto& q) {
                                 product(q);
                                 q.set_validate_only(true);
                               }));
  EXPECT_EQ(checked.executable(), 0u);
  EXPECT_EQ(checked.in_size(), 2);
}

TEST_F(ProgramsTest, RunProgramWithValidateOnlyRunsNothing) {
  v1::RunProgramRequest q;
  q.set_text(ir::PrintProgram(Product()));
  for (int i = 0; i < 2; ++i) *q.add_inputs() = Zeros({4, 2});
  q.set_validate_only(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const v1::RunProgramResponse r,
                               Do<Programs>(&Programs::Stub::RunProgram, q, "a/user"));
  EXPECT_THAT(r.types(), ElementsAre("f32[4,2]"));
  EXPECT_EQ(r.outputs_size(), 0);
  EXPECT_EQ(worker_->num_buffers(), 0);
  q.set_mesh("nobody");
  EXPECT_THAT(Do<Programs>(&Programs::Stub::RunProgram, q, "a/user"), ReasonIs("MESH_NOT_FOUND"));
}

}  // namespace
}  // namespace tessera::server::rpc
