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
  if(DILOCO_AARCH64_CC AND DILOCO_QEMU_AARCH64 AND DILOCO_XXHASH_H)
    configure_file(${DILOCO_XXHASH_H} ${PROJECT_BINARY_DIR}/neon/xxhash.h COPYONLY)
    set(neon_sources ${bits})
    foreach(unit base/arena base/buf base/clock base/cores base/hash base/json base/json_parse
                 base/rng base/status base/text base/thread tensor/isa tensor/kernels
                 tensor/manifest tensor/cpu/leaf_c codec/codec codec/f32 combine/combine
                 combine/mean outer/adamw outer/momentum outer/nesterov outer/outer
                 outer/outer_step outer/scratch outer/sgd outer/state)
      list(APPEND neon_sources ${PROJECT_SOURCE_DIR}/src/${unit}.c)
    endforeach()
    file(GLOB neon_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/*.h
         ${PROJECT_SOURCE_DIR}/src/tensor/*.h ${PROJECT_SOURCE_DIR}/src/tensor/cpu/*.h
         ${PROJECT_SOURCE_DIR}/src/codec/*.h ${PROJECT_SOURCE_DIR}/src/combine/*.h
         ${PROJECT_SOURCE_DIR}/src/outer/*.h)
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
