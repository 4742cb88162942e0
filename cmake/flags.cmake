# Flags of every target. -ffp-contract=off and no fast-math: the arithmetic of
# docs/design.md section 2 writes every fma that it wants (PROTOCOL B1).
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
  target_compile_options(dl_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DILOCO_SANITIZE)
  target_compile_options(dl_flags INTERFACE -fsanitize=${DILOCO_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer
    $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>) # its loops are not vectorized, and need not be
  target_link_options(dl_flags INTERFACE -fsanitize=${DILOCO_SANITIZE})
endif()
