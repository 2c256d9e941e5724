#include "ir/attrs.h"

#include "base/log.h"

namespace tessera::ir {

const AttrValue& Attrs::Find(std::string_view name) const {
  auto it = map_.find(name);
  TESSERA_CHECK(it != map_.end()) << "attribute '" << std::string(name) << "' is absent";
  return it->second;
}

}  // namespace tessera::ir
