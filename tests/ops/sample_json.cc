// Implements the exchange with scripts/record_samples.py: dump_samples prints each row with ToJson,
// the script computes the row in JAX, and the tests read the results back with ReadRecording. A
// row, or sample, is one op with given attributes and operands (samples.h). Rows and results both
// have a digest of the row, so that a changed row is not compared with old values.
#include "tests/ops/sample_json.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/hex.h"
#include "base/status.h"
#include "ir/op_def.h"

namespace tessera::ir::samples {
namespace {

using Json = nlohmann::ordered_json;

std::string Hex(const Array& a) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(a.data()), a.num_bytes()));
}

Json TypeJson(const Type& t) {
  Json j{{"dtype", N(t.dtype)}, {"shape", t.shape}};
  if (!t.varying.empty()) j["varying"] = t.varying;
  return j;
}
Json SpecJson(const PartitionSpec& s) { return s.dims; }

struct AttrJson {
  Json operator()(bool v) const { return v; }
  Json operator()(int64_t v) const { return v; }
  Json operator()(double v) const { return v; }
  Json operator()(const std::string& v) const { return v; }
  Json operator()(const std::vector<int64_t>& v) const { return v; }
  Json operator()(const std::vector<std::string>& v) const { return v; }
  Json operator()(const std::vector<bool>& v) const { return v; }
  Json operator()(DType v) const { return N(v); }
  Json operator()(const Array& v) const {
    return {{"dtype", N(v.dtype())}, {"shape", v.shape()}, {"hex", Hex(v)}};
  }
  Json operator()(const PartitionSpec& v) const { return SpecJson(v); }
  Json operator()(const std::vector<PartitionSpec>& v) const {
    Json j = Json::array();
    for (const PartitionSpec& s : v) j.push_back(SpecJson(s));
    return j;
  }
};
Json AttrsJson(const Attrs& attrs) {
  Json j = Json::object();
  for (const auto& [name, value] : attrs.map()) j[name] = std::visit(AttrJson{}, value);
  return j;
}

Json FunctionJson(const Function& f) {
  Json ops = Json::array(), types = Json::array();
  for (const Type& t : f.types) types.push_back(TypeJson(t));
  for (const Op& op : f.ops) {
    Json regions = Json::array();
    for (const FunctionRef& r : op.regions) regions.push_back(FunctionJson(*r));
    ops.push_back({{"op", std::string(op.def->name)},
                   {"operands", op.operands},
                   {"results", op.results},
                   {"attrs", AttrsJson(op.attrs)},
                   {"regions", regions}});
  }
  return {{"params", f.num_params}, {"types", types}, {"ops", ops}, {"results", f.results}};
}

Json BodyJson(const Sample& s) {
  Json mesh = Json::array(), operands = Json::array(), results = Json::array();
  for (const MeshAxis& a : s.scope.mesh.axes) mesh.push_back({a.name, a.size});
  const std::vector<Shards> args = ArgsOf(s);
  for (size_t i = 0; i < args.size(); ++i) {
    Json j = TypeJson(s.operands[i].type);
    for (const Array& shard : args[i]) j["lanes"].push_back(Hex(shard));
    operands.push_back(std::move(j));
  }
  const FunctionRef f = FunctionOf(s);
  for (const Type& t : f->result_types()) results.push_back(TypeJson(t));
  return {{"mesh", mesh},
          {"manual", s.manual()},
          {"function", FunctionJson(*f)},
          {"operands", operands},
          {"results", results}};
}

std::string Digest(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return absl::StrCat(absl::Hex(h, absl::kZeroPad16));
}

absl::StatusOr<Array> ArrayFrom(const Json& j, const std::string& hex) {
  const auto dtype = ParseDType(j.at("dtype").get<std::string>());
  if (!dtype) return MakeError(ErrorKind::kValueError, "recorded: no such dtype");
  Array a(*dtype, j.at("shape").get<Dims>());
  if (static_cast<int64_t>(hex.size()) != 2 * a.num_bytes())
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("recorded: ", hex.size() / 2, " bytes for a ",
                                  MakeType(a.dtype(), a.shape()).ToString()));
  const std::optional<std::string> bytes = BytesFromHex(hex);
  if (!bytes) return MakeError(ErrorKind::kValueError, "recorded: not hexadecimal digits");
  std::copy(bytes->begin(), bytes->end(), reinterpret_cast<char*>(a.MutableData()));
  return a;
}

absl::Status ReadLine(const std::string& line, Recording* out) {
  const Json j = Json::parse(line);
  if (j.contains("source")) {
    out->source = j["source"].get<std::string>();
    return absl::OkStatus();
  }
  Recorded r;
  r.digest = j.at("digest").get<std::string>();
  r.failed = j.value("failed", "");
  for (const Json& result : j.at("results")) {
    r.results.emplace_back();
    for (const Json& shard : result.at("lanes")) {
      TESSERA_ASSIGN_OR_RETURN(Array a, ArrayFrom(result, shard.get<std::string>()));
      r.results.back().push_back(std::move(a));
    }
  }
  out->samples[j.at("sample").get<std::string>()] = std::move(r);
  return absl::OkStatus();
}

}  // namespace

std::string DigestOf(const Sample& s) { return Digest(BodyJson(s).dump()); }

std::string ToJson(const Sample& s) {
  const Json body = BodyJson(s);
  Json j{{"sample", s.name},
         {"digest", Digest(body.dump())},
         {"record", !s.Excludes(CheckKind::kRecorded)}};
  j.update(body);
  return j.dump();
}

absl::StatusOr<Recording> ReadRecording(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(path, " cannot be read; run scripts/record_samples.py"));
  Recording out;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    absl::Status status;
    try {
      status = ReadLine(line, &out);
    } catch (const Json::exception& e) {
      status = MakeError(ErrorKind::kValueError, e.what());
    }
    TESSERA_RETURN_IF_ERROR(Annotate(status, absl::StrCat(path, ":", number)));
  }
  return out;
}

}  // namespace tessera::ir::samples
