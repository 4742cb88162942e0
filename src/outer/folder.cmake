# The bits of the whole step against constants: on this machine's instruction sets, and, where
# a cross compiler and qemu-user are there, on NEON. The cross build takes XXH3 from its
# header alone, so it needs no library for arm64.
if(DILOCO_TESTS)
  set(bits ${PROJECT_SOURCE_DIR}/tests/neon/bits_main.c)
  dl_program(outer_bits SOURCES ${bits} FOLDERS base tensor codec combine outer)
  add_test(NAME outer_bits COMMAND outer_bits)

  find_program(DILOCO_AARCH64_CC aarch64-linux-gnu-gcc)
  find_program(DILOCO_QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
  find_file(DILOCO_XXHASH_H xxhash.h HINTS ${XXHASH_INCLUDE_DIRS})
  if(DILOCO_SANITIZE)
    # the cross build takes no flags of this one
  elseif(DILOCO_AARCH64_CC AND DILOCO_QEMU_AARCH64 AND DILOCO_XXHASH_H)
    configure_file(${DILOCO_XXHASH_H} ${PROJECT_BINARY_DIR}/neon/xxhash.h COPYONLY)
    # Whole folders, so that a new codec, combiner or outer optimizer is in by itself.
    set(neon_sources)
    set(neon_headers)
    foreach(folder base tensor codec combine outer)
      file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.c)
      list(APPEND neon_sources ${found})
      file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.h)
      list(APPEND neon_headers ${found})
    endforeach()
    list(FILTER neon_sources EXCLUDE REGEX "_test\\.c$|/leaf_avx[0-9]*\\.c$")
    list(APPEND neon_sources ${bits})
    add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/neon/bits
      COMMAND ${DILOCO_AARCH64_CC} -std=c11 -O3 -static -D_GNU_SOURCE -DXXH_INLINE_ALL=
              -ffp-contract=off -fno-math-errno -fno-trapping-math
              -I${PROJECT_BINARY_DIR}/neon -I${PROJECT_SOURCE_DIR}/include
              -I${PROJECT_SOURCE_DIR}/src ${neon_sources} -o ${PROJECT_BINARY_DIR}/neon/bits
              -lpthread -lm
      DEPENDS ${neon_sources} ${neon_headers} VERBATIM)
    add_custom_target(neon_bits ALL DEPENDS ${PROJECT_BINARY_DIR}/neon/bits)
    add_test(NAME neon_bits COMMAND ${DILOCO_QEMU_AARCH64} ${PROJECT_BINARY_DIR}/neon/bits)
  else()
    message(STATUS "left out: NEON bits under qemu (needs gcc-aarch64-linux-gnu and qemu-user)")
  endif()
endif()
