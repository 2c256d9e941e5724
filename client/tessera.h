// The C++ SDK of Tessera: write a program for one device, and say where its inputs live.
//
//   #include "client/tessera.h"
//   using namespace tessera;
//   auto f = jit([](Array x) { return sum(x * x); });
//   Array y = f(array<float>({1, 2, 3}));
//   float v = y.item<float>();
//
// This is the only header that users include. Errors are thrown as tessera::Error. Calls are
// asynchronous: they return arrays that may not be ready yet. Reading an array blocks until it is.
#pragma once
#include "client/array.h"              // IWYU pragma: export
#include "client/debug.h"              // IWYU pragma: export
#include "client/debug_print.h"        // IWYU pragma: export
#include "client/error.h"              // IWYU pragma: export
#include "client/fft.h"                // IWYU pragma: export
#include "client/files.h"              // IWYU pragma: export
#include "client/indexing.h"           // IWYU pragma: export
#include "client/lax.h"                // IWYU pragma: export
#include "client/linalg.h"             // IWYU pragma: export
#include "client/mesh.h"               // IWYU pragma: export
#include "client/nn.h"                 // IWYU pragma: export
#include "client/numpy.h"              // IWYU pragma: export
#include "client/optim.h"              // IWYU pragma: export
#include "client/precision.h"          // IWYU pragma: export
#include "client/products.h"           // IWYU pragma: export
#include "client/random.h"             // IWYU pragma: export
#include "client/repr.h"               // IWYU pragma: export
#include "client/session.h"            // IWYU pragma: export
#include "client/sets.h"               // IWYU pragma: export
#include "client/shapes.h"             // IWYU pragma: export
#include "client/sharding.h"           // IWYU pragma: export
#include "client/show/visualize.h"     // IWYU pragma: export
#include "client/special.h"            // IWYU pragma: export
#include "client/statistics.h"         // IWYU pragma: export
#include "client/transform.h"          // IWYU pragma: export
#include "client/transform/filters.h"  // IWYU pragma: export
#include "client/transform/stages.h"   // IWYU pragma: export
#include "client/tree.h"               // IWYU pragma: export
#include "client/ufuncs.h"             // IWYU pragma: export
