# Nodes serve each other over HTTP: -DDILOCO_CLOUD=OFF leaves all of it out but the state machine.
if(NOT DILOCO_CLOUD)
  list(FILTER sources INCLUDE REGEX "/(node|heartbeat|mix)\\.c$")
  set_property(TARGET dl_gossip PROPERTY SOURCES ${sources})
  list(FILTER tests INCLUDE REGEX "/(node|heartbeat|mix)_test\\.c$")
endif()
