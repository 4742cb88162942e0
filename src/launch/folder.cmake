# -DDILOCO_CLOUD=OFF leaves out cloud/, which speaks to a network.
if(DILOCO_CLOUD)
  target_compile_definitions(dl_launch PRIVATE DL_CLOUD=1)
else()
  target_compile_definitions(dl_launch PRIVATE DL_CLOUD=0)
  list(FILTER tests EXCLUDE REGEX "/launch/cloud/")
  list(FILTER sources EXCLUDE REGEX "/launch/cloud/")
  set_property(TARGET dl_launch PROPERTY SOURCES ${sources})
endif()
