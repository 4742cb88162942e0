# The page (web/) is a part of the program.
file(GLOB web CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/web/*)
set(page_files ${PROJECT_BINARY_DIR}/page_files.c)
add_custom_command(OUTPUT ${page_files} VERBATIM
  COMMAND ${CMAKE_COMMAND} -DOUT=${page_files} "-DFILES=${web}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${web} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
target_sources(dl_view PRIVATE ${page_files})
