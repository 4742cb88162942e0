# The conformance suite is linked into the tests that use it (deferred: they do not exist
# yet).
if(DILOCO_TESTS)
  cmake_language(DEFER CALL target_sources store_store_test PRIVATE ${PROJECT_SOURCE_DIR}/tests/store_suite.c)
endif()
