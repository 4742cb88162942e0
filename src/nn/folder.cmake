# The engine's own loops may contract a * b + c: its results need not agree between
# machines (docs/design.md, section 8), only between runs on one. -Wno-psabi: its vectors
# are never passed between separately compiled functions.
foreach(source ${sources})
  set_source_files_properties(${source} PROPERTIES
    COMPILE_OPTIONS "-ffp-contract=fast;-Wno-psabi")
endforeach()
