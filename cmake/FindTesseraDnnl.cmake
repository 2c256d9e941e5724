# Finds oneDNN and defines the target Tessera::dnnl. Debian's package contains no CMake files.
find_library(TESSERA_DNNL_LIBRARY dnnl)
find_path(TESSERA_DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
mark_as_advanced(TESSERA_DNNL_LIBRARY TESSERA_DNNL_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TesseraDnnl
  REQUIRED_VARS TESSERA_DNNL_LIBRARY TESSERA_DNNL_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install oneDNN (Debian: libdnnl-dev)")
if(TesseraDnnl_FOUND AND NOT TARGET Tessera::dnnl)
  add_library(Tessera::dnnl UNKNOWN IMPORTED)
  set_target_properties(Tessera::dnnl PROPERTIES
    IMPORTED_LOCATION ${TESSERA_DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${TESSERA_DNNL_INCLUDE_DIR})
endif()
