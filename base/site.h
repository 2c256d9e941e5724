// A call site: a file and a line in the user's source, which error messages name.
//
// A Site is two machine words: pass it by value. `file` is not owned: it is a literal or an
// interned string, valid until the process exits. Thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

struct Site {
  const char* file = "";
  int line = 0;

  bool valid() const { return line > 0; }

  // Returns the base name of the file and the line, "model.cc:41"; "" if the site is not valid.
  std::string ToString() const;

  // Returns the call site of the caller when it is used as a default argument:
  // void Add(..., Site site = Site::Here()).
  static Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Site{file, line};
  }

  friend bool operator==(const Site& a, const Site& b) {
    return a.line == b.line && std::string_view(a.file) == std::string_view(b.file);
  }
};

// Interns a file name: returns the same pointer for equal names, which is never freed. Names come
// from the programs of clients, so their number is bounded: after kInternedFilesMax names, each
// further one becomes "(another file)".
inline constexpr size_t kInternedFilesMax = 65'536;
const char* InternFile(std::string_view file);

}  // namespace tessera
