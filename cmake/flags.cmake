# Flags of every target. -ffp-contract=off and no fast-math: the arithmetic of
# docs/architecture.md section 2 writes every fma that it wants (PROTOCOL B1).
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(dl_flags INTERFACE)
target_compile_definitions(dl_flags INTERFACE _GNU_SOURCE DILOCO_VERSION="${PROJECT_VERSION}")
target_include_directories(dl_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(dl_flags INTERFACE
  -ffp-contract=off -fno-math-errno -fno-trapping-math
  -Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla -Wformat=2 -Wcast-qual
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
if(DILOCO_WERROR)
  target_compile_options(dl_flags INTERFACE -Werror)
endif()
if(DILOCO_FUZZ)
  # Coverage leads a fuzzer through the branches of parsers. Targets with DL_NO_PARSER do without: kernels
  # and the sources of tests, whose loops take up to three times as long with it.
  target_compile_options(dl_flags INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:DL_NO_PARSER>>>:-fsanitize=fuzzer-no-link>)
endif()
if(DILOCO_SANITIZE)
  target_compile_options(dl_flags INTERFACE -fsanitize=${DILOCO_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
    $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>) # its loops are not vectorized, and need not be
  target_link_options(dl_flags INTERFACE -fsanitize=${DILOCO_SANITIZE})
  set(dl_sanitize -fsanitize=${DILOCO_SANITIZE})
  if(CMAKE_C_COMPILER_ID STREQUAL "Clang" AND DILOCO_SANITIZE MATCHES "address")
    # One runtime for programs, libraries and what loads them (Python), as gcc has it by itself.
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
                    OUTPUT_VARIABLE dl_runtime OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    get_filename_component(folder ${dl_runtime} DIRECTORY)
    target_link_options(dl_flags INTERFACE -Wl,-rpath,${folder}
                        $<$<NOT:$<BOOL:$<TARGET_PROPERTY:DL_STATIC_RUNTIME>>>:-shared-libsan>)
    string(APPEND dl_sanitize " -shared-libsan -Wl,-rpath,${folder}")
  endif()
endif()
set(DILOCO_SANITIZE_FLAGS "${dl_sanitize}" CACHE INTERNAL "of programs that tests compile")

# Longest time of a test, in seconds; under a sanitizer everything takes several times as long.
set(dl_test_seconds 300)
set(dl_long_test_seconds 900)
if(DILOCO_SANITIZE)
  set(dl_test_seconds 1800)
  set(dl_long_test_seconds 3600)
endif()
