# The engine's own loops may contract a * b + c: its results need not agree between
# machines (docs/architecture.md, section 8), only between runs on one. -fopenmp-simd reads the
# simd pragmas of cpu/vec.h and links nothing. -Wno-psabi: vectors are never passed between
# separately compiled functions.
# A sanitizer's instructions come between a product and its sum, and clang then contracts some only:
# its builds fuse none, in cpu/tile_body.h as well.
set(contract fast)
if(DILOCO_SANITIZE)
  set(contract off)
  target_compile_definitions(dl_nn PRIVATE DL_UNFUSED)
endif()
foreach(source ${sources})
  set_source_files_properties(${source} PROPERTIES
    COMPILE_OPTIONS "-ffp-contract=${contract};-fopenmp-simd;-Wno-psabi")
endforeach()
# clang checks the operands of cpu/tile_body.h's instruction in functions that nobody calls, too, unless
# this flag defers it.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/nn/cpu/vec_test.c PROPERTIES COMPILE_OPTIONS
                            "-fopenmp-simd;-Wno-psabi")

dl_device_code(dl_nn ${PROJECT_SOURCE_DIR}/src/nn/cuda/device_code.c)
