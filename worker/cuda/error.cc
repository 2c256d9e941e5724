// The error text of each thread. All other files of this folder report errors by Fail, and
// plugin.cc exports ErrorText in the table.
#include "worker/cuda/error.h"

#include <cstdarg>
#include <cstdio>

namespace tessera::worker::cuda {
namespace {

// Longer texts, such as logs of the PTX compiler, are truncated.
thread_local char text[4096];

}  // namespace

int Fail(int code, const char* format, ...) {
  // The arguments may point into `text`, so the new text is built in a copy.
  char next[sizeof text];
  va_list args;
  va_start(args, format);
  vsnprintf(next, sizeof next, format, args);
  va_end(args);
  snprintf(text, sizeof text, "%s", next);
  return code;
}

const char* ErrorText() { return text; }

}  // namespace tessera::worker::cuda
