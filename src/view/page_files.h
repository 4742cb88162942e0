/* page_files.h - the files of web/, which the build puts into the program (cmake/embed.cmake). */
#ifndef DL_VIEW_PAGE_FILES_H
#define DL_VIEW_PAGE_FILES_H

#include <stddef.h>

/* A file in the program's read-only data. */
typedef struct dl_page_file {
    const char *name; /* "index.html" */
    const char *type; /* of its content, for HTTP */
    const unsigned char *bytes;
    size_t len;
} dl_page_file;

const dl_page_file *dl_page_file_find(const char *name); /* NULL: none is called so */

#endif
