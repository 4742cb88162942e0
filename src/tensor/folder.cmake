# The hash of the fused pass once per instruction set: dispatch is at run time, so only
# these files may be compiled for a machine wider than the baseline.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(leaf ${PROJECT_SOURCE_DIR}/src/tensor/cpu)
  set_source_files_properties(${leaf}/leaf_avx2.c PROPERTIES COMPILE_OPTIONS -mavx2)
  set_source_files_properties(${leaf}/leaf_avx512.c PROPERTIES COMPILE_OPTIONS "-mavx512f")
endif()

# What isa_test loads to find its control word changed.
if(DILOCO_TESTS)
  add_library(flush MODULE ${PROJECT_SOURCE_DIR}/tests/fastmath/flush.c)
  target_compile_options(flush PRIVATE -ffast-math)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/tensor/isa_test.c PROPERTIES
    COMPILE_DEFINITIONS "FLUSH_LIBRARY=\"$<TARGET_FILE:flush>\"")
  cmake_language(DEFER CALL add_dependencies tensor_isa_test flush)
endif()
