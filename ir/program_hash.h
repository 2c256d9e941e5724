// Hashes of programs, by which executables are cached. Stateless; thread-safe.
#pragma once
#include <string>

#include "ir/program.h"

namespace tessera::ir {

// Returns the SHA-256, in hex, of the structure: ops, types, attributes, scope and shardings. The
// names of functions, arguments and results, and the sites, are left out.
std::string StructuralHash(const Program& program);
std::string StructuralHash(const Function& function);
// Returns the SHA-256, in hex, of the names and sites that StructuralHash leaves out.
std::string AnnotationHash(const Program& program);

}  // namespace tessera::ir
