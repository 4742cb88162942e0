# cmake --install and `cmake --build … --target deb`. The installed files may be moved as a whole:
# the pkg-config and CMake files find their prefix from where they are.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/diloco)
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir}
           OUTPUT_VARIABLE DILOCO_PC_PREFIX)

install(DIRECTORY include/diloco DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md PATTERN *.svg)

# Not as Requires.private: a static libdiloco uses the shared libcurl, without all that a static
# one would need.
if(DILOCO_CLOUD)
  set(DILOCO_PC_CLOUD "-lcurl -lcrypto -lexpat ")
endif()
configure_file(cmake/diloco.pc.in diloco.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/diloco.pc DESTINATION ${pc_dir})
if(TARGET dl_train)
  configure_file(cmake/diloco-train.pc.in diloco-train.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/diloco-train.pc DESTINATION ${pc_dir})
endif()

# The manual, which the program writes from its tables.
if(TARGET diloco)
  add_custom_command(TARGET diloco POST_BUILD COMMAND diloco man ${PROJECT_BINARY_DIR}/man VERBATIM)
  foreach(section 1 5)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
            FILES_MATCHING PATTERN *.${section})
  endforeach()

  # Completion, likewise. zsh looks in site-functions below /usr/local, and Debian's also in
  # vendor-completions below /usr.
  set(completion_dir ${PROJECT_BINARY_DIR}/completion)
  file(MAKE_DIRECTORY ${completion_dir})
  foreach(shell bash zsh fish)
    add_custom_command(TARGET diloco POST_BUILD VERBATIM
      COMMAND sh -c "\"$1\" completion \"$2\" >\"$3\"" sh $<TARGET_FILE:diloco> ${shell}
              ${completion_dir}/${shell})
  endforeach()
  install(FILES ${completion_dir}/bash RENAME diloco
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completion_dir}/fish RENAME diloco.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  foreach(folder site-functions vendor-completions)
    install(FILES ${completion_dir}/zsh RENAME _diloco
            DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder})
  endforeach()
endif()

install(EXPORT diloco-targets NAMESPACE diloco:: DESTINATION ${package_dir})
configure_package_config_file(cmake/diloco-config.cmake.in ${PROJECT_BINARY_DIR}/diloco-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/diloco-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/diloco-config.cmake
              ${PROJECT_BINARY_DIR}/diloco-config-version.cmake DESTINATION ${package_dir})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the diloco maintainers")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libxxhash-dev, libzstd-dev, libcurl4-openssl-dev, libssl-dev, libexpat1-dev") # to link the static libraries
include(CPack)
add_custom_target(deb COMMAND ${PROJECT_SOURCE_DIR}/scripts/deb.sh ${CMAKE_CPACK_COMMAND}
                  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} USES_TERMINAL)
