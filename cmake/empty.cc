// An empty source file. CMake requires a source for each target, also for those that consist only
// of archives, object files or precompiled headers.
