// Errors of the plugin: a code, which calls return, and a text per thread, which the table's
// error_text returns. A call fails by `return Fail(TESSERA_..., "where: what, what to do")`.
#pragma once
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// Stores the text for this thread and returns `code`.
__attribute__((format(printf, 2, 3))) int Fail(int code, const char* format, ...);

// The text of this thread's last Fail. Valid until its next Fail.
const char* ErrorText();

}  // namespace tessera::worker::cuda

// Returns from the caller with the code of `expr`, if it is not TESSERA_OK.
#define TESSERA_CUDA_TRY(expr)                                  \
  do {                                                          \
    if (const int tessera_code_ = (expr)) return tessera_code_; \
  } while (false)
