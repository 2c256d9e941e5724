// What went wrong, per thread: the plugin's one way to report it. A call that fails says so by
// `return Fail(TESSERA_..., "where: what, what to do")`; the table's error_text reads it back. Any
// thread; each sees its own text.
#pragma once
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// Keeps the text for this thread, and gives `code` back.
__attribute__((format(printf, 2, 3))) int Fail(int code, const char* format, ...);

// The text of this thread's last Fail. Valid until its next Fail.
const char* ErrorText();

}  // namespace tessera::worker::cuda

// Returns from the caller with the code of `expr`, if it is not TESSERA_OK.
#define TESSERA_CUDA_TRY(expr)                                  \
  do {                                                          \
    if (const int tessera_code_ = (expr)) return tessera_code_; \
  } while (false)
