# dl_device_code(target source): the kernels of src/ (*.cu), compiled by nvcc, as part of `source` in `target`.
#
# Each file becomes a fatbin with code for the cards of dl_cards and PTX for later ones. Nothing links to
# CUDA: the driver takes the images at run time. Without nvcc, or with DILOCO_CUDA=OFF, the program says that
# it has no device code.
set(dl_cards 80 90 100 120)
set(dl_nvcc_flags -std=c++17 -O3 -fmad=false -Werror all-warnings
    -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)
foreach(card ${dl_cards})
  list(APPEND dl_nvcc_flags -gencode=arch=compute_${card},code=sm_${card})
endforeach()
list(GET dl_cards 0 oldest)
list(APPEND dl_nvcc_flags -gencode=arch=compute_${oldest},code=compute_${oldest})

find_program(DILOCO_NVCC nvcc)

function(dl_device_code target source)
  if(NOT DILOCO_CUDA OR NOT DILOCO_NVCC OR NOT CMAKE_CXX_COMPILER) # nvcc runs a C++ compiler
    message(STATUS "left out: kernels for GPUs (needs nvcc, a C++ compiler and DILOCO_CUDA=ON)")
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/device_code)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
  list(SORT kernels)
  foreach(kernel ${kernels})
    get_filename_component(name ${kernel} NAME_WE)
    add_custom_command(OUTPUT ${folder}/${name}.fatbin
      COMMAND ${DILOCO_NVCC} -fatbin ${dl_nvcc_flags} -MD -MF ${folder}/${name}.d
              -MT ${folder}/${name}.fatbin ${kernel} -o ${folder}/${name}.fatbin
      DEPENDS ${kernel} DEPFILE ${folder}/${name}.d COMMENT "Compiling ${name}.cu for GPUs" VERBATIM)
    list(APPEND images ${folder}/${name}.fatbin)
    string(APPEND rows "X(${name})\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/device_code.inc CONTENT "${rows}" @ONLY)
  target_sources(${target} PRIVATE ${images})
  set_source_files_properties(${images} PROPERTIES EXTERNAL_OBJECT OFF GENERATED ON HEADER_FILE_ONLY ON)
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-Wa,-I,${folder}")
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS
               DL_DEVICE_CODE="${folder}/device_code.inc" DL_DEVICE_CODE_FIRST=${oldest})
  set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS "${images};${folder}/device_code.inc")
endfunction()
