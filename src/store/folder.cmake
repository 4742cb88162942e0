# What speaks to a network; -DDILOCO_CLOUD=OFF leaves it out.
set(network web trust web_read sigv4 xml cloud credentials bucket bucket_bulk s3_wire s3 gs az http http_upload etcd etcd_wire ear sse)
if(DILOCO_CLOUD)
  target_compile_definitions(dl_store PUBLIC DL_CLOUD=1)
else()
  target_compile_definitions(dl_store PUBLIC DL_CLOUD=0)
  list(JOIN network "|" names)
  list(FILTER tests EXCLUDE REGEX "/(${names})_test\\.c$")
  list(FILTER sources EXCLUDE REGEX "/(${names})\\.c$")
  set_property(TARGET dl_store PROPERTY SOURCES ${sources})
endif()

# The conformance suite and its helpers are linked into these tests (deferred: the targets
# do not exist yet).
if(DILOCO_TESTS)
  set(suite ${PROJECT_SOURCE_DIR}/tests/store_suite.c)
  foreach(test store faulty shaped file file_alloc user)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL target_sources store_${test}_test PRIVATE ${suite})")
  endforeach()
endif()
