# -DDILOCO_CLOUD=OFF leaves out http/, which speaks to a network.
if(DILOCO_CLOUD)
  target_compile_definitions(dl_store PUBLIC DL_CLOUD=1)
else()
  target_compile_definitions(dl_store PUBLIC DL_CLOUD=0)
  list(FILTER tests EXCLUDE REGEX "/store/http/")
  list(FILTER sources EXCLUDE REGEX "/store/http/")
  set_property(TARGET dl_store PROPERTY SOURCES ${sources})
endif()

# The conformance suite and its helpers are linked into these tests (deferred: the targets
# do not exist yet).
if(DILOCO_TESTS)
  set(suite ${PROJECT_SOURCE_DIR}/tests/store_suite.c)
  foreach(test store faulty shaped file_store file_alloc user_store)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL target_sources store_${test}_test PRIVATE ${suite})")
  endforeach()
endif()
