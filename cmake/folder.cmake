# dl_folder(name USES folders… LINK libraries…)
#
# src/<name>/**/*.c becomes the object library dl_<name>; every src/<name>/**/x_test.c a
# test of its own, linked with the folder and what it uses.
function(dl_folder name)
  cmake_parse_arguments(F "" "" "USES;LINK" ${ARGN})
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
  set_property(GLOBAL PROPERTY dl_${name}_uses ${F_USES})
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/${name}/folder.cmake)
    include(${PROJECT_SOURCE_DIR}/src/${name}/folder.cmake)
  endif()

  if(DILOCO_TESTS)
    foreach(test ${tests})
      get_filename_component(stem ${test} NAME_WE)
      dl_test(${name}_${stem} SOURCES ${test} FOLDERS ${F_USES} ${name})
    endforeach()
  endif()
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

# dl_test(name SOURCES … FOLDERS …): the same, linked with cmocka and known to CTest.
function(dl_test target)
  dl_program(${target} ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE cmocka)
  add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${target} PROPERTIES TIMEOUT ${dl_test_seconds})
endfunction()
