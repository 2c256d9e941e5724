// The name of the calling thread, as top, ps -T and debuggers show it: 15 characters at most. That
// of the first thread is the process's. Threads that it starts have its name until they take
// another.
#pragma once
#include <sys/prctl.h>

namespace tessera {

inline void NameThread(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

}  // namespace tessera
