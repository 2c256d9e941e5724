// Errors of the plugin. Every function of the table that can fail passes through Guarded or
// ErrorOf, so that the framework sees error objects and never an exception.
#include "client/pjrt/status.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "client/error.h"

namespace tessera::pjrt {
namespace {

constexpr ErrorFunctions kFunctions = {
    .struct_size = sizeof(ErrorFunctions),
    .instance_size = sizeof(Error),
    .extension_start = nullptr,
    .destroy = Error_Destroy,
    .message = Error_Message,
    .get_code = Error_GetCode,
    .for_each_payload = Error_ForEachPayload,
};

}  // namespace

std::string MessageOf(const absl::Status& status) {
  const std::string_view reason = ReasonOf(status);
  return absl::StrCat(ToAbsl(reason), reason.empty() ? "" : ": ", status.message());
}

Error* ErrorOf(const absl::Status& status) {
  if (status.ok()) return nullptr;
  return new Error{&kFunctions, status, MessageOf(status)};
}

absl::Status CatchExceptions(absl::Status (*f)(void*), void* context) {
  try {
    return f(context);
  } catch (const tessera::Error& e) {
    return e.status();
  } catch (const StatusException& e) {
    return e.status();
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "the client has no memory left for this call");
  } catch (const std::exception& e) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("the client threw: ", e.what()));
  }
}

Error* Error_Destroy(Error_Destroy_Args* args) {
  delete args->error;
  return nullptr;
}

Error* Error_Message(Error_Message_Args* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
  return nullptr;
}

Error* Error_GetCode(Error_GetCode_Args* args) {
  args->code = static_cast<int>(args->error->status.code());
  return nullptr;
}

// The framework calls this function for every error, but has no use for Tessera's payloads.
Error* Error_ForEachPayload(Error_ForEachPayload_Args*) { return nullptr; }

}  // namespace tessera::pjrt
