# main.c has the program's main, and tests have their own: it is not part of the folder.
if(DILOCO_CLOUD)
  target_compile_definitions(dl_cli PRIVATE DL_CLOUD=1)
else()
  target_compile_definitions(dl_cli PRIVATE DL_CLOUD=0)
endif()
get_target_property(cli_sources dl_cli SOURCES)
list(FILTER cli_sources EXCLUDE REGEX "/main\\.c$")
set_property(TARGET dl_cli PROPERTY SOURCES ${cli_sources})
