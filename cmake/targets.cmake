# The targets of the folders: two libraries, each static and shared, and the program.
#
#   libdiloco        base … inspect: embeds in any trainer
#   libdiloco-train  nn, model, data, presets, interop, train, clients on top of it
#   diloco           fed, plan, view, hub, launch, fetch, notify and cli, with both in it
#
# A folder that has no sources yet is left out, and what needs it is not built.

# dl_library(name OUTPUT file FOLDERS … LINK …): diloco_<name>_static and diloco_<name>_shared, known
# outside as diloco::<name>_static and diloco::<name>.
function(dl_library name)
  cmake_parse_arguments(L "" "OUTPUT" "FOLDERS;LINK" ${ARGN})
  foreach(folder ${L_FOLDERS})
    if(TARGET dl_${folder})
      list(APPEND objects $<TARGET_OBJECTS:dl_${folder}>)
    endif()
  endforeach()
  foreach(kind static shared)
    string(TOUPPER ${kind} type)
    set(target diloco_${name}_${kind})
    add_library(${target} ${type} ${objects})
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:dl_flags> ${L_LINK})
    target_include_directories(${target} INTERFACE
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME ${L_OUTPUT} LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION 0)
  endforeach()
  set_target_properties(diloco_${name}_shared PROPERTIES EXPORT_NAME ${name} INSTALL_RPATH $ORIGIN)
  set_target_properties(diloco_${name}_static PROPERTIES EXPORT_NAME ${name}_static)
  install(TARGETS diloco_${name}_shared diloco_${name}_static EXPORT diloco-targets)
endfunction()

# Symbols are hidden unless marked DILOCO_API. In these folders dl_ names stay visible to the
# linker, because libdiloco-train uses them; the version script limits this to it.
set(core base tensor codec combine outer loop store log protocol state exchange run inspect)
foreach(folder ${core})
  if(TARGET dl_${folder})
    set_target_properties(dl_${folder} PROPERTIES C_VISIBILITY_PRESET default)
    target_compile_options(dl_${folder} PRIVATE -fno-semantic-interposition)
  endif()
endforeach()
dl_library(diloco OUTPUT diloco FOLDERS ${core} LINK Threads::Threads xxhash zstd m
           ${CMAKE_DL_LIBS} ${CLOUD_LIBRARIES})
configure_file(cmake/diloco.map diloco.map @ONLY)
target_link_options(diloco_diloco_shared PRIVATE
  -Wl,--version-script=${PROJECT_BINARY_DIR}/diloco.map -Wl,-Bsymbolic)
set_property(TARGET diloco_diloco_shared PROPERTY LINK_DEPENDS ${PROJECT_BINARY_DIR}/diloco.map)

if(TARGET dl_train)
  dl_library(train OUTPUT diloco-train FOLDERS nn model data presets interop train clients LINK z m)
  target_link_libraries(diloco_train_shared PUBLIC diloco_diloco_shared)
  target_link_libraries(diloco_train_static PUBLIC diloco_diloco_static)
endif()

if(TARGET dl_train AND TARGET dl_plan AND TARGET dl_cli)
  add_executable(diloco src/cli/main.c $<TARGET_OBJECTS:dl_cli> $<TARGET_OBJECTS:dl_fed>
                 $<TARGET_OBJECTS:dl_plan> $<TARGET_OBJECTS:dl_view> $<TARGET_OBJECTS:dl_hub>
                 $<TARGET_OBJECTS:dl_launch> $<TARGET_OBJECTS:dl_fetch> $<TARGET_OBJECTS:dl_notify>
                 $<TARGET_OBJECTS:dl_gossip>)
  target_link_libraries(diloco PRIVATE dl_flags diloco_train_static ${server})
  set_property(TARGET diloco PROPERTY LINKER_LANGUAGE CXX)
  install(TARGETS diloco)
endif()

include(cmake/install.cmake)
