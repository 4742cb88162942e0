# -DDILOCO_CLOUD=OFF leaves the server out; what a run's status says in JSON stays.
if(NOT DILOCO_CLOUD)
  list(FILTER sources INCLUDE REGEX "/status_json\\.c$")
  set_property(TARGET dl_hub PROPERTY SOURCES ${sources})
  set(tests)
endif()
if(DILOCO_TESTS AND DILOCO_CLOUD)
  cmake_language(EVAL CODE "cmake_language(DEFER CALL target_sources hub_http_store_test PRIVATE
    ${PROJECT_SOURCE_DIR}/tests/store_suite.c)")
endif()
