# cmake -DOUT=file.c -DFILES="a;b" -P embed.cmake: write the files as arrays of bytes into a C source
# that has dl_page_file_find (src/view/page_files.h).
set(types_html "text/html; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(arrays "")
set(rows "")
set(n 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE ".*\\." "" kind ${name})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const unsigned char file_${n}[] = {\n${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", \"${types_${kind}}\", file_${n}, sizeof file_${n} - 1},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT} "/* Written by cmake/embed.cmake from web/. */
#include \"view/page_files.h\"

#include <string.h>

${arrays}
static const dl_page_file files[] = {
${rows}};

const dl_page_file *dl_page_file_find(const char *name)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].name, name) == 0) return &files[i];
    return NULL;
}
")
