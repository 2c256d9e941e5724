// Fuzzes the conversion between JSON and arrays. The input is a type, a newline and the JSON of a
// value. It must be rejected with a status, or become an array that converts to JSON and back to
// the same array.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/status.h"
#include "google/protobuf/util/json_util.h"
#include "ir/type.h"
#include "server/rpc/json.h"

namespace tessera::server::rpc {
namespace {

void OneInput(absl::string_view input) {
  const absl::string_view type_text = input.substr(0, input.find('\n'));
  const absl::StatusOr<ir::Type> type = ir::ParseType(ToStd(type_text));
  // Skip types that no program may have. No memory is allocated for the array yet.
  if (!type.ok() || !ir::CheckType(*type, {}).ok()) return;
  google::protobuf::Value value;
  const std::string json(input.substr(type_text.size()));
  if (!google::protobuf::util::JsonStringToMessage(json, &value).ok()) return;
  const absl::StatusOr<ir::Array> array = ArrayFromJson(value, type->dtype, type->shape);
  if (!array.ok()) return;
  TESSERA_CHECK(array->shape() == type->shape && array->dtype() == type->dtype);
  const absl::StatusOr<google::protobuf::Value> written = JsonFromArray(*array);
  TESSERA_CHECK(written.ok()) << written.status();
  const absl::StatusOr<ir::Array> again = ArrayFromJson(*written, type->dtype, type->shape);
  TESSERA_CHECK(again.ok()) << again.status();
  TESSERA_CHECK(absl::string_view(reinterpret_cast<const char*>(again->data()),
                                  static_cast<size_t>(again->num_bytes())) ==
                absl::string_view(reinterpret_cast<const char*>(array->data()),
                                  static_cast<size_t>(array->num_bytes())))
      << input;
}

}  // namespace
}  // namespace tessera::server::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::server::rpc::OneInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
