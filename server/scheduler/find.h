// Returns a pointer to the value of a key of a map, or null if the map does not have the key.
#pragma once

namespace tessera::server::scheduler {

template <class Map>
auto* FindIn(Map& map, const typename Map::key_type& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

}  // namespace tessera::server::scheduler
