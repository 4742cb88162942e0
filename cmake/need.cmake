# dl_need(PREFIX MODULE>=VERSION…): pkg_check_modules for libraries that must be there. An error names
# the first that is missing or too old, and what to do.
function(dl_need_one module)
  string(REGEX MATCH "^([^<>=]+)(>=(.*))?$" _ "${module}")
  set(name "${CMAKE_MATCH_1}")
  set(wanted "${CMAKE_MATCH_3}")
  execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --modversion ${name}
                  OUTPUT_VARIABLE version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT version)
    message(FATAL_ERROR "${name} is missing. Install its development package; "
                        "`make` and scripts/packages.sh build install all on Debian.")
  elseif(wanted AND version VERSION_LESS wanted)
    message(FATAL_ERROR "${name} ${version} is too old, and ${wanted} or later is needed. Install a "
                        "newer one; -DDILOCO_CLOUD=OFF builds without network stores.")
  endif()
endfunction()

macro(dl_need prefix)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${ARGN})
  if(NOT ${prefix}_FOUND)
    foreach(module ${ARGN})
      dl_need_one(${module})
    endforeach()
    pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${ARGN}) # with pkg-config's own words
  endif()
endmacro()
