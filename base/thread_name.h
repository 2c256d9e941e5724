// Sets the name of the calling thread, which top, ps -T and debuggers show: at most 15 characters.
// On the main thread it renames the process. New threads inherit the name of the thread that starts
// them.
#pragma once
#include <sys/prctl.h>

namespace tessera {

inline void NameThread(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

}  // namespace tessera
