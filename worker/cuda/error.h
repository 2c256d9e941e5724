// Errors of the plugin. An error is a code, which calls return, and a text per thread, which the
// table's error_text returns. A call fails by `return Fail(TESSERA_..., "where: what, what to
// do")`.
#pragma once
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// Stores the text for this thread, and returns `code`.
__attribute__((format(printf, 2, 3))) int Fail(int code, const char* format, ...);

// Returns the text of this thread's last Fail. It is valid until this thread's next Fail.
const char* ErrorText();

}  // namespace tessera::worker::cuda

// Returns the code of `expr` from the calling function, unless it is TESSERA_OK.
#define TESSERA_CUDA_TRY(expr)                                  \
  do {                                                          \
    if (const int tessera_code_ = (expr)) return tessera_code_; \
  } while (false)
