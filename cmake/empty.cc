// tessera_shared is made of archives; CMake wants a source.
