# -DDILOCO_CLOUD=OFF leaves out the web, which web_data_none.c says.
if(DILOCO_CLOUD)
  list(FILTER sources EXCLUDE REGEX "/fetch/web_data_none")
else()
  list(FILTER tests EXCLUDE REGEX "/fetch/web_data_test")
  list(FILTER sources EXCLUDE REGEX "/fetch/web_data\\.c")
endif()
set_property(TARGET dl_fetch PROPERTY SOURCES ${sources})
set_property(GLOBAL PROPERTY dl_fetch_tests ${tests})
