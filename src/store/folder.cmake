# The conformance suite and its helpers are linked into these tests (deferred: the targets
# do not exist yet).
if(DILOCO_TESTS)
  set(suite ${PROJECT_SOURCE_DIR}/tests/store_suite.c)
  foreach(test store faulty file file_alloc)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL target_sources store_${test}_test PRIVATE ${suite})")
  endforeach()
endif()
