# Keys and signatures need OpenSSL; without it signature.c refuses.
if(DILOCO_CLOUD)
  target_compile_definitions(dl_base PUBLIC DL_CRYPTO=1)
  target_link_libraries(dl_base PUBLIC PkgConfig::CRYPTO)
else()
  target_compile_definitions(dl_base PUBLIC DL_CRYPTO=0)
endif()
