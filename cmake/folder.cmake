# dl_folder(name USES folders… [LINK libraries…] [TESTS folders…])
#
# src/<name>/**/*.c becomes the object library dl_<name>; every src/<name>/**/x_test.c a test of its
# own (dl_tests_of_folders). It is linked with the folder, the folders that it uses, and the folders
# of TESTS with theirs, which may be below this row.
function(dl_folder name)
  cmake_parse_arguments(F "" "" "USES;LINK;TESTS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.c
                                              ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.c$")
  list(FILTER sources EXCLUDE REGEX "_test\\.c$")
  if(NOT sources OR (sources MATCHES "\\.cc" AND NOT CMAKE_CXX_COMPILER))
    return()
  endif()

  add_library(dl_${name} OBJECT ${sources})
  target_link_libraries(dl_${name} PUBLIC dl_flags ${F_LINK})
  if(name MATCHES "^(tensor|combine|outer|nn)$")
    set_target_properties(dl_${name} PROPERTIES DL_NO_PARSER TRUE)
  endif()
  set_property(GLOBAL APPEND PROPERTY dl_folders ${name})
  set_property(GLOBAL PROPERTY dl_${name}_uses ${F_USES} ${name})
  set_property(GLOBAL PROPERTY dl_${name}_tests ${tests})
  set_property(GLOBAL PROPERTY dl_${name}_tests_use ${F_TESTS})
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/${name}/folder.cmake)
    include(${PROJECT_SOURCE_DIR}/src/${name}/folder.cmake)
  endif()
endfunction()

# The folders that a folder's tests are linked with, in `out`.
function(dl_linked_with_tests out folder)
  get_property(linked GLOBAL PROPERTY dl_${folder}_uses)
  get_property(more GLOBAL PROPERTY dl_${folder}_tests_use)
  foreach(other ${more})
    get_property(uses GLOBAL PROPERTY dl_${other}_uses)
    list(APPEND linked ${uses})
  endforeach()
  list(REMOVE_DUPLICATES linked)
  set(${out} ${linked} PARENT_SCOPE)
endfunction()

# The tests of all folders, once every folder is known.
function(dl_tests_of_folders)
  if(NOT DILOCO_TESTS)
    return()
  endif()
  get_property(folders GLOBAL PROPERTY dl_folders)
  foreach(folder ${folders})
    dl_linked_with_tests(linked ${folder})
    get_property(tests GLOBAL PROPERTY dl_${folder}_tests)
    foreach(test ${tests})
      get_filename_component(stem ${test} NAME_WE)
      dl_test(${folder}_${stem} SOURCES ${test} FOLDERS ${linked})
    endforeach()
  endforeach()
endfunction()

# dl_program(name SOURCES … FOLDERS …): a program over the objects of those folders.
function(dl_program target)
  cmake_parse_arguments(P "" "" "SOURCES;FOLDERS" ${ARGN})
  add_executable(${target} ${P_SOURCES})
  target_link_libraries(${target} PRIVATE dl_flags)
  foreach(folder ${P_FOLDERS})
    if(TARGET dl_${folder})
      target_link_libraries(${target} PRIVATE dl_${folder})
    endif()
  endforeach()
endfunction()

# dl_link_quickly(name): with lld where it is, in a quarter of ld's time. There are 350 test programs.
find_program(DILOCO_LLD ld.lld)
function(dl_link_quickly target)
  if(EXISTS "${DILOCO_LLD}") # it may have been removed since it was found
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# dl_test(name SOURCES … FOLDERS …): the same, linked with cmocka and known to CTest. The test's own
# sources are compiled with -O1, in a third of the time; the code under test is in the folders. At
# -O1 gcc does not know the range of an index, and takes every "r%d" for one that may be cut off.
function(dl_test target)
  dl_test_program(${target} ${ARGN})
  dl_add_test(${target})
endfunction()

# dl_test_program and dl_add_test: its two halves.
function(dl_test_program target)
  dl_program(${target} ${ARGN})
  target_compile_options(${target} PRIVATE
    -O1 $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE cmocka)
  dl_link_quickly(${target})
  set_target_properties(${target} PROPERTIES DL_NO_PARSER TRUE)
endfunction()
function(dl_add_test target)
  add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${target} PROPERTIES TIMEOUT ${dl_test_seconds} PROCESSORS 2)
endfunction()
